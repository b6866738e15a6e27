#include "quanta/ops/reduce.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/out.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/reduce/gradient.h"
#include "quanta/ops/reduce/layout.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

// max, min and argmax.

namespace quanta {
namespace {

using detail::ReduceLayout;

enum class Extreme : std::uint8_t { Max, Min };

constexpr std::int64_t kGrain = 16384;

// Whether `a` takes the place of `b`. NaN wins over numbers, and an equal element never wins, so
// that the first one stays.
template <Extreme kExtreme, typename T>
bool wins(T a, T b) {
  bool result = kExtreme == Extreme::Max ? a > b : a < b;
  if constexpr (std::is_floating_point_v<T>) result |= (a != a) & (b == b);
  return result;
}

template <Extreme kExtreme, typename T>
T better_of(T a, T b) {
  return (kExtreme == Extreme::Max ? a > b : a < b) ? a : b;
}

// A NaN among the elements, or 0.
template <typename T>
T find_nan(const T* x, std::int64_t count) {
  const T* found = std::find_if(x, x + count, [](T value) { return value != value; });
  return found == x + count ? T{} : *found;
}

// Lanes that the compiler keeps in vector registers; NaN is only noted in the loop.
template <Extreme kExtreme, typename T>
T extreme_of(const T* x, std::int64_t count) {
  constexpr std::int64_t kLanes = 64 / static_cast<std::int64_t>(sizeof(T));
  T best = x[0];
  bool unordered = false;
  std::int64_t i = 0;
  if (count >= kLanes) {
    std::array<T, kLanes> lanes;
    std::array<T, kLanes> sums{};  // of value * 0: NaN once a NaN or infinity was there
    std::copy_n(x, kLanes, lanes.begin());
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const T value = x[i + static_cast<std::int64_t>(lane)];
        lanes[lane] = better_of<kExtreme>(value, lanes[lane]);
        if constexpr (std::is_floating_point_v<T>) sums[lane] += value * T{0};
      }
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      best = better_of<kExtreme>(lanes[lane], best);
      if constexpr (std::is_floating_point_v<T>) unordered |= sums[lane] != sums[lane];
    }
  }
  for (; i < count; ++i) {
    best = better_of<kExtreme>(x[i], best);
    if constexpr (std::is_floating_point_v<T>) unordered |= x[i] != x[i];
  }
  // Infinities end here as well, as inf * 0 is NaN.
  if (unordered) {
    const T nan = find_nan(x, count);
    if (nan != nan) best = nan;
  }
  return best;
}

template <Extreme kExtreme, typename T>
T extreme_of_all(const T* x, std::int64_t count) {
  constexpr std::int64_t kBlock = 65536;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<T> partial(static_cast<std::size_t>(blocks));
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t length = std::min(kBlock, count - b * kBlock);
      partial[static_cast<std::size_t>(b)] = extreme_of<kExtreme>(x + b * kBlock, length);
    }
  });
  return extreme_of<kExtreme>(partial.data(), blocks);
}

// One row after the other of `count` neighbours.
template <Extreme kExtreme, typename T>
void extremes_of_rows(const T* x, const ReduceLayout& layout, T* values, std::int64_t* indices) {
  const std::int64_t count = layout.count;
  parallel_for(layout.outer, std::max<std::int64_t>(1, kGrain / count),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const T* from = x + row * count;
                   const T best = extreme_of<kExtreme>(from, count);
                   values[row] = best;
                   indices[row] =
                       std::find_if(from, from + count,
                                    [best](T value) {
                                      return value == best || (value != value && best != best);
                                    }) -
                       from;
                 }
               });
}

// Columns side by side, a block of them at a time; positions are narrow while they are compared.
template <Extreme kExtreme, typename Position, typename T>
void extremes_of_columns(const T* x, const ReduceLayout& layout, T* values, std::int64_t* indices) {
  constexpr std::int64_t kBlock = 512;
  const std::int64_t blocks = (layout.inner + kBlock - 1) / kBlock;
  const std::int64_t work = layout.count * std::min(layout.inner, kBlock);
  parallel_for(layout.outer * blocks, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 std::array<Position, kBlock> at;
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t row = item / blocks;
                   const std::int64_t start = item % blocks * kBlock;
                   const std::int64_t length = std::min(kBlock, layout.inner - start);
                   const T* from = x + row * layout.count * layout.inner + start;
                   T* best = values + row * layout.inner + start;
                   std::copy_n(from, length, best);
                   at.fill(0);
                   for (std::int64_t i = 1; i < layout.count; ++i) {
                     from += layout.inner;
                     for (std::int64_t j = 0; j < length; ++j) {
                       const bool win = wins<kExtreme>(from[j], best[j]);
                       const auto column = static_cast<std::size_t>(j);
                       best[j] = win ? from[j] : best[j];
                       at[column] = win ? static_cast<Position>(i) : at[column];
                     }
                   }
                   std::copy_n(at.begin(), length, indices + row * layout.inner + start);
                 }
               });
}

