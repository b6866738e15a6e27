// Private: VNNI's instructions, inside Highway's foreach_target (hence the guard that toggles).
// Highway does not let the compiler use them. They are there where
// features().has_dot_product(kCode) says so.

#if defined(QUANTA_OPS_CPU_VNNI_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_VNNI_SIMD_H_
#undef QUANTA_OPS_CPU_VNNI_SIMD_H_
#else
#define QUANTA_OPS_CPU_VNNI_SIMD_H_
#endif

#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/target.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

/// Adds the four products of u8 x and s8 w in each lane of 32 bits. Sums wrap. All vectors are of
/// the same size, up to the target's.
template <class Sums32, class Unsigned8, class Signed8>
HWY_INLINE Sums32 add_byte_products(Sums32 sum, Unsigned8 x, Signed8 w) {
#if QUANTA_AVX512
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
#else
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(x.raw), "x"(w.raw));
#endif
  return sum;
}

/// Adds the two products of s16 a and b in each lane of 32 bits.
template <class Sums32, class Signed16>
HWY_INLINE Sums32 add_word_products(Sums32 sum, Signed16 a, Signed16 b) {
#if QUANTA_AVX512
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#else
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum.raw) : "x"(a.raw), "x"(b.raw));
#endif
  return sum;
}

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
