#include "quanta/observers/detail/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "quanta/observers/cpu/observer_kernels.h"
#include "quanta/runtime/check.h"
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

ValueRange range_of_entries(const float* x, std::int64_t count, const cpu::AffineLayout& layout) {
  if (layout.parameters == 1) return range_of_values(x, count);
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
  return range_of_values(dense.data<float>(), dense.numel());
}

ValueRange channel_range(const Tensor& dense, std::int64_t axis) {
  // Without gaps, memory is [outer, channels, inner] with the channel's stride as inner size.
  const std::int64_t channels = dense.size(axis);
  if (channels == 1) return tensor_range(dense);
  const std::int64_t inner = dense.strides()[static_cast<std::size_t>(axis)];
  const std::int64_t outer = dense.numel() / (channels * inner);
  return range_of_entries(
      dense.data<float>(), dense.numel(),
      {.sizes = {outer, channels, inner}, .strides = {0, 1, 0}, .parameters = channels});
}

EntryElements::EntryElements(std::string_view op, const Tensor& x, const Dims& shape,
                             const Dims& block_size)
    : layout_(affine_layout(op, "shape", x.sizes(), shape, block_size)),
      values_(x.detach().to(DType::Float32).contiguous()) {}

ValueRange EntryElements::range() const {
  return range_of_entries(values_.data<float>(), values_.numel(), layout_);
}

}  // namespace detail
}  // namespace quanta
