#include "quanta/ops/norm/cpu_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/norm/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "quanta/ops/cpu/code_blocks.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <bool kPerElement, class D>
HWY_INLINE hn::Vec<D> parameter(D d, const float* values, std::int64_t i) {
  return kPerElement ? hn::LoadU(d, values + i) : hn::Set(d, *values);
}

template <class D, class V>
HWY_INLINE V affine(D d, V x, V center, V scale, V shift) {
  static_cast<void>(d);
  return hn::Add(hn::Mul(hn::Sub(x, center), scale), shift);
}

template <bool kCenters, bool kScales, class D>
HWY_INLINE std::int64_t float_vectors(D df, const float* HWY_RESTRICT src,
                                      const NormParameters& parameters, std::int64_t begin,
                                      std::int64_t count, float* HWY_RESTRICT dst) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  std::int64_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(affine(df, hn::LoadU(df, src + i), parameter<kCenters>(df, parameters.center, i),
                      parameter<kScales>(df, parameters.scale, i),
                      parameter<kScales>(df, parameters.shift, i)),
               df, dst + i);
  }
  return i;
}

template <bool kCenters, bool kScales>
HWY_INLINE std::int64_t norm_blocks(const float* src, const NormParameters& parameters,
                                    std::int64_t count, const NormOutput&, float* dst) {
  const std::int64_t i =
      float_vectors<kCenters, kScales>(hn::ScalableTag<float>(), src, parameters, 0, count, dst);
  return float_vectors<kCenters, kScales>(hn::CappedTag<float, 4>(), src, parameters, i, count,
                                          dst);
}

#if QUANTA_VECTORS
QuantizeArgs quantize_args(const NormOutput& output) {
  return {output.inv_scale, output.zero_point, output.min, output.max, output.max};
}

template <bool kCenters, bool kScales, typename T>
struct NormSource {
  HWY_INLINE void move_to(std::int64_t) const {}
  template <std::size_t kBytes>
  HWY_INLINE hn::Vec<Floats<kBytes>> at(std::int64_t i) const {
    const Floats<kBytes> d;
    const auto value = affine(
        d, load_code_floats<kBytes>(src + i), parameter<kCenters>(d, parameters.center, i),
        parameter<kScales>(d, parameters.scale, i), parameter<kScales>(d, parameters.shift, i));
    return hn::Mul(value, hn::Set(d, inv_scale));
  }
  const T* src;
  NormParameters parameters;
  float inv_scale;
};

// Rows of channels: center, scale and shift repeat.
template <typename T>
struct NormRowsSource {
  HWY_INLINE void move_to(std::int64_t i) { position.move_to(i); }
  template <std::size_t kBytes>
  HWY_INLINE hn::Vec<Floats<kBytes>> at(std::int64_t i) const {
    const Floats<kBytes> d;
    const auto value =
        affine(d, load_code_floats<kBytes>(src + i), position.template at<kBytes>(0, i),
               position.template at<kBytes>(1, i), position.template at<kBytes>(2, i));
    return hn::Mul(value, hn::Set(d, inv_scale));
  }
  const T* src;
  ChannelPosition<3> position;
  float inv_scale;
};

template <bool kCenters, bool kScales, typename T>
HWY_INLINE std::int64_t norm_blocks(const T* src, const NormParameters& parameters,
                                    std::int64_t count, const NormOutput& output, T* dst) {
  return write_codes<Reach::Any>(
      NormSource<kCenters, kScales, T>{src, parameters, output.inv_scale}, quantize_args(output),
      dst, count);
}

template <typename T>
void norm_code_rows(const T* src, const NormParameters& parameters, std::int64_t rows,
                    std::int64_t channels, const NormOutput& output, T* dst) {
  ChannelTerms<3> terms(channels);
  std::copy(parameters.center, parameters.center + channels, terms.term(0));
  std::copy(parameters.scale, parameters.scale + channels, terms.term(1));
  std::copy(parameters.shift, parameters.shift + channels, terms.term(2));
  terms.repeat();
  write_codes<Reach::Any>(NormRowsSource<T>{src, ChannelPosition<3>(terms), output.inv_scale},
                          quantize_args(output), dst, rows * channels);
}
#else
template <bool kCenters, bool kScales, typename T>
std::int64_t norm_blocks(const T*, const NormParameters&, std::int64_t, const NormOutput&, T*) {
  return 0;
}
#endif

