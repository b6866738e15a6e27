// Private: a table of 256 answers for vectors of codes, inside Highway's foreach_target (hence the
// guard that toggles).

#if defined(QUANTA_OPS_CPU_LOOKUP_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_LOOKUP_SIMD_H_
#undef QUANTA_OPS_CPU_LOOKUP_SIMD_H_
#else
#define QUANTA_OPS_CPU_LOOKUP_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "quanta/ops/cpu/lookup.h"
#include "quanta/ops/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

// VBMI's byte permutation reads 128 table entries at once.
#if QUANTA_AVX512_VBMI
class TableVectors {
 public:
  explicit TableVectors(const CodeTable& table) {
    for (std::size_t part = 0; part < 4; ++part) {
      parts_[part] = _mm512_loadu_si512(table.data() + part * 64);
    }
  }
  HWY_INLINE hn::Vec<ByteTag> operator()(hn::Vec<ByteTag> codes) const {
    const __m512i low = _mm512_permutex2var_epi8(parts_[0], codes.raw, parts_[1]);
    const __m512i high = _mm512_permutex2var_epi8(parts_[2], codes.raw, parts_[3]);
    return hn::Vec<ByteTag>{_mm512_mask_blend_epi8(_mm512_movepi8_mask(codes.raw), low, high)};
  }

 private:
  __m512i parts_[4];
};
#elif QUANTA_VECTORS
class TableVectors {
 public:
  explicit TableVectors(const CodeTable& table) : table_(table) {}

  // Sixteen shuffles, one for each high half-byte. With the half-byte of the block removed, codes
  // of this block are below 16; adding 0x70 with saturation sets the top bit of all others, for
  // which the shuffle answers 0.
  HWY_INLINE hn::Vec<ByteTag> operator()(hn::Vec<ByteTag> codes) const {
    const ByteTag d;
    const auto limit = hn::Set(d, std::uint8_t{0x70});
    auto result = hn::Zero(d);
    for (std::size_t block = 0; block < 16; ++block) {
      const auto part = hn::LoadDup128(d, table_.data() + block * 16);
      const auto index = hn::SaturatedAdd(
          hn::Xor(codes, hn::Set(d, static_cast<std::uint8_t>(block * 16))), limit);
      result = hn::Or(result, hn::TableLookupBytesOr0(part, index));
    }
    return result;
  }

 private:
  const CodeTable& table_;
};
#endif

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
