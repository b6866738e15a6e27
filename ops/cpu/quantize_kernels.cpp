#include "quanta/ops/cpu/elementwise_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/quantize_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
struct FloatSource {
  HWY_INLINE hn::Vec<FloatTag> at(std::int64_t i) const { return hn::LoadU(FloatTag(), src + i); }
  const float* src;
};

std::int64_t quantize_vectors(const float* src, std::uint8_t* dst, std::int64_t count,
                              const QuantizeArgs& args, Store store) {
  const FloatSource source{src};
  if (args.nan_code != args.max) {
    return quantize_all<NanCode::Any, false>(source, args, dst, count);
  }
  return store == Store::Streaming ? quantize_all<NanCode::Max, true>(source, args, dst, count)
                                   : quantize_all<NanCode::Max, false>(source, args, dst, count);
}

template <bool kStreaming, typename T>
std::int64_t dequantize_vectors(const T* src, float* dst, std::int64_t count, float scale,
                                std::int32_t zero_point) {
  const FloatTag df;
  const auto scale_vector = hn::Set(df, scale);
  const auto zero_vector = hn::Set(IntTag(), zero_point);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto difference = hn::ConvertTo(df, hn::Sub(load_codes(src + i), zero_vector));
    put<kStreaming>(df, hn::Mul(difference, scale_vector), dst + i);
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}
#endif

template <typename T>
void quantize_row(const float* src, T* dst, std::int64_t count, const QuantizeArgs& args,
                  Store store) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  i = quantize_vectors(src, reinterpret_cast<std::uint8_t*>(dst), count, args, store);
#else
  static_cast<void>(store);
#endif
  for (; i < count; ++i) {
    dst[i] = static_cast<T>(
        math::quantize(src[i], args.inv_scale, args.zero_point, args.min, args.max, args.nan_code));
  }
}

template <typename T>
void dequantize_row(const T* src, float* dst, std::int64_t count, float scale,
                    std::int32_t zero_point, Store store) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  i = store == Store::Streaming ? dequantize_vectors<true>(src, dst, count, scale, zero_point)
                                : dequantize_vectors<false>(src, dst, count, scale, zero_point);
#else
  static_cast<void>(store);
#endif
  for (; i < count; ++i) dst[i] = math::dequantize(src[i], scale, zero_point);
}

void quantize_u8(const float* src, std::uint8_t* dst, std::int64_t count, const QuantizeArgs& args,
                 Store store) {
  quantize_row(src, dst, count, args, store);
}
void quantize_i8(const float* src, std::int8_t* dst, std::int64_t count, const QuantizeArgs& args,
                 Store store) {
  quantize_row(src, dst, count, args, store);
}
void dequantize_u8(const std::uint8_t* src, float* dst, std::int64_t count, float scale,
                   std::int32_t zero_point, Store store) {
  dequantize_row(src, dst, count, scale, zero_point, store);
}
void dequantize_i8(const std::int8_t* src, float* dst, std::int64_t count, float scale,
                   std::int32_t zero_point, Store store) {
  dequantize_row(src, dst, count, scale, zero_point, store);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(quantize_u8);
HWY_EXPORT(quantize_i8);
HWY_EXPORT(dequantize_u8);
HWY_EXPORT(dequantize_i8);

void quantize(const float* src, std::uint8_t* dst, std::int64_t count, const QuantizeArgs& args,
              Store store) {
  HWY_DYNAMIC_DISPATCH(quantize_u8)(src, dst, count, args, store);
}
void quantize(const float* src, std::int8_t* dst, std::int64_t count, const QuantizeArgs& args,
              Store store) {
  HWY_DYNAMIC_DISPATCH(quantize_i8)(src, dst, count, args, store);
}
void dequantize(const std::uint8_t* src, float* dst, std::int64_t count, float scale,
                std::int32_t zero_point, Store store) {
  HWY_DYNAMIC_DISPATCH(dequantize_u8)(src, dst, count, scale, zero_point, store);
}
void dequantize(const std::int8_t* src, float* dst, std::int64_t count, float scale,
                std::int32_t zero_point, Store store) {
  HWY_DYNAMIC_DISPATCH(dequantize_i8)(src, dst, count, scale, zero_point, store);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
