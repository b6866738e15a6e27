#include "quanta/ops/reduce.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/out.h"
#include "quanta/ops/reduce/cuda_reduce.h"
#include "quanta/ops/reduce/families.h"
#include "quanta/ops/reduce/gradient.h"
#include "quanta/ops/reduce/layout.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

// max, min and argmax.

namespace quanta {
namespace reduction {
namespace {

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
T more_extreme(T a, T b) {
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
T find_extreme(const T* x, std::int64_t count) {
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
        lanes[lane] = more_extreme<kExtreme>(value, lanes[lane]);
        if constexpr (std::is_floating_point_v<T>) sums[lane] += value * T{0};
      }
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      best = more_extreme<kExtreme>(lanes[lane], best);
      if constexpr (std::is_floating_point_v<T>) unordered |= sums[lane] != sums[lane];
    }
  }
  for (; i < count; ++i) {
    best = more_extreme<kExtreme>(x[i], best);
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
  const std::int64_t blocks = ceil_div(count, kBlock);
  std::vector<T> partial(static_cast<std::size_t>(blocks));
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t length = std::min(kBlock, count - b * kBlock);
      partial[static_cast<std::size_t>(b)] = find_extreme<kExtreme>(x + b * kBlock, length);
    }
  });
  return find_extreme<kExtreme>(partial.data(), blocks);
}

// One row after the other of `count` neighbours.
template <Extreme kExtreme, typename T>
void extremes_of_rows(const T* x, const ReduceLayout& layout, T* values, std::int64_t* indices) {
  const std::int64_t count = layout.count;
  parallel_for(layout.outer, std::max<std::int64_t>(1, kGrain / count),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const T* from = x + row * count;
                   const T best = find_extreme<kExtreme>(from, count);
                   const T* first = std::find_if(from, from + count, [best](T value) {
                     return value == best || (value != value && best != best);
                   });
                   values[row] = *first;  // zeros of both signs are equal
                   indices[row] = first - from;
                 }
               });
}

// Columns side by side, a block of them at a time; positions are narrow while they are compared.
template <Extreme kExtreme, typename Position, typename T>
void extremes_of_columns(const T* x, const ReduceLayout& layout, T* values, std::int64_t* indices) {
  constexpr std::int64_t kBlock = 512;
  const std::int64_t blocks = ceil_div(layout.inner, kBlock);
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

// Values and positions along the reduced dimension of `x`, whose layout is given.
template <Extreme kExtreme>
void extremes_along(const Tensor& x, const ReduceLayout& layout, void* values,
                    std::int64_t* indices) {
  const Tensor block = layout.block(x);
  detail::visit_ordered("max", x.dtype(), [&](auto element) {
    using T = decltype(element);
    const auto* from = static_cast<const T*>(block.data_ptr());
    auto* to = static_cast<T*>(values);
    if (layout.inner == 1) {
      extremes_of_rows<kExtreme>(from, layout, to, indices);
    } else if (layout.count <= std::numeric_limits<std::int32_t>::max()) {
      extremes_of_columns<kExtreme, std::int32_t>(from, layout, to, indices);
    } else {
      extremes_of_columns<kExtreme, std::int64_t>(from, layout, to, indices);
    }
  });
}

template <Extreme kExtreme>
constexpr cuda::Extreme kOnCuda =
    kExtreme == Extreme::Max ? cuda::Extreme::Largest : cuda::Extreme::Smallest;

// The layout for a reduction along one dimension that has elements.
ReduceLayout layout_along(std::string_view op, const Tensor& x, std::int64_t dim, bool keepdim) {
  const ReduceLayout layout(op, x, {dim}, keepdim);
  QUANTA_CHECK(layout.count > 0, "{}: dim: expected a dimension with elements, got {} of {}", op,
               dim, x.sizes());
  return layout;
}

void check_not_empty(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.numel() > 0, "{}: x: expected at least one element, got {}", op, x.sizes());
}

// The largest or smallest element of all; with `dim` those along it, and their positions.
template <Extreme kExtreme>
struct ExtremeElement final : Op<ExtremeElement<kExtreme>> {
  static constexpr std::string_view kName = kExtreme == Extreme::Max ? "max" : "min";
  static constexpr ArgumentCount kArguments{1};
  std::optional<std::int64_t> dim;
  bool keepdim = false;

