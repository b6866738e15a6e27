// Private: what softmax of floats and of codes share, inside Highway's foreach_target (hence the
// guard that toggles).

#if defined(QUANTA_OPS_CPU_SOFTMAX_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_SOFTMAX_SIMD_H_
#undef QUANTA_OPS_CPU_SOFTMAX_SIMD_H_
#else
#define QUANTA_OPS_CPU_SOFTMAX_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "quanta/ops/cpu/simd/exp_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// A row is taken 16 floats at a time on every instruction set; element i belongs to the partial
/// sum i % 16.
inline constexpr std::int64_t kSoftmaxBlock = 16;
using SoftmaxTag = hn::CappedTag<float, kSoftmaxBlock>;
using SoftmaxVector = hn::Vec<SoftmaxTag>;
inline constexpr std::size_t kSoftmaxStep = hn::MaxLanes(SoftmaxTag());
inline constexpr std::size_t kSoftmaxVectors =
    static_cast<std::size_t>(kSoftmaxBlock) / kSoftmaxStep;

struct SoftmaxSums {
  SoftmaxVector part[kSoftmaxVectors];

  SoftmaxSums() {
    for (SoftmaxVector& sum : part) sum = hn::Zero(SoftmaxTag());
  }
  /// Lane i plus lane i + 8, then i + 4 and so on.
  HWY_INLINE float total() const {
#if QUANTA_VECTORS
#if QUANTA_AVX512
    const hn::Full256<float> d8;
    const auto eight = hn::Add(hn::LowerHalf(d8, part[0]), hn::UpperHalf(d8, part[0]));
#else
    const auto eight = hn::Add(part[0], part[1]);
#endif
    const hn::Full128<float> d4;
    const auto four = hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight));
    const auto two = hn::Add(four, hn::Shuffle1032(four));
    return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
#else
    float lanes[kSoftmaxBlock];
    for (std::size_t k = 0; k < kSoftmaxVectors; ++k) {
      hn::StoreU(part[k], SoftmaxTag(), lanes + k * kSoftmaxStep);
    }
    for (std::int64_t width = kSoftmaxBlock / 2; width > 0; width /= 2) {
      for (std::int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
    }
    return lanes[0];
#endif
  }
};

/// Division by the one sum, rounded as the instruction rounds: Markstein's two corrections of the
/// product with the rounded reciprocal, whose remainders are exact where nothing underflows.
class SoftmaxDivisor {
 public:
  explicit SoftmaxDivisor(float sum)
      : sum_(hn::Set(SoftmaxTag(), sum)), reciprocal_(hn::Div(hn::Set(SoftmaxTag(), 1.0F), sum_)) {}

  HWY_INLINE SoftmaxVector operator()(SoftmaxVector x) const {
#if QUANTA_VECTORS  // which has no fused multiply-add
    const SoftmaxTag d;
    const auto exact = hn::Or(hn::Ge(x, hn::Set(d, 0x1p-100F)), hn::Eq(x, hn::Zero(d)));
    if (HWY_LIKELY(hn::AllTrue(d, exact))) {
      const auto first = hn::Mul(x, reciprocal_);
      const auto second = hn::MulAdd(hn::NegMulAdd(first, sum_, x), reciprocal_, first);
      return hn::MulAdd(hn::NegMulAdd(second, sum_, x), reciprocal_, second);
    }
#endif
    return hn::Div(x, sum_);
  }

 private:
  SoftmaxVector sum_;
  SoftmaxVector reciprocal_;
};

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
