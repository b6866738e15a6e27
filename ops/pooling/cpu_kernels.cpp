#include "quanta/ops/pooling/cpu_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/pooling/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "quanta/ops/cpu/simd/requantize_simd.h"
#include "quanta/ops/pooling/cpu_scalar.h"

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

#if QUANTA_VECTORS
// Sums of the bytes (codes of QInt8 moved up by 128) of one block of channels.
template <std::size_t kBytes>
class ByteSums {
 public:
  using ByteVector = hn::Vec<Bytes<kBytes>>;
  using IntVector = hn::Vec<Ints<kBytes>>;

  ByteSums() { clear(); }

  // Pairs of bytes are added as 16-bit numbers: the even bytes' sum is what remains of it when the
  // odd bytes' sum, kept beside it, is taken away. 256 * 255 still fits.
  HWY_INLINE void add(ByteVector bytes) {
    const auto pairs = hn::BitCast(Pairs(), bytes);
    both_ = hn::Add(both_, pairs);
    odd_ = hn::Add(odd_, hn::ShiftRight<8>(pairs));
  }
  /// The sums as four vectors in the order of pack_words and pack_bytes.
  HWY_INLINE void take(IntVector* parts) {
    const Pairs d;
    const auto even = hn::Sub(both_, hn::ShiftLeft<8>(odd_));
    const auto low = hn::InterleaveLower(d, even, odd_);
    const auto high = hn::InterleaveUpper(d, even, odd_);
    const auto zero = hn::Zero(d);
    parts[0] = hn::BitCast(Ints<kBytes>(), hn::InterleaveLower(d, low, zero));
    parts[1] = hn::BitCast(Ints<kBytes>(), hn::InterleaveUpper(d, low, zero));
    parts[2] = hn::BitCast(Ints<kBytes>(), hn::InterleaveLower(d, high, zero));
    parts[3] = hn::BitCast(Ints<kBytes>(), hn::InterleaveUpper(d, high, zero));
    clear();
  }

 private:
  using Pairs = hn::Repartition<std::uint16_t, Bytes<kBytes>>;

  HWY_INLINE void clear() { both_ = odd_ = hn::Zero(Pairs()); }

  hn::Vec<Pairs> both_, odd_;
};

// Codes of type T as bytes that are in order without their sign, and back.
template <typename T, std::size_t kBytes>
HWY_INLINE hn::Vec<Bytes<kBytes>> move_sign(hn::Vec<Bytes<kBytes>> bytes) {
  if constexpr (std::is_signed_v<T>) {
    return hn::Xor(bytes, hn::Set(Bytes<kBytes>(), std::uint8_t{0x80}));
  } else {
    return bytes;
  }
}

// Calls body(first tap, how many) for the rows of taps.
template <typename Body>
HWY_INLINE void for_each_tap_row(const std::uint8_t* depth, const PoolTaps& taps,
                                 const Body& body) {
  for (std::int64_t i = 0; i < taps.depth_count; ++i, depth += taps.depth_step) {
    const std::uint8_t* height = depth;
    for (std::int64_t j = 0; j < taps.height_count; ++j, height += taps.height_step) body(height);
  }
}

// The sums over all taps of kBytes neighbouring channels; kFew: of at most 256 taps.
template <typename T, std::size_t kBytes, bool kFew>
HWY_INLINE void sum_taps(const std::uint8_t* src, const PoolTaps& taps,
                         hn::Vec<Ints<kBytes>>* parts) {
  constexpr std::int64_t kAtOnce = 256;
  ByteSums<kBytes> sums;
  const std::int64_t step = taps.width_step;
  const auto add = [&](const std::uint8_t* from, std::int64_t count) QUANTA_INLINED {
    for (std::int64_t k = 0; k < count; ++k, from += step) {
      sums.add(move_sign<T, kBytes>(hn::LoadU(Bytes<kBytes>(), from)));
    }
  };
  if constexpr (kFew) {
    for_each_tap_row(src, taps,
                     [&](const std::uint8_t* row) QUANTA_INLINED { add(row, taps.width_count); });
    sums.take(parts);
  } else {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < 4; ++v) parts[v] = hn::Zero(Ints<kBytes>());
    for_each_tap_row(src, taps, [&](const std::uint8_t* row) QUANTA_INLINED {
      for (std::int64_t k = 0; k < taps.width_count; k += kAtOnce) {
        add(row + k * step, std::min(kAtOnce, taps.width_count - k));
        hn::Vec<Ints<kBytes>> more[4];
        sums.take(more);
#pragma GCC unroll 4
        for (std::size_t v = 0; v < 4; ++v) parts[v] = hn::Add(parts[v], more[v]);
      }
    });
  }
}

