#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/reduce/cuda_kernels.h"
#include "quanta/ops/reduce/families.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

// Running sums and products.

namespace quanta {
namespace reduction {
namespace {

enum class Running : std::uint8_t { Sum, Product };

// Floats in double; integers wrap around.
template <typename T>
using Total = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

template <Running kRunning, typename T>
Total<T> extended(Total<T> total, T value) {
  Total<T> term;
  if constexpr (std::is_floating_point_v<T>) {
    term = static_cast<double>(value);
  } else {
    term = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  }
  return kRunning == Running::Sum ? total + term : total * term;
}

// A contiguous block [outer, count, inner].
struct Block {
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
};

template <Running kRunning, typename T>
void accumulate(const T* x, const Block& block, const CumulativeOptions& options, T* out) {
  const std::int64_t first = options.reverse ? (block.count - 1) * block.inner : 0;
  const std::int64_t step = options.reverse ? -block.inner : block.inner;
  const std::int64_t grain =
      std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(block.count, 1));
  parallel_for(block.outer * block.inner, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t start =
          line / block.inner * block.count * block.inner + line % block.inner + first;
      Total<T> total = kRunning == Running::Sum ? Total<T>{0} : Total<T>{1};
      for (std::int64_t i = 0, at = start; i < block.count; ++i, at += step) {
        const T value = x[at];
        if (options.exclusive) out[at] = static_cast<T>(total);
        total = extended<kRunning, T>(total, value);
        if (!options.exclusive) out[at] = static_cast<T>(total);
      }
    }
  });
}

template <Running kRunning>
struct Cumulative final : Op<Cumulative<kRunning>> {
  static constexpr std::string_view kName = kRunning == Running::Sum ? "cumsum" : "cumprod";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dim = 0;
  CumulativeOptions options;

  Cumulative() = default;
  Cumulative(std::int64_t along, const CumulativeOptions& given) : dim(along), options(given) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_defined(kName, "x", x);
    QUANTA_SUPPORTED(!x.is_quantized() && x.dtype() != DType::Bool,
                     "{}: x: expected Float32, Float64 or an integer dtype, got {}", kName,
                     x.dtype());
    detail::check_ordered(kName, x.dtype());
    wrap_dim(dim, x.dim(), kName);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(x.sizes(), x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Block block = block_of(x);
    detail::visit_ordered(kName, x.dtype(), [&](auto element) {
      using T = decltype(element);
      accumulate<kRunning>(static_cast<const T*>(x.data_ptr()), block, options,
                           static_cast<T*>(out[0].data_ptr()));
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Block block = block_of(x);
    cuda::run_along(x.device(), {.block = {.dtype = x.dtype(),
                                           .x = x.device_ptr(),
                                           .outer = block.outer,
                                           .count = block.count,
                                           .inner = block.inner},
                                 .products = kRunning == Running::Product,
                                 .exclusive = options.exclusive,
                                 .reverse = options.reverse,
                                 .out = out[0].device_ptr()});
    return "run_along";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloatsIntegers; }

  GradientUse gradient_use(std::uint64_t) const override {
    return kRunning == Running::Sum ? GradientUse::of(0) : GradientUse{};
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    if constexpr (kRunning == Running::Product) {
      return Operation::gradient(context);
    } else {
      CumulativeOptions other = options;
      other.reverse = !options.reverse;
      return {cumsum(context.grad(), dim, other)};
    }
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Cumulative, &Cumulative::dim>("dim"),
        attribute<Cumulative, &Cumulative::options, &CumulativeOptions::exclusive>("exclusive"),
        attribute<Cumulative, &Cumulative::options, &CumulativeOptions::reverse>("reverse")};
    return kTable;
  }

 private:
  Block block_of(const Tensor& x) const {
    Block block;
    const auto along = static_cast<std::size_t>(wrap_dim(dim, x.dim(), kName));
    for (std::size_t d = 0; d < x.sizes().size(); ++d) {
      (d < along ? block.outer : d == along ? block.count : block.inner) *= x.sizes()[d];
    }
    return block;
  }
};

template <Running kRunning>
void add_row(Catalogue& catalogue) {
  using Kind = Cumulative<kRunning>;
  catalogue.add(
      {.name = Kind::kName, .header = "quanta/ops/reduce.h", .dtypes = dtypes::kFloatsIntegers},
      [](DType dtype) {
        return sample_call(Kind{1, {.exclusive = true, .reverse = true}},
                           {sample_tensor({2, 3, 5, 4}, dtype)});
      });
}

}  // namespace

void add_cumulative(Catalogue& catalogue) {
  add_row<Running::Sum>(catalogue);
  add_row<Running::Product>(catalogue);
}

}  // namespace reduction

using namespace reduction;

Tensor cumsum(const Tensor& x, std::int64_t dim, const CumulativeOptions& options) {
  return run(Cumulative<Running::Sum>{dim, options}, x);
}
Tensor cumprod(const Tensor& x, std::int64_t dim, const CumulativeOptions& options) {
  return run(Cumulative<Running::Product>{dim, options}, x);
}

}  // namespace quanta
