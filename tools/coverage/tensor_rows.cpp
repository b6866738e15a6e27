#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "registry.h"

namespace quanta::coverage {

std::vector<Section> tensor_sections() {
  Section s{"Quantized tensor methods", {}};
  s.from("ops/quantize.h", "tests/ops/quantize_test.cpp");
  s.row("quantize_per_tensor",
        QUANTA_CALL(quantize_per_tensor(x, scale, zero_point, DType::QUInt8)),
        "tensor_quantize/quantize_per_tensor");
  s.row("quantize_per_channel",
        QUANTA_CALL(
            quantize_per_channel(x, ones({4}), Tensor::zeros({4}, DType::Int64), 1, DType::QInt8)),
        "tensor_quantize/quantize_per_channel tensor_quantize/quantize_per_channel_float_qparams");
  s.row("quantize_per_tensor_dynamic",
        QUANTA_CALL(quantize_per_tensor_dynamic(x, DType::QInt8, false)),
        "tensor_quantize/quantize_per_tensor_dynamic");
  s.row("dequantize", QUANTA_CALL(dequantize(x)), "tensor_quantize/dequantize");
  s.row("int_repr", QUANTA_QUANTIZED_CALL(int_repr(x)), "tensor_quantize/int_repr");

  s.from("runtime/tensor.h", "tests/runtime/tensor_test.cpp");
  s.row("q_scale", QUANTA_QUANTIZED_CALL(x.q_scale()), "tensor_methods/q_scale");
  s.row("q_zero_point", QUANTA_QUANTIZED_CALL(x.q_zero_point()), "tensor_methods/q_zero_point");
  s.row("q_per_channel_scales", QUANTA_QUANTIZED_CALL(x.q_per_channel_scales()),
        "tensor_methods/q_per_channel_scales");
  s.row("q_per_channel_zero_points", QUANTA_QUANTIZED_CALL(x.q_per_channel_zero_points()),
        "tensor_methods/q_per_channel_zero_points");
  s.row("q_per_channel_axis", QUANTA_QUANTIZED_CALL(x.q_per_channel_axis()),
        "tensor_methods/q_per_channel_axis");
  s.row("qscheme", QUANTA_QUANTIZED_CALL(x.qscheme()), "tensor_methods");
  s.row("view", QUANTA_CALL(x.view({2, 2, 2, 6, 6})), "tensor_methods/view");
  s.row("as_strided", QUANTA_CALL(x.as_strided({2, 2}, {4, 1}, 0)), "tensor_methods/as_strided");
  s.row("expand", QUANTA_CALL(x.expand({3, 2, 4, 6, 6})), "tensor_methods/expand");
  s.row("flatten", QUANTA_CALL(x.flatten(2)), "tensor_methods/flatten");
  s.row("select", QUANTA_CALL(x.select(0, 1)), "tensor_methods/select");
  s.row("slice", QUANTA_CALL(x.slice(2, 1, 5, 2)), "tensor_methods/slice tensor_methods/narrow");
  s.row("indexing", QUANTA_CALL(x[0]), "tensor_methods/index");
  s.row("permute", QUANTA_CALL(x.permute({0, 2, 3, 1})), "tensor_methods/permute");
  s.row("transpose", QUANTA_CALL(x.transpose(1, 2)), "tensor_methods/transpose tensor_methods/t");
  s.row("squeeze", QUANTA_CALL(x.squeeze(0)), "tensor_methods/squeeze");
  s.row("unsqueeze", QUANTA_CALL(x.unsqueeze(1)), "tensor_methods/unsqueeze");
  s.row("copy_", QUANTA_CALL(x.copy_(x)), "tensor_methods/copy_");
  s.row("clone", QUANTA_CALL(x.clone()), "tensor_methods/clone");
  s.row("contiguous(memory_format)", QUANTA_CALL(x.contiguous(MemoryFormat::ChannelsLast)),
        "tensor_methods/contiguous");
  s.row("equal", QUANTA_CALL(x.equal(x)), "tensor_methods/equal");
  s.row("fill_", QUANTA_CALL(x.fill_(0.5)), "tensor_methods/fill_");
  s.row("printing", QUANTA_CALL(to_string(x)));
  s.row("make_per_tensor_quantized_tensor",
        QUANTA_QUANTIZED_CALL(
            QTensor::from_int_repr(int_repr(x), Quantizer::per_tensor(scale, zero_point))),
        "tensor_methods");
  s.row("make_per_channel_quantized_tensor",
        QUANTA_QUANTIZED_CALL(QTensor::from_int_repr(
            int_repr(x), Quantizer::per_channel({1.0, 1.0, 1.0, 1.0}, {0, 0, 0, 0}, 1))),
        "tensor_methods");
  s.row("empty_quantized",
        QUANTA_QUANTIZED_CALL(QTensor::empty(x.sizes(), scale, zero_point, x.dtype())));

  s.from("ops/arithmetic.h", "tests/ops/arithmetic_test.cpp");
  s.row("cat", QUANTA_CALL(cat(std::array{x, x}, 1)), "tensor_methods/cat arithmetic/cat");
  return {s};
}

}  // namespace quanta::coverage
