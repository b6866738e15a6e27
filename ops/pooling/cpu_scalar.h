#pragma once

// Private: one output element of a pooling, for the reference, the contiguous layout and the last
// channels of a vector loop.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/power_math.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {

/// Where the input elements of one output position lie, in steps of `channel` and `pixel`.
struct PoolTaps {
  PoolWindow d;
  PoolWindow h;
  PoolWindow w;
  std::int64_t depth_step = 0;  ///< elements from one tap to the next, dilation included
  std::int64_t height_step = 0;
  std::int64_t width_step = 0;
  std::int64_t first = 0;  ///< offset of the first tap
  std::int64_t depth_count = 0;
  std::int64_t height_count = 0;
  std::int64_t width_count = 0;

  QUANTA_HOST_DEVICE std::int64_t count() const noexcept {
    return depth_count * height_count * width_count;
  }
  QUANTA_HOST_DEVICE std::int64_t padded() const noexcept { return d.padded * h.padded * w.padded; }
};

QUANTA_HOST_DEVICE inline std::int64_t count_taps(const PoolWindow& window,
                                                  std::int64_t dilation) noexcept {
  // Divisions are slow, and this one is taken for each output pixel.
  const std::int64_t length = window.end - window.begin;
  return dilation == 1 ? length : ceil_div(length, dilation);
}

/// The elements that windows reach along `axis`, from the begin of the left padding on.
QUANTA_HOST_DEVICE inline std::int64_t plane_line_length(const PoolAxis& axis) noexcept {
  if (axis.adaptive) return axis.input;
  return axis.padding + std::max(axis.input, (axis.output - 1) * axis.stride - axis.padding +
                                                 (axis.kernel - 1) * axis.dilation + 1);
}

/// `pixel` elements lie between neighbours along the width.
QUANTA_HOST_DEVICE inline PoolTaps pool_taps(const PoolGeometry& geometry, const PoolWindow& d,
                                             const PoolWindow& h, const PoolWindow& w,
                                             std::int64_t pixel) noexcept {
  const auto& axes = geometry.axes;
  const std::int64_t row = axes[2].input * pixel;
  const std::int64_t plane = axes[1].input * row;
  PoolTaps taps;
  taps.d = d;
  taps.h = h;
  taps.w = w;
  taps.depth_step = plane * axes[0].dilation;
  taps.height_step = row * axes[1].dilation;
  taps.width_step = pixel * axes[2].dilation;
  taps.first = d.begin * plane + h.begin * row + w.begin * pixel;
  taps.depth_count = count_taps(d, axes[0].dilation);
  taps.height_count = count_taps(h, axes[1].dilation);
  taps.width_count = count_taps(w, axes[2].dilation);
  return taps;
}

/// One row of output pixels of a channels-last pooling, for some of the channels.
struct PoolRow {
  const PoolGeometry* geometry = nullptr;
  PoolWindow d;
  PoolWindow h;
  std::int64_t src = 0;  ///< offset of the image
  std::int64_t dst = 0;  ///< offset of the row's first pixel
  std::int64_t channel_begin = 0;
  std::int64_t channel_end = 0;
};

/// What max pooling starts from: never wins, and is the answer where there is nothing.
template <typename T>
QUANTA_HOST_DEVICE constexpr T pool_lowest() noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return -std::numeric_limits<T>::infinity();
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

// A source is a pointer to elements, or what reads them as one does.
template <typename Source>
using ElementOf = std::decay_t<decltype(*std::declval<const Source&>())>;

/// Calls body(element) for each tap in order.
template <typename Source, typename Body>
QUANTA_HOST_DEVICE inline void for_each_tap(Source src, const PoolTaps& taps, Body&& body) {
  Source depth = src + taps.first;
  for (std::int64_t d = 0; d < taps.depth_count; ++d, depth += taps.depth_step) {
    Source height = depth;
    for (std::int64_t h = 0; h < taps.height_count; ++h, height += taps.height_step) {
      Source width = height;
      for (std::int64_t w = 0; w < taps.width_count; ++w, width += taps.width_step) body(*width);
    }
  }
}

template <typename Source, typename T = ElementOf<Source>>
QUANTA_HOST_DEVICE inline T max_of_taps(Source src, const PoolTaps& taps) {
  T best = pool_lowest<T>();
  for_each_tap(src, taps, [&](T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (value > best || value != value) best = value;
    } else {
      if (value > best) best = value;
    }
  });
  return best;
}