template <bool kCenters, bool kScales, typename T>
HWY_INLINE void norm_all(DType dtype, const T* src, const NormParameters& parameters,
                         std::int64_t count, const NormOutput& output, T* dst) {
  const std::int64_t i = norm_blocks<kCenters, kScales>(src, parameters, count, output, dst);
  if (i == count) return;
  const NormParameters rest{
      parameters.center + i * parameters.center_step, parameters.scale + i * parameters.scale_step,
      parameters.shift + i * parameters.scale_step, parameters.center_step, parameters.scale_step};
  norm_reference(dtype, src + i, rest, count - i, output, dst + i);
}

template <bool kCenters, bool kScales>
HWY_INLINE void norm_typed(DType dtype, const void* src, const NormParameters& parameters,
                           std::int64_t count, const NormOutput& output, void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return norm_all<kCenters, kScales>(dtype, static_cast<const std::uint8_t*>(src), parameters,
                                         count, output, static_cast<std::uint8_t*>(dst));
    case DType::QInt8:
      return norm_all<kCenters, kScales>(dtype, static_cast<const std::int8_t*>(src), parameters,
                                         count, output, static_cast<std::int8_t*>(dst));
    default:
      return norm_all<kCenters, kScales>(dtype, static_cast<const float*>(src), parameters, count,
                                         output, static_cast<float*>(dst));
  }
}

void NormRun(DType dtype, const void* src, const NormParameters& parameters, std::int64_t count,
             const NormOutput& output, void* dst) {
  norm_typed<false, false>(dtype, src, parameters, count, output, dst);
}
void NormRow(DType dtype, const void* src, const NormParameters& parameters, std::int64_t count,
             const NormOutput& output, void* dst) {
  norm_typed<false, true>(dtype, src, parameters, count, output, dst);
}
void NormChannels(DType dtype, const void* src, const NormParameters& parameters,
                  std::int64_t count, const NormOutput& output, void* dst) {
  norm_typed<true, true>(dtype, src, parameters, count, output, dst);
}

void NormRows(DType dtype, const void* src, const NormParameters& parameters, std::int64_t rows,
              std::int64_t channels, const NormOutput& output, void* dst) {
#if QUANTA_VECTORS
  if (dtype != DType::Float32 && channels <= kMaxTermChannels && rows * channels >= 16) {
    if (dtype == DType::QUInt8) {
      return norm_code_rows(static_cast<const std::uint8_t*>(src), parameters, rows, channels,
                            output, static_cast<std::uint8_t*>(dst));
    }
    return norm_code_rows(static_cast<const std::int8_t*>(src), parameters, rows, channels, output,
                          static_cast<std::int8_t*>(dst));
  }
#endif
  const std::int64_t bytes = channels * static_cast<std::int64_t>(item_size(dtype));
  for (std::int64_t row = 0; row < rows; ++row) {
    NormChannels(dtype, static_cast<const std::byte*>(src) + row * bytes, parameters, channels,
                 output, static_cast<std::byte*>(dst) + row * bytes);
  }
}

// --- Statistics of codes -----------------------------------------------------------------------

// Steps after which 32 bits may be full: a step adds two squares of at most 255 to a lane.
constexpr std::int64_t kFlush = 8192;

template <class D>
HWY_INLINE std::int64_t sum_lanes(D d32, hn::Vec<D> v) {
  std::int32_t lanes[hn::MaxLanes(d32)];
  hn::StoreU(v, d32, lanes);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < hn::Lanes(d32); ++i) total += lanes[i];
  return total;
}

template <typename T>
HWY_INLINE void code_sums(const T* HWY_RESTRICT src, std::int64_t count, CodeSums& sums) {
  const hn::ScalableTag<std::int16_t> d16;
  const hn::RepartitionToWide<decltype(d16)> d32;
  const hn::Rebind<T, decltype(d16)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d16));
  const auto one = hn::Set(d16, 1);
  std::int64_t i = 0;
  while (i + lanes <= count) {
    const std::int64_t stop = i + std::min((count - i) / lanes, kFlush) * lanes;
    auto sum = hn::Zero(d32);
    auto sum_high = hn::Zero(d32);
    auto squares = hn::Zero(d32);
    auto squares_high = hn::Zero(d32);
    for (; i < stop; i += lanes) {
      const auto x = hn::PromoteTo(d16, hn::LoadU(d8, src + i));
      sum = hn::ReorderWidenMulAccumulate(d32, x, one, sum, sum_high);
      squares = hn::ReorderWidenMulAccumulate(d32, x, x, squares, squares_high);
    }
    sums.sum += sum_lanes(d32, sum) + sum_lanes(d32, sum_high);
    sums.squares += sum_lanes(d32, squares) + sum_lanes(d32, squares_high);
  }
  for (; i < count; ++i) {
    sums.sum += src[i];
    sums.squares += src[i] * src[i];
  }
}