// What turns sums into codes, round_half_even(sum * inverse) + zero_point in float32, as
// average_code() has it for the centred rounding.
struct AverageNumbers {
  std::int32_t offset;  // count * zero point, of bytes in order
  float inverse_divisor;
  std::int32_t zero_point;  // of bytes in order
};

template <std::size_t kBytes, bool kFew, typename T>
HWY_INLINE void average_block(const T* src, const PoolTaps& taps, const AverageNumbers& numbers,
                              T* dst) {
  hn::Vec<Ints<kBytes>> parts[4];
  sum_taps<T, kBytes, kFew>(reinterpret_cast<const std::uint8_t*>(src) + taps.first, taps, parts);
#pragma GCC unroll 4
  for (std::size_t v = 0; v < 4; ++v) {
    const auto centred = hn::Sub(parts[v], hn::Set(Ints<kBytes>(), numbers.offset));
    parts[v] = round_to_int(hn::Mul(hn::ConvertTo(Floats<kBytes>(), centred),
                                    hn::Set(Floats<kBytes>(), numbers.inverse_divisor)));
  }
  const auto zero = hn::Set(Words<kBytes>(), static_cast<std::int16_t>(numbers.zero_point));
  const auto codes = pack_bytes(hn::SaturatedAdd(pack_words(parts[0], parts[1]), zero),
                                hn::SaturatedAdd(pack_words(parts[2], parts[3]), zero));
  hn::StoreU(move_sign<T, kBytes>(codes), Bytes<kBytes>(), reinterpret_cast<std::uint8_t*>(dst));
}

// Channels in whole blocks; the last one may overlap the one before it. Answers where it stopped.
template <bool kFew, typename T>
HWY_INLINE std::int64_t average_blocks(const T* src, const PoolTaps& taps,
                                       const AverageNumbers& numbers, std::int64_t begin,
                                       std::int64_t end, T* dst) {
  constexpr auto kStep = static_cast<std::int64_t>(kVectorBytes);
  if (end - begin < 16) return begin;
  std::int64_t c = begin;
  for (; c + 16 < end && end - begin >= kStep; c += kStep) {
    const std::int64_t at = std::min(c, end - kStep);
    average_block<kVectorBytes, kFew>(src + at, taps, numbers, dst + at);
  }
  for (; c < end; c += 16) {
    const std::int64_t at = std::min(c, end - 16);
    average_block<16, kFew>(src + at, taps, numbers, dst + at);
  }
  return end;
}
#
// Neighbouring rows of taps that lie next to each other in memory are one row.
HWY_INLINE PoolTaps merged_rows(PoolTaps taps) {
  if (taps.width_count * taps.width_step == taps.height_step) {
    taps.width_count *= taps.height_count;
    taps.height_count = 1;
  }
  return taps;
}
#endif

/// The pixels of a row, whose taps differ in the width's window alone.
class RowTaps {
 public:
  explicit RowTaps(const PoolRow& row)
      : width_(row.geometry->axes[2]),
        pixel_(row.geometry->channels),
        taps_(pool_taps(*row.geometry, row.d, row.h, PoolWindow{}, pixel_)),
        row_first_(taps_.first) {}

  HWY_INLINE const PoolTaps& at(std::int64_t w) {
    taps_.w = width_.window(w);
    taps_.width_count = count_taps(taps_.w, width_.dilation);
    taps_.first = row_first_ + taps_.w.begin * pixel_;
    return taps_;
  }

 private:
  const PoolAxis& width_;
  std::int64_t pixel_;
  PoolTaps taps_;
  std::int64_t row_first_;
};

/// Averages of one row's pixels; what neighbours have in common is worked out once.
template <typename T>
class PixelAverage {
 public:
  explicit PixelAverage(const AverageRule& rule) : rule_(rule) {}

  HWY_INLINE void operator()(const T* src, const PoolTaps& taps, std::int64_t begin,
                             std::int64_t end, T* dst) {
    std::int64_t c = begin;
#if QUANTA_VECTORS
    if (taps.width_count != width_count_ || taps.w.padded != padded_) prepare(taps);
    if (count_ <= kFewTaps) {
      c = average_blocks<true>(src, taps, numbers_, begin, end, dst);
    } else if (count_ <= kMostTaps) {
      c = average_blocks<false>(src, merged_rows(taps), numbers_, begin, end, dst);
    }
#endif
    for (; c < end; ++c) dst[c] = average_of_taps(src + c, taps, rule_);
  }

