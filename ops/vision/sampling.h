#pragma once

// Private: what grid_sample and affine_grid make of one position, for the CPU and CUDA kernels.

#include <cmath>
#include <cstdint>

#include "quanta/runtime/host_device.h"

namespace quanta::vision {

QUANTA_HOST_DEVICE inline float floor_of(float x) { return floorf(x); }
QUANTA_HOST_DEVICE inline double floor_of(double x) { return ::floor(x); }
QUANTA_HOST_DEVICE inline float rest_of(float x, float divisor) { return fmodf(x, divisor); }
QUANTA_HOST_DEVICE inline double rest_of(double x, double divisor) { return ::fmod(x, divisor); }
QUANTA_HOST_DEVICE inline float nearest_to(float x) { return nearbyintf(x); }
QUANTA_HOST_DEVICE inline double nearest_to(double x) { return ::nearbyint(x); }

/// GridSampleOptions, without the header that kernels do not include.
struct SampleRule {
  enum class Mode : std::uint8_t { Linear, Nearest, Cubic };
  enum class Padding : std::uint8_t { Zeros, Border, Reflection };
  Mode mode = Mode::Linear;
  Padding padding = Padding::Zeros;
  bool align_corners = false;
};

/// Up to kMost weighted elements along a dimension, each in a place of its own, so that kernels keep
/// them in registers; one that does not count has the index -1.
template <typename T, int kMost>
struct Taps {
  std::int64_t index[kMost] = {};
  T weight[kMost] = {};

  QUANTA_HOST_DEVICE Taps() {
    for (std::int64_t& i : index) i = -1;
  }
};

/// How positions along one dimension of x are read.
template <typename T>
struct Line {
  std::int64_t length;
  SampleRule rule;

  QUANTA_HOST_DEVICE T position_of(T coordinate) const {
    const auto size = static_cast<T>(length);
    return rule.align_corners ? (coordinate + T{1}) / T{2} * (size - T{1})
                              : ((coordinate + T{1}) * size - T{1}) / T{2};
  }

  /// Into what x has, but for Zeros. What is not finite goes to the border.
  QUANTA_HOST_DEVICE T placed(T position) const {
    const auto last = static_cast<T>(length - 1);
    if (rule.padding == SampleRule::Padding::Zeros) return position;
    const bool is_finite = position > -HUGE_VALF && position < HUGE_VALF;
    if (rule.padding == SampleRule::Padding::Reflection && is_finite) {
      const T low = rule.align_corners ? T{0} : T(-0.5);
      const T span = rule.align_corners ? last : static_cast<T>(length);
      if (span == T{0}) return T{0};
      const T distance = position < low ? low - position : position - low;
      const T rest = rest_of(distance, span);
      const bool turned = rest_of(floor_of(distance / span), T{2}) != T{0};
      position = low + (turned ? span - rest : rest);
    }
    if (!(position > T{0})) return T{0};
    return last < position ? last : position;
  }

  template <int kMost>
  QUANTA_HOST_DEVICE void set(Taps<T, kMost>& taps, int tap, T position, T weight) const {
    // Not inside: NaN too.
    if (!(position >= T{0} && position <= static_cast<T>(length - 1))) return;
    // A length beyond what T holds exactly may have been rounded up.
    const auto index = static_cast<std::int64_t>(position);
    taps.index[tap] = index < length - 1 ? index : length - 1;
    taps.weight[tap] = weight;
  }

  // Of an element less than 1 away, and of one further away.
  QUANTA_HOST_DEVICE static T near_weight(T d) {
    constexpr T kA = T(-0.75);
    return ((kA + T{2}) * d - (kA + T{3})) * d * d + T{1};
  }
  QUANTA_HOST_DEVICE static T far_weight(T d) {
    constexpr T kA = T(-0.75);
    return ((kA * d - T{5} * kA) * d + T{8} * kA) * d - T{4} * kA;
  }

