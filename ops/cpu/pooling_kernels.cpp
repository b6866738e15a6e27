#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/pooling_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once for each instruction set.
#include <hwy/highway.h>

#include "quanta/ops/cpu/pooling_kernels.h"
#include "quanta/ops/cpu/pooling_scalar.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// --- Maximum ---------------------------------------------------------------------------------

template <class D, class V>
HWY_INLINE V larger(D d, V best, V value) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    // Spelled out: the Max instruction would lose a NaN.
    static_cast<void>(d);
    return hn::IfThenElse(hn::Or(hn::Gt(value, best), hn::IsNaN(value)), value, best);
  } else {
    static_cast<void>(d);
    return hn::Max(best, value);
  }
}

// Channels [begin, ...) in whole vectors of `d`; returns where it stopped.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE std::int64_t max_vectors(D d, const T* HWY_RESTRICT src, const PoolTaps& taps,
                                    std::int64_t begin, std::int64_t end, T* HWY_RESTRICT dst) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = begin;
  for (; c + lanes <= end; c += lanes) {
    auto best = hn::Set(d, pool_lowest<T>());
    const T* depth = src + taps.first + c;
    for (std::int64_t i = 0; i < taps.depth_count; ++i, depth += taps.depth_step) {
      const T* height = depth;
      for (std::int64_t j = 0; j < taps.height_count; ++j, height += taps.height_step) {
        const T* width = height;
        for (std::int64_t k = 0; k < taps.width_count; ++k, width += taps.width_step) {
          best = larger(d, best, hn::LoadU(d, width));
        }
      }
    }
    hn::StoreU(best, d, dst + c);
  }
  return c;
}

template <typename T>
HWY_INLINE void max_pixel(const T* src, const PoolTaps& taps, std::int64_t begin, std::int64_t end,
                          T* dst) {
  std::int64_t c = max_vectors(hn::ScalableTag<T>(), src, taps, begin, end, dst);
  c = max_vectors(hn::CappedTag<T, 32 / sizeof(T)>(), src, taps, c, end, dst);
  c = max_vectors(hn::CappedTag<T, 16 / sizeof(T)>(), src, taps, c, end, dst);
  if constexpr (sizeof(T) == 1) c = max_vectors(hn::CappedTag<T, 8>(), src, taps, c, end, dst);
  for (; c < end; ++c) dst[c] = max_of_taps(src + c, taps);
}

// --- Average ---------------------------------------------------------------------------------

// The mean of two int32 halves as codes, round_half_even(sum * inverse) + zero_point in float32,
// as average_code() has it.
template <class D8, class VI32>
HWY_INLINE void store_centred_mean(D8 d8, VI32 sum, std::int32_t offset, float inverse_divisor,
                                   float zero_point, hn::TFromD<D8>* dst) {
  using T = hn::TFromD<D8>;
  const hn::Rebind<std::int32_t, D8> d32;
  const hn::Rebind<float, D8> df;
  const auto centred = hn::ConvertTo(df, hn::Sub(sum, hn::Set(d32, offset)));
  auto code = hn::Round(hn::Mul(centred, hn::Set(df, inverse_divisor)));
  code = hn::Add(code, hn::Set(df, zero_point));
  code = hn::Max(code, hn::Set(df, static_cast<float>(hwy::LimitsMin<T>())));
  code = hn::Min(code, hn::Set(df, static_cast<float>(hwy::LimitsMax<T>())));
  hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(d32, code)), d8, dst);
}

