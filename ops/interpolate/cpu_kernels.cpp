#include "quanta/ops/interpolate/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "quanta/ops/interpolate/cpu_blend_lines.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/interpolate/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/code_blocks.h"
#include "quanta/ops/cpu/simd/fused_simd.h"
#include "quanta/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, typename T>
HWY_INLINE hn::Vec<D> load_floats(D df, const T* src) {
  if constexpr (std::is_same_v<T, float>) {
    return hn::LoadU(df, src);
  } else {
    const hn::Rebind<T, D> d8;
    const hn::Rebind<std::int32_t, D> d32;
    return hn::ConvertTo(df, hn::PromoteTo(d32, hn::LoadU(d8, src)));
  }
}

// math::blend_of in vectors.
template <math::Fusing kFusing, class D, class V = hn::Vec<D>>
HWY_INLINE V blend_of(D df, V weight_low, V low, V weight_high, V high) {
  if constexpr (kFusing == math::Fusing::Low) {
    return fused_add(df, weight_low, low, hn::Mul(weight_high, high));
  } else if constexpr (kFusing == math::Fusing::High) {
    return fused_add(df, weight_high, high, hn::Mul(weight_low, low));
  } else {
    return hn::Add(hn::Mul(weight_low, low), hn::Mul(weight_high, high));
  }
}

// Channels [begin, ...) of one output pixel in whole vectors; returns where it stopped.
template <math::Fusing kFusing, class D, typename T>
HWY_INLINE std::int64_t blend_pixel(D df, const T* low, const T* high, const LinearTap& tap,
                                    std::int64_t begin, std::int64_t end, float* dst) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const auto weight_low = hn::Set(df, tap.weight_low);
  const auto weight_high = hn::Set(df, tap.weight_high);
  std::int64_t c = begin;
  for (; c + lanes <= end; c += lanes) {
    hn::StoreU(blend_of<kFusing>(df, weight_low, load_floats(df, low + c), weight_high,
                                 load_floats(df, high + c)),
               df, dst + c);
  }
  return c;
}

// Channels [begin, end) of one output pixel.
template <math::Fusing kFusing, typename T>
HWY_INLINE void blend_channels(const T* low, const T* high, const LinearTap& tap,
                               std::int64_t begin, std::int64_t end, float* dst) {
  std::int64_t c = begin;
  if (end - begin >= 4) {
    c = blend_pixel<kFusing>(hn::ScalableTag<float>(), low, high, tap, c, end, dst);
    c = blend_pixel<kFusing>(hn::CappedTag<float, 4>(), low, high, tap, c, end, dst);
  }
  for (; c < end; ++c) {
    dst[c] = math::blend_of<kFusing>(tap.weight_low, static_cast<float>(low[c]), tap.weight_high,
                                     static_cast<float>(high[c]));
  }
}

template <typename T>
HWY_INLINE void blend_width(const T* src, const LinearTap* taps, std::int64_t width,
                            std::int64_t pixel, bool is_fused, float* dst) {
  using math::Fusing;
  const std::int64_t single = math::first_single_channel(pixel);
  for (std::int64_t w = 0; w < width; ++w, dst += pixel) {
    const LinearTap tap = taps[w];
    const T* low = src + tap.low * pixel;
    const T* high = src + tap.high * pixel;
    if (!is_fused) {
      blend_channels<Fusing::None>(low, high, tap, 0, pixel, dst);
    } else {
      blend_channels<Fusing::High>(low, high, tap, 0, single, dst);
      blend_channels<Fusing::Low>(low, high, tap, single, pixel, dst);
    }
  }
}

// The blend of lines at elements i, i + 1, ...
template <int kLines, math::Fusing kFusing, class D>
HWY_INLINE hn::Vec<D> blend_at(D df, const BlendLines& lines, std::int64_t i) {
  const auto along_height = [&](std::size_t first) QUANTA_INLINED {
    return blend_of<kFusing>(df, hn::Set(df, lines.height_low),
                             hn::LoadU(df, lines.line[first] + i), hn::Set(df, lines.height_high),
                             hn::LoadU(df, lines.line[first + 1] + i));
  };
  if constexpr (kLines == 1) {
    return hn::LoadU(df, lines.line[0] + i);
  } else if constexpr (kLines == 2) {
    return along_height(0);
  } else {
    return blend_of<kFusing>(df, hn::Set(df, lines.depth_low), along_height(0),
                             hn::Set(df, lines.depth_high), along_height(2));
  }
}

template <int kLines, class D>
HWY_INLINE std::int64_t blend_floats(D df, const BlendLines& lines, std::int64_t begin,
                                     std::int64_t count, float* dst) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  std::int64_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(blend_at<kLines, math::Fusing::None>(df, lines, i), df, dst + i);
  }
  return i;
}