 private:
#if QUANTA_VECTORS
  static constexpr std::int64_t kFewTaps = 256;
  // Larger windows could overflow 32-bit sums; the scalar code has 64.
  static constexpr std::int64_t kMostTaps = std::int64_t{1} << 22;

  void prepare(const PoolTaps& taps) {
    width_count_ = taps.width_count;
    padded_ = taps.w.padded;
    count_ = taps.count();
    if (count_ > kMostTaps) return;
    numbers_.zero_point =
        rule_.zero_point - static_cast<std::int32_t>(std::numeric_limits<T>::lowest());
    numbers_.offset = static_cast<std::int32_t>(count_) * numbers_.zero_point;
    numbers_.inverse_divisor = reciprocal(divisor_of(rule_, taps));
  }

  std::int64_t width_count_ = -1;
  std::int64_t padded_ = -1;
  std::int64_t count_ = 0;
  AverageNumbers numbers_{};
#endif
  const AverageRule& rule_;
};

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

template <>
class PixelAverage<float> {
 public:
  explicit PixelAverage(const AverageRule& rule) : rule_(rule) {}

  HWY_INLINE void operator()(const float* src, const PoolTaps& taps, std::int64_t begin,
                             std::int64_t end, float* dst) const {
    const auto divisor = static_cast<float>(divisor_of(rule_, taps));
    std::int64_t c =
        average_float_vectors(hn::ScalableTag<float>(), src, taps, begin, end, divisor, dst);
    c = average_float_vectors(hn::CappedTag<float, 4>(), src, taps, c, end, divisor, dst);
    for (; c < end; ++c) dst[c] = average_of_taps(src + c, taps, rule_);
  }

 private:
  const AverageRule& rule_;
};

// --- One row of output pixels ----------------------------------------------------------------

#if QUANTA_VECTORS
// Runs of neighbouring elements that are `step` apart, as max_runs takes them.
template <typename T>
struct Runs {
  const T* first;
  std::int64_t step;
  std::int64_t count;
};

// dst[i] = the largest of all runs' elements i, in whole vectors; answers where it stopped.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE std::int64_t max_run_vectors(D d, const Runs<T>& runs, std::int64_t begin,
                                        std::int64_t length, T* HWY_RESTRICT dst) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* second = runs.first + runs.step;
  const T* third = second + runs.step;
  std::int64_t i = begin;
  if (runs.count == 3) {
    for (; i + lanes <= length; i += lanes) {
      const auto two = hn::Max(hn::LoadU(d, runs.first + i), hn::LoadU(d, second + i));
      hn::StoreU(hn::Max(two, hn::LoadU(d, third + i)), d, dst + i);
    }
    return i;
  }
  for (; i + lanes <= length; i += lanes) {
    const T* from = runs.first + i;
    auto best = hn::LoadU(d, from);
    for (std::int64_t k = 1; k < runs.count; ++k) {
      from += runs.step;
      best = hn::Max(best, hn::LoadU(d, from));
    }
    hn::StoreU(best, d, dst + i);
  }
  return i;
}

template <typename T>
HWY_INLINE void max_runs(const Runs<T>& runs, std::int64_t length, T* dst) {
  std::int64_t i = max_run_vectors(hn::ScalableTag<T>(), runs, 0, length, dst);
  i = max_run_vectors(hn::CappedTag<T, 32>(), runs, i, length, dst);
  i = max_run_vectors(hn::CappedTag<T, 16>(), runs, i, length, dst);
  i = max_run_vectors(hn::CappedTag<T, 8>(), runs, i, length, dst);
  for (; i < length; ++i) {
    dst[i] = runs.first[i];
    for (std::int64_t k = 1; k < runs.count; ++k) {
      dst[i] = std::max(dst[i], runs.first[k * runs.step + i]);
    }
  }
}

// A row whose windows overlap: down the columns first, which neighbouring windows share.
template <typename T>
void max_shared_row(const PoolRow& row, const T* src, T* dst) {
  const PoolGeometry& geometry = *row.geometry;
  const PoolAxis& width = geometry.axes[2];
  const std::int64_t channels = geometry.channels;
  const std::int64_t length = width.input * channels;
  thread_local std::vector<T> columns;
  columns.resize(static_cast<std::size_t>(length));
  const PoolTaps taps = pool_taps(geometry, row.d, row.h, PoolWindow{}, channels);
  max_runs(Runs<T>{src + row.src + taps.first, taps.height_step, taps.height_count}, length,
           columns.data());
  for (std::int64_t w = 0; w < width.output; ++w, dst += channels) {
    const PoolWindow window = width.window(w);
    max_runs(Runs<T>{columns.data() + window.begin * channels, channels, window.end - window.begin},
             channels, dst);
  }
}

