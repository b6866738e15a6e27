#include "quanta/nn/misc.h"

#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {

std::string Flatten::extra_repr() const {
  return fmt::format("start_dim={}, end_dim={}", start_dim_, end_dim_);
}

Dropout::Dropout(double p) : p_(p) {
  QUANTA_CHECK(p >= 0.0 && p <= 1.0, "Dropout: p: expected 0..1, got {}", p);
}

Tensor Dropout::forward(const Tensor& x) const {
  if (!is_training() || p_ == 0.0) return x;
  Tensor mask = Tensor::empty(x.sizes());
  auto* values = mask.mutable_data<float>();
  Generator& generator = default_generator();
  const auto kept = p_ < 1.0 ? static_cast<float>(1.0 / (1.0 - p_)) : 0.0F;
  for (std::int64_t i = 0; i < mask.numel(); ++i) {
    values[i] = static_cast<double>(generator.uniform()) < p_ ? 0.0F : kept;
  }
  return mul(x, mask);
}

std::string Dropout::extra_repr() const {
  return fmt::format("p={}, inplace=False", detail::python_float(p_));
}

}  // namespace quanta::nn
