// Pooling of codes in contiguous order, plane by plane: the rows of a window are joined in vectors
// into one line, then every window's columns of that line.

#include <algorithm>
#include <vector>

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/ops/pooling/cpu_scalar.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/pooling/cpu_planes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// What joins two elements, and what changes nothing. Acc holds them: codes for a maximum, 32 bits
// for a sum.
template <typename T>
struct Maximum {
  using Acc = T;
  static constexpr Acc kNothing = std::numeric_limits<T>::lowest();
  static Acc join(Acc a, Acc b) { return std::max(a, b); }
  template <class V>
  static HWY_INLINE V join_vectors(V a, V b) {
    return hn::Max(a, b);
  }
};
struct Sum {
  using Acc = std::int32_t;
  static constexpr Acc kNothing = 0;
  static Acc join(Acc a, Acc b) { return a + b; }
  template <class V>
  static HWY_INLINE V join_vectors(V a, V b) {
    return hn::Add(a, b);
  }
};

// Room behind a line for whole vectors.
constexpr std::int64_t kSlack = hn::MaxLanes(hn::ScalableTag<std::uint8_t>());

template <class Acc, typename T>
HWY_INLINE hn::Vec<hn::ScalableTag<Acc>> load_as(const T* src) {
  const hn::ScalableTag<Acc> d;
  if constexpr (sizeof(T) == sizeof(Acc)) {
    return hn::LoadU(d, src);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, decltype(d)>(), src));
  }
}

// line[i] = all taps' rows joined at column i.
template <class Join, typename T>
HWY_INLINE void join_rows(const T* src, const PoolTaps& taps, std::int64_t width,
                          typename Join::Acc* line) {
  using Acc = typename Join::Acc;
  const hn::ScalableTag<Acc> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::fill(line, line + width, Join::kNothing);
  const T* depth = src + taps.first;
  for (std::int64_t i = 0; i < taps.depth_count; ++i, depth += taps.depth_step) {
    const T* row = depth;
    for (std::int64_t j = 0; j < taps.height_count; ++j, row += taps.height_step) {
      std::int64_t x = 0;
      for (; x + lanes <= width; x += lanes) {
        hn::StoreU(Join::join_vectors(hn::LoadU(d, line + x), load_as<Acc>(row + x)), d, line + x);
      }
      for (; x < width; ++x) line[x] = Join::join(line[x], row[x]);
    }
  }
}

// to[i] = `kernel` neighbours of the line from i on, `dilation` apart, joined.
template <class Join>
HWY_INLINE void join_columns(const typename Join::Acc* line, std::int64_t count,
                             std::int64_t kernel, std::int64_t dilation, typename Join::Acc* to) {
  const hn::ScalableTag<typename Join::Acc> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) {
    auto joined = hn::LoadU(d, line + i);
    for (std::int64_t k = 1; k < kernel; ++k) {
      joined = Join::join_vectors(joined, hn::LoadU(d, line + i + k * dilation));
    }
    hn::StoreU(joined, d, to + i);
  }
}

// The windows of a row of one plane.
template <class Join>
class PlaneLine {
 public:
  using Acc = typename Join::Acc;

  explicit PlaneLine(const PoolAxis& axis)
      : axis_(axis),
        steps_((axis.output - 1) * axis.stride + 1),
        line_(static_cast<std::size_t>(plane_line_length(axis) + kSlack), Join::kNothing),
        joined_(static_cast<std::size_t>(std::max(steps_, axis.output) + kSlack)) {}

  /// The joined windows of output row (d, h), valid until the next call.
  template <typename T>
  HWY_INLINE const Acc* join(const T* plane, const PoolTaps& taps) {
    Acc* begin = line_.data() + axis_.padding;
    join_rows<Join>(plane, taps, axis_.input, begin);
    if (axis_.adaptive) {
      for (std::int64_t w = 0; w < axis_.output; ++w) {
        const PoolWindow window = axis_.window(w);
        Acc joined = Join::kNothing;
        for (std::int64_t x = window.begin; x < window.end; ++x) {
          joined = Join::join(joined, begin[x]);
        }
        joined_[static_cast<std::size_t>(w)] = joined;
      }
      return joined_.data();
    }
    join_columns<Join>(line_.data(), steps_, axis_.kernel, axis_.dilation, joined_.data());
    if (axis_.stride > 1) {
      for (std::int64_t w = 1; w < axis_.output; ++w) {
        joined_[static_cast<std::size_t>(w)] = joined_[static_cast<std::size_t>(w * axis_.stride)];
      }
    }
    return joined_.data();
  }

