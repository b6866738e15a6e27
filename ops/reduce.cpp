#include "quanta/ops/reduce.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/out.h"
#include "quanta/ops/detail/reduce_layout.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
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
  if constexpr (std::is_floating_point_v<T>) result = result || (a != a && b == b);
  return result;
}

template <Extreme kExtreme, typename T>
T extreme_of(const T* x, std::int64_t count) {
  T best = x[0];
  if constexpr (std::is_floating_point_v<T>) {
    // Without a branch for NaN in the loop, which keeps it in vector registers.
    bool ordered = true;
    for (std::int64_t i = 0; i < count; ++i) {
      best = (kExtreme == Extreme::Max ? x[i] > best : x[i] < best) ? x[i] : best;
      ordered = ordered && x[i] == x[i];
    }
    if (!ordered) best = *std::find_if(x, x + count, [](T value) { return value != value; });
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      best = kExtreme == Extreme::Max ? std::max(best, x[i]) : std::min(best, x[i]);
    }
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

// Columns side by side, a block of them at a time.
template <Extreme kExtreme, typename T>
void extremes_of_columns(const T* x, const ReduceLayout& layout, T* values, std::int64_t* indices) {
  constexpr std::int64_t kBlock = 512;
  const std::int64_t blocks = (layout.inner + kBlock - 1) / kBlock;
  const std::int64_t work = layout.count * std::min(layout.inner, kBlock);
  parallel_for(layout.outer * blocks, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t row = item / blocks;
                   const std::int64_t start = item % blocks * kBlock;
                   const std::int64_t length = std::min(kBlock, layout.inner - start);
                   const T* from = x + row * layout.count * layout.inner + start;
                   T* best = values + row * layout.inner + start;
                   std::int64_t* at = indices + row * layout.inner + start;
                   std::copy_n(from, length, best);
                   std::fill_n(at, length, 0);
                   for (std::int64_t i = 1; i < layout.count; ++i) {
                     from += layout.inner;
                     for (std::int64_t j = 0; j < length; ++j) {
                       const bool win = wins<kExtreme>(from[j], best[j]);
                       best[j] = win ? from[j] : best[j];
                       at[j] = win ? i : at[j];
                     }
                   }
                 }
               });
}

template <Extreme kExtreme>
Tensor extreme_full(std::string_view op, const Tensor& x) {
  OpScope scope(op);
  detail::check_uniform(op, "x", x);
  QUANTA_CHECK(x.numel() > 0, "{}: x: expected at least one element, got {}", op, x.sizes());
  const Tensor data = x.is_dense() ? x : x.contiguous();
  const Tensor result = detail::empty_with_parameters_of(x, {}, MemoryFormat::Contiguous);
  detail::visit_ordered(op, x.dtype(), [&](auto element) {
    using T = decltype(element);
    *static_cast<T*>(result.data_ptr()) =
        extreme_of_all<kExtreme>(static_cast<const T*>(data.data_ptr()), data.numel());
  });
  return result;
}

template <Extreme kExtreme>
ValuesIndices extreme_along(std::string_view op, const Tensor& x, std::int64_t dim, bool keepdim) {
  OpScope scope(op);
  detail::check_uniform(op, "x", x);
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
    } else {
      extremes_of_columns<kExtreme>(from, layout, to, at);
    }
  });
  return {layout.restored(values, keepdim), layout.restored(indices, keepdim)};
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
  return extreme_along<Extreme::Max>("argmax", x.reshape({-1}), 0, false).indices;
}
Tensor argmax(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  check_argmax(x);
  return extreme_along<Extreme::Max>("argmax", x, dim, options.keepdim).indices;
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