#if HWY_TARGET != HWY_SCALAR  // that one has no halves of vectors
// Sums of 8-bit codes: in 16 bits for up to 256 taps (256 * 255 and 256 * -128 still fit), then
// in 32. D16 has the channels of one step.
template <class D16, typename T>
HWY_INLINE std::int64_t average_vectors(D16 d16, const T* HWY_RESTRICT src, const PoolTaps& taps,
                                        std::int64_t begin, std::int64_t end, float inverse_divisor,
                                        std::int32_t zero_point, T* HWY_RESTRICT dst) {
  constexpr std::int64_t kFlush = 256;
  const hn::Rebind<T, D16> d8;
  const hn::Half<decltype(d8)> d8_half;
  const hn::Rebind<std::int32_t, decltype(d8_half)> d32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d16));
  const auto half = static_cast<std::int64_t>(hn::Lanes(d32));
  const auto offset = static_cast<std::int32_t>(taps.count() * zero_point);
  std::int64_t c = begin;
  for (; c + lanes <= end; c += lanes) {
    auto low = hn::Zero(d32);
    auto high = hn::Zero(d32);
    auto partial = hn::Zero(d16);
    std::int64_t budget = kFlush;
    const T* depth = src + taps.first + c;
    for (std::int64_t i = 0; i < taps.depth_count; ++i, depth += taps.depth_step) {
      const T* height = depth;
      for (std::int64_t j = 0; j < taps.height_count; ++j, height += taps.height_step) {
        const T* width = height;
        for (std::int64_t k = 0; k < taps.width_count;) {
          const std::int64_t stop = std::min(taps.width_count, k + budget);
          budget -= stop - k;
          for (; k < stop; ++k, width += taps.width_step) {
            partial = hn::Add(partial, hn::PromoteTo(d16, hn::LoadU(d8, width)));
          }
          if (budget == 0) {
            low = hn::Add(low, hn::PromoteTo(d32, hn::LowerHalf(partial)));
            high = hn::Add(high, hn::PromoteTo(d32, hn::UpperHalf(hn::Half<D16>(), partial)));
            partial = hn::Zero(d16);
            budget = kFlush;
          }
        }
      }
    }
    low = hn::Add(low, hn::PromoteTo(d32, hn::LowerHalf(partial)));
    high = hn::Add(high, hn::PromoteTo(d32, hn::UpperHalf(hn::Half<D16>(), partial)));
    const auto zero = static_cast<float>(zero_point);
    store_centred_mean(d8_half, low, offset, inverse_divisor, zero, dst + c);
    store_centred_mean(d8_half, high, offset, inverse_divisor, zero, dst + c + half);
  }
  return c;
}
#endif

template <typename T>
HWY_INLINE void average_pixel(const T* src, const PoolTaps& taps, const AverageRule& rule,
                              std::int64_t begin, std::int64_t end, T* dst) {
  std::int64_t c = begin;
#if HWY_TARGET != HWY_SCALAR
  using T16 = std::conditional_t<std::is_signed_v<T>, std::int16_t, std::uint16_t>;
  // Larger windows could overflow 32-bit sums; the scalar code has 64.
  constexpr std::int64_t kMaxVectorTaps = std::int64_t{1} << 22;
  if (taps.count() <= kMaxVectorTaps) {
    const float inverse = reciprocal(divisor_of(rule, taps));
    const std::int32_t zero_point = rule.zero_point;
    c = average_vectors(hn::ScalableTag<T16>(), src, taps, c, end, inverse, zero_point, dst);
    c = average_vectors(hn::CappedTag<T16, 16>(), src, taps, c, end, inverse, zero_point, dst);
    c = average_vectors(hn::CappedTag<T16, 8>(), src, taps, c, end, inverse, zero_point, dst);
  }
#endif
  for (; c < end; ++c) dst[c] = average_of_taps(src + c, taps, rule);
}

template <class D>
HWY_INLINE std::int64_t average_float_vectors(D d, const float* HWY_RESTRICT src,
                                              const PoolTaps& taps, std::int64_t begin,
                                              std::int64_t end, float divisor,
                                              float* HWY_RESTRICT dst) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = begin;
  for (; c + lanes <= end; c += lanes) {
    auto sum = hn::Zero(d);
    const float* depth = src + taps.first + c;
    for (std::int64_t i = 0; i < taps.depth_count; ++i, depth += taps.depth_step) {
      const float* height = depth;
      for (std::int64_t j = 0; j < taps.height_count; ++j, height += taps.height_step) {
        const float* width = height;
        for (std::int64_t k = 0; k < taps.width_count; ++k, width += taps.width_step) {
          sum = hn::Add(sum, hn::LoadU(d, width));
        }
      }
    }
    hn::StoreU(hn::Div(sum, hn::Set(d, divisor)), d, dst + c);
  }
  return c;
}

