// Gradients of functions of one float on a CUDA device: the CPU's.

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "support/capture_binding.h"

namespace quanta {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

// Odd sizes, any layout, nothing at all, and what lies on the bounds of the pieces of functions.
std::vector<Tensor> arguments_of_any_kind() {
  const Tensor image = mul_scalar(sample_tensor({3, 5, 7, 3}, DType::Float32, 3), 4.0);
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor edges =
      Tensor::from_values({-3.0F, -0.5F, -0.0F, 0.0F, 0.5F, 3.0F, 6.0F, 20.0F, 25.0F, -90.0F, 90.0F,
                           inf, -inf, std::numeric_limits<float>::quiet_NaN()});
  return {image, image.contiguous(MemoryFormat::ChannelsLast), image.transpose(1, 3),
          Tensor::zeros({0, 2}), edges};
}

void check(const std::vector<std::pair<std::string, Function>>& functions,
           const std::vector<Tensor>& arguments) {
  for (const auto& [name, function] : functions) {
    CAPTURE_BINDING(name);
    for (const Tensor& x : arguments) {
      test::check_devices(
          {x}, 1, [&function = function](const std::vector<Tensor>& in) { return function(in[0]); },
          test::library_bound());
    }
  }
}

}  // namespace

TEST_CASE("cuda float slopes: activations") {
  check({{"relu", [](const Tensor& x) { return relu(x); }},
         {"relu6", [](const Tensor& x) { return relu6(x); }},
         {"hardtanh", [](const Tensor& x) { return hardtanh(x, -0.5, 3.0); }},
         {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 3.0); }},
         {"clamp below", [](const Tensor& x) { return clamp(x, 0.0, std::nullopt); }},
         {"threshold", [](const Tensor& x) { return threshold(x, 0.5, 7.0); }},
         {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.1); }},
         {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); }},
         {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
         {"tanh", [](const Tensor& x) { return tanh(x); }},
         {"gelu", [](const Tensor& x) { return gelu(x); }},
         {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::Tanh); }},
         {"hardswish", [](const Tensor& x) { return hardswish(x); }},
         {"silu", [](const Tensor& x) { return silu(x); }},
         {"elu", [](const Tensor& x) { return elu(x, 1.3); }},
         {"celu", [](const Tensor& x) { return celu(x, 0.7); }},
         {"softplus", [](const Tensor& x) { return softplus(x, 1.5, 20.0); }},
         {"mish", [](const Tensor& x) { return mish(x); }},
         {"selu", [](const Tensor& x) { return selu(x); }},
         {"logsigmoid", [](const Tensor& x) { return logsigmoid(x); }},
         {"softsign", [](const Tensor& x) { return softsign(x); }},
         {"hardshrink", [](const Tensor& x) { return hardshrink(x, 0.5); }}},
        arguments_of_any_kind());
}

TEST_CASE("cuda float slopes: functions of any number") {
  check({{"exp", [](const Tensor& x) { return exp(x); }},
         {"erf", [](const Tensor& x) { return erf(x); }},
         {"floor", [](const Tensor& x) { return floor(x); }},
         {"ceil", [](const Tensor& x) { return ceil(x); }},
         {"round", [](const Tensor& x) { return round(x); }},
         {"neg", [](const Tensor& x) { return neg(x); }},
         {"abs", [](const Tensor& x) { return abs(x); }},
         {"sign", [](const Tensor& x) { return sign(x); }},
         {"sin", [](const Tensor& x) { return sin(x); }},
         {"cos", [](const Tensor& x) { return cos(x); }},
         {"tan", [](const Tensor& x) { return tan(x); }},
         {"atan", [](const Tensor& x) { return atan(x); }},
         {"sinh", [](const Tensor& x) { return sinh(x); }},
         {"cosh", [](const Tensor& x) { return cosh(x); }},
         {"asinh", [](const Tensor& x) { return asinh(x); }},
         {"sqrt", [](const Tensor& x) { return sqrt(x); }},
         {"reciprocal", [](const Tensor& x) { return reciprocal(x); }},
         {"log", [](const Tensor& x) { return log(x); }},
         {"asin", [](const Tensor& x) { return asin(x); }},
         {"acos", [](const Tensor& x) { return acos(x); }},
         {"acosh", [](const Tensor& x) { return acosh(x); }},
         {"atanh", [](const Tensor& x) { return atanh(x); }}},
        arguments_of_any_kind());
}

}  // namespace quanta
