#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/out.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/reduce/cuda_reduce.h"
#include "quanta/ops/reduce/families.h"
#include "quanta/ops/reduce/gradient.h"
#include "quanta/ops/reduce/layout.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

// sum, mean, std and var: sums of a function of the elements.

namespace quanta {
namespace reduction {
namespace {

constexpr std::int64_t kGrain = 16384;

// A row's sum in a fixed order, whatever the number of threads.
template <typename Sum, typename T, typename Term>
Sum sum_row(const T* x, std::int64_t count, const Term& term) {
  constexpr std::int64_t kLanes = 8;
  std::array<Sum, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<std::size_t>(lane)] += term(x[i + lane]);
    }
  }
  Sum sum{};
  for (; i < count; ++i) sum += term(x[i]);
  for (const Sum lane : lanes) sum += lane;
  return sum;
}

// The same for a long row, in blocks that threads share.
template <typename Sum, typename T, typename Term>
Sum sum_long_row(const T* x, std::int64_t count, const Term& term) {
  constexpr std::int64_t kBlock = 65536;
  const std::int64_t blocks = ceil_div(count, kBlock);
  std::vector<Sum> partial(static_cast<std::size_t>(blocks));
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t length = std::min(kBlock, count - b * kBlock);
      partial[static_cast<std::size_t>(b)] = sum_row<Sum>(x + b * kBlock, length, term);
    }
  });
  Sum sum{};
  for (const Sum value : partial) sum += value;
  return sum;
}

// The sum of term_at(position)(element) for each position of the result.
template <typename Sum, typename T, typename TermAt>
std::vector<Sum> compute_sums(const ReduceLayout& layout, const T* x, const TermAt& term_at) {
  const std::int64_t count = layout.count;
  const std::int64_t inner = layout.inner;
  std::vector<Sum> sums(static_cast<std::size_t>(layout.outer * inner));
  if (sums.empty()) return sums;
  if (sums.size() == 1) {
    sums[0] = sum_long_row<Sum>(x, count, term_at(0));
    return sums;
  }
  if (inner == 1) {
    parallel_for(layout.outer, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(count, 1)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     sums[static_cast<std::size_t>(row)] =
                         sum_row<Sum>(x + row * count, count, term_at(row));
                   }
                 });
    return sums;
  }
  constexpr std::int64_t kBlock = 512;
  const std::int64_t blocks = ceil_div(inner, kBlock);
  const std::int64_t work = std::max<std::int64_t>(count, 1) * std::min(inner, kBlock);
  parallel_for(layout.outer * blocks, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t row = item / blocks;
                   const std::int64_t start = item % blocks * kBlock;
                   const std::int64_t length = std::min(kBlock, inner - start);
                   const T* from = x + row * count * inner + start;
                   Sum* to = sums.data() + row * inner + start;
                   for (std::int64_t i = 0; i < count; ++i, from += inner) {
                     for (std::int64_t j = 0; j < length; ++j) {
                       to[j] += term_at(row * inner + start + j)(from[j]);
                     }
                   }
                 }
               });
  return sums;
}

// What an element stands for in the sums.
template <typename T>
struct AsIs {
  double operator()(T value) const { return static_cast<double>(value); }
};
template <typename T>
struct Dequantized {
  float scale;
  std::int32_t zero_point;
  double operator()(T code) const {
    return static_cast<double>(math::dequantize(code, scale, zero_point));
  }
};

template <typename T, typename Value>
std::vector<double> compute_means(const ReduceLayout& layout, const T* x, const Value& value) {
  std::vector<double> means = compute_sums<double>(layout, x, [&](std::int64_t) { return value; });
  for (double& mean : means) mean /= static_cast<double>(layout.count);
  return means;
}

// Two passes: the second one sums squares of differences, which cannot cancel.
template <typename T, typename Value>
std::vector<double> compute_variances(const ReduceLayout& layout, const T* x, const Value& value,
                                      double correction) {
  const std::vector<double> means = compute_means(layout, x, value);
  std::vector<double> variances = compute_sums<double>(layout, x, [&](std::int64_t position) {
    return [&value, mean = means[static_cast<std::size_t>(position)]](T element) {
      const double difference = value(element) - mean;
      return difference * difference;
    };
  });
  const double divisor = std::max(0.0, static_cast<double>(layout.count) - correction);
  for (double& variance : variances) variance /= divisor;
  return variances;
}

