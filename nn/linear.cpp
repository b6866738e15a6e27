#include "quanta/nn/linear.h"

#include <cmath>

#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/activation.h"
#include "quanta/runtime/autograd.h"

namespace quanta::nn {

Linear::Linear(const LinearOptions& options) : options_(options) {
  QUANTA_CHECK(options.in_features >= 1, "Linear: in_features: expected at least 1, got {}",
               options.in_features);
  QUANTA_CHECK(options.out_features >= 1, "Linear: out_features: expected at least 1, got {}",
               options.out_features);
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.in_features));
  weight = detail::uniform({options.out_features, options.in_features}, bound);
  if (options.bias) bias = detail::uniform({options.out_features}, bound);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor Linear::forward(const Tensor& x, Fusion fusion) const {
  // In train mode weights change from call to call.
  if (!is_training()) {
    return packed_.get(weight, bias, fusion, [&] { return PackedLinear(weight, bias, fusion); })(
        x, weight, bias);
  }
  Tensor y = linear(x, weight, bias);
  return fusion == Fusion::ReLU ? relu(y) : y;
}

std::string Linear::extra_repr() const {
  return fmt::format("in_features={}, out_features={}, bias={}", options_.in_features,
                     options_.out_features, detail::python_bool(bias.defined()));
}

}  // namespace quanta::nn
