#include "quanta/observers/detail/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "quanta/observers/cpu/observer_kernels.h"
#include "quanta/observers/cuda/observer_kernels.h"
#include "quanta/observers/detail/histogram.h"
#include "quanta/ops/cuda/range.h"
#include "quanta/ops/detail/cuda_affine_places.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Below this a second thread costs more than it saves.
constexpr std::int64_t kGrain = 1 << 16;

void widen_one(float& min, float& max, float other_min, float other_max) {
  if (other_min < min || other_min != other_min) min = other_min;
  if (other_max > max || other_max != other_max) max = other_max;
}

}  // namespace

ValueRange ValueRange::unobserved(std::size_t count) {
  return {std::vector<float>(count, kInfinity), std::vector<float>(count, -kInfinity)};
}

void ValueRange::widen(const ValueRange& other) {
  for (std::size_t c = 0; c < min.size(); ++c) {
    widen_one(min[c], max[c], other.min[c], other.max[c]);
  }
}

namespace detail {
namespace {

void widen_by_rows(ValueRange& range, const cpu::AffineRows& rows, const float* x,
                   std::int64_t begin, std::int64_t end) {
  rows.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t entry) {
    const float* from = x + first * rows.length();
    const bool side_by_side = rows.step() == 1 && rows.length() > 1;
    if (side_by_side && rows.run_stride() == 0) {
      cpu::min_max_columns(from, count, rows.length(), range.min.data() + entry,
                           range.max.data() + entry);
      return;
    }
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t at = entry + row * rows.run_stride();
      float* min = range.min.data() + at;
      float* max = range.max.data() + at;
      if (side_by_side) {
        cpu::min_max_columns(from + row * rows.length(), 1, rows.length(), min, max);
      } else {
        const cpu::MinMax part = cpu::min_max(from + row * rows.length(), rows.length());
        widen_one(*min, *max, part.min, part.max);
      }
    }
  });
}

ValueRange range_of_values(const float* x, std::int64_t count) {
  ValueRange total = ValueRange::unobserved(1);
  std::mutex mutex;
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const cpu::MinMax part = cpu::min_max(x + begin, end - begin);
    const std::lock_guard lock(mutex);
    widen_one(total.min[0], total.max[0], part.min, part.max);
  });
  return total;
}

ValueRange range_on_device(const Tensor& dense, cuda::RangeOver over) {
  const cuda::RangeOfFloats range = cuda::range_of(
      dense.device(), reinterpret_cast<const float*>(dense.device_ptr()), dense.numel(), over);
  return {{range.min}, {range.max}};
}

ValueRange entry_ranges_on_device(const Tensor& dense, const cpu::AffineLayout& layout,
                                  cuda::RangeOver over) {
  const Device device = dense.device();
  const auto entries = static_cast<std::size_t>(layout.parameters);
  constexpr std::int64_t kOfChunk = 4096;  // elements for which another chunk pays
  constexpr std::int64_t kMostChunks = 64;
  cuda::EntryRangesParams params;
  params.places = affine_places(layout);
  params.over = over;
  params.floats = reinterpret_cast<const float*>(dense.device_ptr());
  params.chunks = static_cast<int>(
      std::clamp<std::int64_t>(dense.numel() / layout.parameters / kOfChunk, 1, kMostChunks));
  const auto chunks = static_cast<std::size_t>(params.chunks);
  const cuda::Buffer ranges(device, (chunks + 1) * entries * sizeof(cuda::RangeOfFloats));
  params.parts = ranges.as<cuda::RangeOfFloats>();
  params.ranges = params.parts + chunks * entries;
  cuda::find_entry_ranges(device, params);
  cuda::join_entry_ranges(device, params);
  std::vector<cuda::RangeOfFloats> found(entries);
  cuda::driver(device).copy_to_host(found.data(), params.ranges,
                                    entries * sizeof(cuda::RangeOfFloats));
  ValueRange result;
  for (const cuda::RangeOfFloats& each : found) {
    result.min.push_back(each.min);
    result.max.push_back(each.max);
  }
  return result;
}

ValueRange range_of_entries(const Tensor& dense, const cpu::AffineLayout& layout) {
  if (layout.parameters == 1) return tensor_range(dense);
  if (!dense.device().is_cpu()) return entry_ranges_on_device(dense, layout, cuda::RangeOver::All);
  const auto* x = dense.data<float>();
  const cpu::AffineRows rows(layout);
  ValueRange total = ValueRange::unobserved(static_cast<std::size_t>(layout.parameters));
  // Every thread has a range of its own, which has to be worth its while.
  const std::int64_t grain = std::max(kGrain, 4 * layout.parameters) / rows.length() + 1;
  std::mutex mutex;
  parallel_for(rows.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    if (begin == 0 && end == rows.count()) {
      widen_by_rows(total, rows, x, begin, end);
      return;
    }
    ValueRange part = ValueRange::unobserved(total.min.size());
    widen_by_rows(part, rows, x, begin, end);
    const std::lock_guard lock(mutex);
    total.widen(part);
  });
  return total;
}

}  // namespace

