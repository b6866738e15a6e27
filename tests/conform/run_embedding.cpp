#include <string>

#include "quanta/ops/embedding.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using quantized::EmbeddingBagMode;
using quantized::EmbeddingBagOptions;
using quantized::EmbeddingPackedParams;

using RowwiseBag = Tensor (*)(const Tensor&, const Tensor&, const EmbeddingBagOptions&);
using PackedBag = Tensor (*)(const EmbeddingPackedParams&, const Tensor&,
                             const EmbeddingBagOptions&);
using Lookup = Tensor (*)(const EmbeddingPackedParams&, const Tensor&);
using Convert = Tensor (*)(const Tensor&);

EmbeddingBagOptions bag_options(const Case& test) {
  EmbeddingBagOptions options;
  options.offsets = test.optional_tensor("offsets");
  options.per_sample_weights = test.optional_tensor("per_sample_weights");
  options.include_last_offset = test.flag("include_last_offset", false);
  const std::string mode = test.has_attr("mode") ? test.text("mode") : "sum";
  if (mode == "mean") {
    options.mode = EmbeddingBagMode::Mean;
  } else if (mode == "max") {
    options.mode = EmbeddingBagMode::Max;
  } else if (mode != "sum") {
    throw FormatError("attrs: mode: unknown value '" + mode + "'");
  }
  return options;
}

/// The table comes as its codes (packed below 8 bits), scales and zero points.
EmbeddingPackedParams pack_table(const Case& test, DType dtype) {
  const Object& weight = test.object("weight");
  const auto part = [&](std::string_view name) {
    const Value* value = weight.find(name);
    const Tensor* tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
    if (tensor == nullptr) {
      throw FormatError("inputs: weight has no tensor '" + std::string(name) + "'");
    }
    return *tensor;
  };
  const Quantizer quantizer = Quantizer::per_channel_float_qparams(
      part("scales").to_float_vector(), part("zero_points").to_float_vector(), 0);
  const Tensor codes = part("int_repr");
  const Dims sizes = test.dims("shape", codes.sizes());
  return quantized::embedding_bag_prepack(
      is_sub_byte(dtype) ? QTensor::from_packed_bytes(codes, sizes, dtype, quantizer)
                         : QTensor::from_int_repr(codes.view(sizes), quantizer));
}

template <PackedBag op, DType dtype>
Outputs run_bag(const Case& test) {
  return single(op(pack_table(test, dtype), test.tensor("indices"), bag_options(test)));
}

template <Lookup op, DType dtype>
Outputs run_lookup(const Case& test) {
  return single(op(pack_table(test, dtype), test.tensor("indices")));
}

template <RowwiseBag op>
Outputs run_rowwise(const Case& test) {
  return single(op(test.tensor("weight"), test.tensor("indices"), bag_options(test)));
}

template <Convert op>
Outputs run_unpack(const Case& test) {
  return single(op(test.tensor("packed_weight")));
}

Outputs run_byte_prepack(const Case& test) {
  return single(quantized::embedding_bag_byte_prepack(test.tensor("weight")));
}

quantized::NBitPrepackOptions prepack_options(const Case& test) {
  quantized::NBitPrepackOptions options;
  options.optimized_qparams = test.flag("optimized_qparams", options.optimized_qparams);
  if (test.has_attr("nbins")) options.nbins = test.integer("nbins");
  if (test.has_attr("ratio")) options.ratio = test.number("ratio");
  return options;
}

Outputs run_4bit_prepack(const Case& test) {
  return single(
      quantized::embedding_bag_4bit_prepack(test.tensor("weight"), prepack_options(test)));
}

Outputs run_2bit_prepack(const Case& test) {
  return single(
      quantized::embedding_bag_2bit_prepack(test.tensor("weight"), prepack_options(test)));
}

const Registration kOps{
    {"embedding_byte", run_lookup<quantized::embedding_byte, DType::QUInt8>},
    {"embedding_4bit", run_lookup<quantized::embedding_4bit, DType::QUInt4x2>},
    {"embedding_bag_byte", run_bag<quantized::embedding_bag_byte, DType::QUInt8>},
    {"embedding_bag_4bit", run_bag<quantized::embedding_bag_4bit, DType::QUInt4x2>},
    {"embedding_bag_byte_rowwise_offsets",
     run_rowwise<quantized::embedding_bag_byte_rowwise_offsets>},
    {"embedding_bag_4bit_rowwise_offsets",
     run_rowwise<quantized::embedding_bag_4bit_rowwise_offsets>},
    {"embedding_bag_2bit_rowwise_offsets",
     run_rowwise<quantized::embedding_bag_2bit_rowwise_offsets>},
    {"embedding_bag_byte_prepack", run_byte_prepack},
    {"embedding_bag_4bit_prepack", run_4bit_prepack},
    {"embedding_bag_2bit_prepack", run_2bit_prepack},
    {"embedding_bag_byte_unpack", run_unpack<quantized::embedding_bag_byte_unpack>},
    {"embedding_bag_4bit_unpack", run_unpack<quantized::embedding_bag_4bit_unpack>},
    {"embedding_bag_2bit_unpack", run_unpack<quantized::embedding_bag_2bit_unpack>},
};

}  // namespace
}  // namespace quanta::conform