#if QUANTA_VECTORS
// rounded_blend() in vectors.
template <int kLines, math::Fusing kFusing>
struct BlendSource {
  HWY_INLINE void move_to(std::int64_t) const {}
  template <std::size_t kBytes>
  HWY_INLINE hn::Vec<Floats<kBytes>> at(std::int64_t i) const {
    const Floats<kBytes> d;
    return hn::Sub(blend_at<kLines, kFusing>(d, lines, i), hn::Set(d, zero_point));
  }
  BlendLines lines;
  float zero_point;
};
#endif

template <int kLines, math::Fusing kFusing, typename T>
HWY_INLINE void blend_line(const BlendLines& lines, std::int64_t count, float zero_point, T* dst) {
  std::int64_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    i = blend_floats<kLines>(hn::ScalableTag<float>(), lines, 0, count, dst);
    i = blend_floats<kLines>(hn::CappedTag<float, 4>(), lines, i, count, dst);
  } else {
#if QUANTA_VECTORS
    constexpr std::int32_t kMin = std::numeric_limits<T>::min();
    constexpr std::int32_t kMax = std::numeric_limits<T>::max();
    const QuantizeArgs args{1.0F, static_cast<std::int32_t>(zero_point), kMin, kMax, kMax};
    // A blend of codes lies between them.
    i = write_codes<Reach::Int32>(BlendSource<kLines, kFusing>{lines, zero_point}, args, dst,
                                  count);
#endif
  }
  blend_rest<kLines, kFusing>(lines, i, count, zero_point, dst);
}

// A line of codes of which the channels that torch blends in vectors are blended as these, and the
// others by themselves.
template <typename T>
HWY_INLINE void blend_fused_line(BlendLines lines, std::int64_t count, float zero_point, T* dst) {
  using math::Fusing;
  const std::int64_t single = math::first_single_channel(lines.pixel);
  if (single == 0) return blend_line<2, Fusing::Low>(lines, count, zero_point, dst);
  if (single == lines.pixel) return blend_line<2, Fusing::High>(lines, count, zero_point, dst);
  const auto advance = [&](std::int64_t by) QUANTA_INLINED {
    for (std::size_t k = 0; k < 2; ++k) lines.line[k] += by;
    dst += by;
  };
  for (std::int64_t i = 0; i < count; i += lines.pixel) {
    blend_line<2, Fusing::High>(lines, single, zero_point, dst);
    advance(single);
    blend_line<2, Fusing::Low>(lines, lines.pixel - single, zero_point, dst);
    advance(lines.pixel - single);
  }
}

template <typename T>
HWY_INLINE void blend_height(const BlendLines& lines, std::int64_t count, float zero_point,
                             T* dst) {
  using math::Fusing;
  if constexpr (!std::is_same_v<T, float>) {
    if (lines.is_fused && lines.count == 2) return blend_fused_line(lines, count, zero_point, dst);
  }
  if (lines.count == 1) return blend_line<1, Fusing::None>(lines, count, zero_point, dst);
  if (lines.count == 2) return blend_line<2, Fusing::None>(lines, count, zero_point, dst);
  return blend_line<4, Fusing::None>(lines, count, zero_point, dst);
}