  ExtremeElement() = default;
  ExtremeElement(std::int64_t along, bool keep) : dim(along), keepdim(keep) {}
  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    detail::check_ordered(kName, x.dtype());
    if (!dim) {
      check_not_empty(kName, x);
      out.add_like(x, {});
      return;
    }
    const ReduceLayout layout = layout_along(kName, x, *dim, keepdim);
    out.add_like(x, layout.sizes, layout.strides);
    out.add_like(int64_like(), layout.sizes, layout.strides);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    if (dim) {
      extremes_along<kExtreme>(x, layout_along(kName, x, *dim, keepdim), out[0].data_ptr(),
                               static_cast<std::int64_t*>(out[1].data_ptr()));
      return "scalar";
    }
    const Tensor data = x.is_dense() ? x : x.contiguous();
    detail::visit_ordered(kName, x.dtype(), [&](auto element) {
      using T = decltype(element);
      *static_cast<T*>(out[0].data_ptr()) =
          extreme_of_all<kExtreme>(static_cast<const T*>(data.data_ptr()), data.numel());
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    if (dim) {
      cuda::find_extremes(x, layout_along(kName, x, *dim, keepdim), kOnCuda<kExtreme>,
                          cuda::Equals::First, out[0].device_ptr(),
                          reinterpret_cast<std::int64_t*>(out[1].device_ptr()));
    } else {
      cuda::find_extremes(x, ReduceLayout(kName, x, {}, false), kOnCuda<kExtreme>,
                          cuda::Equals::First, out[0].device_ptr(), nullptr);
    }
    return "find_extremes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrdered; }
  GradientUse gradient_use(std::uint64_t) const override {
    return dim ? GradientUse::of(0, 0b10) : GradientUse::of(1, 1);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {dim ? picked_gradient(context, *dim) : extreme_gradient(context)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<ExtremeElement, &ExtremeElement::dim>("dim"),
        attribute<ExtremeElement, &ExtremeElement::keepdim>("keepdim")};
    return kTable;
  }
};

using Max = ExtremeElement<Extreme::Max>;
using Min = ExtremeElement<Extreme::Min>;

// The position of the largest or smallest element: of the flattened tensor, or along `dim`.
template <Extreme kExtreme>
struct ArgExtreme final : Op<ArgExtreme<kExtreme>> {
  static constexpr std::string_view kName = kExtreme == Extreme::Max ? "argmax" : "argmin";
  static constexpr ArgumentCount kArguments{1};
  std::optional<std::int64_t> dim;
  bool keepdim = false;

  ArgExtreme() = default;
  ArgExtreme(std::int64_t along, bool keep) : dim(along), keepdim(keep) {}
  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_defined(kName, "x", x);
    QUANTA_SUPPORTED(!x.is_quantized(),
                     "{}: x: expected a plain tensor (max(x, dim) and min(x, dim) give the indices "
                     "of a quantized one), got {}",
                     kName, x.dtype());
    detail::check_ordered(kName, x.dtype());
    if (!dim) {
      check_not_empty(kName, x);
      out.add({}, DType::Int64);
      return;
    }
    const ReduceLayout layout = layout_along(kName, x, *dim, keepdim);
    out.add_like(int64_like(), layout.sizes, layout.strides);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor x = dim ? in[0] : in[0].reshape({-1});
    const Tensor values = Tensor::empty(out[0].sizes(), x.dtype());
    extremes_along<kExtreme>(x, layout_along(kName, x, dim.value_or(0), keepdim), values.data_ptr(),
                             static_cast<std::int64_t*>(out[0].data_ptr()));
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor x = dim ? in[0] : in[0].reshape({-1});
    cuda::find_extremes(x, layout_along(kName, x, dim.value_or(0), keepdim), kOnCuda<kExtreme>,
                        cuda::Equals::First, nullptr,
                        reinterpret_cast<std::int64_t*>(out[0].device_ptr()));
    return "find_extremes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrderedPlain; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<ArgExtreme, &ArgExtreme::dim>("dim"),
                                       attribute<ArgExtreme, &ArgExtreme::keepdim>("keepdim")};
    return kTable;
  }
};

using Argmax = ArgExtreme<Extreme::Max>;
using Argmin = ArgExtreme<Extreme::Min>;

ValuesIndices values_and_indices(Results results) {
  return {std::move(results[0]), std::move(results[1])};
}

}  // namespace
}  // namespace reduction

using namespace reduction;

Tensor max(const Tensor& x) { return run(Max{}, x); }
Tensor min(const Tensor& x) { return run(Min{}, x); }
ValuesIndices max(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  return values_and_indices(run_all(Max{dim, options.keepdim}, x));
}
ValuesIndices min(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  return values_and_indices(run_all(Min{dim, options.keepdim}, x));
}
Tensor argmax(const Tensor& x) { return run(Argmax{}, x); }
Tensor argmax(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  return run(Argmax{dim, options.keepdim}, x);
}
Tensor argmin(const Tensor& x) { return run(Argmin{}, x); }
Tensor argmin(const Tensor& x, std::int64_t dim, const ReduceOptions& options) {
  return run(Argmin{dim, options.keepdim}, x);
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

// The catalogue --------------------------------------------------------------------------------

void detail::add_reduce(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/reduce.h";
  catalogue.add({.name = Max::kName, .header = kHeader, .dtypes = dtypes::kOrdered},
                [](DType dtype) {
                  return sample_call(Max{1, true}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = Min::kName, .header = kHeader, .dtypes = dtypes::kOrdered},
                [](DType dtype) {
                  return sample_call(Min{}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = Argmax::kName, .header = kHeader, .dtypes = dtypes::kOrderedPlain},
                [](DType dtype) {
                  return sample_call(Argmax{-1, false}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = Argmin::kName, .header = kHeader, .dtypes = dtypes::kOrderedPlain},
                [](DType dtype) {
                  return sample_call(Argmin{-1, false}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  add_sums(catalogue);
  add_folds(catalogue);
  add_cumulative(catalogue);
}

}  // namespace quanta
