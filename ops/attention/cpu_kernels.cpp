#include "quanta/ops/attention/cpu_kernels.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/attention/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <limits>

#include "quanta/ops/cpu/simd/fused_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Element i belongs to partial sum i % 64 on every instruction set, so that four vectors of the
// widest one are under way at once.
constexpr std::int64_t kSums = 64;
using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// exp(x) for x <= 0 or NaN; 0 below -87.
HWY_INLINE Vector exp_normal(Vector x) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  // Adding 1.5 * 2^23 rounds; with 127 more the low bits are the exponent of the power of two.
  const auto magic = hn::Set(d, 12582912.0F + 127.0F);
  const auto shifted = fused_add(d, x, hn::Set(d, 1.44269504088896341F), magic);
  const auto power = hn::Sub(shifted, magic);
  // ln 2 in two parts.
  auto r = fused_add(d, power, hn::Set(d, -0.693359375F), x);
  r = fused_add(d, power, hn::Set(d, 2.12194440e-4F), r);
  // 1 + r + r^2 p(r) for |r| <= ln(2) / 2; p meets it at the Chebyshev nodes.
  auto p = hn::Set(d, 1.3926213e-3F);
  p = fused_add(d, p, r, hn::Set(d, 8.363203e-3F));
  p = fused_add(d, p, r, hn::Set(d, 4.1666556e-2F));
  p = fused_add(d, p, r, hn::Set(d, 1.6666576e-1F));
  p = fused_add(d, p, r, hn::Set(d, 0.5F));
  const auto y = hn::Add(fused_add(d, p, hn::Mul(r, r), r), hn::Set(d, 1.0F));
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.0F)), hn::Zero(d), hn::Mul(y, scale));
}

/// Calls body(place) for whole vectors, then rest(place, count) for what is left.
template <class Body, class Rest>
HWY_INLINE void for_vectors(std::int64_t count, Body&& body, Rest&& rest) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i);
  if (i < count) rest(i, count - i);
}

/// The first `count` floats, then minus infinity.
HWY_INLINE Vector load_rest(const float* src, std::int64_t count) {
  float rest[kLanes];
  std::fill_n(rest, kLanes, kMinusInfinity);
  std::copy_n(src, count, rest);
  return hn::LoadU(Tag(), rest);
}
HWY_INLINE void store_rest(Vector x, std::int64_t count, float* dst) {
  float rest[kLanes];
  hn::StoreU(x, Tag(), rest);
  std::copy_n(rest, count, dst);
}

HWY_INLINE void add_mask(float* row, std::int64_t count, const float* mask) {
  const Tag d;
  for_vectors(
      count,
      [&](std::int64_t i) HWY_ATTR {
        hn::StoreU(hn::Add(hn::LoadU(d, row + i), hn::LoadU(d, mask + i)), d, row + i);
      },
      [&](std::int64_t i, std::int64_t left) {
        for (std::int64_t k = i; k < i + left; ++k) row[k] += mask[k];
      });
}

HWY_INLINE float largest(const float* row, std::int64_t count) {
  const Tag d;
  auto best = hn::Set(d, kMinusInfinity);
  for_vectors(
      count, [&](std::int64_t i) HWY_ATTR { best = hn::Max(best, hn::LoadU(d, row + i)); },
      [&](std::int64_t i, std::int64_t left)
          HWY_ATTR { best = hn::Max(best, load_rest(row + i, left)); });
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

float ExpRow(float* row, std::int64_t count, const float* mask) {
  const Tag d;
  if (mask != nullptr) add_mask(row, count, mask);
  const float top = largest(row, count);
  if (top == kMinusInfinity) {
    // NaN hides from the maximum.
    float sum = 0.0F;
    for (std::int64_t i = 0; i < count; ++i) {
      row[i] = row[i] == kMinusInfinity ? 0.0F : row[i];
      sum += row[i];
    }
    return sum;
  }
  const auto tops = hn::Set(d, top);
  alignas(64) float sums[kSums] = {};
  // Whole groups keep their sums in registers.
  constexpr auto kVectors = static_cast<int>(kSums / kLanes);
  constexpr int kHeld = kVectors < 8 ? kVectors : 8;
  std::int64_t i = 0;
  for (int part = 0; part < kVectors; part += kHeld) {
    Vector held[kHeld];
    for (int k = 0; k < kHeld; ++k) held[k] = hn::Zero(d);
    for (i = 0; i + kSums <= count; i += kSums) {
      for (int k = 0; k < kHeld; ++k) {
        float* at = row + i + (part + k) * kLanes;
        const auto y = exp_normal(hn::Sub(hn::LoadU(d, at), tops));
        hn::StoreU(y, d, at);
        held[k] = hn::Add(held[k], y);
      }
    }
    for (int k = 0; k < kHeld; ++k) hn::Store(held[k], d, sums + (part + k) * kLanes);
  }
  for (float* sum = sums; i < count; i += kLanes, sum += kLanes) {
    const std::int64_t left = std::min(kLanes, count - i);
    const auto y = exp_normal(hn::Sub(load_rest(row + i, left), tops));
    store_rest(y, left, row + i);
    hn::Store(hn::Add(hn::Load(d, sum), y), d, sum);
  }
  std::int64_t width = kSums / 2;
  for (; width >= kLanes; width /= 2) {
    for (std::int64_t k = 0; k < width; k += kLanes) {
      hn::Store(hn::Add(hn::Load(d, sums + k), hn::Load(d, sums + k + width)), d, sums + k);
    }
  }
  for (; width > 0; width /= 2) {
    for (std::int64_t k = 0; k < width; ++k) sums[k] += sums[k + width];
  }
  return sums[0];
}

void ScaleRow(float* row, std::int64_t count, float factor) {
  const Tag d;
  const auto factors = hn::Set(d, factor);
  for_vectors(
      count,
      [&](std::int64_t i)
          HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factors), d, row + i); },
      [&](std::int64_t i, std::int64_t left) {
        for (std::int64_t k = i; k < i + left; ++k) row[k] *= factor;
      });
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(ExpRow);
HWY_EXPORT(ScaleRow);

float exp_row(float* row, std::int64_t count, const float* mask) {
  return HWY_DYNAMIC_DISPATCH(ExpRow)(row, count, mask);
}

void scale_row(float* row, std::int64_t count, float factor) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(row, count, factor);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
