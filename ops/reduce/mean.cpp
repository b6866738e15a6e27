#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/out.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/reduce/gradient.h"
#include "quanta/ops/reduce/layout.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

// sum, mean, std and var: sums of a function of the elements.

namespace quanta {
namespace {

using detail::ReduceLayout;

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
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
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
std::vector<Sum> sums_of(const ReduceLayout& layout, const TermAt& term_at) {
  const auto* x = static_cast<const T*>(layout.data.data_ptr());
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
  const std::int64_t blocks = (inner + kBlock - 1) / kBlock;
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
std::vector<double> means_of(const ReduceLayout& layout, const Value& value) {
  std::vector<double> means = sums_of<double, T>(layout, [&](std::int64_t) { return value; });
  for (double& mean : means) mean /= static_cast<double>(layout.count);
  return means;
}

// Two passes: the second one sums squares of differences, which cannot cancel.
template <typename T, typename Value>
std::vector<double> variances_of(const ReduceLayout& layout, const Value& value,
                                 double correction) {
  const std::vector<double> means = means_of<T>(layout, value);
  std::vector<double> variances = sums_of<double, T>(layout, [&](std::int64_t position) {
    return [&value, mean = means[static_cast<std::size_t>(position)]](T element) {
      const double difference = value(element) - mean;
      return difference * difference;
    };
  });
  const double divisor = std::max(0.0, static_cast<double>(layout.count) - correction);
  for (double& variance : variances) variance /= divisor;
  return variances;
}

void check_averaged(std::string_view op, const Tensor& x, bool allow_quantized) {
  detail::check_uniform(op, "x", x);
  QUANTA_SUPPORTED(x.dtype() == DType::Float32 || x.dtype() == DType::Float64 ||
                       (allow_quantized && x.is_quantized()),
                   "{}: x: expected Float32{} on the CPU, got {}", op,
                   allow_quantized ? ", Float64, QUInt8, QInt8 or QInt32" : " or Float64",
                   x.dtype());
}

// Writes convert(value) for each value into a result with the dtype and parameters of `x`.
template <typename T, typename Value, typename Convert>
Tensor make_result(const ReduceLayout& layout, const Tensor& x, const std::vector<Value>& values,
                   bool keepdim, const Convert& convert) {
  const Tensor result =
      detail::empty_with_parameters_of(x, layout.result_sizes, MemoryFormat::Contiguous);
  auto* to = static_cast<T*>(result.data_ptr());
  for (const Value value : values) *to++ = static_cast<T>(convert(value));
  return layout.restored(result, keepdim);
}

template <typename T>
Tensor quantized_mean(const ReduceLayout& layout, const QTensor& x, bool keepdim) {
  const auto count = static_cast<float>(layout.count);
  if (layout.innermost) {
    const auto sums = sums_of<std::int64_t, T>(layout, [](std::int64_t) {
      return [](T code) { return static_cast<std::int64_t>(code); };
    });
    return make_result<T>(layout, x, sums, keepdim, [&](std::int64_t sum) {
      return math::saturate_int32(math::round_half_even(static_cast<float>(sum) / count));
    });
  }
  const Dequantized<T> value{static_cast<float>(x.q_scale()),
                             static_cast<std::int32_t>(x.q_zero_point())};
  const auto sums = sums_of<double, T>(layout, [&](std::int64_t) { return value; });
  const cpu::ScalarQuantizer quantizer(x);
  return make_result<T>(layout, x, sums, keepdim,
                        [&](double sum) { return quantizer(static_cast<float>(sum) / count); });
}

template <typename T>
Tensor quantized_std(const ReduceLayout& layout, const QTensor& x, const StdOptions& options) {
  const cpu::ScalarQuantizer quantizer(x);
  const double scale = x.q_scale();
  if (layout.innermost) {
    // The zero point drops out, so torch takes the codes' deviation times the scale.
    const auto variances = variances_of<T>(layout, AsIs<T>{}, options.correction);
    return make_result<T>(layout, x, variances, options.keepdim, [&](double variance) {
      return quantizer(static_cast<float>(std::sqrt(variance) * scale));
    });
  }
  const Dequantized<T> value{static_cast<float>(scale),
                             static_cast<std::int32_t>(x.q_zero_point())};
  const auto variances = variances_of<T>(layout, value, options.correction);
  return make_result<T>(layout, x, variances, options.keepdim, [&](double variance) {
    return quantizer(static_cast<float>(std::sqrt(variance)));
  });
}

enum class Spread : std::uint8_t { Std, Var };

template <typename T>
Tensor float_spread(const ReduceLayout& layout, const Tensor& x, const Dims& dims,
                    const StdOptions& options, Spread spread) {
  const auto variances = variances_of<T>(layout, AsIs<T>{}, options.correction);
  Tensor result = make_result<T>(layout, x, variances, options.keepdim, [&](double variance) {
    return spread == Spread::Std ? std::sqrt(variance) : variance;
  });
  if (!autograd::needs_grad(x)) return result;
  return spread == Spread::Std ? gradients::record_std(x, dims, options, std::move(result))
                               : gradients::record_var(x, dims, options, std::move(result));
}

Tensor spread_of(std::string_view op, const Tensor& x, const Dims& dims, const StdOptions& options,
                 Spread spread) {
  OpScope scope(op);
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const Tensor& t) { return spread_of(op, t, dims, options, spread); }, x);
  }
  check_averaged(op, x, spread == Spread::Std);
  QUANTA_CHECK(std::isfinite(options.correction),
               "{}: correction: expected a finite number, got {}", op, options.correction);
  const ReduceLayout layout(op, x, dims);
  scope.touches(x);
  QUANTA_CHECK(!x.is_quantized() || layout.count > 0,
               "{}: dim: expected dimensions with elements for {}, got {} of {}", op, x.dtype(),
               dims, x.sizes());
  switch (x.dtype()) {
    case DType::Float32:
      return float_spread<float>(layout, x, dims, options, spread);
    case DType::Float64:
      return float_spread<double>(layout, x, dims, options, spread);
    case DType::QUInt8:
      return quantized_std<std::uint8_t>(layout, QTensor(x), options);
    case DType::QInt8:
      return quantized_std<std::int8_t>(layout, QTensor(x), options);
    default:
      return quantized_std<std::int32_t>(layout, QTensor(x), options);
  }
}

