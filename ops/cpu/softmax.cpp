#include "quanta/ops/cpu/softmax.h"

#include <algorithm>
#include <limits>

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/softmax.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/softmax_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kBlock = kSoftmaxBlock;
using Tag = SoftmaxTag;
constexpr std::size_t kStep = kSoftmaxStep;
constexpr std::size_t kVectors = kSoftmaxVectors;
using Vector = SoftmaxVector;

struct Block {
  Vector part[kVectors];
};

HWY_INLINE Block load_block(const float* src) {
  Block block;
  for (std::size_t k = 0; k < kVectors; ++k) block.part[k] = hn::LoadU(Tag(), src + k * kStep);
  return block;
}
HWY_INLINE void store_block(const Block& block, float* dst) {
  for (std::size_t k = 0; k < kVectors; ++k) hn::StoreU(block.part[k], Tag(), dst + k * kStep);
}

HWY_INLINE std::size_t lanes_of_part(std::size_t k, std::size_t count) {
  return count > k * kStep ? std::min(kStep, count - k * kStep) : 0;
}
// The first `count` < 16 elements, then minus infinity: neither the maximum nor the sum notices.
HWY_INLINE Block load_part(const float* src, std::size_t count) {
  const Tag d;
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  Block block;
  for (std::size_t k = 0; k < kVectors; ++k) {
    const std::size_t lanes = lanes_of_part(k, count);
    block.part[k] = nothing;
    if (lanes == 0) continue;
    const auto mask = hn::FirstN(d, lanes);
    block.part[k] = hn::IfThenElse(mask, hn::MaskedLoad(mask, d, src + k * kStep), nothing);
  }
  return block;
}
HWY_INLINE void store_part(const Block& block, std::size_t count, float* dst) {
  const Tag d;
  for (std::size_t k = 0; k < kVectors; ++k) {
    const std::size_t lanes = lanes_of_part(k, count);
    if (lanes == 0) continue;
    hn::BlendedStore(block.part[k], hn::FirstN(d, lanes), d, dst + k * kStep);
  }
}

// The largest element in every lane.
HWY_INLINE Vector find_largest(const float* src, std::int64_t whole, std::size_t rest) {
  const Tag d;
  Block best = load_part(src + whole, rest);
  for (std::int64_t i = 0; i < whole; i += kBlock) {
    const Block x = load_block(src + i);
    for (std::size_t k = 0; k < kVectors; ++k) best.part[k] = hn::Max(best.part[k], x.part[k]);
  }
  for (std::size_t k = 1; k < kVectors; ++k) best.part[0] = hn::Max(best.part[0], best.part[k]);
  return hn::MaxOfLanes(d, best.part[0]);
}

// Turns a block into its exponentials and adds them to `sums`.
HWY_INLINE void exp_block(Block& x, Vector largest, SoftmaxSums& sums) {
  for (std::size_t k = 0; k < kVectors; ++k) {
    x.part[k] = exp_of_negative(Tag(), hn::Sub(x.part[k], largest));
    sums.part[k] = hn::Add(sums.part[k], x.part[k]);
  }
}

HWY_INLINE void divide_block(const SoftmaxDivisor& divide, Block& x) {
  for (std::size_t k = 0; k < kVectors; ++k) x.part[k] = divide(x.part[k]);
}

void SoftmaxRow(const float* src, std::int64_t count, float* dst) {
  const auto rest = static_cast<std::size_t>(count % kBlock);
  const std::int64_t whole = count - static_cast<std::int64_t>(rest);
  const auto largest = find_largest(src, whole, rest);
  SoftmaxSums sums;
  for (std::int64_t i = 0; i < whole; i += kBlock) {
    Block x = load_block(src + i);
    exp_block(x, largest, sums);
    store_block(x, dst + i);
  }
  Block last = load_part(src + whole, rest);
  exp_block(last, largest, sums);

  const SoftmaxDivisor divide(sums.total());
  for (std::int64_t i = 0; i < whole; i += kBlock) {
    Block x = load_block(dst + i);
    divide_block(divide, x);
    store_block(x, dst + i);
  }
  divide_block(divide, last);
  store_part(last, rest, dst + whole);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(SoftmaxRow);

void softmax_row(const float* src, std::int64_t count, float* dst) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRow)(src, count, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
