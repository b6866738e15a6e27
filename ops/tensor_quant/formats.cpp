#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/detail/amax.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using autograd::BackwardContext;
using detail::check_quantizable;
using detail::dense_float;
using detail::map_amax_runs;

Tensor scaled(const Tensor& x, const Tensor& amax) {
  return map_amax_runs(dense_float(x), amax,
                       [](const float* src, const cpu::AmaxRun& run, float* dst) {
                         cpu::scaled_e4m3_run(src, run, dst);
                       });
}

// Elements as multiples of scales.
Tensor fp4(const Tensor& x, const Tensor& scales) {
  return map_amax_runs(dense_float(x), scales,
                       [](const float* src, const cpu::AmaxRun& run, float* dst) {
                         cpu::static_fp4_run(src, run, dst);
                       });
}

// x without its bias, off the tape.
Tensor shifted(std::string_view op, const Tensor& x, const Tensor& bias) {
  if (!bias.defined()) return x.detach();
  autograd::require_no_grad(op, bias);
  QUANTA_CHECK(broadcast_sizes(x.sizes(), bias.sizes(), op) == x.sizes(),
               "{}: bias: expected sizes that broadcast to {}, got {}", op, x.sizes(),
               bias.sizes());
  return sub(x.detach().to(DType::Float32), bias.to(DType::Float32));
}

// 448 / 1: amax that leaves numbers as they are.
Tensor no_scaling() { return Tensor::scalar(448.0); }

void check_bound(const Tensor& x, std::string_view argument, const Tensor& bound) {
  constexpr std::string_view kOp = "clip";
  QUANTA_CHECK(bound.defined(), "{}: {}: expected a tensor, got an undefined one", kOp, argument);
  QUANTA_CHECK(bound.dtype() == x.dtype(), "{}: {}: expected {} as x, got {}", kOp, argument,
               x.dtype(), bound.dtype());
  QUANTA_CHECK(bound.numel() == 1 || broadcast_sizes(x.sizes(), bound.sizes(), kOp) == x.sizes(),
               "{}: {}: expected sizes that broadcast to {}, got {}", kOp, argument, x.sizes(),
               bound.sizes());
  QUANTA_CHECK(!autograd::needs_grad(bound) || bound.numel() == 1,
               "{}: {}: expected one element of a bound that is learned, got {}", kOp, argument,
               bound.sizes());
}

// The elements of the three as rows of x's sizes.
class ClipOperands {
 public:
  Tensor x, low, high;
  ClipOperands(const Tensor& values, const Tensor& lowest, const Tensor& highest)
      : x(values.detach().contiguous()),
        low(expanded(lowest, values.sizes())),
        high(expanded(highest, values.sizes())) {}

 private:
  static Tensor expanded(const Tensor& bound, const Dims& sizes) {
    const Tensor plain = bound.detach();
    return (bound.numel() == 1 ? plain.reshape({}) : plain).expand(sizes).contiguous();
  }
};

std::vector<Tensor> clip_backward(const BackwardContext& b) {
  const ClipOperands in(b.saved(0), b.saved(1), b.saved(2));
  const Tensor gradient = b.grad().contiguous();
  Tensor x_gradient = Tensor::empty(in.x.sizes(), in.x.dtype());
  double low_sum = 0.0;
  double high_sum = 0.0;
  detail::visit_floats(in.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto *x = in.x.data<T>(), *low = in.low.data<T>(), *high = in.high.data<T>();
    const auto* from = gradient.data<T>();
    auto* dst = static_cast<T*>(x_gradient.data_ptr());
    for (std::int64_t i = 0; i < in.x.numel(); ++i) {
      dst[i] = low[i] < x[i] && x[i] < high[i] ? from[i] : T{0};
      if (x[i] <= low[i]) low_sum += static_cast<double>(from[i]);
      if (x[i] >= high[i]) high_sum += static_cast<double>(from[i]);
    }
  });
  const auto sum_like = [&](std::size_t input, double sum) {
    return b.needs(input) ? Tensor::full(b.saved(input).sizes(), sum, in.x.dtype()) : Tensor();
  };
  return {x_gradient, sum_like(1, low_sum), sum_like(2, high_sum)};
}

}  // namespace

