#include "quanta/observers/aimet/detail/affine_parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet::detail {
namespace {

using autograd::BackwardContext;

// The factor that a gradient of max(|x|, smallest) is multiplied with.
float bounded_slope(float x, float smallest) {
  if (!(std::fabs(x) >= smallest)) return 0.0F;
  return x < 0.0F ? -1.0F : 1.0F;
}

float steps_below_zero(float min, float scale) { return math::round_half_even(min / scale); }

}  // namespace

Tensor straight_through(const Tensor& x, Tensor y) {
  if (!autograd::needs_grad(x)) return y;
  return autograd::record(
      "straight_through", {x}, std::move(y), {},
      [](const BackwardContext& b) -> std::vector<Tensor> { return {b.grad()}; });
}

Tensor plain_scale(const Tensor& min, const Tensor& max, std::int64_t num_steps) {
  const auto n = static_cast<float>(num_steps);
  return map_two(min, max, [n](float low, float high) { return (high - low) / n; });
}

Tensor plain_offset(const Tensor& min, const Tensor& scale, const Grid& grid) {
  const auto qmin = static_cast<float>(grid.qmin());
  return map_two(min, scale,
                 [qmin](float low, float step) { return steps_below_zero(low, step) - qmin; });
}

Tensor scale_of_range(const Tensor& min, const Tensor& max, std::int64_t num_steps) {
  const auto n = static_cast<float>(num_steps);
  const float smallest = minimum_scale(num_steps);
  Tensor scale = map_two(min, max, [&](float low, float high) {
    const float step = std::fabs((high - low) / n);
    return step < smallest ? smallest : step;
  });
  if (!autograd::needs_grad(min, max)) return scale;
  return autograd::record(
      "scale_of_range", {min, max}, std::move(scale), {min, max},
      [n, smallest](const BackwardContext& b) -> std::vector<Tensor> {
        const Tensor slope = map_two(b.saved(0), b.saved(1), [&](float low, float high) {
          return bounded_slope((high - low) / n, smallest) / n;
        });
        const auto times = [](float grad, float factor) { return grad * factor; };
        const auto minus = [](float grad, float factor) { return -(grad * factor); };
        return {map_two(b.grad(), slope, minus), map_two(b.grad(), slope, times)};
      });
}

Tensor bounded_scale(const Tensor& scale, std::int64_t num_steps) {
  const float smallest = minimum_scale(num_steps);
  Tensor bounded = map_two(scale, scale, [smallest](float value, float) {
    const float magnitude = std::fabs(value);
    return magnitude < smallest ? smallest : magnitude;
  });
  if (!autograd::needs_grad(scale)) return bounded;
  return autograd::record("bounded_scale", {scale}, std::move(bounded), {scale},
                          [smallest](const BackwardContext& b) -> std::vector<Tensor> {
                            return {map_two(b.grad(), b.saved(0), [&](float grad, float value) {
                              return grad * bounded_slope(value, smallest);
                            })};
                          });
}

Tensor offset_of_range(const Tensor& min, const Tensor& scale, const Grid& grid) {
  const auto qmin = static_cast<float>(grid.qmin());
  const auto qmax = static_cast<float>(grid.qmax());
  Tensor offset = map_two(min, scale, [=](float low, float step) {
    return math::clamp(steps_below_zero(low, step) - qmin, -qmax, -qmin);
  });
  if (!autograd::needs_grad(min, scale)) return offset;
  return autograd::record(
      "offset_of_range", {min, scale}, std::move(offset), {min, scale},
      [qmin, qmax](const BackwardContext& b) -> std::vector<Tensor> {
        const Tensor low = b.saved(0);
        const Tensor step = b.saved(1);
        const Tensor slope = map_two(low, step, [=](float one, float scale_one) {
          const float offset = steps_below_zero(one, scale_one) - qmin;
          // At the ends themselves nothing passes, as in AIMET.
          return offset > -qmax && offset < -qmin ? 1.0F / scale_one : 0.0F;
        });
        const Tensor for_min =
            map_two(b.grad(), slope, [](float grad, float factor) { return grad * factor; });
        const Tensor ratio =
            map_two(low, step, [](float one, float scale_one) { return one / scale_one; });
        const Tensor for_scale =
            map_two(for_min, ratio, [](float grad, float factor) { return -grad * factor; });
        return {for_min, for_scale};
      });
}

Tensor round_straight_through(const Tensor& x) {
  return straight_through(
      x, map_two(x, x, [](float value, float) { return math::round_half_even(value); }));
}

}  // namespace quanta::aimet::detail
