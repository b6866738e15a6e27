#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <type_traits>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/reduce/cuda_reduce.h"
#include "quanta/ops/reduce/families.h"
#include "quanta/ops/reduce/layout.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

// amax, amin and prod: one number after the other is folded into a result, which begins with what
// changes nothing.

namespace quanta {
namespace reduction {
namespace {

constexpr std::int64_t kGrain = 16384;

struct Largest {
  static constexpr std::string_view kName = "amax";
  static constexpr bool kIsExtreme = true;
  template <typename T>
  using Value = T;
  template <typename T>
  static T start() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::lowest();
  }
  template <typename T>
  static T fold(T result, T value) {
    return result > value || result != result ? result : value;
  }
};

struct Smallest {
  static constexpr std::string_view kName = "amin";
  static constexpr bool kIsExtreme = true;
  template <typename T>
  using Value = T;
  template <typename T>
  static T start() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::max();
  }
  template <typename T>
  static T fold(T result, T value) {
    return result < value || result != result ? result : value;
  }
};

// Floats in double, integers in 64 bits, which wrap around.
struct Product {
  static constexpr std::string_view kName = "prod";
  static constexpr bool kIsExtreme = false;
  template <typename T>
  using Value = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
  template <typename T>
  static Value<T> start() {
    return Value<T>{1};
  }
  template <typename T>
  static Value<T> fold(Value<T> result, T value) {
    if constexpr (std::is_floating_point_v<T>) {
      return result * static_cast<double>(value);
    } else {
      return result * static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    }
  }
};

// A block [outer, count, inner], of which the middle goes; each result by itself, in order. A few
// neighbours at a time, so that memory is read as it lies.
template <typename F, typename T, typename To>
void fold_block(const T* x, const ReduceLayout& layout, To* out) {
  using Value = typename F::template Value<T>;
  constexpr std::int64_t kWidth = 64;
  const std::int64_t inner = layout.inner;
  const std::int64_t parts = (inner + kWidth - 1) / kWidth;
  const std::int64_t work =
      std::max<std::int64_t>(layout.count, 1) * std::clamp<std::int64_t>(inner, 1, kWidth);
  parallel_for(layout.outer * parts, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 std::array<Value, kWidth> results;
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t row = item / parts;
                   const std::int64_t first = item % parts * kWidth;
                   const std::int64_t width = std::min(kWidth, inner - first);
                   results.fill(F::template start<T>());
                   const T* from = x + row * layout.count * inner + first;
                   for (std::int64_t i = 0; i < layout.count; ++i, from += inner) {
                     for (std::int64_t k = 0; k < width; ++k) {
                       Value& result = results[static_cast<std::size_t>(k)];
                       result = F::template fold<T>(result, from[k]);
                     }
                   }
                   To* to = out + row * inner + first;
                   for (std::int64_t k = 0; k < width; ++k) {
                     to[k] = static_cast<To>(results[static_cast<std::size_t>(k)]);
                   }
                 }
               });
}

template <typename F>
struct Fold final : Op<Fold<F>> {
  static constexpr std::string_view kName = F::kName;
  static constexpr ArgumentCount kArguments{1};
  Dims dim;
  bool keepdim = false;

  Fold() = default;
  Fold(const Dims& dims, bool keep) : dim(dims), keepdim(keep) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_defined(kName, "x", x);
    QUANTA_SUPPORTED(!x.is_quantized(), "{}: x: expected a plain tensor (dequantize first), got {}",
                     kName, x.dtype());
    detail::check_ordered(kName, x.dtype());
    const ReduceLayout layout(kName, x, dim, keepdim);
    const bool is_same = F::kIsExtreme || x.is_floating_point();
    out.add_like(is_same ? x : int64_like(), layout.sizes, layout.strides);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const ReduceLayout layout(kName, in[0], dim, keepdim);
    const Tensor block = layout.block(in[0]);
    if (in[0].dtype() == DType::Bool && F::kIsExtreme) {
      // Without elements: what a byte begins with is no truth value.
      fold_block<F>(static_cast<const bool*>(block.data_ptr()), layout,
                    static_cast<bool*>(out[0].data_ptr()));
      return "scalar";
    }
    detail::visit_ordered(kName, in[0].dtype(), [&](auto element) {
      using T = decltype(element);
      const auto* x = static_cast<const T*>(block.data_ptr());
      if constexpr (F::kIsExtreme || std::is_floating_point_v<T>) {
        fold_block<F>(x, layout, static_cast<T*>(out[0].data_ptr()));
      } else {
        fold_block<F>(x, layout, static_cast<std::int64_t*>(out[0].data_ptr()));
      }
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const ReduceLayout layout(kName, in[0], dim, keepdim);
    if constexpr (F::kIsExtreme) {
      constexpr cuda::Extreme kExtreme =
          std::is_same_v<F, Largest> ? cuda::Extreme::Largest : cuda::Extreme::Smallest;
      cuda::find_extremes(in[0], layout, kExtreme, cuda::Equals::Last, out[0].device_ptr(),
                          nullptr);
      return "find_extremes";
    } else {
      cuda::product(in[0], layout, out[0]);
      return "multiply_columns";
    }
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrderedPlain; }

  GradientUse gradient_use(std::uint64_t) const override {
    return F::kIsExtreme ? GradientUse::of(1, 1) : GradientUse{};
  }
  // Equal ones share it, as in torch.
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    if constexpr (!F::kIsExtreme) {
      return Operation::gradient(context);
    } else {
      const Tensor x = context.input(0);
      const Dims kept = ReduceLayout(kName, x, dim, true).sizes;
      const Tensor taken = eq(x, context.output().reshape(kept));
      const Tensor count = sum(taken, dim, {.keepdim = true}).to(x.dtype());
      const Tensor share = div(context.grad().reshape(kept), count);
      return {where(taken, share, Tensor::zeros({}, x.dtype()))};
    }
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Fold, &Fold::dim>("dim"),
                                       attribute<Fold, &Fold::keepdim>("keepdim")};
    return kTable;
  }
};

template <typename F>
void add_fold(Catalogue& catalogue) {
  catalogue.add(
      {.name = F::kName, .header = "quanta/ops/reduce.h", .dtypes = dtypes::kOrderedPlain},
      [](DType dtype) {
        return sample_call(Fold<F>{{-1, 1}, true}, {sample_tensor({2, 3, 5, 4}, dtype)});
      });
}

}  // namespace

void add_folds(Catalogue& catalogue) {
  add_fold<Largest>(catalogue);
  add_fold<Smallest>(catalogue);
  add_fold<Product>(catalogue);
}

}  // namespace reduction

using namespace reduction;

Tensor amax(const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  return run(Fold<Largest>{dims, options.keepdim}, x);
}
Tensor amin(const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  return run(Fold<Smallest>{dims, options.keepdim}, x);
}
Tensor prod(const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  return run(Fold<Product>{dims, options.keepdim}, x);
}

}  // namespace quanta
