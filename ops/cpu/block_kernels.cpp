#include "quanta/ops/cpu/block_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/block_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "quanta/ops/cpu/format_rounding.h"
#include "quanta/ops/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

// std::max that keeps NaN.
float larger(float value, float so_far) { return so_far >= value ? so_far : value; }

float largest(const float* src, std::int64_t count) {
  float result = 0.0F;
  std::int64_t i = 0;
  bool has_nan = false;
#if HWY_TARGET != HWY_SCALAR
  const FloatTag d;
  auto lanes = hn::Zero(d);
  auto ordered = hn::Eq(lanes, lanes);
  for (; i + kLanes <= count; i += kLanes) {
    const auto x = hn::LoadU(d, src + i);
    ordered = hn::And(ordered, hn::Eq(x, x));
    lanes = hn::Max(hn::Abs(x), lanes);
  }
  if (i > 0) {
    has_nan = !hn::AllTrue(d, ordered);
    result = hn::GetLane(hn::MaxOfLanes(d, lanes));
  }
#endif
  for (; i < count; ++i) {
    has_nan = has_nan || std::isnan(src[i]);
    result = larger(std::fabs(src[i]), result);
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : result;
}

void quantize_block(const float* src, std::int64_t count, const math::FloatFormat& format,
                    const math::BlockScale& scale, float* dst) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if (!(format == math::kE3M0)) {  // its ties are others
    const FloatTag d;
    const FormatRounding round(format);
    const auto to_steps = hn::Set(d, scale.scale);
    const auto from_steps = hn::Set(d, scale.unscale);
    for (; i + kLanes <= count; i += kLanes) {
      const auto x = hn::LoadU(d, src + i);
      hn::StoreU(hn::Mul(round(hn::Mul(x, to_steps)), from_steps), d, dst + i);
    }
  }
#endif
  for (; i < count; ++i) {
    dst[i] = math::round_block_element(src[i] * scale.scale, format) * scale.unscale;
  }
}

void block_row(const float* src, std::int64_t count, std::int64_t block,
               const math::BlockFormat& format, float* dst, float* unscales) {
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t length = std::min(block, count - begin);
    const math::BlockScale scale = math::block_scale(largest(src + begin, length), format);
    if (unscales != nullptr) unscales[begin / block] = scale.unscale;
    quantize_block(src + begin, length, format.element, scale, dst + begin);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(block_row);
HWY_EXPORT(largest);

void dynamic_block_row(const float* src, std::int64_t count, std::int64_t block,
                       const math::BlockFormat& format, float* dst, float* unscales) {
  HWY_DYNAMIC_DISPATCH(block_row)(src, count, block, format, dst, unscales);
}

float largest_magnitude(const float* src, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(largest)(src, count);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
