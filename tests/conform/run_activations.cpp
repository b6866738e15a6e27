#include "calls.h"
#include "options.h"

namespace quanta::conform {
namespace {

using Plain = Tensor (*)(const Tensor&);
using WithParams = QTensor (*)(const QTensor&, double, std::int64_t);

/// With output parameters where the case asks for some, else torch's own choice.
Runner either(Plain plain, WithParams with_params) {
  return if_given("output_scale", calls(with_params, {"x", "output_scale", "output_zero_point"}),
                  calls(plain, {"x"}));
}

const Registration kOps{
    {"relu", calls(relu, {"x"})},
    {"relu_", calls(relu_, {"x"})},
    {"relu6", calls(relu6, {"x"})},
    {"hardsigmoid", calls(hardsigmoid, {"x"})},
    {"sigmoid", either(sigmoid, quantized::sigmoid)},
    {"tanh", either(tanh, quantized::tanh)},
    {"silu", either(silu, quantized::silu)},
    {"hardswish", either(hardswish, quantized::hardswish)},
    {"clamp", calls(clamp, {"x", "min", "max"})},
    {"hardtanh", calls(hardtanh, {"x", {"min_val", -1.0}, {"max_val", 1.0}})},
    {"threshold", calls(threshold, {"x", "threshold", "value"})},
    {"leaky_relu",
     if_given("output_scale",
              calls(quantized::leaky_relu,
                    {"x", {"negative_slope", 0.01}, "output_scale", "output_zero_point"}),
              calls(leaky_relu, {"x", {"negative_slope", 0.01}}))},
    {"gelu", if_given("output_scale",
                      calls(quantized::gelu,
                            {"x", "output_scale", "output_zero_point", {"approximate", "none"}}),
                      calls(gelu, {"x", {"approximate", "none"}}))},
    {"elu", calls(quantized::elu, {"x",
                                   "output_scale",
                                   "output_zero_point",
                                   {"alpha", 1.0},
                                   {"scale", 1.0},
                                   {"input_scale", 1.0}})},
    {"celu", calls(quantized::celu, {"x", "output_scale", "output_zero_point", {"alpha", 1.0}})},
    {"prelu", calls(quantized::prelu, {"x", "weight", "output_scale", "output_zero_point"})},
    {"softmax", calls(quantized::softmax, {"x", "dim", "output_scale", "output_zero_point"})},
};

}  // namespace
}  // namespace quanta::conform
