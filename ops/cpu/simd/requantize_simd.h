// Private: runtime/quant_math.h's requantize for vectors, inside Highway's foreach_target (hence
// the guard that toggles). Vectors of 16, 32 and 64 bytes, as far as the target has them.

#if defined(QUANTA_OPS_CPU_REQUANTIZE_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_REQUANTIZE_SIMD_H_
#undef QUANTA_OPS_CPU_REQUANTIZE_SIMD_H_
#else
#define QUANTA_OPS_CPU_REQUANTIZE_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "quanta/ops/cpu/gemm/requantize_rows.h"
#include "quanta/ops/cpu/simd/target.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

namespace hn = hwy::HWY_NAMESPACE;

template <std::size_t kBytes>
using Bytes = hn::FixedTag<std::uint8_t, kBytes>;
template <std::size_t kBytes>
using Words = hn::FixedTag<std::int16_t, kBytes / 2>;
template <std::size_t kBytes>
using Ints = hn::FixedTag<std::int32_t, kBytes / 4>;
template <std::size_t kBytes>
using Floats = hn::FixedTag<float, kBytes / 4>;

// Packs within each 128-bit lane, as unpacking (InterleaveLower, InterleaveUpper) works.
HWY_INLINE hn::Vec128<std::int16_t> pack_words(hn::Vec128<std::int32_t> a,
                                               hn::Vec128<std::int32_t> b) {
  return hn::Vec128<std::int16_t>{_mm_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec256<std::int16_t> pack_words(hn::Vec256<std::int32_t> a,
                                               hn::Vec256<std::int32_t> b) {
  return hn::Vec256<std::int16_t>{_mm256_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec128<std::uint8_t> pack_bytes(hn::Vec128<std::int16_t> a,
                                               hn::Vec128<std::int16_t> b) {
  return hn::Vec128<std::uint8_t>{_mm_packus_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec256<std::uint8_t> pack_bytes(hn::Vec256<std::int16_t> a,
                                               hn::Vec256<std::int16_t> b) {
  return hn::Vec256<std::uint8_t>{_mm256_packus_epi16(a.raw, b.raw)};
}

// Rounds half to even; values below the range of int32 give its lowest.
HWY_INLINE hn::Vec128<std::int32_t> round_to_int(hn::Vec128<float> x) {
  return hn::Vec128<std::int32_t>{_mm_cvtps_epi32(x.raw)};
}
HWY_INLINE hn::Vec256<std::int32_t> round_to_int(hn::Vec256<float> x) {
  return hn::Vec256<std::int32_t>{_mm256_cvtps_epi32(x.raw)};
}

#if QUANTA_AVX512
HWY_INLINE hn::Vec512<std::int16_t> pack_words(hn::Vec512<std::int32_t> a,
                                               hn::Vec512<std::int32_t> b) {
  return hn::Vec512<std::int16_t>{_mm512_packs_epi32(a.raw, b.raw)};
}
HWY_INLINE hn::Vec512<std::uint8_t> pack_bytes(hn::Vec512<std::int16_t> a,
                                               hn::Vec512<std::int16_t> b) {
  return hn::Vec512<std::uint8_t>{_mm512_packus_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec512<std::int32_t> round_to_int(hn::Vec512<float> x) {
  return hn::Vec512<std::int32_t>{_mm512_cvtps_epi32(x.raw)};
}
#endif

/// What pack_words and pack_bytes made of four vectors of neighbours, in the order of these.
template <std::size_t kBytes>
HWY_INLINE hn::Vec<Bytes<kBytes>> in_order(hn::Vec<Bytes<kBytes>> packed) {
  if constexpr (kBytes == 16) {
    return packed;
  } else {
    // Lane l holds four bytes of each vector: a transpose of blocks of four bytes.
    const Ints<kBytes> di;
    alignas(64) static constexpr std::int32_t kOrder64[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                              2, 6, 10, 14, 3, 7, 11, 15};
    alignas(64) static constexpr std::int32_t kOrder32[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto order = hn::SetTableIndices(di, kBytes == 64 ? kOrder64 : kOrder32);
    return hn::BitCast(Bytes<kBytes>(), hn::TableLookupLanes(hn::BitCast(di, packed), order));
  }
}

/// math::requantize for four vectors of sums at a time.
template <std::size_t kBytes>
class Requantizer {
 public:
  using IntVector = hn::Vec<Ints<kBytes>>;
  using FloatVector = hn::Vec<Floats<kBytes>>;

  explicit Requantizer(const RequantizeParams& params)
      : high_(hn::Set(Floats<kBytes>(), static_cast<float>(params.max - params.zero_point))),
        zero_point_(hn::Set(Words<kBytes>(), static_cast<std::int16_t>(params.zero_point))),
        min_(hn::Set(Bytes<kBytes>(), static_cast<std::uint8_t>(params.min))),
        bias_factor_(hn::Set(Floats<kBytes>(), params.bias_factor)) {}

  /// The result before it is rounded and the zero point is added.
  HWY_INLINE FloatVector value(IntVector acc, FloatVector bias, FloatVector multiplier) const {
    const auto sum = hn::ConvertTo(Floats<kBytes>(), acc);
    return hn::Mul(hn::MulAdd(bias, bias_factor_, sum), multiplier);
  }

  /// The rounded integer before the zero point is added. Clamped from above only (NaN too: minps
  /// answers its second argument): what is too low stays too low until codes().
  HWY_INLINE IntVector scaled(IntVector acc, FloatVector bias, FloatVector multiplier) const {
    return round_to_int(hn::Min(value(acc, bias, multiplier), high_));
  }

  /// scaled() for results that are known to be within the range of int32, where params.max is 255:
  /// packing clamps them.
  HWY_INLINE IntVector scaled_bounded(IntVector acc, FloatVector bias,
                                      FloatVector multiplier) const {
    return round_to_int(value(acc, bias, multiplier));
  }

  /// Four results of scaled() to codes; the order is that of pack_words and pack_bytes.
  HWY_INLINE hn::Vec<Bytes<kBytes>> codes(IntVector a, IntVector b, IntVector c,
                                          IntVector d) const {
    const auto low = hn::SaturatedAdd(pack_words(a, b), zero_point_);
    const auto high = hn::SaturatedAdd(pack_words(c, d), zero_point_);
    return hn::Max(pack_bytes(low, high), min_);
  }

 private:
  FloatVector high_;
  hn::Vec<Words<kBytes>> zero_point_;
  hn::Vec<Bytes<kBytes>> min_;
  FloatVector bias_factor_;
};

/// The sums, compensations, biases and multipliers of neighbouring channels; null: 0.
struct RequantizeSpan {
  const std::int32_t* acc;
  const std::int32_t* compensation;
  const float* bias;
  const float* multiplier;
};

/// kBytes neighbouring channels from `begin` on.
template <std::size_t kBytes>
HWY_INLINE hn::Vec<Bytes<kBytes>> requantize_block(const RequantizeSpan& span, std::int64_t begin,
                                                   const Requantizer<kBytes>& requantizer) {
  const Ints<kBytes> di;
  const Floats<kBytes> df;
  constexpr std::int64_t kLanes = kBytes / 4;
  hn::Vec<Ints<kBytes>> part[4];
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < 4; ++v) {
    const std::int64_t at = begin + v * kLanes;
    auto acc = hn::LoadU(di, span.acc + at);
    if (span.compensation != nullptr) acc = hn::Add(acc, hn::LoadU(di, span.compensation + at));
    const auto bias = span.bias != nullptr ? hn::LoadU(df, span.bias + at) : hn::Zero(df);
    part[v] = requantizer.scaled(acc, bias, hn::LoadU(df, span.multiplier + at));
  }
  return in_order<kBytes>(requantizer.codes(part[0], part[1], part[2], part[3]));
}

/// All blocks of kBytes channels in [0, count), the last one moved back to end at `count`.
template <std::size_t kBytes>
HWY_INLINE void requantize_blocks(const RequantizeSpan& span, std::int64_t count,
                                  const RequantizeParams& params, std::uint8_t* dst) {
  constexpr auto kStep = static_cast<std::int64_t>(kBytes);
  const Requantizer<kBytes> requantizer(params);
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    hn::StoreU(requantize_block<kBytes>(span, i, requantizer), Bytes<kBytes>(), dst + i);
  }
  if (i == count) return;
  hn::StoreU(requantize_block<kBytes>(span, count - kStep, requantizer), Bytes<kBytes>(),
             dst + count - kStep);
}

HWY_INLINE void requantize_channels(const RequantizeSpan& span, std::int64_t count,
                                    const RequantizeParams& params, std::uint8_t* dst) {
  if (count >= static_cast<std::int64_t>(kVectorBytes)) {
    requantize_blocks<kVectorBytes>(span, count, params, dst);
    return;
  }
  if (count >= 16) {
    requantize_blocks<16>(span, count, params, dst);
    return;
  }
#else
struct RequantizeSpan {
  const std::int32_t* acc;
  const std::int32_t* compensation;
  const float* bias;
  const float* multiplier;
};

inline void requantize_channels(const RequantizeSpan& span, std::int64_t count,
                                const RequantizeParams& params, std::uint8_t* dst) {
#endif  // QUANTA_VECTORS
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t compensation = span.compensation != nullptr ? span.compensation[i] : 0;
    const float bias = span.bias != nullptr ? span.bias[i] : 0.0F;
    dst[i] = static_cast<std::uint8_t>(math::requantize(span.acc[i] + compensation, bias,
                                                        params.bias_factor, span.multiplier[i],
                                                        params.zero_point, params.min, params.max));
  }
}

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
