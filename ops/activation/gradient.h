#pragma once

// Private: what activations note on the tape; for tensors that need a gradient. Where a function
// has a kink the side is torch's.

#include <optional>
#include <string_view>

#include "quanta/ops/activation.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// `gradient` where the result of a relu is not 0, else 0.
Tensor relu_gradient(const Tensor& gradient, const Tensor& result);
/// relu, relu6 and hardtanh: what lies on a bound gets nothing.
Tensor record_open_clamp(std::string_view op, const Tensor& x, Tensor y, double low, double high);
/// clamp: what lies on a bound gets its gradient.
Tensor record_clamp(const Tensor& x, Tensor y, std::optional<double> low,
                    std::optional<double> high);
Tensor record_threshold(const Tensor& x, Tensor y, double threshold);
Tensor record_leaky_relu(const Tensor& x, Tensor y, double negative_slope);
Tensor record_hardsigmoid(const Tensor& x, Tensor y);
Tensor record_hardswish(const Tensor& x, Tensor y);
Tensor record_sigmoid(const Tensor& x, Tensor y);
Tensor record_tanh(const Tensor& x, Tensor y);
Tensor record_gelu(const Tensor& x, Tensor y, GeluApproximation approximate);
Tensor record_silu(const Tensor& x, Tensor y);
/// x >= 0 ? x * scale : expm1(x * input_scale) * alpha * scale.
Tensor record_elu(std::string_view op, const Tensor& x, Tensor y, double alpha, double scale,
                  double input_scale);
Tensor record_softplus(const Tensor& x, Tensor y, double beta, double threshold);
Tensor record_mish(const Tensor& x, Tensor y);
Tensor record_logsigmoid(const Tensor& x, Tensor y);
Tensor record_softsign(const Tensor& x, Tensor y);
/// `slope` is the weight as it broadcasts against x.
Tensor record_prelu(const Tensor& x, const Tensor& slope, Tensor y);

}  // namespace quanta::gradients