void WidthU8(const std::uint8_t* src, const LinearTap* taps, std::int64_t width, std::int64_t pixel,
             bool is_fused, float* dst) {
  blend_width(src, taps, width, pixel, is_fused, dst);
}
void WidthS8(const std::int8_t* src, const LinearTap* taps, std::int64_t width, std::int64_t pixel,
             bool is_fused, float* dst) {
  blend_width(src, taps, width, pixel, is_fused, dst);
}
void WidthF32(const float* src, const LinearTap* taps, std::int64_t width, std::int64_t pixel,
              bool is_fused, float* dst) {
  blend_width(src, taps, width, pixel, is_fused, dst);
}
void HeightU8(const BlendLines& lines, std::int64_t count, float zero_point, std::uint8_t* dst) {
  blend_height(lines, count, zero_point, dst);
}
void HeightS8(const BlendLines& lines, std::int64_t count, float zero_point, std::int8_t* dst) {
  blend_height(lines, count, zero_point, dst);
}
void HeightF32(const BlendLines& lines, std::int64_t count, float zero_point, float* dst) {
  blend_height(lines, count, zero_point, dst);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(WidthU8);
HWY_EXPORT(WidthS8);
HWY_EXPORT(WidthF32);
HWY_EXPORT(HeightU8);
HWY_EXPORT(HeightS8);
HWY_EXPORT(HeightF32);

namespace {

void width_of(const std::uint8_t* src, const std::vector<LinearTap>& taps, std::int64_t pixel,
              bool is_fused, float* dst) {
  HWY_DYNAMIC_DISPATCH(WidthU8)
  (src, taps.data(), static_cast<std::int64_t>(taps.size()), pixel, is_fused, dst);
}
void width_of(const std::int8_t* src, const std::vector<LinearTap>& taps, std::int64_t pixel,
              bool is_fused, float* dst) {
  HWY_DYNAMIC_DISPATCH(WidthS8)
  (src, taps.data(), static_cast<std::int64_t>(taps.size()), pixel, is_fused, dst);
}
void width_of(const float* src, const std::vector<LinearTap>& taps, std::int64_t pixel,
              bool is_fused, float* dst) {
  HWY_DYNAMIC_DISPATCH(WidthF32)
  (src, taps.data(), static_cast<std::int64_t>(taps.size()), pixel, is_fused, dst);
}

void height_of(const BlendLines& lines, std::int64_t count, float zero_point, std::uint8_t* dst) {
  HWY_DYNAMIC_DISPATCH(HeightU8)(lines, count, zero_point, dst);
}
void height_of(const BlendLines& lines, std::int64_t count, float zero_point, std::int8_t* dst) {
  HWY_DYNAMIC_DISPATCH(HeightS8)(lines, count, zero_point, dst);
}
void height_of(const BlendLines& lines, std::int64_t count, float zero_point, float* dst) {
  HWY_DYNAMIC_DISPATCH(HeightF32)(lines, count, zero_point, dst);
}

// The input lines of one output line, blended along the width and kept for the next: when the
// output is larger, most of its lines need the ones of the line before.
template <typename T>
class LineCache {
 public:
  LineCache(const std::vector<LinearTap>& taps, std::int64_t pixel, std::int64_t lines)
      : taps_(taps),
        pixel_(pixel),
        size_(taps.size() * static_cast<std::size_t>(pixel)),
        memory_(static_cast<std::size_t>(lines) * size_) {}

  /// Fills lines.line[0, lines.count) with those of `sources`; the count is always the same, so
  /// there is a free slot for every line that is not held.
  void fill(const std::array<const T*, 4>& sources, BlendLines& lines) {
    const auto count = static_cast<std::size_t>(lines.count);
    std::array<bool, 4> taken{};
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t slot = find(sources[i]);
      if (slot < 4) taken[slot] = true;
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t slot = find(sources[i]);
      if (slot == 4) {
        slot = 0;
        while (taken[slot]) ++slot;
        taken[slot] = true;
        held_[slot] = sources[i];
        width_of(sources[i], taps_, pixel_, lines.is_fused, memory_.data() + slot * size_);
      }
      lines.line[i] = memory_.data() + slot * size_;
    }
  }

 private:
  std::size_t find(const T* source) const {
    return static_cast<std::size_t>(std::find(held_.begin(), held_.end(), source) - held_.begin());
  }

  const std::vector<LinearTap>& taps_;
  std::int64_t pixel_;
  std::size_t size_;
  std::vector<float> memory_;
  std::array<const T*, 4> held_{};
};

template <typename T>
void blend(const ResampleGeometry& geometry, const LinearTables& tables, std::size_t spatial,
           float zero_point, bool is_fused, const T* src, T* dst) {
  const std::int64_t pixel = geometry.channels_last ? geometry.channels : 1;
  const std::int64_t row_size = geometry.input[2] * pixel;
  const std::int64_t plane_size = geometry.input[1] * row_size;
  const std::int64_t in = geometry.input[0] * plane_size;
  const std::int64_t out = geometry.output[2] * pixel;
  for_each_line_range(geometry, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = spatial == 1 ? 1 : spatial == 2 ? 2 : 4;
    LineCache<T> cache(tables[2], pixel, count);
    for (std::int64_t item = begin; item < end; ++item) {
      const ResampleRow row = resample_row(geometry, item);
      const LinearTap depth = tables[0][row.d];
      const LinearTap height = tables[1][row.h];
      const T* low = src + row.plane * in + depth.low * plane_size;
      const T* high = src + row.plane * in + depth.high * plane_size;
      BlendLines lines{.line = {},
                       .count = count,
                       .height_low = height.weight_low,
                       .height_high = height.weight_high,
                       .depth_low = depth.weight_low,
                       .depth_high = depth.weight_high,
                       .pixel = pixel,
                       .is_fused = is_fused};
      cache.fill({low + height.low * row_size, low + height.high * row_size,
                  high + height.low * row_size, high + height.high * row_size},
                 lines);
      height_of(lines, out, zero_point, dst + item * out);
    }
  });
}

template <typename T>
void blend_typed(const ResampleGeometry& geometry, const LinearTables& tables, std::size_t spatial,
                 std::int32_t zero_point, bool is_fused, const void* src, void* dst) {
  blend(geometry, tables, spatial, static_cast<float>(zero_point), is_fused,
        static_cast<const T*>(src), static_cast<T*>(dst));
}

}  // namespace

void blend_spatial(const ResampleGeometry& geometry, const LinearTables& tables,
                   std::size_t spatial, DType dtype, std::int32_t zero_point, bool is_fused,
                   const void* src, void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return blend_typed<std::uint8_t>(geometry, tables, spatial, zero_point, is_fused, src, dst);
    case DType::QInt8:
      return blend_typed<std::int8_t>(geometry, tables, spatial, zero_point, is_fused, src, dst);
    default:
      return blend_typed<float>(geometry, tables, spatial, zero_point, is_fused, src, dst);
  }
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
