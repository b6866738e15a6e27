#include "quanta/ops/cpu/elementwise_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/quantize/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <limits>

#include "quanta/ops/cpu/code_blocks.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
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

// math::quantize with each channel's numbers. The zero point is added here, as it differs, to
// rounded values, where the sum is exact; what is beyond the codes saturates later.
template <std::size_t kBytes>
HWY_INLINE hn::Vec<Floats<kBytes>> channel_codes(const float* src,
                                                 hn::Vec<Floats<kBytes>> inv_scale,
                                                 hn::Vec<Floats<kBytes>> zero_point) {
  const Floats<kBytes> d;
  const auto scaled = hn::Mul(hn::LoadU(d, src), inv_scale);
  const auto code = hn::Add(hn::Round(scaled), zero_point);
  return hn::IfThenElseZero(hn::Eq(scaled, scaled), code);
}

struct ChannelRowSource {
  HWY_INLINE void move_to(std::int64_t) const {}
  template <std::size_t kBytes>
  HWY_INLINE hn::Vec<Floats<kBytes>> at(std::int64_t i) const {
    const Floats<kBytes> d;
    return channel_codes<kBytes>(src + i, hn::LoadU(d, inv_scales + i),
                                 hn::LoadU(d, zero_points + i));
  }
  const float* src;
  const float* inv_scales;
  const float* zero_points;
};

struct ChannelRowsSource {
  HWY_INLINE void move_to(std::int64_t i) { position.move_to(i); }
  template <std::size_t kBytes>
  HWY_INLINE hn::Vec<Floats<kBytes>> at(std::int64_t i) const {
    return channel_codes<kBytes>(src + i, position.template at<kBytes>(0, i),
                                 position.template at<kBytes>(1, i));
  }
  const float* src;
  ChannelPosition<2> position;
};

template <typename T>
std::int64_t quantize_row_vectors(const float* src, T* dst, std::int64_t rows,
                                  std::int64_t channels, const float* inv_scales,
                                  const float* zero_points) {
  const QuantizeArgs args{1.0F, 0, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0};
  if (channels > kMaxTermChannels) {
    for (std::int64_t row = 0; row < rows; ++row, src += channels, dst += channels) {
      write_codes<Reach::Any>(ChannelRowSource{src, inv_scales, zero_points}, args, dst, channels);
    }
    return rows * channels;
  }
  if (rows * channels < 16) return 0;
  ChannelTerms<2> terms(channels);
  std::copy(inv_scales, inv_scales + channels, terms.term(0));
  std::copy(zero_points, zero_points + channels, terms.term(1));
  terms.repeat();
  return write_codes<Reach::Any>(ChannelRowsSource{src, ChannelPosition<2>(terms)}, args, dst,
                                 rows * channels);
}

template <Rhs kRhs, typename T>
std::int64_t dequantize_channel_vectors(const T* src, float* dst, std::int64_t count,
                                        const double* scales, const double* zero_points) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const hn::Rebind<std::int32_t, decltype(d)> d32;
  const hn::Rebind<T, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto at = [&](const double* values, std::int64_t i) QUANTA_INLINED {
    return kRhs == Rhs::Row ? hn::LoadU(d, values + i) : hn::Set(d, *values);
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto code = hn::PromoteTo(d, hn::PromoteTo(d32, hn::LoadU(d8, src + i)));
    const auto value = hn::Mul(hn::Sub(code, at(zero_points, i)), at(scales, i));
    hn::StoreU(hn::DemoteTo(df, value), df, dst + i);
  }
  return i;
}
#endif

template <typename T>
void quantize_row(const float* src, T* dst, std::int64_t count, const QuantizeArgs& args,
                  Store store) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
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
#if QUANTA_VECTORS
  i = store == Store::Streaming ? dequantize_vectors<true>(src, dst, count, scale, zero_point)
                                : dequantize_vectors<false>(src, dst, count, scale, zero_point);
#else
  static_cast<void>(store);
#endif
  for (; i < count; ++i) dst[i] = math::dequantize(src[i], scale, zero_point);
}

template <typename T>
void quantize_channel_rows(const float* src, T* dst, std::int64_t rows, std::int64_t channels,
                           const float* inv_scales, const float* zero_points) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = quantize_row_vectors(src, dst, rows, channels, inv_scales, zero_points);
#endif
  for (; i < rows * channels; ++i) {
    const std::int64_t c = i % channels;
    dst[i] = static_cast<T>(math::quantize(
        src[i], inv_scales[c], static_cast<std::int32_t>(zero_points[c]),
        std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), /*nan_code=*/0));
  }
}

template <typename T>
void dequantize_channels(const T* src, float* dst, std::int64_t count, const double* scales,
                         const double* zero_points, Rhs kind) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = kind == Rhs::Row
          ? dequantize_channel_vectors<Rhs::Row>(src, dst, count, scales, zero_points)
          : dequantize_channel_vectors<Rhs::Scalar>(src, dst, count, scales, zero_points);
#endif
  const std::int64_t step = kind == Rhs::Row ? 1 : 0;
  for (; i < count; ++i) {
    dst[i] = math::dequantize_per_channel(src[i], scales[i * step],
                                          static_cast<std::int64_t>(zero_points[i * step]));
  }
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

void quantize_rows_u8(const float* src, std::uint8_t* dst, std::int64_t rows, std::int64_t channels,
                      const float* inv_scales, const float* zero_points) {
  quantize_channel_rows(src, dst, rows, channels, inv_scales, zero_points);
}
void quantize_rows_i8(const float* src, std::int8_t* dst, std::int64_t rows, std::int64_t channels,
                      const float* inv_scales, const float* zero_points) {
  quantize_channel_rows(src, dst, rows, channels, inv_scales, zero_points);
}
void dequantize_row_u8(const std::uint8_t* src, float* dst, std::int64_t count,
                       const double* scales, const double* zero_points, Rhs kind) {
  dequantize_channels(src, dst, count, scales, zero_points, kind);
}
void dequantize_row_i8(const std::int8_t* src, float* dst, std::int64_t count, const double* scales,
                       const double* zero_points, Rhs kind) {
  dequantize_channels(src, dst, count, scales, zero_points, kind);
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
HWY_EXPORT(quantize_rows_u8);
HWY_EXPORT(quantize_rows_i8);
HWY_EXPORT(dequantize_row_u8);
HWY_EXPORT(dequantize_row_i8);

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

void quantize_rows(const float* src, std::uint8_t* dst, std::int64_t rows, std::int64_t channels,
                   const float* inv_scales, const float* zero_points) {
  HWY_DYNAMIC_DISPATCH(quantize_rows_u8)(src, dst, rows, channels, inv_scales, zero_points);
}
void quantize_rows(const float* src, std::int8_t* dst, std::int64_t rows, std::int64_t channels,
                   const float* inv_scales, const float* zero_points) {
  HWY_DYNAMIC_DISPATCH(quantize_rows_i8)(src, dst, rows, channels, inv_scales, zero_points);
}
void dequantize_row(const std::uint8_t* src, float* dst, std::int64_t count, const double* scales,
                    const double* zero_points, Rhs kind) {
  HWY_DYNAMIC_DISPATCH(dequantize_row_u8)(src, dst, count, scales, zero_points, kind);
}
void dequantize_row(const std::int8_t* src, float* dst, std::int64_t count, const double* scales,
                    const double* zero_points, Rhs kind) {
  HWY_DYNAMIC_DISPATCH(dequantize_row_i8)(src, dst, count, scales, zero_points, kind);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