// Writes convert(value) for each value, in the order of `out` in memory.
template <typename T, typename Value, typename Convert>
void write(const std::vector<Value>& values, const Tensor& out, const Convert& convert) {
  auto* to = static_cast<T*>(out.data_ptr());
  for (const Value value : values) *to++ = static_cast<T>(convert(value));
}

// Calls visitor(T{}) with the type of the elements or codes of what has a mean.
template <typename Visitor>
void visit_averaged(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::Float32:
      return visitor(float{});
    case DType::Float64:
      return visitor(double{});
    case DType::QUInt8:
      return visitor(std::uint8_t{});
    case DType::QInt8:
      return visitor(std::int8_t{});
    default:
      return visitor(std::int32_t{});
  }
}

template <typename T>
Dequantized<T> dequantized(const Tensor& x) {
  const Quantizer& quantizer = x.impl()->quantizer;
  return {static_cast<float>(quantizer.scale), static_cast<std::int32_t>(quantizer.zero_point)};
}

// Means and deviations of codes. The zero point drops out of a deviation, so torch takes that of
// the codes where it takes their mean, over the last dimensions of a contiguous tensor.

template <typename T>
void mean_codes(const ReduceLayout& layout, const T* x, const Tensor& like, const Tensor& out) {
  const auto count = static_cast<float>(layout.count);
  if (layout.innermost) {
    const auto sums = compute_sums<std::int64_t>(layout, x, [](std::int64_t) {
      return [](T code) { return static_cast<std::int64_t>(code); };
    });
    write<T>(sums, out, [&](std::int64_t sum) {
      return math::saturate_int32(math::round_half_even(static_cast<float>(sum) / count));
    });
    return;
  }
  const Dequantized<T> value = dequantized<T>(like);
  const auto sums = compute_sums<double>(layout, x, [&](std::int64_t) { return value; });
  const cpu::ScalarQuantizer quantizer(like);
  write<T>(sums, out, [&](double sum) { return quantizer(static_cast<float>(sum) / count); });
}

template <typename T>
void std_codes(const ReduceLayout& layout, const T* x, const Tensor& like, double correction,
               const Tensor& out) {
  const cpu::ScalarQuantizer quantizer(like);
  if (layout.innermost) {
    const double scale = like.impl()->quantizer.scale;
    write<T>(compute_variances(layout, x, AsIs<T>{}, correction), out, [&](double variance) {
      return quantizer(static_cast<float>(std::sqrt(variance) * scale));
    });
    return;
  }
  write<T>(compute_variances(layout, x, dequantized<T>(like), correction), out,
           [&](double variance) { return quantizer(static_cast<float>(std::sqrt(variance))); });
}

// What a CUDA device takes: floats and codes, what can be ordered, floats.
constexpr std::array kCudaAveraged{DType::Float32, DType::Float64, DType::QUInt8,  DType::QInt8,
                                   DType::QInt32,  DType::Float16, DType::BFloat16};
constexpr std::array kCudaSummed{DType::Float32, DType::Float64, DType::UInt8,   DType::Int8,
                                 DType::Int16,   DType::UInt16,  DType::Int32,   DType::Int64,
                                 DType::Bool,    DType::Float16, DType::BFloat16};
constexpr std::array kCudaFloating{DType::Float32, DType::Float64, DType::Float16, DType::BFloat16};

void check_averaged(std::string_view op, const Tensor& x, bool allow_quantized) {
  detail::check_uniform(op, "x", x);
  QUANTA_SUPPORTED(detail::is_float32_or_64(x.dtype()) || detail::is_float_of_cuda(x) ||
                       (allow_quantized && x.is_quantized()),
                   "{}: x: expected Float32{} on the CPU, got {}", op,
                   allow_quantized ? ", Float64, QUInt8, QInt8 or QInt32" : " or Float64",
                   x.dtype());
}

