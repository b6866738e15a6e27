// Private: gelu in vectors, for the kernel files inside Highway's foreach_target (hence the guard
// that toggles).

#if defined(QUANTA_OPS_CPU_GELU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_GELU_SIMD_H_
#undef QUANTA_OPS_CPU_GELU_SIMD_H_
#else
#define QUANTA_OPS_CPU_GELU_SIMD_H_
#endif

#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/fused_simd.h"
#include "quanta/runtime/detail/gelu_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

/// table[i] of each lane, 0 <= i < 16.
template <class D, class VI, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V entry_of_16(D d, const float* HWY_RESTRICT table, VI i) {
  namespace hn = hwy::HWY_NAMESPACE;
#if !QUANTA_VECTORS
  return hn::Set(d, table[hn::GetLane(i)]);
#else
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::TableLookupLanes(hn::Load(d, table), hn::IndicesFromVec(d, i));
  } else {
    static_assert(hn::MaxLanes(D()) == 8);
    const hn::RebindToSigned<D> di;
    const auto low = hn::IndicesFromVec(d, hn::And(i, hn::Set(di, 7)));
    const auto is_high = hn::BitCast(d, hn::ShiftLeft<28>(i));
    return hn::IfNegativeThenElse(is_high, hn::TableLookupLanes(hn::Load(d, table + 8), low),
                                  hn::TableLookupLanes(hn::Load(d, table), low));
  }
#endif
}

/// math::gelu_float in vectors.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V gelu_erf(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  using Table = math::GeluTable;
  const auto& table = math::gelu_table().coefficients;
  // x86's minimum answers its second operand when one is NaN.
  const auto a = hn::Min(hn::Set(d, Table::kZeroFrom), hn::Abs(x));
  const auto magic = hn::Set(d, 12582912.0F);
  const auto shifted = fused_add(d, a, hn::Set(d, 1.0F / Table::kStep), magic);
  const auto interval = hn::And(hn::BitCast(di, shifted), hn::Set(di, 15));
  const auto t = fused_add(d, hn::Sub(shifted, magic), hn::Set(d, -Table::kStep), a);
  auto below = entry_of_16(d, table[0], interval);
#pragma GCC unroll 8
  for (int i = 1; i < Table::kTerms; ++i) {
    below = fused_add(d, below, t, entry_of_16(d, table[i], interval));
  }
  const auto above = hn::Sub(hn::Set(d, 1.0F), below);
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, above));
}

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