// Channels [begin, ...) in whole vectors; returns where it stopped.
template <class D32, typename T>
HWY_INLINE std::int64_t channel_vectors(D32 d32, const T* HWY_RESTRICT src, std::int64_t rows,
                                        std::int64_t channels, std::int64_t begin, NormSums* sums) {
  const hn::Rebind<T, D32> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d32));
  std::int32_t row_sums[hn::MaxLanes(d32)];
  std::int32_t row_squares[hn::MaxLanes(d32)];
  std::int64_t c = begin;
  for (; c + lanes <= channels; c += lanes) {
    const T* from = src + c;
    for (std::int64_t row = 0; row < rows;) {
      const std::int64_t stop = std::min(rows, row + kFlush);
      auto sum = hn::Zero(d32);
      auto squares = hn::Zero(d32);
      for (; row < stop; ++row, from += channels) {
        const auto x = hn::PromoteTo(d32, hn::LoadU(d8, from));
        sum = hn::Add(sum, x);
        squares = hn::Add(squares, hn::Mul(x, x));
      }
      hn::StoreU(sum, d32, row_sums);
      hn::StoreU(squares, d32, row_squares);
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        // Whole numbers below 2^53 are exact in double.
        sums[c + lane].sum += static_cast<double>(row_sums[lane]);
        sums[c + lane].squares += static_cast<double>(row_squares[lane]);
      }
    }
  }
  return c;
}

template <typename T>
HWY_INLINE std::int64_t channel_sums(const T* src, std::int64_t rows, std::int64_t channels,
                                     NormSums* sums) {
  const std::int64_t c =
      channel_vectors(hn::ScalableTag<std::int32_t>(), src, rows, channels, 0, sums);
  return channel_vectors(hn::CappedTag<std::int32_t, 4>(), src, rows, channels, c, sums);
}

// Eight running sums whose order is fixed, element i in sum i % 8: the same double on every
// instruction set and layout of threads.
NormSums SumsFloat(const float* src, std::int64_t count) {
  constexpr std::int64_t kSums = 8;
  const hn::CappedTag<double, kSums> d;
  const hn::Rebind<float, decltype(d)> d32;
  constexpr std::size_t kStep = hn::MaxLanes(d);
  constexpr std::size_t kVectors = kSums / kStep;
  hn::Vec<decltype(d)> sums[kVectors];
  hn::Vec<decltype(d)> squares[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) sums[k] = squares[k] = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t k = 0; k < kVectors; ++k) {
      const auto x = hn::PromoteTo(d, hn::LoadU(d32, src + i + k * kStep));
      sums[k] = hn::Add(sums[k], x);
      squares[k] = hn::Add(squares[k], hn::Mul(x, x));
    }
  }
  NormSums total;
  for (; i < count; ++i) {
    const auto value = static_cast<double>(src[i]);
    total.sum += value;
    total.squares += value * value;
  }
  double lane_sums[kSums];
  double lane_squares[kSums];
  for (std::size_t k = 0; k < kVectors; ++k) {
    hn::StoreU(sums[k], d, lane_sums + k * kStep);
    hn::StoreU(squares[k], d, lane_squares + k * kStep);
  }
  for (std::int64_t lane = 0; lane < kSums; ++lane) {
    total.sum += lane_sums[lane];
    total.squares += lane_squares[lane];
  }
  return total;
}

void SumsU8(const std::uint8_t* src, std::int64_t count, CodeSums& sums) {
  code_sums(src, count, sums);
}
void SumsS8(const std::int8_t* src, std::int64_t count, CodeSums& sums) {
  code_sums(src, count, sums);
}
std::int64_t ChannelsU8(const std::uint8_t* src, std::int64_t rows, std::int64_t channels,
                        NormSums* sums) {
  return channel_sums(src, rows, channels, sums);
}
std::int64_t ChannelsS8(const std::int8_t* src, std::int64_t rows, std::int64_t channels,
                        NormSums* sums) {
  return channel_sums(src, rows, channels, sums);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace quanta::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(NormRun);
HWY_EXPORT(NormRow);
HWY_EXPORT(NormChannels);
HWY_EXPORT(NormRows);
HWY_EXPORT(SumsU8);
HWY_EXPORT(SumsS8);
HWY_EXPORT(SumsFloat);
HWY_EXPORT(ChannelsU8);
HWY_EXPORT(ChannelsS8);

namespace {

template <typename T>
void reference(const T* src, const NormParameters& parameters, std::int64_t count,
               const NormOutput& output, T* dst) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float center = parameters.center[i * parameters.center_step];
    const float scale = parameters.scale[i * parameters.scale_step];
    const float shift = parameters.shift[i * parameters.scale_step];
    const float value = (static_cast<float>(src[i]) - center) * scale + shift;
    if constexpr (std::is_same_v<T, float>) {
      static_cast<void>(output);
      dst[i] = value;
    } else {
      dst[i] = static_cast<T>(
          math::quantize(value, output.inv_scale, output.zero_point, output.min, output.max));
    }
  }
}

