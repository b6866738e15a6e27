#include "quanta/fusion/accuracy/detail/soft_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>

#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"

namespace quanta::accuracy {
namespace {

constexpr float kZeta = 1.1F;
constexpr float kGamma = -0.1F;
// Elements that a thread takes at once.
constexpr std::int64_t kGrain = 4096;

float sigmoid(float v) { return 1.0F / (1.0F + std::exp(-v)); }

float rectified(float v) { return std::clamp(sigmoid(v) * (kZeta - kGamma) + kGamma, 0.0F, 1.0F); }

std::vector<float> spread(const Tensor& values, const Dims& sizes) {
  return values.expand(sizes).to_float_vector();
}

}  // namespace

SoftRounding::SoftRounding(const Tensor& weight, const WeightGrid& grid)
    : sizes_(weight.sizes()), floor_(weight.detach().to_float_vector()) {
  const auto dims = static_cast<std::int64_t>(sizes_.size());
  scale_ = spread(grid.scale_for(dims), sizes_);
  low_ = spread(grid.zero_point_for(dims), sizes_);
  high_ = low_;
  v_.resize(floor_.size());
  first_.resize(floor_.size());
  second_.resize(floor_.size());
  for (std::size_t i = 0; i < floor_.size(); ++i) {
    const float zero_point = low_[i];
    low_[i] = static_cast<float>(grid.quant_min) - zero_point;
    high_[i] = static_cast<float>(grid.quant_max) - zero_point;
    const float steps = floor_[i] / scale_[i];
    floor_[i] = std::floor(steps);
    v_[i] = -std::log((kZeta - kGamma) / (steps - floor_[i] - kGamma) - 1.0F);
  }
}

Tensor SoftRounding::on_grid(bool soft) const {
  Tensor to = Tensor::empty(sizes_, DType::Float32);
  const std::span<float> values = to.mutable_span<float>();
  parallel_for(static_cast<std::int64_t>(v_.size()), kGrain, [&](auto begin, auto end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const float h = rectified(v_[i]);
      const float up = soft ? h : (h >= 0.5F ? 1.0F : 0.0F);
      values[i] = scale_[i] * std::clamp(floor_[i] + up, low_[i], high_[i]);
    }
  });
  return to;
}

Tensor SoftRounding::soft() const { return on_grid(true); }
Tensor SoftRounding::hard() const { return on_grid(false); }

void SoftRounding::step(const Tensor& gradient, const Step& step) {
  const Tensor contiguous = gradient.contiguous();
  const std::span<const float> gradients = contiguous.span<float>();
  ++steps_;
  const auto count = static_cast<double>(steps_);
  const auto correct_first = static_cast<float>(1.0 / (1.0 - std::pow(0.9, count)));
  const auto correct_second = static_cast<float>(1.0 / (1.0 - std::pow(0.999, count)));
  const auto rate = static_cast<float>(step.learning_rate);
  const auto beta = static_cast<float>(step.beta);
  const auto weight = static_cast<float>(step.regularization);
  parallel_for(static_cast<std::int64_t>(v_.size()), kGrain, [&](auto begin, auto end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const float s = sigmoid(v_[i]);
      const float h = s * (kZeta - kGamma) + kGamma;
      float slope = 0.0F;
      if (h > 0.0F && h < 1.0F) {
        const float code = floor_[i] + h;
        // Outside of the codes the weight does not move with h.
        if (code > low_[i] && code < high_[i]) slope = gradients[i] * scale_[i];
        if (weight > 0.0F) {
          const float distance = 2.0F * h - 1.0F;
          // d/dh of 1 - |2h - 1|^beta
          slope -= weight * 2.0F * beta *
                   std::copysign(std::pow(std::abs(distance), beta - 1.0F), distance);
        }
        slope *= s * (1.0F - s) * (kZeta - kGamma);
      }
      first_[i] = 0.9F * first_[i] + 0.1F * slope;
      second_[i] = 0.999F * second_[i] + 0.001F * slope * slope;
      v_[i] -= rate * first_[i] * correct_first / (std::sqrt(second_[i] * correct_second) + 1e-8F);
    }
  });
}

SoftRounding::Step rounding_step(double done, double warm_start, double learning_rate,
                                 double regularization) {
  SoftRounding::Step step{.learning_rate = learning_rate};
  if (done < warm_start) return step;
  const double along = warm_start < 1.0 ? (done - warm_start) / (1.0 - warm_start) : 1.0;
  step.regularization = regularization;
  step.beta = 2.0 + 0.5 * (20.0 - 2.0) * (1.0 + std::cos(along * std::numbers::pi));
  return step;
}

SoftRounding::Step rounding_step(std::int64_t iteration, const RoundingOptions& options) {
  return rounding_step(static_cast<double>(iteration) / static_cast<double>(options.iterations),
                       options.warm_start, options.learning_rate, options.regularization);
}

void check(std::string_view op, const RoundingOptions& options) {
  QUANTA_CHECK(options.iterations >= 1, "{}: iterations: expected at least 1, got {}", op,
               options.iterations);
  QUANTA_CHECK(options.batch_size >= 1, "{}: batch_size: expected at least 1, got {}", op,
               options.batch_size);
  QUANTA_CHECK(std::isfinite(options.learning_rate) && options.learning_rate > 0.0,
               "{}: learning_rate: expected more than 0, got {}", op, options.learning_rate);
  QUANTA_CHECK(std::isfinite(options.regularization) && options.regularization >= 0.0,
               "{}: regularization: expected at least 0, got {}", op, options.regularization);
  QUANTA_CHECK(options.warm_start >= 0.0 && options.warm_start <= 1.0,
               "{}: warm_start: expected a share in [0, 1], got {}", op, options.warm_start);
}

}  // namespace quanta::accuracy
