// ModelOpt's compressed tensors.

#include <string>

#include "expected_error.h"
#include "modelopt_values.h"
#include "quanta/observers/modelopt/compressed_tensor.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using modelopt::CompressedTensor;

/// The cases that have to fail say why, and bring no tensor.
Tensor input_of(const Case& test) {
  if (test.has_input("x")) return test.tensor("x");
  return Tensor::ones({2, 33});
}

std::int64_t last_axis_block(const Case& test) { return test.attr("block_sizes").at("-1"); }

CompressedTensor quantize(const Case& test) {
  const std::string kind = test.text("kind");
  const Tensor x = input_of(test);
  if (kind == "int8" || kind == "fp8") {
    const bool is_int = kind == "int8";
    if (test.has_attr("block_sizes")) {
      const modelopt::BlockSizes blocks = block_sizes_of(test.attr("block_sizes"));
      return is_int ? modelopt::quantize_int8(x, blocks) : modelopt::quantize_fp8(x, blocks);
    }
    const Dims axis = test.dims("axis", {});
    return is_int ? modelopt::quantize_int8(x, axis) : modelopt::quantize_fp8(x, axis);
  }
  if (kind == "int4") return modelopt::quantize_int4(x, last_axis_block(test));
  if (kind == "nf4") {
    const Json& sizes = test.attr("block_sizes");
    return modelopt::quantize_nf4(x, last_axis_block(test), sizes.at("scale_block_sizes").at("-1"),
                                  sizes.at("scale_bits"));
  }
  if (kind == "nvfp4") return modelopt::quantize_nvfp4(x, last_axis_block(test));
  if (kind == "mxfp4") return modelopt::quantize_mxfp4(x, last_axis_block(test));
  if (kind == "mxfp8") return modelopt::quantize_mxfp8(x);
  if (kind == "mxfp8_with_scale") {
    return modelopt::quantize_mxfp8_with_scale(x, Tensor::full({2, 1}, 127.0, DType::UInt8));
  }
  throw FormatError("kind: unknown value '" + kind + "'");
}

/// ModelOpt's INT8 keeps the zeros that fill the last blocks.
Tensor data_of(const CompressedTensor& x) {
  if (x.kind != modelopt::CompressedKind::Int8 || x.block_sizes.empty()) return x.data;
  return modelopt::reduce_block_padding(x.data.to(DType::Float32), x.block_sizes).to(DType::Int8);
}

Outputs run_qtensor(const Case& test) {
  const CompressedTensor result = quantize(test);
  Outputs outputs;
  outputs.set("data", data_of(result));
  outputs.set("scale", result.scale);
  outputs.set("double_scale", result.double_scale);
  outputs.set("scale_zeros", result.scale_zeros);
  outputs.set("scale_raw", result.raw_scale);
  outputs.set("dequantized", result.dequantize());
  return outputs;
}

Outputs run_cast_fp4(const Case& test) {
  Outputs outputs;
  outputs.set("y", modelopt::cast_fp4(test.tensor("x")));
  return outputs;
}

Outputs run_mxfp4_to_nvfp4(const Case& test) {
  const modelopt::NvFp4Conversion result =
      modelopt::mxfp4_to_nvfp4(test.tensor("blocks"), test.tensor("e8m0"));
  Object info;
  info.set("k_min", result.k_min);
  info.set("k_max", result.k_max);
  info.set("m", result.m);
  info.set("n_total_blocks", result.n_total_blocks);
  info.set("n_lossless_blocks", result.n_lossless_blocks);
  info.set("pct_lossless", result.pct_lossless);
  info.set("n_zero_blocks", result.n_zero_blocks);
  Outputs outputs;
  outputs.set("global_amax", result.global_amax);
  outputs.set("info", std::move(info));
  outputs.set("block_amax", result.block_amax);
  return outputs;
}

const Registration kOps{
    {"modelopt.qtensor", expecting_errors(run_qtensor)},
    {"modelopt.cast_fp4", expecting_errors(run_cast_fp4)},
    {"modelopt.mxfp4_to_nvfp4", expecting_errors(run_mxfp4_to_nvfp4)},
};

}  // namespace
}  // namespace quanta::conform