std::vector<float> largest_magnitudes(const ValueRange& range) {
  std::vector<float> result(range.min.size());
  for (std::size_t c = 0; c < result.size(); ++c) {
    const float low = std::fabs(range.min[c]);
    const float high = std::fabs(range.max[c]);
    result[c] = low > high || low != low ? low : high;
  }
  return result;
}

Tensor dense_floats(const Tensor& x) {
  const Tensor floats = x.dtype() == DType::Float32 ? x : x.to(DType::Float32);
  return floats.is_dense() ? floats : floats.contiguous();
}

void require_finite(std::string_view op, const ValueRange& batch) {
  for (std::size_t i = 0; i < batch.min.size(); ++i) {
    QUANTA_CHECK(std::isfinite(batch.min[i]) && std::isfinite(batch.max[i]),
                 "{}: x: expected finite values, got a range of {}..{}; this batch was left out",
                 op, batch.min[i], batch.max[i]);
  }
}

ValueRange tensor_range(const Tensor& dense) {
  if (!dense.device().is_cpu()) return range_on_device(dense, cuda::RangeOver::All);
  return range_of_values(dense.data<float>(), dense.numel());
}

ValueRange finite_range(const Tensor& dense) {
  if (!dense.device().is_cpu()) return range_on_device(dense, cuda::RangeOver::Finite);
  ValueRange range = ValueRange::unobserved(1);
  const auto* x = dense.data<float>();
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    if (std::fabs(x[i]) != kInfinity) widen_one(range.min[0], range.max[0], x[i], x[i]);
  }
  return range;
}

ValueRange channel_range(const Tensor& dense, std::int64_t axis) {
  // Without gaps, memory is [outer, channels, inner] with the channel's stride as inner size.
  const std::int64_t channels = dense.size(axis);
  if (channels == 1) return tensor_range(dense);
  const std::int64_t inner = dense.strides()[static_cast<std::size_t>(axis)];
  const std::int64_t outer = dense.numel() / (channels * inner);
  return range_of_entries(
      dense, {.sizes = {outer, channels, inner}, .strides = {0, 1, 0}, .parameters = channels});
}

ValueRange batch_range(const Tensor& x, std::optional<std::int64_t> axis) {
  if (x.numel() == 0) {
    return ValueRange::unobserved(axis ? static_cast<std::size_t>(x.size(*axis)) : 1);
  }
  const Tensor dense = dense_floats(x);
  return axis ? channel_range(dense, *axis) : tensor_range(dense);
}

EntryElements::EntryElements(std::string_view op, const Tensor& x, const Dims& shape,
                             const Dims& block_size)
    : layout_(affine_layout(op, "shape", x.sizes(), shape, block_size)),
      values_(x.detach().to(DType::Float32).contiguous()) {}

ValueRange EntryElements::range() const { return range_of_entries(values_, layout_); }

ValueRange EntryElements::finite_range() const {
  constexpr auto kOver = cuda::RangeOver::FiniteNumbers;
  if (layout_.parameters == 1) return range_on_device(values_, kOver);
  return entry_ranges_on_device(values_, layout_, kOver);
}

std::vector<std::int64_t> EntryElements::counts(std::int64_t bins, const ValueRange& ranges) const {
  if (layout_.parameters == 1) {
    return count_values(values_, bins, ranges.min[0], ranges.max[0], Outside::AtEnds);
  }
  std::vector<BinScale> scales;
  for (std::size_t i = 0; i < entries(); ++i) {
    scales.push_back(bin_scale(ranges.min[i], ranges.max[i], bins));
  }
  std::vector<std::int64_t> counts(entries() * static_cast<std::size_t>(bins));
  const Device device = values_.device();
  const cuda::Buffer scales_there(device, scales.data(), scales.size() * sizeof(BinScale));
  const cuda::Buffer there(device, counts.data(), counts.size() * sizeof(std::int64_t));
  cuda::count_entry_bins(device, {.places = affine_places(layout_),
                                  .floats = reinterpret_cast<const float*>(values_.device_ptr()),
                                  .bins = bins,
                                  .scales = scales_there.as<BinScale>(),
                                  .counts = there.as<unsigned long long>()});
  cuda::driver(device).copy_to_host(counts.data(), there.as<void>(), there.bytes());
  return counts;
}

}  // namespace detail
}  // namespace quanta