HWY_INLINE void average_pixel(const float* src, const PoolTaps& taps, const AverageRule& rule,
                              std::int64_t begin, std::int64_t end, float* dst) {
  const auto divisor = static_cast<float>(divisor_of(rule, taps));
  std::int64_t c =
      average_float_vectors(hn::ScalableTag<float>(), src, taps, begin, end, divisor, dst);
  c = average_float_vectors(hn::CappedTag<float, 4>(), src, taps, c, end, divisor, dst);
  for (; c < end; ++c) dst[c] = average_of_taps(src + c, taps, rule);
}

// --- One row of output pixels ----------------------------------------------------------------

template <typename T>
void max_row(const PoolRow& row, const T* src, T* dst) {
  const PoolGeometry& geometry = *row.geometry;
  const PoolAxis& width = geometry.axes[2];
  T* to = dst + row.dst;
  for (std::int64_t w = 0; w < width.output; ++w, to += geometry.channels) {
    const PoolTaps taps = pool_taps(geometry, row.d, row.h, width.window(w), geometry.channels);
    max_pixel(src + row.src, taps, row.channel_begin, row.channel_end, to);
  }
}

template <typename T>
void average_row(const PoolRow& row, const AverageRule& rule, const T* src, T* dst) {
  const PoolGeometry& geometry = *row.geometry;
  const PoolAxis& width = geometry.axes[2];
  T* to = dst + row.dst;
  for (std::int64_t w = 0; w < width.output; ++w, to += geometry.channels) {
    const PoolTaps taps = pool_taps(geometry, row.d, row.h, width.window(w), geometry.channels);
    average_pixel(src + row.src, taps, rule, row.channel_begin, row.channel_end, to);
  }
}

void MaxRow(const PoolRow& row, DType dtype, const void* src, void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return max_row(row, static_cast<const std::uint8_t*>(src), static_cast<std::uint8_t*>(dst));
    case DType::QInt8:
      return max_row(row, static_cast<const std::int8_t*>(src), static_cast<std::int8_t*>(dst));
    case DType::QInt32:
      return max_row(row, static_cast<const std::int32_t*>(src), static_cast<std::int32_t*>(dst));
    default:
      return max_row(row, static_cast<const float*>(src), static_cast<float*>(dst));
  }
}

void AverageRow(const PoolRow& row, const AverageRule& rule, DType dtype, const void* src,
                void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return average_row(row, rule, static_cast<const std::uint8_t*>(src),
                         static_cast<std::uint8_t*>(dst));
    case DType::QInt8:
      return average_row(row, rule, static_cast<const std::int8_t*>(src),
                         static_cast<std::int8_t*>(dst));
    default:
      return average_row(row, rule, static_cast<const float*>(src), static_cast<float*>(dst));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace quanta::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {

HWY_EXPORT(MaxRow);
HWY_EXPORT(AverageRow);

namespace {

// Runs body(row) for every row of output pixels of a channels-last pooling, over threads. Few rows
// (a global pooling has one an image) are cut into blocks of channels as well.
template <typename Body>
void for_each_row(const PoolGeometry& geometry, Body&& body) {
  constexpr std::int64_t kChannelBlock = 256;
  constexpr std::int64_t kWork = 32768;
  const auto& axes = geometry.axes;
  const std::int64_t rows = geometry.batch * axes[0].output * axes[1].output;
  const std::int64_t block = rows >= 8 ? geometry.channels : kChannelBlock;
  const std::int64_t blocks = (geometry.channels + block - 1) / block;
  const std::int64_t window = std::max<std::int64_t>(
      1, geometry.axes[0].window(0).end * axes[1].window(0).end * axes[2].window(0).end);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kWork / std::max<std::int64_t>(1, block * axes[2].output * window));
  parallel_for(rows * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t index = item / blocks;
      const std::int64_t image = index / (axes[0].output * axes[1].output);
      PoolRow row;
      row.geometry = &geometry;
      row.d = axes[0].window(index / axes[1].output % axes[0].output);
      row.h = axes[1].window(index % axes[1].output);
      row.src = image * geometry.input_volume() * geometry.channels;
      row.dst = index * axes[2].output * geometry.channels;
      row.channel_begin = item % blocks * block;
      row.channel_end = std::min(geometry.channels, row.channel_begin + block);
      body(row);
    }
  });
}

