#include "quanta/ops/block_quant/cpu_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/block_quant/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quanta/ops/cpu/simd/format_rounding.h"
#include "quanta/ops/cpu/simd/magnitude_simd.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/runtime/detail/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

// Blocks whose scales are found at once, so that vectors hold the scales of neighbouring blocks.
constexpr std::int64_t kChunk = 64;

struct ChunkScales {
  float amax[kChunk];
  float scale[kChunk];
  float unscale[kChunk];
};

#if QUANTA_VECTORS
using IntVec = hn::Vec<IntTag>;
using FloatVec = hn::Vec<FloatTag>;

struct ScaleVectors {
  FloatVec scale, unscale;
};

// 2^exponent for -127..127, exponents plus 127 given.
HWY_INLINE FloatVec power_of_two(IntVec biased) {
  const IntTag d;
  const auto subnormal = hn::Set(d, 0x400000);
  return hn::BitCast(FloatTag(), hn::IfThenElse(hn::Eq(biased, hn::Zero(d)), subnormal,
                                                hn::ShiftLeft<23>(biased)));
}

// math::float_to_e8m0_up, whose result is the biased exponent.
HWY_INLINE ScaleVectors power_of_two_scales(FloatVec amax, FloatVec max) {
  const IntTag d;
  const auto bits = hn::BitCast(d, hn::Div(amax, max));
  const auto field = hn::ShiftRight<23>(bits);
  const auto rest = hn::And(bits, hn::Set(d, 0x7FFFFF));
  const auto fewest = hn::IfThenElse(hn::Eq(field, hn::Zero(d)), hn::Set(d, 0x400000), hn::Zero(d));
  const auto up = hn::IfThenElseZero(hn::Gt(rest, fewest), hn::Set(d, 1));
  const auto biased = hn::Min(hn::Add(field, up), hn::Set(d, 254));
  return {power_of_two(hn::Sub(hn::Set(d, 254), biased)), power_of_two(biased)};
}

// Doubles, as math::block_scale has them, of half as many lanes.
struct HalfScales {
  hn::Vec<hn::Half<FloatTag>> scale, unscale;
};
template <class HalfVec>
HWY_INLINE HalfScales two_level_half(HalfVec rounded, double factor) {
  const hn::ScalableTag<double> d;
  const hn::Half<FloatTag> half;
  const auto unscale = hn::Div(hn::PromoteTo(d, rounded), hn::Set(d, factor));
  return {hn::DemoteTo(half, hn::Div(hn::Set(d, 1.0), unscale)), hn::DemoteTo(half, unscale)};
}

template <class HalfVec>
HWY_INLINE auto times(HalfVec x, double factor) {
  const hn::ScalableTag<double> d;
  return hn::DemoteTo(hn::Half<FloatTag>(), hn::Mul(hn::PromoteTo(d, x), hn::Set(d, factor)));
}

// math::block_scale for vectors.
class Scales {
 public:
  explicit Scales(const math::BlockFormat& format)
      : kind_(format.kind), max_(hn::Set(FloatTag(), format.element.max())), round_(format.scale) {
    if (kind_ != math::BlockScaleKind::TwoLevel) return;
    const float global = format.global_amax;
    ones_ = global == 0.0F || !std::isfinite(global);
    factor_ = static_cast<double>(format.scale.max()) *
              static_cast<double>(format.element.max() / global);
  }

  HWY_INLINE ScaleVectors operator()(FloatVec amax) const {
    const FloatTag d;
    const auto one = hn::Set(d, 1.0F);
    if (ones_) return {one, one};
    const ScaleVectors scales = of_kind(amax);
    const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
    const auto usable = hn::And(hn::Gt(amax, hn::Zero(d)), hn::Lt(amax, infinity));
    return {hn::IfThenElse(usable, scales.scale, one), hn::IfThenElse(usable, scales.unscale, one)};
  }

 private:
  HWY_INLINE ScaleVectors of_kind(FloatVec amax) const {
    const FloatTag d;
    if (kind_ == math::BlockScaleKind::PowerOfTwo) return power_of_two_scales(amax, max_);
    ScaleVectors scales;
    if (kind_ == math::BlockScaleKind::TwoLevel) {
      const hn::Half<FloatTag> half;
      const auto steps = hn::Div(amax, max_);
      const auto rounded = round_(hn::Combine(d, times(hn::UpperHalf(half, steps), factor_),
                                              times(hn::LowerHalf(half, steps), factor_)));
      const HalfScales low = two_level_half(hn::LowerHalf(half, rounded), factor_);
      const HalfScales high = two_level_half(hn::UpperHalf(half, rounded), factor_);
      scales = {hn::Combine(d, high.scale, low.scale), hn::Combine(d, high.unscale, low.unscale)};
      return zero_where(hn::Eq(rounded, hn::Zero(d)), scales);
    }
    if (kind_ == math::BlockScaleKind::Unrounded) {
      scales = {hn::Div(max_, amax), hn::Div(amax, max_)};
      const auto largest = hn::Set(d, std::numeric_limits<float>::max());
      return zero_where(hn::Gt(scales.scale, largest), scales);
    }
    const auto one = hn::Set(d, 1.0F);
    const auto unscale = round_(hn::Div(one, hn::Div(max_, amax)));
    return zero_where(hn::Eq(unscale, hn::Zero(d)), {hn::Div(one, unscale), unscale});
  }
  HWY_INLINE static ScaleVectors zero_where(hn::Mask<FloatTag> zero, const ScaleVectors& scales) {
    return {hn::IfThenZeroElse(zero, scales.scale), hn::IfThenZeroElse(zero, scales.unscale)};
  }