void infer_averaged(std::string_view op, const Tensor& x, const Dims& dims, bool keepdim,
                    Results& out) {
  const ReduceLayout layout(op, x, dims, keepdim);
  QUANTA_CHECK(!x.is_quantized() || layout.count > 0,
               "{}: dim: expected dimensions with elements for {}, got {} of {}", op, x.dtype(),
               dims, x.sizes());
  out.add_like(x, layout.sizes, layout.strides);
}

// What sum and mean have in common: their settings.
template <typename Derived>
struct OverDims : Op<Derived> {
  static constexpr ArgumentCount kArguments{1};
  Dims dim;
  bool keepdim = false;

  OverDims() = default;
  OverDims(const Dims& dims, bool keep) : dim(dims), keepdim(keep) {}
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Derived, &OverDims::dim>("dim"),
                                       attribute<Derived, &OverDims::keepdim>("keepdim")};
    return kTable;
  }
};

struct Mean final : OverDims<Mean> {
  static constexpr std::string_view kName = "mean";
  using OverDims::OverDims;

  void infer(const Arguments& in, Results& out) const override {
    check_averaged(kName, in[0], true);
    infer_averaged(kName, in[0], dim, keepdim, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const ReduceLayout layout(kName, in[0], dim, keepdim);
    const Tensor block = layout.block(in[0]);
    visit_averaged(in[0].dtype(), [&](auto element) {
      using T = decltype(element);
      const auto* x = static_cast<const T*>(block.data_ptr());
      if constexpr (std::is_floating_point_v<T>) {
        write<T>(compute_means(layout, x, AsIs<T>{}), out[0], [](double mean) { return mean; });
      } else {
        mean_codes(layout, x, in[0], out[0]);
      }
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::mean(in[0], ReduceLayout(kName, in[0], dim, keepdim), out[0]);
    return "sum_rows";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kCudaAveraged; }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {mean_gradient(context, dim)};
  }
};

struct Sum final : OverDims<Sum> {
  static constexpr std::string_view kName = "sum";
  using OverDims::OverDims;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_defined(kName, "x", x);
    QUANTA_SUPPORTED(!x.is_quantized(), "{}: x: expected a plain tensor (dequantize first), got {}",
                     kName, x.dtype());
    if (!detail::is_float_of_cuda(x)) detail::check_ordered(kName, x.dtype());
    const ReduceLayout layout(kName, x, dim, keepdim);
    out.add_like(x.is_floating_point() ? x : int64_like(), layout.sizes, layout.strides);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const ReduceLayout layout(kName, in[0], dim, keepdim);
    const Tensor block = layout.block(in[0]);
    detail::visit_ordered(kName, in[0].dtype(), [&](auto element) {
      using T = decltype(element);
      const auto* x = static_cast<const T*>(block.data_ptr());
      if constexpr (std::is_floating_point_v<T>) {
        const auto sums = compute_sums<double>(layout, x, [](std::int64_t) { return AsIs<T>{}; });
        write<T>(sums, out[0], [](double sum) { return sum; });
      } else {
        // Unsigned, where a sum that does not fit wraps as torch's does.
        const auto sums = compute_sums<std::uint64_t>(layout, x, [](std::int64_t) {
          return
              [](T value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)); };
        });
        write<std::int64_t>(sums, out[0], [](std::uint64_t sum) { return sum; });
      }
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::sum(in[0], ReduceLayout(kName, in[0], dim, keepdim), out[0]);
    return "sum_rows";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kCudaSummed; }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {sum_gradient(context, dim)};
  }
};

enum class Spread : std::uint8_t { Std, Var };

// The standard deviation, or its square.
template <Spread kSpread>
struct Deviation final : Op<Deviation<kSpread>> {
  static constexpr std::string_view kName = kSpread == Spread::Std ? "std" : "var";
  static constexpr ArgumentCount kArguments{1};
  Dims dim;
  double correction = 1.0;
  bool keepdim = false;

