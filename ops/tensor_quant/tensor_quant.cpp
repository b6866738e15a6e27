#include "quanta/ops/tensor_quant.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/amax.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using autograd::BackwardContext;
using detail::check_quantizable;
using detail::dense_float;
using detail::map_amax_runs;

math::AmaxGrid checked_grid(std::string_view op, const TensorQuantOptions& options) {
  const std::int64_t fewest = options.is_unsigned ? 1 : 2;
  QUANTA_CHECK(options.num_bits >= fewest && options.num_bits <= 32,
               "{}: num_bits: expected {}..32{}, got {}", op, fewest,
               options.is_unsigned ? " unsigned" : "", options.num_bits);
  return math::amax_grid(options.num_bits, options.is_unsigned, options.narrow_range);
}

void check_sign(std::string_view op, const Tensor& x, const TensorQuantOptions& options) {
  if (!options.is_unsigned || x.numel() == 0) return;
  const double lowest = min(x.detach().to(DType::Float32)).item();
  QUANTA_CHECK(!(lowest < 0.0), "{}: x: expected no negative values for unsigned codes, got {}", op,
               lowest);
}

float bfloat16(float value) { return math::bfloat16_to_float(math::float_to_bfloat16(value)); }

// Codes where every step is rounded to BFloat16.
Tensor bfloat16_codes(const Tensor& x, const Tensor& scale, const math::AmaxGrid& grid) {
  const math::AmaxGrid bounds{bfloat16(grid.min), bfloat16(grid.max)};
  return map_amax_runs(x, scale, [&](const float* src, const cpu::AmaxRun& run, float* dst) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const float scaled = bfloat16(src[i] * run.amax[i * run.step]);
      dst[i] = math::amax_code(scaled, 1.0F, bounds);
    }
  });
}

// The scale of each amax: what codes are multiplied with, or divided by.
enum class ScaleUse : bool { Multiply, Divide };

Tensor scale_of(const Tensor& amax, const math::AmaxGrid& grid, ScaleUse use) {
  Tensor scale = Tensor::empty(amax.sizes());
  const auto* src = static_cast<const float*>(amax.data_ptr());
  auto* dst = static_cast<float*>(scale.data_ptr());
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    const float each = math::amax_scale(src[i], grid.max);
    dst[i] = use == ScaleUse::Multiply ? each : math::amax_divisor(src[i], each);
  }
  return scale;
}

// Codes and scale, both in the dtype of x; not recorded.
TensorQuantResult codes_and_scale(std::string_view op, const Tensor& x, const Tensor& amax,
                                  const TensorQuantOptions& options) {
  const math::AmaxGrid grid = checked_grid(op, options);
  check_sign(op, x, options);
  const Tensor seen = dense_float(x);
  const Tensor scale = scale_of(amax, grid, ScaleUse::Divide).to(x.dtype());
  if (x.dtype() == DType::BFloat16) {
    const Tensor steps = scale_of(amax, grid, ScaleUse::Multiply).to(DType::BFloat16);
    return {bfloat16_codes(seen, steps.to(DType::Float32), grid).to(x.dtype()), scale};
  }
  const Tensor codes =
      map_amax_runs(seen, amax, [&](const float* src, const cpu::AmaxRun& run, float* dst) {
        cpu::tensor_quant_run(src, run, grid, dst);
      });
  return {codes.to(x.dtype()), scale};
}

// What is quantized in place of x: x without its bias.
Tensor without_bias(std::string_view op, const Tensor& x, const Tensor& bias) {
  if (!bias.defined()) return x.detach();
  autograd::require_no_grad(op, bias);
  QUANTA_CHECK(broadcast_sizes(x.sizes(), bias.sizes(), op) == x.sizes(),
               "{}: bias: expected sizes that broadcast to {}, got {}", op, x.sizes(),
               bias.sizes());
  return sub(x.detach().to(DType::Float32), bias.to(DType::Float32));
}

float one_value(std::string_view op, std::string_view argument, const Tensor& values) {
  QUANTA_CHECK(values.defined() && values.is_floating_point() && values.numel() == 1,
               "{}: {}: expected a floating tensor of one element, got {}", op, argument,
               values.defined() ? to_string(values.sizes()) : "an undefined one");
  return static_cast<float>(values.item());
}

// function(float) for each element of a dense Float32 tensor.
template <typename Function>
Tensor map_elements(const Tensor& x, Function&& function) {
  Tensor y = Tensor::empty(x.sizes(), DType::Float32, x.suggested_format());
  const auto* src = static_cast<const float*>(x.data_ptr());
  auto* dst = static_cast<float*>(y.data_ptr());
  cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dst[i] = function(src[i]);
  });
  return y;
}