/// The p-norm of the taps, in double.
template <typename T>
QUANTA_HOST_DEVICE inline T norm_of_taps(const T* src, const PoolTaps& taps, double p) {
  double sum = 0.0;
  for_each_tap(src, taps, [&](T value) { sum += math::power_term(value, p); });
  return static_cast<T>(math::power_root(sum, p));
}

/// Where the largest element stands, the first of equals; NaN wins. -1 where there is none.
template <typename Source, typename T = ElementOf<Source>>
QUANTA_HOST_DEVICE inline std::int64_t position_of_max(Source src, const PoolTaps& taps) {
  std::int64_t best = -1;
  T largest{};
  for (std::int64_t d = 0; d < taps.depth_count; ++d) {
    for (std::int64_t h = 0; h < taps.height_count; ++h) {
      std::int64_t at = taps.first + d * taps.depth_step + h * taps.height_step;
      for (std::int64_t w = 0; w < taps.width_count; ++w, at += taps.width_step) {
        const T value = src[at];
        bool wins = best < 0 || value > largest;
        if constexpr (std::is_floating_point_v<T>) wins = wins || value != value;
        if (wins) {
          best = at;
          largest = value;
        }
      }
    }
  }
  return best;
}

/// An offset in an input's plane, in row-major order, with the first dimension as the fastest.
QUANTA_HOST_DEVICE inline std::int64_t column_major_offset(const PoolGeometry& geometry,
                                                           std::int64_t offset) noexcept {
  const std::int64_t width = geometry.axes[2].input;
  const std::int64_t height = geometry.axes[1].input;
  const std::int64_t across = offset % width;
  const std::int64_t down = offset / width % height;
  return offset / (width * height) + (down + across * height) * geometry.axes[0].input;
}

QUANTA_HOST_DEVICE inline std::int64_t divisor_of(const AverageRule& rule,
                                                  const PoolTaps& taps) noexcept {
  switch (rule.divisor) {
    case AverageDivisor::PaddedWindow:
      return taps.padded();
    case AverageDivisor::ValidWindow:
      return taps.count();
    case AverageDivisor::Fixed:
      return rule.fixed_divisor;
  }
  return 1;
}

/// What a mean's gradient is multiplied by on its way to each element.
template <typename T = float>
QUANTA_HOST_DEVICE inline T gradient_factor(const AverageRule& rule,
                                            const PoolTaps& taps) noexcept {
  return T{1} / static_cast<T>(divisor_of(rule, taps));
}

/// torch multiplies by the reciprocal, in float32.
QUANTA_HOST_DEVICE inline float reciprocal(std::int64_t divisor) noexcept {
  // No element and no divisor: the mean of nothing is the zero point.
  return divisor == 0 ? 0.0F : 1.0F / static_cast<float>(divisor);
}

/// The rounded mean of `count` codes whose sum is `sum`.
template <typename T>
QUANTA_HOST_DEVICE inline T average_code(std::int64_t sum, std::int64_t count,
                                         float inverse_divisor, const AverageRule& rule) {
  constexpr float kMin = std::numeric_limits<T>::min();
  constexpr float kMax = std::numeric_limits<T>::max();
  const auto zero_point = static_cast<float>(rule.zero_point);
  const auto centred = static_cast<float>(sum - count * rule.zero_point);
  float code = 0.0F;
  switch (rule.rounding) {
    case AverageRounding::Centred:
      code = math::round_half_even(centred * inverse_divisor) + zero_point;
      break;
    case AverageRounding::ZeroPointFirst:
      code = math::round_half_even(zero_point + centred * inverse_divisor);
      break;
    case AverageRounding::RawCodes:
      code = math::round_half_even(static_cast<float>(sum) * inverse_divisor);
      break;
  }
  return static_cast<T>(math::clamp(code, kMin, kMax));
}

template <typename Source, typename T = ElementOf<Source>>
QUANTA_HOST_DEVICE inline T average_of_taps(Source src, const PoolTaps& taps,
                                            const AverageRule& rule) {
  const std::int64_t divisor = divisor_of(rule, taps);
  if constexpr (std::is_floating_point_v<T>) {
    T sum = 0;
    for_each_tap(src, taps, [&](T value) { sum += value; });
    return sum / static_cast<T>(divisor);
  } else {
    std::int64_t sum = 0;
    for_each_tap(src, taps, [&](T value) { sum += value; });
    return average_code<T>(sum, taps.count(), reciprocal(divisor), rule);
  }
}

}  // namespace quanta::cpu
