#include "quanta/runtime/gradcheck.h"

#include <cmath>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::autograd {
namespace {

// A weight for each output element: none zero, no two neighbours alike, so that an error in one
// element cannot be hidden by another's.
Tensor output_weights(const Tensor& output) {
  Tensor weights = Tensor::empty(output.sizes(), DType::Float64);
  double* values = weights.mutable_data<double>();
  for (std::int64_t i = 0; i < weights.numel(); ++i) {
    values[i] = 0.5 + std::fmod(static_cast<double>(i + 1) * 0.6180339887498949, 1.0);
  }
  return weights;
}

double weighted_sum(const Tensor& output, const Tensor& weights) {
  const Tensor values = output.detach().contiguous();
  double sum = 0.0;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    sum += values.data<double>()[i] * weights.data<double>()[i];
  }
  return sum;
}

}  // namespace

bool gradcheck(const std::function<Tensor(std::span<const Tensor>)>& function,
               const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  for (const Tensor& input : inputs) {
    QUANTA_CHECK(!input.requires_grad() ||
                     (input.dtype() == DType::Float64 && input.is_leaf() && input.is_contiguous()),
                 "gradcheck: inputs: expected contiguous Float64 leaves, got {} {}", input.dtype(),
                 input.sizes());
    input.clear_grad();
  }
  const Tensor output = function(inputs);
  QUANTA_CHECK(output.dtype() == DType::Float64,
               "gradcheck: function: expected a Float64 result, got {}", output.dtype());
  const Tensor weights = output_weights(output);
  output.backward(weights);
  const NoGradGuard guard;
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    if (!inputs[n].requires_grad()) continue;
    const Tensor gradient = inputs[n].grad().defined()
                                ? inputs[n].grad().contiguous()
                                : Tensor::zeros(inputs[n].sizes(), DType::Float64);
    double* values = inputs[n].mutable_data<double>();
    for (std::int64_t i = 0; i < inputs[n].numel(); ++i) {
      const double value = values[i];
      values[i] = value + options.eps;
      const double above = weighted_sum(function(inputs), weights);
      values[i] = value - options.eps;
      const double below = weighted_sum(function(inputs), weights);
      values[i] = value;
      const double expected = (above - below) / (2.0 * options.eps);
      const double got = gradient.data<double>()[i];
      QUANTA_CHECK(std::abs(got - expected) <= options.atol + options.rtol * std::abs(expected),
                   "gradcheck: input {}: expected a gradient of {} at element {}, got {}", n,
                   expected, i, got);
    }
    // Written to outside of the tape, so that caches of this input are made anew.
    static_cast<void>(inputs[n].mutable_data<double>());
  }
  return true;
}

}  // namespace quanta::autograd
