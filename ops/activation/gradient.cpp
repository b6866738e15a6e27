#include "quanta/ops/activation/gradient.h"

#include <cmath>
#include <limits>

#include "quanta/ops/activation/math.h"
#include "quanta/ops/cpu/gradient_kernels.h"
#include "quanta/ops/detail/pointwise_gradient.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr auto hardswish = [](auto gradient, auto x) {
  using T = decltype(x);
  if (x <= T{-3}) return T{0};
  return x < T{3} ? gradient * (x / T{3} + static_cast<T>(0.5)) : gradient;
};
constexpr auto gelu = [](auto gradient, auto x) {
  using T = decltype(x);
  constexpr auto kSqrtHalf = static_cast<T>(0.70710678118654752440);
  constexpr auto kDensity = static_cast<T>(0.39894228040143267794);  // 1 / sqrt(2 pi)
  const T half = static_cast<T>(0.5);
  const T share = half * (T{1} + std::erf(x * kSqrtHalf));
  return gradient * (share + x * kDensity * std::exp(-half * x * x));
};
constexpr auto gelu_tanh = [](auto gradient, auto x) {
  using T = decltype(x);
  constexpr auto kSqrtTwoOverPi = static_cast<T>(0.79788456080286535588);
  constexpr auto kCubic = static_cast<T>(0.044715);
  const T half = static_cast<T>(0.5);
  const T t = std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x));
  const T inner = kSqrtTwoOverPi * (T{1} + T{3} * kCubic * x * x);
  return gradient * half * (T{1} + t + x * (T{1} - t * t) * inner);
};
constexpr auto silu = [](auto gradient, auto x) {
  using T = decltype(x);
  const T share = cpu::sigmoid(x);
  return gradient * share * (T{1} + x * (T{1} - share));
};

// Float32 through `rows`, a vector kernel; Float64 through `function`.
template <typename Rows, typename Function>
Tensor map_pair_with(const Tensor& gradient, const Tensor& value, const Rows& rows,
                     const Function& function) {
  if (value.dtype() != DType::Float32) return map_pair(gradient, value, function);
  Tensor out = Tensor::empty(value.sizes(), DType::Float32, value.suggested_format());
  for_each_pair<float>(gradient, value, out, rows);
  return out;
}

// low < value < high ? gradient * factor : 0.
Tensor through_gate(const Tensor& gradient, const Tensor& value, double low, double high,
                    double factor) {
  const cpu::Gate gate{static_cast<float>(low), static_cast<float>(high),
                       static_cast<float>(factor)};
  return map_pair_with(
      gradient, value,
      [&](const float* from, const float* at, float* dst, std::int64_t count) {
        cpu::gate_gradient(from, at, dst, count, gate);
      },
      [&](auto from, auto at) {
        using T = decltype(at);
        return at <= static_cast<T>(low) || at >= static_cast<T>(high)
                   ? T{0}
                   : from * static_cast<T>(factor);
      });
}

Tensor record_gate(std::string_view op, const Tensor& x, Tensor y, const Tensor& value, double low,
                   double high, double factor) {
  return autograd::record(
      op, {x}, std::move(y), {value}, [low, high, factor](const BackwardContext& backward) {
        return std::vector<Tensor>{
            through_gate(backward.grad(), backward.saved(0), low, high, factor)};
      });
}

}  // namespace

Tensor relu_gradient(const Tensor& gradient, const Tensor& result) {
  return through_gate(gradient, result, 0.0, kInfinity, 1.0);
}

Tensor record_open_clamp(std::string_view op, const Tensor& x, Tensor y, double low, double high) {
  // The result lies on a bound where x does or is beyond it. It is kept anyway, as the next op's
  // input.
  const Tensor result = y;
  return record_gate(op, x, std::move(y), result, low, high, 1.0);
}

Tensor record_hardsigmoid(const Tensor& x, Tensor y) {
  return record_gate("hardsigmoid", x, std::move(y), x, -3.0, 3.0, 1.0 / 6.0);
}

Tensor record_clamp(const Tensor& x, Tensor y, std::optional<double> low,
                    std::optional<double> high) {
  const double least = low.value_or(-kInfinity);
  const double most = high.value_or(kInfinity);
  return record_pointwise("clamp", x, std::move(y), x, [least, most](auto gradient, auto value) {
    using T = decltype(value);
    return value >= static_cast<T>(least) && value <= static_cast<T>(most) ? gradient : T{0};
  });
}

Tensor record_threshold(const Tensor& x, Tensor y, double threshold) {
  return record_pointwise("threshold", x, std::move(y), x, [threshold](auto gradient, auto value) {
    using T = decltype(value);
    return value <= static_cast<T>(threshold) ? T{0} : gradient;
  });
}