 private:
  const PoolAxis& axis_;
  std::int64_t steps_;
  std::vector<Acc> line_;  // what is left and right of the input stays nothing
  std::vector<Acc> joined_;
};

template <typename T>
void max_planes(const PoolGeometry& geometry, const T* src, T* dst, std::int64_t begin,
                std::int64_t end) {
  const auto& axes = geometry.axes;
  PlaneLine<Maximum<T>> line(axes[2]);
  dst += begin * geometry.output_volume();
  for (std::int64_t plane = begin; plane < end; ++plane) {
    const T* from = src + plane * geometry.input_volume();
    for (std::int64_t d = 0; d < axes[0].output; ++d) {
      for (std::int64_t h = 0; h < axes[1].output; ++h, dst += axes[2].output) {
        const PoolTaps taps =
            pool_taps(geometry, axes[0].window(d), axes[1].window(h), PoolWindow{}, 1);
        const T* joined = line.join(from, taps);
        std::copy(joined, joined + axes[2].output, dst);
      }
    }
  }
}

// Sums to codes for one row of outputs: average_code() in vectors.
class RowAverage {
 public:
  RowAverage(const PoolGeometry& geometry, const AverageRule& rule)
      : rule_(rule), dilation_(geometry.axes[2].dilation) {
    const PoolAxis& width = geometry.axes[2];
    const auto size = static_cast<std::size_t>(width.output + kSlack);
    offsets_.resize(size);
    inverses_.resize(size);
    for (std::int64_t w = 0; w < width.output; ++w) windows_.push_back(width.window(w));
  }

  template <typename T>
  HWY_INLINE void operator()(const std::int32_t* sums, PoolTaps taps, T* dst) {
    const std::int64_t rows = taps.depth_count * taps.height_count;
    const std::int64_t padded = taps.d.padded * taps.h.padded;
    if (rows != rows_ || padded != padded_) prepare(taps);
    rows_ = rows;
    padded_ = padded;
    const hn::ScalableTag<float> df;
    const hn::Rebind<std::int32_t, decltype(df)> d32;
    const hn::Rebind<T, decltype(df)> d8;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
    const auto count = static_cast<std::int64_t>(windows_.size());
    const auto zero_point = hn::Set(df, static_cast<float>(rule_.zero_point));
    const auto low = hn::Set(df, static_cast<float>(hwy::LimitsMin<T>()));
    const auto high = hn::Set(df, static_cast<float>(hwy::LimitsMax<T>()));
    for (std::int64_t w = 0; w < count; w += lanes) {
      const auto centred = hn::Sub(hn::LoadU(d32, sums + w), hn::LoadU(d32, offsets_.data() + w));
      const auto mean = hn::Mul(hn::ConvertTo(df, centred), hn::LoadU(df, inverses_.data() + w));
      hn::Vec<decltype(df)> code;
      switch (rule_.rounding) {
        case AverageRounding::Centred:
          code = hn::Add(hn::Round(mean), zero_point);
          break;
        case AverageRounding::ZeroPointFirst:
          code = hn::Round(hn::Add(zero_point, mean));
          break;
        case AverageRounding::RawCodes:
          code = hn::Round(mean);  // the offsets are 0
          break;
      }
      const auto codes = hn::DemoteTo(d8, hn::ConvertTo(d32, hn::Min(hn::Max(code, low), high)));
      if (w + lanes <= count) {
        hn::StoreU(codes, d8, dst + w);
      } else {
        T rest[hn::MaxLanes(d8)];
        hn::StoreU(codes, d8, rest);
        std::copy(rest, rest + (count - w), dst + w);
      }
    }
  }