  math::BlockScaleKind kind_;
  FloatVec max_;
  FormatRounding round_;
  bool ones_ = false;
  double factor_ = 1.0;
};

// math::round_block_element for vectors.
class ElementRounding {
 public:
  explicit ElementRounding(const math::FloatFormat& format)
      : round_(format), ties_away_(format == math::kE3M0) {}
  HWY_INLINE FloatVec operator()(FloatVec x) const {
    const FloatTag d;
    const auto rounded = round_(x);
    if (!ties_away_) return rounded;
    const auto tie = hn::Eq(hn::Abs(x), hn::Set(d, 0.125F));
    return hn::IfThenElse(tie, hn::CopySign(hn::Set(d, 0.25F), x), rounded);
  }

 private:
  FormatRounding round_;
  bool ties_away_;
};
#endif  // QUANTA_VECTORS

class BlockRow {
 public:
  explicit BlockRow(const math::BlockFormat& format)
      : format_(format)
#if QUANTA_VECTORS
        ,
        scales_(format),
        round_(format.element)
#endif
  {
  }

  void find_scales(std::int64_t blocks, ChunkScales& chunk) const {
    std::int64_t k = 0;
#if QUANTA_VECTORS
    const FloatTag d;
    for (; k + kLanes <= blocks; k += kLanes) {
      const ScaleVectors scales = scales_(hn::LoadU(d, chunk.amax + k));
      hn::StoreU(scales.scale, d, chunk.scale + k);
      hn::StoreU(scales.unscale, d, chunk.unscale + k);
    }
#endif
    for (; k < blocks; ++k) {
      const math::BlockScale scale = math::block_scale(chunk.amax[k], format_);
      chunk.scale[k] = scale.scale;
      chunk.unscale[k] = scale.unscale;
    }
  }

  void quantize(const float* src, std::int64_t count, float scale, float unscale,
                float* dst) const {
    std::int64_t i = 0;
#if QUANTA_VECTORS
    const FloatTag d;
    const auto to_steps = hn::Set(d, scale);
    const auto from_steps = hn::Set(d, unscale);
    for (; i + kLanes <= count; i += kLanes) {
      const auto steps = round_(hn::Mul(hn::LoadU(d, src + i), to_steps));
      hn::StoreU(hn::Mul(steps, from_steps), d, dst + i);
    }
#endif
    for (; i < count; ++i) {
      dst[i] = math::round_block_element(src[i] * scale, format_.element) * unscale;
    }
  }

 private:
  math::BlockFormat format_;
#if QUANTA_VECTORS
  Scales scales_;
  ElementRounding round_;
#endif
};

void block_row(const float* src, std::int64_t count, std::int64_t block,
               const math::BlockFormat& format, float* dst, float* unscales) {
  const BlockRow row(format);
  ChunkScales chunk;
  for (std::int64_t begin = 0; begin < count; begin += kChunk * block) {
    const std::int64_t end = std::min(count, begin + kChunk * block);
    const std::int64_t blocks = ceil_div(end - begin, block);
    for (std::int64_t k = 0; k < blocks; ++k) {
      const std::int64_t at = begin + k * block;
      chunk.amax[k] = largest(src + at, std::min(block, end - at));
    }
    row.find_scales(blocks, chunk);
    for (std::int64_t k = 0; k < blocks; ++k) {
      const std::int64_t at = begin + k * block;
      row.quantize(src + at, std::min(block, end - at), chunk.scale[k], chunk.unscale[k], dst + at);
    }
    if (unscales != nullptr) {
      std::copy(chunk.unscale, chunk.unscale + blocks, unscales + begin / block);
    }
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(block_row);

void dynamic_block_row(const float* src, std::int64_t count, std::int64_t block,
                       const math::BlockFormat& format, float* dst, float* unscales) {
  HWY_DYNAMIC_DISPATCH(block_row)(src, count, block, format, dst, unscales);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