// The gradient passes where low <= x <= high.
Tensor record_within(std::string_view op, const Tensor& x, Tensor y, float low, float high) {
  if (!autograd::needs_grad(x)) return y;
  return autograd::record(
      op, {x}, std::move(y), {x.detach()}, [low, high](const BackwardContext& b) {
        const Tensor seen = dense_float(b.saved(0));
        const Tensor inside =
            map_elements(seen, [&](float v) { return low <= v && v <= high ? 1.0F : 0.0F; });
        const Tensor gradient = mul(b.grad().to(DType::Float32), inside);
        return std::vector<Tensor>{gradient.to(b.grad().dtype())};
      });
}

}  // namespace

TensorQuantResult tensor_quant(const Tensor& x, const Tensor& amax,
                               const TensorQuantOptions& options) {
  constexpr std::string_view kOp = "tensor_quant";
  if (replay::is_recording()) {
    const auto both = replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b) {
          TensorQuantResult result = tensor_quant(a, b, options);
          return std::pair(std::move(result.values), std::move(result.scale));
        },
        x, amax);
    return {both.first, both.second};
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_quantizable(kOp, x);
  const Tensor values = detail::prepare_amax(kOp, x.sizes(), amax);
  if (x.dtype() == DType::Float16 && values.numel() > 0) {
    const math::AmaxGrid grid = checked_grid(kOp, options);
    const double largest = max(scale_of(values, grid, ScaleUse::Divide)).item();
    QUANTA_CHECK(!(largest > 65504.0),
                 "tensor_quant: amax: expected scales within Float16 (at most 65504), got {}",
                 largest);
  }
  TensorQuantResult result = codes_and_scale(kOp, x, values, options);
  result.values = detail::record_straight_through(kOp, x, std::move(result.values), x.detach(),
                                                  values, GradientRule::Clip);
  return result;
}

Tensor legacy_fake_tensor_quant(const Tensor& x, const Tensor& amax,
                                const TensorQuantOptions& options) {
  constexpr std::string_view kOp = "legacy_fake_tensor_quant";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b) { return legacy_fake_tensor_quant(a, b, options); },
        x, amax);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_quantizable(kOp, x);
  const Tensor values = detail::prepare_amax(kOp, x.sizes(), amax);
  const TensorQuantResult result = codes_and_scale(kOp, x, values, options);
  const Tensor y =
      div(result.values.to(DType::Float32), result.scale.to(DType::Float32)).to(x.dtype());
  return detail::record_straight_through(kOp, x, y, x.detach(), values, GradientRule::Clip);
}

Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax,
                         const FakeTensorQuantOptions& options) {
  constexpr std::string_view kOp = "fake_tensor_quant";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& bias) {
          FakeTensorQuantOptions given = options;
          given.bias = bias;
          return fake_tensor_quant(a, b, given);
        },
        x, amax, options.bias);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_quantizable(kOp, x);
  const math::AmaxGrid grid = checked_grid(kOp, options.codes);
  const Tensor values = detail::prepare_amax(kOp, x.sizes(), amax);
  const Tensor seen = without_bias(kOp, x, options.bias);
  check_sign(kOp, seen, options.codes);
  Tensor y = map_amax_runs(dense_float(seen), values,
                           [&](const float* src, const cpu::AmaxRun& run, float* dst) {
                             cpu::fake_tensor_quant_run(src, run, grid, dst);
                           });
  if (options.bias.defined()) y = add(y, options.bias.to(DType::Float32));
  return detail::record_straight_through(kOp, x, y.to(x.dtype()), seen, values, options.gradient);
}

Tensor fake_affine_tensor_quant(const Tensor& x, const Tensor& min_range, const Tensor& max_range,
                                std::int64_t num_bits) {
  constexpr std::string_view kOp = "fake_affine_tensor_quant";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return fake_affine_tensor_quant(a, b, c, num_bits);
        },
        x, min_range, max_range);
  }
  const OpScope scope(kOp);
  check_quantizable(kOp, x);
  autograd::require_no_grad(kOp, min_range, max_range);
  const float low = one_value(kOp, "min_range", min_range);
  const float high = one_value(kOp, "max_range", max_range);
  QUANTA_CHECK(std::isfinite(low) && std::isfinite(high) && low < high,
               "{}: max_range: expected a finite number above min_range {}, got {}", kOp, low,
               high);
  QUANTA_CHECK(num_bits >= 1 && num_bits <= 24, "{}: num_bits: expected 1..24, got {}", kOp,
               num_bits);
  const math::AffineRange range = math::affine_range(low, high, num_bits);
  const Tensor y =
      map_elements(dense_float(x), [&](float v) { return math::fake_affine(v, range); });
  return record_within(kOp, x, y.to(x.dtype()), low, high);
}

Tensor int_cast_ste(const Tensor& x, const TensorQuantOptions& options) {
  constexpr std::string_view kOp = "int_cast_ste";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return int_cast_ste(t, options); }, x);
  }
  const OpScope scope(kOp);
  check_quantizable(kOp, x);
  const math::AmaxGrid grid = checked_grid(kOp, options);
  const Tensor y =
      map_elements(dense_float(x), [&](float v) { return math::amax_code(v, 1.0F, grid); });
  return record_within(kOp, x, y.to(x.dtype()), grid.min, grid.max);
}

}  // namespace quanta
