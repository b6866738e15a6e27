#include "quanta/ops/cpu/gemm/code_sums.h"

#include <cstring>

#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/code_sums.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

CodeSums sum_codes(const std::int8_t* codes, std::int64_t count) {
  CodeSums sums;
  std::int64_t i = 0;
#if QUANTA_VECTORS
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::int8_t> d;
  const hn::RebindToUnsigned<decltype(d)> bytes;
  const hn::Repartition<std::uint64_t, decltype(d)> wide;
  constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(d));
  const auto zero = hn::Zero(d);
  auto positive = hn::Zero(wide);
  auto negative = hn::Zero(wide);
  for (; i + kStep <= count; i += kStep) {
    const auto v = hn::LoadU(d, codes + i);
    // 0 - -128 is 128 in bytes without a sign.
    const auto below = hn::Sub(zero, hn::Min(v, zero));
    positive = hn::Add(positive, hn::SumsOf8(hn::BitCast(bytes, hn::Max(v, zero))));
    negative = hn::Add(negative, hn::SumsOf8(hn::BitCast(bytes, below)));
  }
  if (i < count) {
    // Short rows consist of little else.
    alignas(64) std::int8_t rest[kStep] = {};
    std::memcpy(rest, codes + i, static_cast<std::size_t>(count - i));
    i = count;
    const auto v = hn::Load(d, rest);
    positive = hn::Add(positive, hn::SumsOf8(hn::BitCast(bytes, hn::Max(v, zero))));
    negative = hn::Add(negative, hn::SumsOf8(hn::BitCast(bytes, hn::Sub(zero, hn::Min(v, zero)))));
  }
  sums.positive = static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(wide, positive)));
  sums.negative = -static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(wide, negative)));
#endif
  for (; i < count; ++i) (codes[i] > 0 ? sums.positive : sums.negative) += codes[i];
  return sums;
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(sum_codes);

CodeSums code_sums(const std::int8_t* codes, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_codes)(codes, count);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