Tensor recorded_mean(const ReduceLayout& layout, const Tensor& x, const Dims& dims, Tensor y) {
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_sum("mean", x, dims, std::move(y), static_cast<double>(layout.count));
}

}  // namespace

Tensor mean(const Tensor& x) { return mean(x, Dims{}); }

Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  constexpr std::string_view kOp = "mean";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return mean(t, dims, options); }, x);
  }
  OpScope scope(kOp);
  check_averaged(kOp, x, true);
  const ReduceLayout layout(kOp, x, dims);
  scope.touches(x);
  QUANTA_CHECK(!x.is_quantized() || layout.count > 0,
               "{}: dim: expected dimensions with elements for {}, got {} of {}", kOp, x.dtype(),
               dims, x.sizes());
  const auto same = [](double value) { return value; };
  switch (x.dtype()) {
    case DType::Float32:
      return recorded_mean(layout, x, dims,
                           make_result<float>(layout, x, means_of<float>(layout, AsIs<float>{}),
                                              options.keepdim, same));
    case DType::Float64:
      return recorded_mean(layout, x, dims,
                           make_result<double>(layout, x, means_of<double>(layout, AsIs<double>{}),
                                               options.keepdim, same));
    case DType::QUInt8:
      return quantized_mean<std::uint8_t>(layout, QTensor(x), options.keepdim);
    case DType::QInt8:
      return quantized_mean<std::int8_t>(layout, QTensor(x), options.keepdim);
    default:
      return quantized_mean<std::int32_t>(layout, QTensor(x), options.keepdim);
  }
}

Tensor std(const Tensor& x) { return spread_of("std", x, {}, {}, Spread::Std); }
Tensor std(const Tensor& x, const Dims& dims, const StdOptions& options) {
  return spread_of("std", x, dims, options, Spread::Std);
}
Tensor var(const Tensor& x) { return spread_of("var", x, {}, {}, Spread::Var); }
Tensor var(const Tensor& x, const Dims& dims, const StdOptions& options) {
  return spread_of("var", x, dims, options, Spread::Var);
}

Tensor sum(const Tensor& x) { return sum(x, Dims{}); }

Tensor sum(const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  constexpr std::string_view kOp = "sum";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return sum(t, dims, options); }, x);
  }
  OpScope scope(kOp);
  detail::check_defined(kOp, "x", x);
  QUANTA_SUPPORTED(!x.is_quantized(), "{}: x: expected a plain tensor (dequantize first), got {}",
                   kOp, x.dtype());
  const ReduceLayout layout(kOp, x, dims);
  scope.touches(x);
  const Tensor integers = Tensor::empty({}, DType::Int64);
  Tensor result;
  detail::visit_ordered(kOp, x.dtype(), [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_floating_point_v<T>) {
      const auto sums = sums_of<double, T>(layout, [](std::int64_t) { return AsIs<T>{}; });
      result = make_result<T>(layout, x, sums, options.keepdim, [](double value) { return value; });
    } else {
      // Unsigned, where a sum that does not fit wraps as torch's does.
      const auto sums = sums_of<std::uint64_t, T>(layout, [](std::int64_t) {
        return [](T value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)); };
      });
      result = make_result<std::int64_t>(layout, integers, sums, options.keepdim,
                                         [](std::uint64_t value) { return value; });
    }
  });
  if (autograd::needs_grad(x)) {
    return gradients::record_sum(kOp, x, dims, std::move(result), 1.0);
  }
  return result;
}

void mean_out(const Tensor& out, const Tensor& x, const Dims& dims, const ReduceOptions& options) {
  const Tensor result = mean(x, dims, options);
  detail::write_out("mean_out", {{"out", out, result}});
}
void std_out(const Tensor& out, const Tensor& x, const Dims& dims, const StdOptions& options) {
  const Tensor result = std(x, dims, options);
  detail::write_out("std_out", {{"out", out, result}});
}

}  // namespace quanta
