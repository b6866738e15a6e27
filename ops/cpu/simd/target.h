// Private: what the code around is compiled to, inside Highway's foreach_target (hence the guard
// that toggles).

#if defined(QUANTA_OPS_CPU_TARGET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_TARGET_H_
#undef QUANTA_OPS_CPU_TARGET_H_
#else
#define QUANTA_OPS_CPU_TARGET_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "quanta/ops/cpu/features.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

#if QUANTA_AVX512_VBMI
inline constexpr Code kCode = Code::Avx512Vbmi;
#elif QUANTA_AVX512
inline constexpr Code kCode = Code::Avx512;
#elif QUANTA_VECTORS
inline constexpr Code kCode = Code::Avx2;
#else
inline constexpr Code kCode = Code::Plain;
#endif

inline constexpr Blocks kBlocks = blocks_of(kCode);
/// 0 in plain code.
inline constexpr std::size_t kVectorBytes = kBlocks.vector_bytes;

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
