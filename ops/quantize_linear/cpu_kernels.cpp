#include "quanta/ops/quantize_linear/cpu_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/quantize_linear/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <limits>

#include "quanta/ops/cpu/code_blocks.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/runtime/detail/quotient_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
struct QuotientSource {
  HWY_INLINE void move_to(std::int64_t) const {}
  template <std::size_t kBytes>
  HWY_INLINE hn::Vec<Floats<kBytes>> at(std::int64_t i) const {
    const Floats<kBytes> d;
    const auto quotient = hn::Div(hn::LoadU(d, src + i), hn::Set(d, scale));
    return hn::IfThenElse(hn::Eq(quotient, quotient), quotient, hn::Set(d, of_nan));
  }
  const float* src;
  float scale;
  float of_nan;
};
#endif

template <typename T>
void quotients(const float* src, T* dst, std::int64_t count, float scale, std::int32_t zero_point) {
  constexpr std::int32_t kMin = std::numeric_limits<T>::min();
  constexpr std::int32_t kMax = std::numeric_limits<T>::max();
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const QuotientSource source{src, scale, static_cast<float>(kMin - zero_point)};
  i = write_codes<Reach::Any>(source, {1.0F, zero_point, kMin, kMax, kMin}, dst, count);
#endif
  for (; i < count; ++i) {
    dst[i] = static_cast<T>(math::quantize_quotient(src[i], scale, zero_point, kMin, kMax));
  }
}

void quotients_u8(const float* src, std::uint8_t* dst, std::int64_t count, float scale,
                  std::int32_t zero_point) {
  quotients(src, dst, count, scale, zero_point);
}
void quotients_i8(const float* src, std::int8_t* dst, std::int64_t count, float scale,
                  std::int32_t zero_point) {
  quotients(src, dst, count, scale, zero_point);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(quotients_u8);
HWY_EXPORT(quotients_i8);

void quantize_quotients(const float* src, std::uint8_t* dst, std::int64_t count, float scale,
                        std::int32_t zero_point) {
  HWY_DYNAMIC_DISPATCH(quotients_u8)(src, dst, count, scale, zero_point);
}
void quantize_quotients(const float* src, std::int8_t* dst, std::int64_t count, float scale,
                        std::int32_t zero_point) {
  HWY_DYNAMIC_DISPATCH(quotients_i8)(src, dst, count, scale, zero_point);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
