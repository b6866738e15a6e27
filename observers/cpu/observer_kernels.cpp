#include "quanta/observers/cpu/observer_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "quanta/observers/detail/bin_math.h"
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/observers/cpu/observer_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using FloatVec = hn::Vec<FloatTag>;

// A NaN is taken over and then stays: nothing compares less or greater. (Highway's Ne(x, x) is an
// ordered comparison on x86 and does not see NaN.)
inline float keep_min(float x, float low) { return (x < low || x != x) ? x : low; }
inline float keep_max(float x, float high) { return (x > high || x != x) ? x : high; }
HWY_INLINE FloatVec keep_min(FloatVec x, FloatVec low) {
  return hn::IfThenElse(hn::Or(hn::Lt(x, low), hn::IsNaN(x)), x, low);
}
HWY_INLINE FloatVec keep_max(FloatVec x, FloatVec high) {
  return hn::IfThenElse(hn::Or(hn::Gt(x, high), hn::IsNaN(x)), x, high);
}

void min_max_values(const float* x, std::int64_t count, float* min, float* max) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  float low = x[0];
  float high = x[0];
  std::int64_t i = 0;
  if (count >= 4 * lanes) {
    // Four chains hide the latency of compare and select.
    FloatVec low0 = hn::LoadU(d, x);
    FloatVec high0 = low0;
    FloatVec low1 = low0;
    FloatVec high1 = low0;
    FloatVec low2 = low0;
    FloatVec high2 = low0;
    FloatVec low3 = low0;
    FloatVec high3 = low0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      const FloatVec x0 = hn::LoadU(d, x + i);
      const FloatVec x1 = hn::LoadU(d, x + i + lanes);
      const FloatVec x2 = hn::LoadU(d, x + i + 2 * lanes);
      const FloatVec x3 = hn::LoadU(d, x + i + 3 * lanes);
      low0 = keep_min(x0, low0);
      high0 = keep_max(x0, high0);
      low1 = keep_min(x1, low1);
      high1 = keep_max(x1, high1);
      low2 = keep_min(x2, low2);
      high2 = keep_max(x2, high2);
      low3 = keep_min(x3, low3);
      high3 = keep_max(x3, high3);
    }
    low0 = keep_min(keep_min(low0, low1), keep_min(low2, low3));
    high0 = keep_max(keep_max(high0, high1), keep_max(high2, high3));
    HWY_ALIGN float lows[hn::MaxLanes(d)];
    HWY_ALIGN float highs[hn::MaxLanes(d)];
    hn::Store(low0, d, lows);
    hn::Store(high0, d, highs);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      low = keep_min(lows[lane], low);
      high = keep_max(highs[lane], high);
    }
  }
  for (; i < count; ++i) {
    low = keep_min(x[i], low);
    high = keep_max(x[i], high);
  }
  *min = low;
  *max = high;
}

void min_max_of_columns(const float* x, std::int64_t rows, std::int64_t columns, float* min,
                        float* max) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    FloatVec low = hn::LoadU(d, min + c);
    FloatVec high = hn::LoadU(d, max + c);
    for (std::int64_t row = 0; row < rows; ++row) {
      const FloatVec value = hn::LoadU(d, x + row * columns + c);
      low = keep_min(value, low);
      high = keep_max(value, high);
    }
    hn::StoreU(low, d, min + c);
    hn::StoreU(high, d, max + c);
  }
  for (; c < columns; ++c) {
    for (std::int64_t row = 0; row < rows; ++row) {
      min[c] = keep_min(x[row * columns + c], min[c]);
      max[c] = keep_max(x[row * columns + c], max[c]);
    }
  }
}

void count_in_bins(const float* x, std::int64_t count, const BinRule& rule, std::int32_t tables,
                   std::uint32_t* counts) {
  const FloatTag d;
  const IntTag di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, rule.low);
  const auto width = hn::Set(d, rule.width);
  const auto bins = hn::Set(d, static_cast<float>(rule.bins));
  const auto first = hn::Zero(di);
  const auto last = hn::Set(di, rule.bins - 1);
  const quanta::detail::BinScale scale{
      .low = rule.low, .high = rule.low + rule.width, .width = rule.width, .bins = rule.bins};
  constexpr std::int64_t kBlock = 1024;
  HWY_ALIGN std::int32_t index[kBlock];
  const std::size_t stride = tables == 4 ? static_cast<std::size_t>(rule.bins) : 0;
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const std::int64_t block = std::min(kBlock, count - start);
    std::int64_t i = 0;
    for (; i + lanes <= block; i += lanes) {
      const auto place = hn::Div(hn::Mul(hn::Sub(hn::LoadU(d, x + start + i), low), bins), width);
      hn::Store(hn::Max(hn::Min(hn::ConvertTo(di, place), last), first), di, index + i);
    }
    for (; i < block; ++i) {
      index[i] = static_cast<std::int32_t>(quanta::detail::bin_of(x[start + i], scale));
    }
    std::uint32_t* const table1 = counts + stride;
    std::uint32_t* const table2 = table1 + stride;
    std::uint32_t* const table3 = table2 + stride;
    for (i = 0; i + 4 <= block; i += 4) {
      ++counts[index[i]];
      ++table1[index[i + 1]];
      ++table2[index[i + 2]];
      ++table3[index[i + 3]];
    }
    for (; i < block; ++i) ++counts[index[i]];
  }
}