NormSums exact(const CodeSums& sums) {
  return {static_cast<double>(sums.sum), static_cast<double>(sums.squares)};
}

// Channels from `begin` on.
template <typename T>
void rest_of_channels(const T* src, std::int64_t rows, std::int64_t channels, std::int64_t begin,
                      NormSums* sums) {
  if (begin == channels) return;
  for (std::int64_t row = 0; row < rows; ++row, src += channels) {
    for (std::int64_t c = begin; c < channels; ++c) {
      const auto value = static_cast<double>(src[c]);
      sums[c].sum += value;
      sums[c].squares += value * value;
    }
  }
}

}  // namespace

void norm_run(DType dtype, const void* src, float center, float scale, float shift,
              std::int64_t count, const NormOutput& output, void* dst) {
  const NormParameters parameters{&center, &scale, &shift, 0, 0};
  HWY_DYNAMIC_DISPATCH(NormRun)(dtype, src, parameters, count, output, dst);
}

void norm_row(DType dtype, const void* src, float center, const float* scale, const float* shift,
              std::int64_t count, const NormOutput& output, void* dst) {
  const NormParameters parameters{&center, scale, shift, 0, 1};
  HWY_DYNAMIC_DISPATCH(NormRow)(dtype, src, parameters, count, output, dst);
}

void norm_channels(DType dtype, const void* src, const float* center, const float* scale,
                   const float* shift, std::int64_t count, const NormOutput& output, void* dst) {
  const NormParameters parameters{center, scale, shift, 1, 1};
  HWY_DYNAMIC_DISPATCH(NormChannels)(dtype, src, parameters, count, output, dst);
}

void norm_rows(DType dtype, const void* src, const float* center, const float* scale,
               const float* shift, std::int64_t rows, std::int64_t channels,
               const NormOutput& output, void* dst) {
  const NormParameters parameters{center, scale, shift, 1, 1};
  HWY_DYNAMIC_DISPATCH(NormRows)(dtype, src, parameters, rows, channels, output, dst);
}

void norm_reference(DType dtype, const void* src, const NormParameters& parameters,
                    std::int64_t count, const NormOutput& output, void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return reference(static_cast<const std::uint8_t*>(src), parameters, count, output,
                       static_cast<std::uint8_t*>(dst));
    case DType::QInt8:
      return reference(static_cast<const std::int8_t*>(src), parameters, count, output,
                       static_cast<std::int8_t*>(dst));
    default:
      return reference(static_cast<const float*>(src), parameters, count, output,
                       static_cast<float*>(dst));
  }
}

NormSums norm_sums(DType dtype, const void* src, std::int64_t count) {
  CodeSums sums;
  switch (dtype) {
    case DType::QUInt8:
      HWY_DYNAMIC_DISPATCH(SumsU8)(static_cast<const std::uint8_t*>(src), count, sums);
      return exact(sums);
    case DType::QInt8:
      HWY_DYNAMIC_DISPATCH(SumsS8)(static_cast<const std::int8_t*>(src), count, sums);
      return exact(sums);
    default:
      return HWY_DYNAMIC_DISPATCH(SumsFloat)(static_cast<const float*>(src), count);
  }
}

void norm_channel_sums(DType dtype, const void* src, std::int64_t rows, std::int64_t channels,
                       NormSums* sums) {
  const auto codes = [&]<typename T>(const T* from, auto&& vectors) {
    rest_of_channels(from, rows, channels, vectors(from, rows, channels, sums), sums);
  };
  switch (dtype) {
    case DType::QUInt8:
      return codes(static_cast<const std::uint8_t*>(src), HWY_DYNAMIC_DISPATCH(ChannelsU8));
    case DType::QInt8:
      return codes(static_cast<const std::int8_t*>(src), HWY_DYNAMIC_DISPATCH(ChannelsS8));
    default:
      return rest_of_channels(static_cast<const float*>(src), rows, channels, 0, sums);
  }
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