// body(src_offset, dst_offset, taps) for every output element, planes over threads.
template <typename Body>
void for_each_output(const PoolGeometry& geometry, Body&& body) {
  const auto& axes = geometry.axes;
  const bool channels_last = geometry.layout == PoolLayout::ChannelsLast;
  const std::int64_t pixel = channels_last ? geometry.channels : 1;
  const std::int64_t in = geometry.input_volume();
  const std::int64_t out = geometry.output_volume();
  const std::int64_t grain = std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>({1, in, out}));
  parallel_for(
      geometry.batch * geometry.channels, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t plane = begin; plane < end; ++plane) {
          const std::int64_t image = plane / geometry.channels;
          const std::int64_t channel = plane % geometry.channels;
          const std::int64_t src =
              channels_last ? image * in * geometry.channels + channel : plane * in;
          std::int64_t dst =
              channels_last ? image * out * geometry.channels + channel : plane * out;
          for (std::int64_t d = 0; d < axes[0].output; ++d) {
            const PoolWindow depth = axes[0].window(d);
            for (std::int64_t h = 0; h < axes[1].output; ++h) {
              const PoolWindow height = axes[1].window(h);
              for (std::int64_t w = 0; w < axes[2].output; ++w, dst += pixel) {
                body(src, dst, pool_taps(geometry, depth, height, axes[2].window(w), pixel));
              }
            }
          }
        }
      });
}

template <typename T>
void max_reference(const PoolGeometry& geometry, const void* src, void* dst) {
  const T* from = static_cast<const T*>(src);
  T* to = static_cast<T*>(dst);
  for_each_output(geometry, [&](std::int64_t in, std::int64_t out, const PoolTaps& taps) {
    to[out] = max_of_taps(from + in, taps);
  });
}

template <typename T>
void avg_reference(const PoolGeometry& geometry, const AverageRule& rule, const void* src,
                   void* dst) {
  const T* from = static_cast<const T*>(src);
  T* to = static_cast<T*>(dst);
  for_each_output(geometry, [&](std::int64_t in, std::int64_t out, const PoolTaps& taps) {
    to[out] = average_of_taps(from + in, taps, rule);
  });
}

}  // namespace

void max_pool_reference(const PoolGeometry& geometry, DType dtype, const void* src, void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return max_reference<std::uint8_t>(geometry, src, dst);
    case DType::QInt8:
      return max_reference<std::int8_t>(geometry, src, dst);
    case DType::QInt32:
      return max_reference<std::int32_t>(geometry, src, dst);
    case DType::Float64:
      return max_reference<double>(geometry, src, dst);
    default:
      return max_reference<float>(geometry, src, dst);
  }
}

void avg_pool_reference(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                        const void* src, void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return avg_reference<std::uint8_t>(geometry, rule, src, dst);
    case DType::QInt8:
      return avg_reference<std::int8_t>(geometry, rule, src, dst);
    case DType::Float64:
      return avg_reference<double>(geometry, rule, src, dst);
    default:
      return avg_reference<float>(geometry, rule, src, dst);
  }
}

const char* max_pool(const PoolGeometry& geometry, DType dtype, const void* src, void* dst) {
  if (geometry.layout == PoolLayout::Contiguous || dtype == DType::Float64) {
    max_pool_reference(geometry, dtype, src, dst);
    return geometry.layout == PoolLayout::Contiguous ? "scalar:nchw" : "scalar:nhwc";
  }
  const auto run = HWY_DYNAMIC_DISPATCH(MaxRow);
  for_each_row(geometry, [&](const PoolRow& row) { run(row, dtype, src, dst); });
  return "simd:nhwc";
}

const char* avg_pool(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                     const void* src, void* dst) {
  // The vector code knows only the rounding that torch's channels-last kernels use.
  if (geometry.layout == PoolLayout::Contiguous || dtype == DType::Float64 ||
      rule.rounding != AverageRounding::Centred) {
    avg_pool_reference(geometry, rule, dtype, src, dst);
    return geometry.layout == PoolLayout::Contiguous ? "scalar:nchw" : "scalar:nhwc";
  }
  const auto run = HWY_DYNAMIC_DISPATCH(AverageRow);
  for_each_row(geometry, [&](const PoolRow& row) { run(row, rule, dtype, src, dst); });
  return "simd:nhwc";
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
