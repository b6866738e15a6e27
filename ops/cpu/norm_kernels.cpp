#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/norm_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once for each instruction set.
#include <hwy/highway.h>

#include "quanta/ops/cpu/norm_kernels.h"
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

// math::quantize in float32 lanes.
template <class D8, class V>
HWY_INLINE void store_codes(D8 d8, V value, const NormOutput& output, hn::TFromD<D8>* dst) {
  const hn::Rebind<float, D8> df;
  const hn::Rebind<std::int32_t, D8> d32;
  const auto low = hn::Set(df, static_cast<float>(output.min - output.zero_point));
  const auto high = hn::Set(df, static_cast<float>(output.max - output.zero_point));
  const auto rounded = hn::Round(hn::Mul(value, hn::Set(df, output.inv_scale)));
  // Not below the upper end, NaN included, is the upper end.
  const auto clamped = hn::IfThenElse(hn::Lt(rounded, high), hn::Max(rounded, low), high);
  const auto code = hn::Add(hn::ConvertTo(d32, clamped), hn::Set(d32, output.zero_point));
  hn::StoreU(hn::DemoteTo(d8, code), d8, dst);
}

template <bool kCenters, bool kScales, class D, typename T>
HWY_INLINE std::int64_t norm_vectors(D df, const T* HWY_RESTRICT src,
                                     const NormParameters& parameters, std::int64_t begin,
                                     std::int64_t count, const NormOutput& output,
                                     T* HWY_RESTRICT dst) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  std::int64_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    const auto center = parameter<kCenters>(df, parameters.center, i);
    const auto scale = parameter<kScales>(df, parameters.scale, i);
    const auto shift = parameter<kScales>(df, parameters.shift, i);
    if constexpr (std::is_same_v<T, float>) {
      static_cast<void>(output);
      hn::StoreU(affine(df, hn::LoadU(df, src + i), center, scale, shift), df, dst + i);
    } else {
      const hn::Rebind<T, D> d8;
      const hn::Rebind<std::int32_t, D> d32;
      const auto x = hn::ConvertTo(df, hn::PromoteTo(d32, hn::LoadU(d8, src + i)));
      store_codes(d8, affine(df, x, center, scale, shift), output, dst + i);
    }
  }
  return i;
}

template <bool kCenters, bool kScales, typename T>
HWY_INLINE void norm_all(DType dtype, const T* src, const NormParameters& parameters,
                         std::int64_t count, const NormOutput& output, T* dst) {
  std::int64_t i = norm_vectors<kCenters, kScales>(hn::ScalableTag<float>(), src, parameters, 0,
                                                   count, output, dst);
  i = norm_vectors<kCenters, kScales>(hn::CappedTag<float, 4>(), src, parameters, i, count, output,
                                      dst);
  if (i == count) return;
  const NormParameters rest{parameters.center + i * parameters.center_step,
                            parameters.scale + i * parameters.scale_step,
                            parameters.shift + i * parameters.scale_step, parameters.center_step,
                            parameters.scale_step};
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace quanta::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(NormRun);
HWY_EXPORT(NormRow);
HWY_EXPORT(NormChannels);

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
      dst[i] = static_cast<T>(math::quantize(value, output.inv_scale, output.zero_point, output.min,
                                             output.max));
    }
  }
}

template <typename T>
NormSums sums_of(const T* src, std::int64_t count) {
  // Eight running sums whose order is fixed: the same double on every instruction set and layout
  // of threads, yet not one long chain of additions.
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, std::int64_t>;
  constexpr std::int64_t kLanes = 8;
  Sum sum[kLanes] = {};
  Sum squares[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<Sum>(src[i + lane]);
      sum[lane] += value;
      squares[lane] += value * value;
    }
  }
  NormSums total;
  for (; i < count; ++i) {
    const auto value = static_cast<double>(src[i]);
    total.sum += value;
    total.squares += value * value;
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    total.sum += static_cast<double>(sum[lane]);
    total.squares += static_cast<double>(squares[lane]);
  }
  return total;
}

template <typename T>
void channel_sums(const T* src, std::int64_t rows, std::int64_t channels, NormSums* sums) {
  for (std::int64_t row = 0; row < rows; ++row, src += channels) {
    for (std::int64_t c = 0; c < channels; ++c) {
      // Whole numbers below 2^53 are exact in double.
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
  switch (dtype) {
    case DType::QUInt8:
      return sums_of(static_cast<const std::uint8_t*>(src), count);
    case DType::QInt8:
      return sums_of(static_cast<const std::int8_t*>(src), count);
    default:
      return sums_of(static_cast<const float*>(src), count);
  }
}

void norm_channel_sums(DType dtype, const void* src, std::int64_t rows, std::int64_t channels,
                       NormSums* sums) {
  switch (dtype) {
    case DType::QUInt8:
      return channel_sums(static_cast<const std::uint8_t*>(src), rows, channels, sums);
    case DType::QInt8:
      return channel_sums(static_cast<const std::int8_t*>(src), rows, channels, sums);
    default:
      return channel_sums(static_cast<const float*>(src), rows, channels, sums);
  }
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
