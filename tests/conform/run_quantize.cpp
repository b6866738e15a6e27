#include "quanta/ops/quantize.h"
#include "registry.h"

namespace quanta::conform {
namespace {

Outputs run_quantize_per_tensor(const Case& test) {
  if (test.has_input("scale")) {
    return single(quantize_per_tensor(test.x(), test.tensor("scale"), test.tensor("zero_point"),
                                      test.dtype()));
  }
  return single(quantize_per_tensor(test.x(), test.number("scale"), test.integer("zero_point"),
                                    test.dtype()));
}

Outputs run_quantize_per_channel(const Case& test) {
  return single(quantize_per_channel(test.x(), test.tensor("scales"), test.tensor("zero_points"),
                                     test.integer("axis"), test.dtype()));
}

Outputs run_float_qparams(const Case& test) {
  const QTensor y =
      quantize_per_channel(test.x(), test.tensor("scales"), test.tensor("zero_points"),
                           test.integer("axis"), test.dtype());
  Outputs outputs;
  outputs.set("int_repr", int_repr(y));
  outputs.set("dequantized", dequantize(y));
  return outputs;
}

Outputs run_dynamic(const Case& test) {
  return single(
      quantize_per_tensor_dynamic(test.x(), test.dtype(), test.flag("reduce_range", false)));
}

Outputs run_dequantize(const Case& test) { return single(dequantize(test.x())); }

Outputs run_int_repr(const Case& test) { return single(int_repr(test.qx())); }

const Registration kOps{
    {"quantize_per_tensor", run_quantize_per_tensor},
    {"quantize_per_channel", run_quantize_per_channel},
    {"quantize_per_channel_float_qparams", run_float_qparams},
    {"quantize_per_tensor_dynamic", run_dynamic},
    {"dequantize", run_dequantize},
    {"int_repr", run_int_repr},
};

}  // namespace
}  // namespace quanta::conform
