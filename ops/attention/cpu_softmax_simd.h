// Private: softmax with a query in each lane, for the kernels of attention inside Highway's
// foreach_target (hence the guard that toggles).

#if defined(QUANTA_OPS_ATTENTION_SOFTMAX_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_ATTENTION_SOFTMAX_SIMD_H_
#undef QUANTA_OPS_ATTENTION_SOFTMAX_SIMD_H_
#else
#define QUANTA_OPS_ATTENTION_SOFTMAX_SIMD_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "quanta/ops/cpu/simd/fused_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Lanes come in multiples of this on every instruction set.
constexpr std::int64_t kAttentionPad = 16;
using AttentionTag = hn::CappedTag<float, 16>;
using AttentionVector = hn::Vec<AttentionTag>;
using AttentionInts = hn::RebindToSigned<AttentionTag>;
constexpr auto kAttentionLanes = static_cast<std::int64_t>(hn::MaxLanes(AttentionTag()));

/// math::exp_normal in vectors, for x <= 0 or NaN.
HWY_INLINE AttentionVector exp_normal(AttentionVector x) {
  const AttentionTag d;
  const AttentionInts di;
  // Adding 1.5 * 2^23 rounds; with 127 more the low bits are the exponent of the power of two.
  const auto magic = hn::Set(d, 12582912.0F + 127.0F);
  const auto shifted = fused_add(d, x, hn::Set(d, 1.44269504088896341F), magic);
  const auto power = hn::Sub(shifted, magic);
  // ln 2 in two parts.
  auto r = fused_add(d, power, hn::Set(d, -0.693359375F), x);
  r = fused_add(d, power, hn::Set(d, 2.12194440e-4F), r);
  // 1 + r (1 + r p(r)) for |r| <= ln(2) / 2; p meets it at the Chebyshev nodes.
  auto p = hn::Set(d, 1.3926213e-3F);
  p = fused_add(d, p, r, hn::Set(d, 8.363203e-3F));
  p = fused_add(d, p, r, hn::Set(d, 4.1666556e-2F));
  p = fused_add(d, p, r, hn::Set(d, 1.6666576e-1F));
  p = fused_add(d, p, r, hn::Set(d, 0.5F));
  const auto one = hn::Set(d, 1.0F);
  const auto y = fused_add(d, fused_add(d, p, r, one), r, one);
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0F)), hn::Mul(y, scale));
}

/// turned[feature][query] = scale * rows[query][feature], `width` floats to a feature and zeros
/// behind the last query.
HWY_INLINE void turn_rows(const float* rows, std::int64_t stride, std::int64_t count,
                          std::int64_t features, float scale, std::int64_t width, float* turned) {
  std::int64_t query = 0;
#if QUANTA_VECTORS
  const hn::Full128<float> d;
  const hn::Full128<double> pairs;
  const auto scales = hn::Set(d, scale);
  for (; query + 4 <= count; query += 4) {
    const float* src = rows + query * stride;
    float* dst = turned + query;
    // The processor does not see rows come that lie far apart.
    constexpr std::int64_t kAhead = 8;
    constexpr std::int64_t kLine = 16;
    for (std::int64_t i = kAhead; i < std::min(kAhead + 4, count - query); ++i) {
      for (std::int64_t k = 0; k < features; k += kLine) __builtin_prefetch(src + i * stride + k);
    }
    std::int64_t k = 0;
    for (; k + 4 <= features; k += 4, src += 4, dst += 4 * width) {
      const auto a = hn::Mul(hn::LoadU(d, src), scales);
      const auto b = hn::Mul(hn::LoadU(d, src + stride), scales);
      const auto c = hn::Mul(hn::LoadU(d, src + 2 * stride), scales);
      const auto e = hn::Mul(hn::LoadU(d, src + 3 * stride), scales);
      const auto low_ab = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
      const auto low_ce = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
      const auto high_ab = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
      const auto high_ce = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low_ab, low_ce)), d, dst);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low_ab, low_ce)), d, dst + width);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high_ab, high_ce)), d, dst + 2 * width);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high_ab, high_ce)), d, dst + 3 * width);
    }
    for (; k < features; ++k, ++src, dst += width) {
      for (std::int64_t i = 0; i < 4; ++i) dst[i] = src[i * stride] * scale;
    }
  }
