#include "quanta/ops/quantize.h"

#include "calls.h"

namespace quanta::conform {
namespace {

const auto kByNumbers =
    overload<QTensor(const Tensor&, double, std::int64_t, DType)>(quantize_per_tensor);
const auto kByTensors =
    overload<QTensor(const Tensor&, const Tensor&, const Tensor&, DType)>(quantize_per_tensor);

Outputs run_float_qparams(const Case& test) {
  const QTensor y =
      quantize_per_channel(test.x(), test.tensor("scales"), test.tensor("zero_points"),
                           test.integer("axis"), test.dtype());
  Outputs outputs;
  outputs.set("int_repr", int_repr(y));
  outputs.set("dequantized", dequantize(y));
  return outputs;
}

const Registration kOps{
    {"quantize_per_tensor",
     if_given("scale", calls(kByNumbers, {"x", "scale", "zero_point", "dtype"}),
              calls(kByTensors, {"x", "scale", "zero_point", "dtype"}))},
    {"quantize_per_channel",
     calls(quantize_per_channel, {"x", "scales", "zero_points", "axis", "dtype"})},
    {"quantize_per_channel_float_qparams", run_float_qparams},
    {"quantize_per_tensor_dynamic",
     calls(quantize_per_tensor_dynamic, {"x", "dtype", {"reduce_range", false}})},
    {"dequantize", calls(dequantize, {"x"})},
    {"int_repr", calls(int_repr, {"x"})},
};

}  // namespace
}  // namespace quanta::conform