template <Extreme kExtreme>
Tensor extreme_full(std::string_view op, const Tensor& x) {
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const Tensor& t) { return extreme_full<kExtreme>(op, t); }, x);
  }
  OpScope scope(op);
  detail::check_uniform(op, "x", x);
  scope.touches(x);
  QUANTA_CHECK(x.numel() > 0, "{}: x: expected at least one element, got {}", op, x.sizes());
  const Tensor data = x.is_dense() ? x : x.contiguous();
  const Tensor result = detail::empty_with_parameters_of(x, {}, MemoryFormat::Contiguous);
  detail::visit_ordered(op, x.dtype(), [&](auto element) {
    using T = decltype(element);
    *static_cast<T*>(result.data_ptr()) =
        extreme_of_all<kExtreme>(static_cast<const T*>(data.data_ptr()), data.numel());
  });
  if (autograd::needs_grad(x)) return gradients::record_extreme(op, x, result);
  return result;
}

template <Extreme kExtreme>
ValuesIndices extreme_along(std::string_view op, const Tensor& x, std::int64_t dim, bool keepdim) {
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const Tensor& t) { return extreme_along<kExtreme>(op, t, dim, keepdim); }, x);
  }
  OpScope scope(op);
  detail::check_uniform(op, "x", x);
  scope.touches(x);
  const ReduceLayout layout(op, x, {dim});
  QUANTA_CHECK(layout.count > 0, "{}: dim: expected a dimension with elements, got {} of {}", op,
               dim, x.sizes());
  const Tensor values =
      detail::empty_with_parameters_of(x, layout.result_sizes, MemoryFormat::Contiguous);
  const Tensor indices = Tensor::empty(layout.result_sizes, DType::Int64);
  detail::visit_ordered(op, x.dtype(), [&](auto element) {
    using T = decltype(element);
    if (values.numel() == 0) return;
    const auto* from = static_cast<const T*>(layout.data.data_ptr());
    auto* to = static_cast<T*>(values.data_ptr());
    auto* at = static_cast<std::int64_t*>(indices.data_ptr());
    if (layout.inner == 1) {
      extremes_of_rows<kExtreme>(from, layout, to, at);
    } else if (layout.count <= std::numeric_limits<std::int32_t>::max()) {
      extremes_of_columns<kExtreme, std::int32_t>(from, layout, to, at);
    } else {
      extremes_of_columns<kExtreme, std::int64_t>(from, layout, to, at);
    }
  });
  const ValuesIndices result{layout.restored(values, keepdim), layout.restored(indices, keepdim)};
  if (autograd::needs_grad(x)) {
    gradients::record_picked(op, x, wrap_dim(dim, x.dim(), op), result.values, result.indices);
  }
  return result;
}

void check_argmax(const Tensor& x) {
  detail::check_defined("argmax", "x", x);
  QUANTA_SUPPORTED(!x.is_quantized(),
                   "argmax: x: expected a plain tensor (max(x, dim) gives the indices of a "
                   "quantized one), got {}",
                   x.dtype());
}

}  // namespace

Tensor max(const Tensor& x) { return extreme_full<Extreme::Max>("max", x); }
Tensor min(const Tensor& x) { return extreme_full<Extreme::Min>("min", x); }

ValuesIndices max(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  return extreme_along<Extreme::Max>("max", x, dim, options.keepdim);
}
ValuesIndices min(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  return extreme_along<Extreme::Min>("min", x, dim, options.keepdim);
}

Tensor argmax(const Tensor& x) {
  check_argmax(x);
  QUANTA_CHECK(x.numel() > 0, "argmax: x: expected at least one element, got {}", x.sizes());
  return extreme_along<Extreme::Max>("argmax", detail::off_tape(x).reshape({-1}), 0, false).indices;
}
Tensor argmax(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  check_argmax(x);
  return extreme_along<Extreme::Max>("argmax", detail::off_tape(x), dim, options.keepdim).indices;
}

void max_out(const Tensor& out, const Tensor& x) {
  detail::write_out("max_out", {{"out", out, max(x)}});
}
void min_out(const Tensor& out, const Tensor& x) {
  detail::write_out("min_out", {{"out", out, min(x)}});
}
void max_out(const Tensor& values, const Tensor& indices, const Tensor& x, std::int64_t dim,
             const ReduceOptions& options) {
  const ValuesIndices result = max(x, dim, options);
  detail::write_out("max_out",
                    {{"values", values, result.values}, {"indices", indices, result.indices}});
}
void min_out(const Tensor& values, const Tensor& indices, const Tensor& x, std::int64_t dim,
             const ReduceOptions& options) {
  const ValuesIndices result = min(x, dim, options);
  detail::write_out("min_out",
                    {{"values", values, result.values}, {"indices", indices, result.indices}});
}

}  // namespace quanta