#endif
  for (; query < count; ++query) {
    for (std::int64_t k = 0; k < features; ++k) {
      turned[k * width + query] = rows[query * stride + k] * scale;
    }
  }
  for (std::int64_t k = 0; k < features && count < width; ++k) {
    std::fill(turned + k * width + count, turned + (k + 1) * width, 0.0F);
  }
}

/// What becomes of one key's products with all queries before softmax.
struct ScoreMask {
  const float* added;  ///< query i's number at added[i * stride]; null: 0
  std::int64_t stride;
  std::int64_t queries;
  std::int64_t first;  ///< queries before this one do not take part
};

/// scores += mask, and tops = the largest so far.
HWY_INLINE void mask_scores(const ScoreMask& mask, std::int64_t width, float* scores, float* tops) {
  const AttentionTag d;
  const AttentionInts di;
  const std::int64_t last = mask.queries - 1;
  const bool gathers = mask.stride * last <= std::numeric_limits<std::int32_t>::max();
  const auto first =
      hn::Set(di, static_cast<std::int32_t>(std::clamp<std::int64_t>(mask.first, -1, width)));
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::int64_t lane = 0; lane < width; lane += kAttentionLanes) {
    auto x = hn::LoadU(d, scores + lane);
    const auto query = hn::Iota(di, static_cast<std::int32_t>(lane));
    if (mask.added != nullptr && gathers) {
      // Lanes behind the last query read its number.
      const auto place = hn::Mul(hn::Min(query, hn::Set(di, static_cast<std::int32_t>(last))),
                                 hn::Set(di, static_cast<std::int32_t>(mask.stride)));
      x = hn::Add(x, hn::GatherIndex(d, mask.added, place));
    } else if (mask.added != nullptr) {
      float numbers[kAttentionLanes];
      for (std::int64_t i = 0; i < kAttentionLanes; ++i) {
        numbers[i] = mask.added[std::min(lane + i, last) * mask.stride];
      }
      x = hn::Add(x, hn::LoadU(d, numbers));
    }
    x = hn::IfThenElse(hn::RebindMask(d, hn::Lt(query, first)), hidden, x);
    hn::StoreU(x, d, scores + lane);
    hn::StoreU(hn::Max(hn::LoadU(d, tops + lane), x), d, tops + lane);
  }
}

/// A query without any key subtracts 0 from minus infinity, which leaves zeros.
HWY_INLINE void finish_tops(float* tops, std::int64_t width) {
  const AttentionTag d;
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::int64_t lane = 0; lane < width; lane += kAttentionLanes) {
    const auto top = hn::LoadU(d, tops + lane);
    hn::StoreU(hn::IfThenElse(hn::Eq(top, nothing), hn::Zero(d), top), d, tops + lane);
  }
}

/// scores [keys][width] = exp(scores - tops); their sum over these keys, one after the other, is
/// added to totals.
HWY_INLINE void to_weights(float* scores, std::int64_t keys, std::int64_t width, const float* tops,
                           float* totals) {
  const AttentionTag d;
  constexpr int kAtOnce = kAttentionPad / kAttentionLanes > 2 ? 2 : kAttentionPad / kAttentionLanes;
  for (std::int64_t lane = 0; lane < width; lane += kAtOnce * kAttentionLanes) {
    AttentionVector top[kAtOnce];
    AttentionVector sum[kAtOnce];
    for (int v = 0; v < kAtOnce; ++v) {
      top[v] = hn::LoadU(d, tops + lane + v * kAttentionLanes);
      sum[v] = hn::Zero(d);
    }
    float* at = scores + lane;
    for (std::int64_t key = 0; key < keys; ++key, at += width) {
      for (int v = 0; v < kAtOnce; ++v) {
        const auto y = exp_normal(hn::Sub(hn::LoadU(d, at + v * kAttentionLanes), top[v]));
        hn::StoreU(y, d, at + v * kAttentionLanes);
        sum[v] = hn::Add(sum[v], y);
      }
    }
    for (int v = 0; v < kAtOnce; ++v) {
      float* total = totals + lane + v * kAttentionLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, total), sum[v]), d, total);
    }
  }
}

/// dst = row * factor.
HWY_INLINE void scale_row(const float* row, std::int64_t count, float factor, float* dst) {
  const AttentionTag d;
  const auto factors = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + kAttentionLanes <= count; i += kAttentionLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factors), d, dst + i);
  }
  for (; i < count; ++i) dst[i] = row[i] * factor;
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