// Whether windows share columns. Codes alone do: with floats the order decides the sign of zeros.
template <typename T>
bool shares_columns(const PoolRow& row) {
  const PoolAxis& width = row.geometry->axes[2];
  // Dilation may leave a window without any element.
  return sizeof(T) == 1 && !width.adaptive && width.stride < width.kernel && width.dilation == 1 &&
         row.d.end - row.d.begin == 1 && row.h.end > row.h.begin && row.channel_begin == 0 &&
         row.channel_end == row.geometry->channels;
}
#endif

template <typename T>
void max_row(const PoolRow& row, const T* src, T* dst) {
  const PoolGeometry& geometry = *row.geometry;
  const PoolAxis& width = geometry.axes[2];
  T* to = dst + row.dst;
#if QUANTA_VECTORS
  if (shares_columns<T>(row)) {
    max_shared_row(row, src, to);
    return;
  }
#endif
  RowTaps taps(row);
  for (std::int64_t w = 0; w < width.output; ++w, to += geometry.channels) {
    max_pixel(src + row.src, taps.at(w), row.channel_begin, row.channel_end, to);
  }
}

template <typename T>
void average_row(const PoolRow& row, const AverageRule& rule, const T* src, T* dst) {
  const PoolGeometry& geometry = *row.geometry;
  const PoolAxis& width = geometry.axes[2];
  T* to = dst + row.dst;
  RowTaps taps(row);
  PixelAverage<T> average(rule);
  for (std::int64_t w = 0; w < width.output; ++w, to += geometry.channels) {
    average(src + row.src, taps.at(w), row.channel_begin, row.channel_end, to);
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
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {

HWY_EXPORT(MaxRow);
HWY_EXPORT(AverageRow);

namespace {

// Runs body(row) for every row of output pixels of a channels-last pooling, over threads. Few rows
// (a global pooling has one an image) are cut into blocks of channels as well.
template <typename Body>
void for_each_row(const PoolGeometry& geometry, DType dtype, Body&& body) {
  constexpr std::int64_t kChannelBlock = 256;
  // Elements for which a second thread is not worth its waking.
  const std::int64_t work = item_size(dtype) == 1 ? 131072 : 32768;
  const auto& axes = geometry.axes;
  const std::int64_t rows = geometry.batch * axes[0].output * axes[1].output;
  const std::int64_t block = rows >= 8 ? geometry.channels : kChannelBlock;
  const std::int64_t blocks = ceil_div(geometry.channels, block);
  const std::int64_t window = std::max<std::int64_t>(
      1, geometry.axes[0].window(0).end * axes[1].window(0).end * axes[2].window(0).end);
  const std::int64_t grain =
      std::max<std::int64_t>(1, work / std::max<std::int64_t>(1, block * axes[2].output * window));
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
  if (geometry.layout == PoolLayout::Contiguous && takes_planes(geometry, dtype)) {
    max_pool_planes(geometry, dtype, src, dst);
    return "simd:nchw";
  }
  if (geometry.layout == PoolLayout::Contiguous || dtype == DType::Float64) {
    max_pool_reference(geometry, dtype, src, dst);
    return geometry.layout == PoolLayout::Contiguous ? "scalar:nchw" : "scalar:nhwc";
  }
  const auto run = HWY_DYNAMIC_DISPATCH(MaxRow);
  for_each_row(geometry, dtype, [&](const PoolRow& row) { run(row, dtype, src, dst); });
  return "simd:nhwc";
}

const char* avg_pool(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                     const void* src, void* dst) {
  if (geometry.layout == PoolLayout::Contiguous && takes_planes(geometry, dtype)) {
    avg_pool_planes(geometry, rule, dtype, src, dst);
    return "simd:nchw";
  }
  // The vector code knows only the rounding that torch's channels-last kernels use.
  if (geometry.layout == PoolLayout::Contiguous || dtype == DType::Float64 ||
      rule.rounding != AverageRounding::Centred) {
    avg_pool_reference(geometry, rule, dtype, src, dst);
    return geometry.layout == PoolLayout::Contiguous ? "scalar:nchw" : "scalar:nhwc";
  }
  const auto run = HWY_DYNAMIC_DISPATCH(AverageRow);
  for_each_row(geometry, dtype, [&](const PoolRow& row) { run(row, rule, dtype, src, dst); });
  return "simd:nhwc";
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
