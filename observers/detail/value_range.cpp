#include "quanta/observers/detail/value_range.h"

#include <limits>
#include <mutex>

#include "quanta/observers/cpu/observer_kernels.h"
#include "quanta/runtime/parallel.h"

namespace quanta::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Below this a second thread costs more than it saves.
constexpr std::int64_t kGrain = 1 << 16;

void widen_one(float& min, float& max, float other_min, float other_max) {
  if (other_min < min || other_min != other_min) min = other_min;
  if (other_max > max || other_max != other_max) max = other_max;
}

ValueRange unobserved(std::size_t count) {
  return {std::vector<float>(count, kInfinity), std::vector<float>(count, -kInfinity)};
}

}  // namespace

Tensor dense_floats(const Tensor& x) {
  const Tensor floats = x.dtype() == DType::Float32 ? x : x.to(DType::Float32);
  return floats.is_dense() ? floats : floats.contiguous();
}

void widen(ValueRange& total, const ValueRange& batch) {
  for (std::size_t c = 0; c < total.min.size(); ++c) {
    widen_one(total.min[c], total.max[c], batch.min[c], batch.max[c]);
  }
}

ValueRange tensor_range(const Tensor& dense) {
  const float* x = dense.data<float>();
  ValueRange total = unobserved(1);
  std::mutex mutex;
  parallel_for(dense.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const cpu::MinMax part = cpu::min_max(x + begin, end - begin);
    const std::lock_guard lock(mutex);
    widen_one(total.min[0], total.max[0], part.min, part.max);
  });
  return total;
}

ValueRange channel_range(const Tensor& dense, std::int64_t axis) {
  const std::int64_t channels = dense.size(axis);
  if (channels == 1) return tensor_range(dense);

  // Without gaps, memory is [outer, channels, inner] with the channel's stride as inner size.
  const float* x = dense.data<float>();
  const std::int64_t inner = dense.strides()[static_cast<std::size_t>(axis)];
  const std::int64_t outer = dense.numel() / (channels * inner);
  ValueRange total = unobserved(static_cast<std::size_t>(channels));
  if (inner == 1) {
    std::mutex mutex;
    parallel_for(outer, kGrain / channels + 1, [&](std::int64_t begin, std::int64_t end) {
      ValueRange part = unobserved(static_cast<std::size_t>(channels));
      cpu::min_max_columns(x + begin * channels, end - begin, channels, part.min.data(),
                           part.max.data());
      const std::lock_guard lock(mutex);
      widen(total, part);
    });
    return total;
  }
  parallel_for(channels, kGrain / (inner * outer) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      const auto at = static_cast<std::size_t>(c);
      for (std::int64_t o = 0; o < outer; ++o) {
        const cpu::MinMax block = cpu::min_max(x + (o * channels + c) * inner, inner);
        widen_one(total.min[at], total.max[at], block.min, block.max);
      }
    }
  });
  return total;
}

}  // namespace quanta::detail
