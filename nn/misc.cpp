#include "quanta/nn/misc.h"

#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/activation.h"

namespace quanta::nn {

std::string Flatten::extra_repr() const {
  return fmt::format("start_dim={}, end_dim={}", start_dim_, end_dim_);
}

Dropout::Dropout(double p) : p_(p) {
  QUANTA_CHECK(p >= 0.0 && p <= 1.0, "Dropout: p: expected 0..1, got {}", p);
}

Tensor Dropout::forward(const Tensor& x) const {
  if (!is_training() || p_ == 0.0) return x;
  return dropout(x, p_);
}

std::string Dropout::extra_repr() const {
  return fmt::format("p={}, inplace=False", detail::python_float(p_));
}

std::string PixelShuffle::extra_repr() const {
  return fmt::format("upscale_factor={}", upscale_factor_);
}

std::string PixelUnshuffle::extra_repr() const {
  return fmt::format("downscale_factor={}", downscale_factor_);
}

}  // namespace quanta::nn
