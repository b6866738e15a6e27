#include "quanta/ops/activation/softmax_gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;

// A line of numbers that lie `step` apart.
template <typename T>
struct Line {
  const T* gradient;
  const T* y;
  T* dst;
  std::int64_t count;
  std::int64_t step;
};

constexpr auto softmax_line = [](const auto& line) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    sum += static_cast<double>(line.gradient[i]) * static_cast<double>(line.y[i]);
  }
  using T = std::decay_t<decltype(*line.dst)>;
  const auto mean = static_cast<T>(sum);
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    line.dst[i] = line.y[i] * (line.gradient[i] - mean);
  }
};

constexpr auto log_softmax_line = [](const auto& line) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    sum += static_cast<double>(line.gradient[i]);
  }
  using T = std::decay_t<decltype(*line.dst)>;
  const auto total = static_cast<T>(sum);
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    line.dst[i] = line.gradient[i] - std::exp(line.y[i]) * total;
  }
};

template <typename Function>
Tensor map_lines(const Tensor& gradient, const Tensor& y, std::int64_t axis,
                 const Function& function) {
  const MemoryFormat format = y.suggested_format();
  const Tensor out = Tensor::empty(y.sizes(), y.dtype(), format);
  if (y.dim() == 0) return out.fill_(0.0);
  if (y.numel() == 0) return out;
  const Tensor from = gradient.contiguous(format);
  const Tensor values = y.contiguous(format);
  const cpu::ChannelLayout layout(out, axis);
  detail::visit_floats(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* gradients = static_cast<const T*>(from.data_ptr());
    const auto* results = static_cast<const T*>(values.data_ptr());
    auto* dst = static_cast<T*>(out.data_ptr());
    parallel_for(layout.outer * layout.inner,
                 std::max<std::int64_t>(1, cpu::kElementGrain / layout.channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t item = begin; item < end; ++item) {
                     const std::int64_t first =
                         item / layout.inner * layout.channels * layout.inner + item % layout.inner;
                     function(Line<T>{gradients + first, results + first, dst + first,
                                      layout.channels, layout.inner});
                   }
                 });
  });
  return out;
}

}  // namespace

Tensor softmax_gradient(const Tensor& gradient, const Tensor& y, std::int64_t axis) {
  return map_lines(gradient, y, axis, softmax_line);
}

Tensor record_softmax(const Tensor& x, Tensor y, std::int64_t axis) {
  const Tensor result = y;
  return autograd::record(
      "softmax", {x}, std::move(y), {result}, [axis](const BackwardContext& backward) {
        return std::vector<Tensor>{softmax_gradient(backward.grad(), backward.saved(0), axis)};
      });
}

Tensor record_log_softmax(const Tensor& x, Tensor y, std::int64_t axis) {
  const Tensor result = y;
  return autograd::record(
      "log_softmax", {x}, std::move(y), {result}, [axis](const BackwardContext& backward) {
        return std::vector<Tensor>{
            map_lines(backward.grad(), backward.saved(0), axis, log_softmax_line)};
      });
}

}  // namespace quanta::gradients