  /// Cubic has four taps, the other modes two.
  template <int kMost>
  QUANTA_HOST_DEVICE Taps<T, kMost> taps(T coordinate) const {
    Taps<T, kMost> result;
    const T raw = position_of(coordinate);
    if constexpr (kMost == 4) {
      const T base = floor_of(raw);
      const T t = raw - base;
      set(result, 0, placed(base - T{1}), far_weight(t + T{1}));
      set(result, 1, placed(base), near_weight(t));
      set(result, 2, placed(base + T{1}), near_weight(T{1} - t));
      set(result, 3, placed(base + T{2}), far_weight(T{2} - t));
    } else {
      const T position = placed(raw);
      if (rule.mode == SampleRule::Mode::Nearest) {
        set(result, 0, nearest_to(position), T{1});
        return result;
      }
      const T base = floor_of(position);
      const T t = position - base;
      set(result, 0, base, T{1} - t);
      if (t > T{0}) set(result, 1, base + T{1}, t);
    }
    return result;
  }
};

/// The taps of a position along depth, height and width; a depth that is not there has one.
template <typename T, int kMost>
struct PlaneTaps {
  Taps<T, kMost> axes[3];

  /// The innermost of the `spatial` coordinates is the first one.
  QUANTA_HOST_DEVICE PlaneTaps(const T* coordinates, int spatial, const std::int64_t (&lengths)[3],
                               const SampleRule& rule) {
    axes[2] = Line<T>{lengths[2], rule}.template taps<kMost>(coordinates[0]);
    axes[1] = Line<T>{lengths[1], rule}.template taps<kMost>(coordinates[1]);
    if (spatial == 3) {
      axes[0] = Line<T>{lengths[0], rule}.template taps<kMost>(coordinates[2]);
    } else {
      axes[0].index[0] = 0;
      axes[0].weight[0] = T{1};
    }
  }

  /// Of a plane of these lengths.
  QUANTA_HOST_DEVICE T sum(const std::int64_t (&lengths)[3], const T* plane) const {
    T total{};
    for (int i = 0; i < kMost; ++i) {
      if (axes[0].index[i] < 0) continue;
      for (int j = 0; j < kMost; ++j) {
        if (axes[1].index[j] < 0) continue;
        const T* row = plane + (axes[0].index[i] * lengths[1] + axes[1].index[j]) * lengths[2];
        T line{};
        for (int k = 0; k < kMost; ++k) {
          if (axes[2].index[k] >= 0) line += axes[2].weight[k] * row[axes[2].index[k]];
        }
        total += axes[0].weight[i] * axes[1].weight[j] * line;
      }
    }
    return total;
  }
};

/// A grid of positions that an affine map makes.
struct AffineGridShape {
  int spatial = 2;
  std::int64_t lengths[3] = {1, 1, 1};  // width, height, depth
  bool align_corners = false;

  template <typename T>
  QUANTA_HOST_DEVICE T coordinate(std::int64_t i, std::int64_t length) const {
    const auto position = static_cast<T>(i);
    if (!align_corners) return (T{2} * position + T{1}) / static_cast<T>(length) - T{1};
    return length > 1 ? T{2} * position / static_cast<T>(length - 1) - T{1} : T{0};
  }

  /// Position number `point` of an image, from its matrix [spatial, spatial + 1].
  template <typename T>
  QUANTA_HOST_DEVICE void position(const T* matrix, std::int64_t point, T* to) const {
    T place[4] = {T{1}, T{1}, T{1}, T{1}};  // x, y, (z,) 1
    for (int d = 0; d < 3; ++d) {
      if (d >= spatial) break;
      place[d] = coordinate<T>(point % lengths[d], lengths[d]);
      point /= lengths[d];
    }
    for (int d = 0; d < 3; ++d) {
      if (d >= spatial) break;
      T sum{};
      for (int k = 0; k < 4; ++k) {
        if (k <= spatial) sum += matrix[d * (spatial + 1) + k] * place[k];
      }
      to[d] = sum;
    }
  }
};

}  // namespace quanta::vision