 private:
  void prepare(PoolTaps& taps) {
    for (std::size_t w = 0; w < windows_.size(); ++w) {
      taps.w = windows_[w];
      taps.width_count = count_taps(taps.w, dilation_);
      const std::int64_t offset =
          rule_.rounding == AverageRounding::RawCodes ? 0 : taps.count() * rule_.zero_point;
      offsets_[w] = static_cast<std::int32_t>(offset);
      inverses_[w] = reciprocal(divisor_of(rule_, taps));
    }
  }

  const AverageRule& rule_;
  std::int64_t dilation_;
  std::vector<PoolWindow> windows_;
  std::vector<std::int32_t> offsets_;
  std::vector<float> inverses_;
  std::int64_t rows_ = -1;
  std::int64_t padded_ = -1;
};

template <typename T>
void average_planes(const PoolGeometry& geometry, const AverageRule& rule, const T* src, T* dst,
                    std::int64_t begin, std::int64_t end) {
  const auto& axes = geometry.axes;
  PlaneLine<Sum> line(axes[2]);
  RowAverage average(geometry, rule);
  dst += begin * geometry.output_volume();
  for (std::int64_t plane = begin; plane < end; ++plane) {
    const T* from = src + plane * geometry.input_volume();
    for (std::int64_t d = 0; d < axes[0].output; ++d) {
      for (std::int64_t h = 0; h < axes[1].output; ++h, dst += axes[2].output) {
        const PoolTaps taps =
            pool_taps(geometry, axes[0].window(d), axes[1].window(h), PoolWindow{}, 1);
        average(line.join(from, taps), taps, dst);
      }
    }
  }
}

void MaxPlanes(const PoolGeometry& geometry, DType dtype, const void* src, void* dst,
               std::int64_t begin, std::int64_t end) {
  if (dtype == DType::QUInt8) {
    return max_planes(geometry, static_cast<const std::uint8_t*>(src),
                      static_cast<std::uint8_t*>(dst), begin, end);
  }
  max_planes(geometry, static_cast<const std::int8_t*>(src), static_cast<std::int8_t*>(dst), begin,
             end);
}

void AveragePlanes(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                   const void* src, void* dst, std::int64_t begin, std::int64_t end) {
  if (dtype == DType::QUInt8) {
    return average_planes(geometry, rule, static_cast<const std::uint8_t*>(src),
                          static_cast<std::uint8_t*>(dst), begin, end);
  }
  average_planes(geometry, rule, static_cast<const std::int8_t*>(src),
                 static_cast<std::int8_t*>(dst), begin, end);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {

HWY_EXPORT(MaxPlanes);
HWY_EXPORT(AveragePlanes);

namespace {

template <typename Body>
void for_each_plane(const PoolGeometry& geometry, Body&& body) {
  constexpr std::int64_t kGrainElements = 32768;
  const std::int64_t volume = std::max(geometry.input_volume(), geometry.output_volume());
  parallel_for(geometry.batch * geometry.channels,
               std::max<std::int64_t>(1, kGrainElements / volume), body);
}

}  // namespace

bool takes_planes(const PoolGeometry& geometry, DType dtype) {
  const PoolAxis& width = geometry.axes[2];
  // Kernels far longer than their input, all of it padding, would make long lines of nothing; sums
  // of more taps could overflow 32 bits.
  constexpr std::int64_t kMostTaps = std::int64_t{1} << 22;
  return (dtype == DType::QUInt8 || dtype == DType::QInt8) &&
         (width.adaptive || plane_line_length(width) <= 4 * width.input + 4096) &&
         geometry.input_volume() <= kMostTaps;
}

void max_pool_planes(const PoolGeometry& geometry, DType dtype, const void* src, void* dst) {
  const auto run = HWY_DYNAMIC_DISPATCH(MaxPlanes);
  for_each_plane(geometry, [&](std::int64_t begin, std::int64_t end) {
    run(geometry, dtype, src, dst, begin, end);
  });
}

void avg_pool_planes(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                     const void* src, void* dst) {
  const auto run = HWY_DYNAMIC_DISPATCH(AveragePlanes);
  for_each_plane(geometry, [&](std::int64_t begin, std::int64_t end) {
    run(geometry, rule, dtype, src, dst, begin, end);
  });
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