Tensor record_leaky_relu(const Tensor& x, Tensor y, double negative_slope) {
  return record_pointwise(
      "leaky_relu", x, std::move(y), x, [negative_slope](auto gradient, auto value) {
        using T = decltype(value);
        return value > T{0} ? gradient : gradient * static_cast<T>(negative_slope);
      });
}

Tensor record_hardswish(const Tensor& x, Tensor y) {
  return autograd::record("hardswish", {x}, std::move(y), {x}, [](const BackwardContext& backward) {
    return std::vector<Tensor>{
        map_pair_with(backward.grad(), backward.saved(0), cpu::hardswish_gradient, hardswish)};
  });
}

Tensor record_sigmoid(const Tensor& x, Tensor y) {
  const Tensor result = y;
  return record_pointwise("sigmoid", x, std::move(y), result, [](auto gradient, auto value) {
    return gradient * (decltype(value){1} - value) * value;
  });
}

Tensor record_tanh(const Tensor& x, Tensor y) {
  const Tensor result = y;
  return record_pointwise("tanh", x, std::move(y), result, [](auto gradient, auto value) {
    return gradient * (decltype(value){1} - value * value);
  });
}

Tensor record_gelu(const Tensor& x, Tensor y, GeluApproximation approximate) {
  if (approximate == GeluApproximation::Tanh) {
    return record_pointwise("gelu", x, std::move(y), x, gelu_tanh);
  }
  return record_pointwise("gelu", x, std::move(y), x, gelu);
}

Tensor record_silu(const Tensor& x, Tensor y) {
  return record_pointwise("silu", x, std::move(y), x, silu);
}

Tensor record_elu(std::string_view op, const Tensor& x, Tensor y, double alpha, double scale,
                  double input_scale) {
  return record_pointwise(op, x, std::move(y), x,
                          [alpha, scale, input_scale](auto gradient, auto value) {
                            using T = decltype(value);
                            if (value > T{0}) return gradient * static_cast<T>(scale);
                            const auto slope = static_cast<T>(alpha * scale * input_scale);
                            return gradient * slope * std::exp(value * static_cast<T>(input_scale));
                          });
}

Tensor record_softplus(const Tensor& x, Tensor y, double beta, double threshold) {
  return record_pointwise(
      "softplus", x, std::move(y), x, [beta, threshold](auto gradient, auto value) {
        using T = decltype(value);
        const T scaled = value * static_cast<T>(beta);
        return scaled > static_cast<T>(threshold) ? gradient : gradient * cpu::sigmoid(scaled);
      });
}

Tensor record_mish(const Tensor& x, Tensor y) {
  return record_pointwise("mish", x, std::move(y), x, [](auto gradient, auto value) {
    using T = decltype(value);
    const T share = cpu::sigmoid(value);
    const T t = std::tanh(std::log1p(std::exp(value)));
    return gradient * (t + value * share * (T{1} - t * t));
  });
}

Tensor record_logsigmoid(const Tensor& x, Tensor y) {
  return record_pointwise("logsigmoid", x, std::move(y), x, [](auto gradient, auto value) {
    return gradient * cpu::sigmoid(-value);
  });
}

Tensor record_softsign(const Tensor& x, Tensor y) {
  return record_pointwise("softsign", x, std::move(y), x, [](auto gradient, auto value) {
    using T = decltype(value);
    const T width = T{1} + std::abs(value);
    return gradient / (width * width);
  });
}

Tensor record_prelu(const Tensor& x, const Tensor& slope, Tensor y) {
  return autograd::record(
      "prelu", {x, slope}, std::move(y), {x, slope}, [](const BackwardContext& backward) {
        const Tensor x = backward.saved(0);
        const Tensor slopes = backward.saved(1).expand(x.sizes());
        std::vector<Tensor> results(2);
        const Tensor scaled = map_pair(backward.grad(), slopes,
                                       [](auto gradient, auto value) { return gradient * value; });
        if (backward.needs(0)) {
          const Tensor masked = map_pair(backward.grad(), x, [](auto gradient, auto value) {
            return value > decltype(value){0} ? gradient : decltype(value){0};
          });
          const Tensor rest = map_pair(scaled, x, [](auto gradient, auto value) {
            return value > decltype(value){0} ? decltype(value){0} : gradient;
          });
          results[0] = map_pair(masked, rest, [](auto a, auto b) { return a + b; });
        }
        if (backward.needs(1)) {
          const Tensor each = map_pair(backward.grad(), x, [](auto gradient, auto value) {
            return value > decltype(value){0} ? decltype(value){0} : gradient * value;
          });
          results[1] = autograd::sum_to_size(each, backward.saved(1).sizes());
        }
        return results;
      });
}

}  // namespace quanta::gradients