Tensor clip(const Tensor& x, const Tensor& low, const Tensor& high) {
  constexpr std::string_view kOp = "clip";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [](const Tensor& a, const Tensor& b, const Tensor& c) { return clip(a, b, c); }, x,
        low, high);
  }
  const OpScope scope(kOp);
  detail::check_floats(kOp, "x", x);
  check_bound(x, "low", low);
  check_bound(x, "high", high);
  const ClipOperands in(x, low, high);
  Tensor y = Tensor::empty(x.sizes(), x.dtype());
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto *src = in.x.data<T>(), *lowest = in.low.data<T>(), *highest = in.high.data<T>();
    auto* dst = static_cast<T*>(y.data_ptr());
    cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T below = src[i] > highest[i] ? highest[i] : src[i];
        dst[i] = below < lowest[i] ? lowest[i] : below;
      }
    });
  });
  if (!autograd::needs_grad(x, low, high)) return y;
  return autograd::record(kOp, {x, low, high}, std::move(y), {x, low, high}, clip_backward);
}

Tensor scaled_e4m3(const Tensor& x, const Tensor& amax, const ScaledE4M3Options& options) {
  constexpr std::string_view kOp = "scaled_e4m3";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& bias) {
          ScaledE4M3Options given = options;
          given.bias = bias;
          return scaled_e4m3(a, b, given);
        },
        x, amax, options.bias);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  QUANTA_SUPPORTED(options.exponent_bits == 4 && options.mantissa_bits == 3,
                   "scaled_e4m3: exponent_bits: expected E4M3, got E{}M{}", options.exponent_bits,
                   options.mantissa_bits);
  check_quantizable(kOp, x);
  const Tensor seen = shifted(kOp, x, options.bias);
  const Tensor values = amax.defined() ? detail::prepare_amax(kOp, x.sizes(), amax) : no_scaling();
  Tensor y = scaled(seen, values);
  if (options.bias.defined()) y = add(y, options.bias.to(DType::Float32));
  const GradientRule rule = amax.defined() ? options.gradient : GradientRule::PassThrough;
  return detail::record_straight_through(kOp, x, y.to(x.dtype()), seen, values, rule);
}

Tensor fp4_cast_ste(const Tensor& x) {
  constexpr std::string_view kOp = "fp4_cast_ste";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [](const Tensor& t) { return fp4_cast_ste(t); }, x);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_quantizable(kOp, x);
  const Tensor y = fp4(x, Tensor::scalar(1.0));
  return detail::record_straight_through(kOp, x, y.to(x.dtype()), x.detach(), Tensor::scalar(6.0),
                                         GradientRule::Clip);
}

Tensor compute_fp4_scales(const Tensor& amax, const Tensor& global_amax,
                          const Fp4ScaleOptions& options) {
  constexpr std::string_view kOp = "compute_fp4_scales";
  QUANTA_CHECK(amax.defined(), "{}: amax: expected a tensor, got an undefined one", kOp);
  QUANTA_CHECK(options.fp8_max > 0.0 && options.fp8_max <= 448.0,
               "{}: fp8_max: expected a number above 0 and at most 448, got {}", kOp,
               options.fp8_max);
  const Tensor values = detail::prepare_amax(kOp, amax.sizes(), amax);
  const Tensor scales = div(values, Tensor::scalar(6.0));
  if (!options.quantize_block_scales || values.numel() == 0) return scales;
  Tensor global = global_amax.defined() ? global_amax.detach().to(DType::Float32) : max(values);
  QUANTA_CHECK(global.numel() == 1, "{}: global_amax: expected one element, got {}", kOp,
               global.sizes());
  global = div(mul(global, Tensor::scalar(448.0 / options.fp8_max)), Tensor::scalar(6.0));
  return scaled_e4m3(scales, global.reshape({}));
}

Tensor static_fp4(const Tensor& x, const Tensor& amax, const StaticFp4Options& options) {
  constexpr std::string_view kOp = "static_fp4";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& global_amax) {
          StaticFp4Options given = options;
          given.global_amax = global_amax;
          return static_fp4(a, b, given);
        },
        x, amax, options.global_amax);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_quantizable(kOp, x);
  const Tensor values = detail::prepare_amax(kOp, x.sizes(), amax);
  const Tensor scales = compute_fp4_scales(values, options.global_amax, options.scale);
  const Tensor y = fp4(x, scales.contiguous());
  return detail::record_straight_through(kOp, x, y.to(x.dtype()), x.detach(), values,
                                         options.gradient);
}

}  // namespace quanta
