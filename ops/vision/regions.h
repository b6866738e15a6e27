#pragma once

// Private: what roi_align makes of one bin of a region, and what boxes share, for the CPU and CUDA
// kernels.

#include <cmath>
#include <cstdint>

#include "quanta/runtime/host_device.h"

namespace quanta::vision {

QUANTA_HOST_DEVICE inline float ceil_of(float x) { return ceilf(x); }
QUANTA_HOST_DEVICE inline double ceil_of(double x) { return ::ceil(x); }

/// RoiAlignOptions, without the header that kernels do not include.
struct RegionRule {
  std::int64_t rows = 1;  // bins of a region
  std::int64_t columns = 1;
  std::int64_t sampling_ratio = 0;
  double spatial_scale = 1.0;
  bool half_pixel = true;
  bool takes_maximum = false;
};

/// More points along a dimension than any image has elements: from regions of a size that no image
/// has.
inline constexpr std::int64_t kMaxPoints = std::int64_t{1} << 16;
/// Points of a bin, which each channel looks at: as many as an image of 4096 x 4096 has elements.
inline constexpr std::int64_t kMaxBinPoints = std::int64_t{1} << 24;
/// A sampling_ratio whose square is that.
inline constexpr std::int64_t kMaxSamplingRatio = std::int64_t{1} << 12;

/// Four elements of a plane and their weights.
template <typename T>
struct Corners {
  std::int64_t index[4] = {};
  T weight[4] = {};
};

/// A position along a dimension: between two elements, so far from the first one.
template <typename T>
struct Between {
  std::int64_t index[2] = {};
  T part = T{0};

  QUANTA_HOST_DEVICE Between(T position, std::int64_t length) {
    const T inside = position < T{0} ? T{0} : position;
    const auto low = static_cast<std::int64_t>(inside);
    index[0] = low < length - 1 ? low : length - 1;
    index[1] = index[0] + 1 < length - 1 ? index[0] + 1 : length - 1;
    part = index[0] == length - 1 ? T{0} : inside - static_cast<T>(index[0]);
  }
};

/// A point of a plane; one that is more than an element outside counts as 0.
template <typename T>
QUANTA_HOST_DEVICE Corners<T> corners_at(T y, T x, std::int64_t height, std::int64_t width) {
  Corners<T> corners;
  const bool is_inside =
      y >= T{-1} && y <= static_cast<T>(height) && x >= T{-1} && x <= static_cast<T>(width);
  if (!is_inside) return corners;
  const Between<T> rows(y, height);
  const Between<T> columns(x, width);
  for (int k = 0; k < 4; ++k) {
    const T down = k < 2 ? T{1} - rows.part : rows.part;
    const T right = k % 2 == 0 ? T{1} - columns.part : columns.part;
    corners.index[k] = rows.index[k / 2] * width + columns.index[k % 2];
    corners.weight[k] = down * right;
  }
  return corners;
}

/// Where the points of a region lie along one dimension.
template <typename T>
struct Points {
  T start{};
  T bin{};
  T needed{};  // points of a bin where the rule leaves them to the region's size, not rounded yet
  std::int64_t count = 0;  // of a bin; -1: more than kMaxPoints, or NaN

  QUANTA_HOST_DEVICE Points(const RegionRule& rule, T from, T to, std::int64_t bins) {
    const T scale = static_cast<T>(rule.spatial_scale);
    const T offset = rule.half_pixel ? T(0.5) : T{0};
    start = from * scale - offset;
    T length = to * scale - offset - start;
    if (!rule.half_pixel && length < T{1}) length = T{1};
    bin = length / static_cast<T>(bins);
    count = rule.sampling_ratio;
    if (count != 0) return;
    needed = ceil_of(bin);
    if (!(needed <= static_cast<T>(kMaxPoints))) {
      count = -1;
    } else if (needed > T{0}) {
      count = static_cast<std::int64_t>(needed);
    }
  }
  QUANTA_HOST_DEVICE T position(std::int64_t of_bin, std::int64_t i) const {
    return start + static_cast<T>(of_bin) * bin +
           (static_cast<T>(i) + T(0.5)) * bin / static_cast<T>(count);
  }
};

/// Whether a bin has as many points as are looked at.
template <typename T>
QUANTA_HOST_DEVICE bool are_few(const Points<T>& rows, const Points<T>& columns) {
  return rows.count >= 0 && columns.count >= 0 && rows.count * columns.count <= kMaxBinPoints;
}

/// What a bin's points come to.
template <typename T>
struct BinSum {
  T best = -HUGE_VALF;
  T sum{};

  QUANTA_HOST_DEVICE void add(const Corners<T>& point, const T* plane) {
    T value{};
    for (int k = 0; k < 4; ++k) {
      const T part = point.weight[k] * plane[point.index[k]];
      value += part;
      if (best < part) best = part;
    }
    sum += value;
  }
  QUANTA_HOST_DEVICE T result(bool takes_maximum, std::int64_t points) const {
    if (points == 0) return T{0};
    return takes_maximum ? best : sum / static_cast<T>(points);
  }
};

// Boxes -----------------------------------------------------------------------------------------

struct Box {
  double top, left, bottom, right;
  QUANTA_HOST_DEVICE double area() const { return (bottom - top) * (right - left); }
};

QUANTA_HOST_DEVICE inline double smaller(double a, double b) { return b < a ? b : a; }
QUANTA_HOST_DEVICE inline double larger(double a, double b) { return a < b ? b : a; }

template <typename T>
QUANTA_HOST_DEVICE Box box_of(const T* numbers, bool centers) {
  const auto a = static_cast<double>(numbers[0]);
  const auto b = static_cast<double>(numbers[1]);
  const auto c = static_cast<double>(numbers[2]);
  const auto d = static_cast<double>(numbers[3]);
  if (centers) {
    const double width = c / 2.0;
    const double height = d / 2.0;
    return {b - height, a - width, b + height, a + width};
  }
  // Two corners in any order.
  return {smaller(a, c), smaller(b, d), larger(a, c), larger(b, d)};
}

QUANTA_HOST_DEVICE inline double shared_part(const Box& a, const Box& b) {
  const double height = smaller(a.bottom, b.bottom) - larger(a.top, b.top);
  const double width = smaller(a.right, b.right) - larger(a.left, b.left);
  if (!(height > 0.0 && width > 0.0) || !(a.area() > 0.0 && b.area() > 0.0)) return 0.0;
  const double both = height * width;
  return both / (a.area() + b.area() - both);
}

}  // namespace quanta::vision