// The largest integer that is not above a / b, b > 0: torch's division with rounding_mode "floor".
// The rounded quotient of an a just below a multiple of b can be that multiple; the remainder shows
// it.
inline float floor_division(float a, float b) {
  const float quotient = std::floor(a / b);
  return std::fma(-quotient, b, a) < 0.0F ? quotient - 1.0F : quotient;
}
#if QUANTA_VECTORS
HWY_INLINE FloatVec floor_division(FloatVec a, FloatVec b) {
  const FloatTag d;
  const auto quotient = hn::Floor(hn::Div(a, b));
  const auto is_above = hn::Lt(hn::NegMulAdd(quotient, b, a), hn::Zero(d));
  return hn::Sub(quotient, hn::IfThenElseZero(is_above, hn::Set(d, 1.0F)));
}
#endif

// One source bin: the values are spread evenly over [begin, end), and every value is moved to the
// centre of the step it lies in. The integral of squared distance is taken in three parts: up to
// the end of the first step, whole steps, and the last step.
void errors_of_bins(const float* index, const float* density, std::int64_t count,
                    const ErrorTerms& terms, float* errors) {
  const float half = terms.half_dst;
  const float half_cubed = half * half * half;
  const float whole_step = (half_cubed - -half * -half * -half) / 3.0F;

  const auto one = [&](float position, float rho) {
    const float begin = (position - terms.start) * terms.bin_width;
    const float end = begin + terms.bin_width;
    const float step_begin =
        std::min(std::max(floor_division(begin, terms.dst_width), 0.0F), terms.last_dst);
    const float step_end =
        std::min(std::max(floor_division(end, terms.dst_width), 0.0F), terms.last_dst);
    const float from = begin - (step_begin + 0.5F) * terms.dst_width;
    const float to = end - (step_end * terms.dst_width + half);
    const float head = rho * ((half_cubed - from * from * from) / 3.0F);
    const float middle = (step_end - step_begin - 1.0F) * (rho * whole_step);
    const float tail = rho * ((to * to * to - -half * -half * -half) / 3.0F);
    return head + middle + tail;
  };

  std::int64_t i = 0;
#if QUANTA_VECTORS
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto start = hn::Set(d, terms.start);
  const auto bin_width = hn::Set(d, terms.bin_width);
  const auto dst_width = hn::Set(d, terms.dst_width);
  const auto last_dst = hn::Set(d, terms.last_dst);
  const auto half_step = hn::Set(d, 0.5F);
  const auto three = hn::Set(d, 3.0F);
  const auto cube = hn::Set(d, half_cubed);
  const auto whole = hn::Set(d, whole_step);
  const auto zero = hn::Zero(d);
  for (; i + lanes <= count; i += lanes) {
    const auto rho = hn::LoadU(d, density + i);
    const auto begin = hn::Mul(hn::Sub(hn::LoadU(d, index + i), start), bin_width);
    const auto end = hn::Add(begin, bin_width);
    const auto step_begin = hn::Min(hn::Max(floor_division(begin, dst_width), zero), last_dst);
    const auto step_end = hn::Min(hn::Max(floor_division(end, dst_width), zero), last_dst);
    const auto from = hn::Sub(begin, hn::Mul(hn::Add(step_begin, half_step), dst_width));
    const auto to = hn::Sub(end, hn::Add(hn::Mul(step_end, dst_width), hn::Set(d, terms.half_dst)));
    const auto from_cubed = hn::Mul(hn::Mul(from, from), from);
    const auto to_cubed = hn::Mul(hn::Mul(to, to), to);
    const auto head = hn::Mul(rho, hn::Div(hn::Sub(cube, from_cubed), three));
    const auto steps = hn::Sub(hn::Sub(step_end, step_begin), hn::Set(d, 1.0F));
    const auto middle = hn::Mul(steps, hn::Mul(rho, whole));
    const auto tail = hn::Mul(rho, hn::Div(hn::Add(to_cubed, cube), three));
    hn::StoreU(hn::Add(hn::Add(head, middle), tail), d, errors + i);
  }
#endif
  for (; i < count; ++i) errors[i] = one(index[i], density[i]);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(min_max_values);
HWY_EXPORT(min_max_of_columns);
HWY_EXPORT(count_in_bins);
HWY_EXPORT(errors_of_bins);

MinMax min_max(const float* x, std::int64_t count) {
  MinMax result{};
  HWY_DYNAMIC_DISPATCH(min_max_values)(x, count, &result.min, &result.max);
  return result;
}

void min_max_columns(const float* x, std::int64_t rows, std::int64_t columns, float* min,
                     float* max) {
  HWY_DYNAMIC_DISPATCH(min_max_of_columns)(x, rows, columns, min, max);
}

void count_bins(const float* x, std::int64_t count, const BinRule& rule, std::int32_t tables,
                std::uint32_t* counts) {
  HWY_DYNAMIC_DISPATCH(count_in_bins)(x, count, rule, tables, counts);
}

void quantization_errors(const float* index, const float* density, std::int64_t count,
                         const ErrorTerms& terms, float* errors) {
  HWY_DYNAMIC_DISPATCH(errors_of_bins)(index, density, count, terms, errors);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