  Deviation() = default;
  Deviation(const Dims& dims, const StdOptions& options)
      : dim(dims), correction(options.correction), keepdim(options.keepdim) {}
  void infer(const Arguments& in, Results& out) const override {
    check_averaged(kName, in[0], kSpread == Spread::Std);
    QUANTA_CHECK(std::isfinite(correction), "{}: correction: expected a finite number, got {}",
                 kName, correction);
    infer_averaged(kName, in[0], dim, keepdim, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const ReduceLayout layout(kName, in[0], dim, keepdim);
    const Tensor block = layout.block(in[0]);
    visit_averaged(in[0].dtype(), [&](auto element) {
      using T = decltype(element);
      const auto* x = static_cast<const T*>(block.data_ptr());
      if constexpr (std::is_floating_point_v<T>) {
        write<T>(compute_variances(layout, x, AsIs<T>{}, correction), out[0], [](double variance) {
          return kSpread == Spread::Std ? std::sqrt(variance) : variance;
        });
      } else if constexpr (kSpread == Spread::Std) {
        std_codes(layout, x, in[0], correction, out[0]);
      }
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::spread(in[0], ReduceLayout(kName, in[0], dim, keepdim),
                 kSpread == Spread::Std ? cuda::Spread::Deviation : cuda::Spread::Variance,
                 correction, out[0]);
    return "sum_rows";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    if (kSpread == Spread::Std) return kCudaAveraged;
    return kCudaFloating;
  }
  GradientUse gradient_use(std::uint64_t) const override {
    return GradientUse::of(1, kSpread == Spread::Std ? 1 : 0);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {kSpread == Spread::Std ? std_gradient(context, dim, correction)
                                   : var_gradient(context, dim, correction)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Deviation, &Deviation::dim>("dim"),
                                       attribute<Deviation, &Deviation::correction>("correction"),
                                       attribute<Deviation, &Deviation::keepdim>("keepdim")};
    return kTable;
  }
};

using Std = Deviation<Spread::Std>;
using Var = Deviation<Spread::Var>;

}  // namespace

void add_sums(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/reduce.h";
  catalogue.add({.name = Sum::kName, .header = kHeader, .dtypes = dtypes::kOrderedPlain},
                [](DType dtype) {
                  return sample_call(Sum{{-1, 1}, true}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = Mean::kName, .header = kHeader, .dtypes = dtypes::kFloatsQ},
                [](DType dtype) {
                  return sample_call(Mean{{2, 3}, false}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add(
      {.name = Std::kName, .header = kHeader, .dtypes = dtypes::kFloatsQ}, [](DType dtype) {
        return sample_call(Std{{1}, {.correction = 0.5}}, {sample_tensor({2, 3, 5, 4}, dtype)});
      });
  catalogue.add(
      {.name = Var::kName, .header = kHeader, .dtypes = dtypes::kFloats}, [](DType dtype) {
        return sample_call(Var{{}, {.keepdim = true}}, {sample_tensor({2, 3, 5, 4}, dtype)});
      });
}

}  // namespace reduction

using namespace reduction;

Tensor mean(const Tensor& x) { return mean(x, Dims{}); }
Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  return run(Mean{dims, options.keepdim}, x);
}
Tensor std(const Tensor& x) { return std(x, Dims{}); }
Tensor std(const Tensor& x, const Dims& dims, const StdOptions& options) {
  return run(Std{dims, options}, x);
}
Tensor var(const Tensor& x) { return var(x, Dims{}); }
Tensor var(const Tensor& x, const Dims& dims, const StdOptions& options) {
  return run(Var{dims, options}, x);
}
Tensor sum(const Tensor& x) { return sum(x, Dims{}); }
Tensor sum(const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  return run(Sum{dims, options.keepdim}, x);
}

void mean_out(const Tensor& out, const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  detail::write_out("mean_out", {{"out", out, mean(x, dims, options)}});
}
void std_out(const Tensor& out, const Tensor& x, const Dims& dims, const StdOptions& options) {
  detail::write_out("std_out", {{"out", out, std(x, dims, options)}});
}

}  // namespace quanta
