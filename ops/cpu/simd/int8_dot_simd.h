// Private: sums of u8 x s8 products in lanes of 32 bits, inside Highway's foreach_target (hence the
// guard that toggles). Exact on every instruction set; sums wrap.

#if defined(QUANTA_OPS_CPU_INT8_DOT_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_INT8_DOT_SIMD_H_
#undef QUANTA_OPS_CPU_INT8_DOT_SIMD_H_
#else
#define QUANTA_OPS_CPU_INT8_DOT_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quanta/ops/cpu/gemm/panels.h"
#include "quanta/ops/cpu/simd/target.h"
#include "quanta/ops/cpu/simd/vnni_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

namespace hn = hwy::HWY_NAMESPACE;

using Codes = hn::FixedTag<std::uint8_t, kVectorBytes>;
using Weights = hn::RebindToSigned<Codes>;
using DotWords = hn::RepartitionToWide<Weights>;
using Sums = hn::RepartitionToWide<DotWords>;

// One step of a sum: lane i gets the products of the four codes and weights that lie in it.

/// vpdpbusd.
struct Vnni {
  using Operand = hn::Vec<Codes>;
  static HWY_INLINE Operand prepare(hn::Vec<Codes> x) { return x; }
  static HWY_INLINE hn::Vec<Sums> add(hn::Vec<Sums> sum, const Operand& x, hn::Vec<Weights> w) {
    return add_byte_products(sum, x, w);
  }
};

/// vpmaddubsw adds two products in 16 bits. Codes are at most 128 here and weights lie in
/// -128..127, so that the lowest sum is -32768 and the highest 32512: none saturates.
struct Pairs {
  using Operand = hn::Vec<Codes>;
  static HWY_INLINE Operand prepare(hn::Vec<Codes> x) { return x; }
  static HWY_INLINE hn::Vec<Sums> add(hn::Vec<Sums> sum, const Operand& x, hn::Vec<Weights> w) {
#if QUANTA_AVX512
    const hn::Vec<DotWords> pairs{_mm512_maddubs_epi16(x.raw, w.raw)};
    const hn::Vec<Sums> quads{_mm512_madd_epi16(pairs.raw, hn::Set(DotWords(), 1).raw)};
#else
    const hn::Vec<DotWords> pairs{_mm256_maddubs_epi16(x.raw, w.raw)};
    const hn::Vec<Sums> quads{_mm256_madd_epi16(pairs.raw, hn::Set(DotWords(), 1).raw)};
#endif
    return hn::Add(sum, quads);
  }
};

/// Everything in 16 bits first, even and odd bytes apart: no sum of two products overflows 32 bits.
struct Wide {
  struct Operand {
    hn::Vec<DotWords> even, odd;
  };
  static HWY_INLINE hn::Vec<Sums> products(hn::Vec<DotWords> a, hn::Vec<DotWords> b) {
#if QUANTA_AVX512
    return hn::Vec<Sums>{_mm512_madd_epi16(a.raw, b.raw)};
#else
    return hn::Vec<Sums>{_mm256_madd_epi16(a.raw, b.raw)};
#endif
  }
  static HWY_INLINE Operand prepare(hn::Vec<Codes> x) {
    const hn::RebindToUnsigned<DotWords> unsigned_words;
    const auto words = hn::BitCast(unsigned_words, x);
    return {hn::BitCast(DotWords(), hn::And(words, hn::Set(unsigned_words, 0xFF))),
            hn::BitCast(DotWords(), hn::ShiftRight<8>(words))};
  }
  static HWY_INLINE hn::Vec<Sums> add(hn::Vec<Sums> sum, const Operand& x, hn::Vec<Weights> w) {
    const auto words = hn::BitCast(DotWords(), w);
    const auto even = hn::ShiftRight<8>(hn::ShiftLeft<8>(words));
    const auto odd = hn::ShiftRight<8>(words);
    return hn::Add(sum, hn::Add(products(x.even, even), products(x.odd, odd)));
  }
};

/// Calls `body` with the fastest product that this machine has for codes of so many bits.
template <class Body>
HWY_INLINE void with_product(CodeBits bits, const Body& body) {
  if (features().has_dot_product(kCode)) return body(Vnni());
  if (bits == CodeBits::Seven) return body(Pairs());
  body(Wide());
}

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
