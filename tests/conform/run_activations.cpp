#include <optional>
#include <string>

#include "quanta/ops/activation.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using Plain = Tensor (*)(const Tensor&);
using WithParams = QTensor (*)(const QTensor&, double, std::int64_t);

double output_scale(const Case& test) { return test.number("output_scale"); }
std::int64_t output_zero_point(const Case& test) { return test.integer("output_zero_point"); }

double number_or(const Case& test, std::string_view name, double otherwise) {
  return test.has_attr(name) ? test.number(name) : otherwise;
}

template <Plain op>
Outputs run_plain(const Case& test) {
  return single(op(test.x()));
}

template <WithParams op>
Outputs run_with_params(const Case& test) {
  return single(op(test.qx(), output_scale(test), output_zero_point(test)));
}

/// With output parameters where the case asks for some, else torch's own choice.
template <Plain plain, WithParams with_params>
Outputs run_either(const Case& test) {
  return test.has_attr("output_scale") ? run_with_params<with_params>(test)
                                       : run_plain<plain>(test);
}

Outputs run_relu_in_place(const Case& test) {
  const Tensor x = test.x();
  relu_(x);
  return single(x);
}

Outputs run_clamp(const Case& test) {
  std::optional<double> low;
  std::optional<double> high;
  if (test.has_attr("min")) low = test.number("min");
  if (test.has_attr("max")) high = test.number("max");
  return single(clamp(test.x(), low, high));
}

Outputs run_hardtanh(const Case& test) {
  return single(
      hardtanh(test.x(), number_or(test, "min_val", -1.0), number_or(test, "max_val", 1.0)));
}

Outputs run_threshold(const Case& test) {
  return single(threshold(test.x(), test.number("threshold"), test.number("value")));
}

Outputs run_leaky_relu(const Case& test) {
  const double slope = number_or(test, "negative_slope", 0.01);
  if (!test.has_attr("output_scale")) return single(leaky_relu(test.x(), slope));
  return single(
      quantized::leaky_relu(test.qx(), slope, output_scale(test), output_zero_point(test)));
}

Outputs run_gelu(const Case& test) {
  const std::string name = test.has_attr("approximate") ? test.text("approximate") : "none";
  if (name != "none" && name != "tanh") {
    throw FormatError("attrs: approximate: unknown value '" + name + "'");
  }
  const auto kind = name == "tanh" ? GeluApproximation::Tanh : GeluApproximation::None;
  if (!test.has_attr("output_scale")) return single(gelu(test.x(), kind));
  return single(quantized::gelu(test.qx(), output_scale(test), output_zero_point(test), kind));
}

Outputs run_elu(const Case& test) {
  return single(quantized::elu(test.qx(), output_scale(test), output_zero_point(test),
                               number_or(test, "alpha", 1.0), number_or(test, "scale", 1.0),
                               number_or(test, "input_scale", 1.0)));
}

Outputs run_celu(const Case& test) {
  return single(quantized::celu(test.qx(), output_scale(test), output_zero_point(test),
                                number_or(test, "alpha", 1.0)));
}

Outputs run_prelu(const Case& test) {
  return single(quantized::prelu(test.qx(), test.qtensor("weight"), output_scale(test),
                                 output_zero_point(test)));
}

Outputs run_softmax(const Case& test) {
  return single(quantized::softmax(test.qx(), test.integer("dim"), output_scale(test),
                                   output_zero_point(test)));
}

const Registration kOps{
    {"relu", run_plain<relu>},
    {"relu_", run_relu_in_place},
    {"relu6", run_plain<relu6>},
    {"hardsigmoid", run_plain<hardsigmoid>},
    {"sigmoid", run_either<sigmoid, quantized::sigmoid>},
    {"tanh", run_either<tanh, quantized::tanh>},
    {"silu", run_either<silu, quantized::silu>},
    {"hardswish", run_either<hardswish, quantized::hardswish>},
    {"clamp", run_clamp},
    {"hardtanh", run_hardtanh},
    {"threshold", run_threshold},
    {"leaky_relu", run_leaky_relu},
    {"gelu", run_gelu},
    {"elu", run_elu},
    {"celu", run_celu},
    {"prelu", run_prelu},
    {"softmax", run_softmax},
};

}  // namespace
}  // namespace quanta::conform
