#include "quanta/ops/quantize_affine.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "quanta/ops/detail/affine_layout.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/ops/quantize_affine/cpu_kernels.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using autograd::BackwardContext;
using cpu::AffineLayout;
using cpu::AffineOp;
using cpu::AffineStep;

// One call, after its arguments were checked: `x` is Float32 or Float64, and so are the parameters.
struct Call {
  std::string_view name;
  AffineOp op;
  AffineOptions options;
  AffineStep step = AffineStep::Native;
};

double rounded_to(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case DType::Float64:
      return value;
    case DType::Float32:
      return static_cast<double>(single);
    case DType::Float16:
      return static_cast<double>(math::float16_to_float(math::float_to_float16(single)));
    default:
      return static_cast<double>(math::bfloat16_to_float(math::float_to_bfloat16(single)));
  }
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return std::numeric_limits<double>::epsilon();
    case DType::Float32:
      return static_cast<double>(std::numeric_limits<float>::epsilon());
    case DType::Float16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

bool holds_grid(DType dtype, std::int64_t qmin, std::int64_t qmax) {
  for (const std::int64_t code : {qmin, qmin + 1, qmax - 1, qmax}) {
    const auto value = static_cast<double>(code);
    if (rounded_to(value, dtype) != value) return false;
  }
  return true;
}

bool is_stable(DType dtype, std::int64_t qmin, std::int64_t qmax) {
  const auto steps = static_cast<double>(qmax - qmin);
  return holds_grid(dtype, qmin, qmax) && epsilon_of(dtype) * steps <= 0.25;
}

// The narrowest dtype, from the one of x up, that the grid can be calculated in.
DType internal_dtype(DType dtype, std::int64_t qmin, std::int64_t qmax) {
  if (dtype == DType::Float64 || is_stable(dtype, qmin, qmax)) return dtype;
  return dtype != DType::Float32 && is_stable(DType::Float32, qmin, qmax) ? DType::Float32
                                                                          : DType::Float64;
}

void check_floating(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  const DType dtype = x.dtype();
  QUANTA_CHECK(dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 ||
                   dtype == DType::BFloat16,
               "{}: {}: expected Float32, Float64, Float16 or BFloat16, got {}", op, argument,
               dtype);
}

void check_options(const Call& call) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 52;
  const AffineOptions& options = call.options;
  QUANTA_CHECK(
      options.qmin <= options.qmax && options.qmin >= -kLargest && options.qmax <= kLargest,
      "{}: qmin: expected qmin <= qmax within 2^52, got {} and {}", call.name, options.qmin,
      options.qmax);
  const double shift = options.zero_point_shift;
  const bool may_shift = call.op == AffineOp::QuantizeDequantize;
  QUANTA_CHECK(shift == 0.0 || (may_shift && shift == 0.5),
               "{}: zero_point_shift: expected {}, got {}", call.name,
               may_shift ? "0 or 0.5" : "0 (others belong to quantize_dequantize_affine)", shift);
  QUANTA_CHECK(options.spike_multiplier == 1.0 ||
                   (options.spike_epsilon > 0.0 && options.spike_epsilon <= 1.0),
               "{}: spike_epsilon: expected a number in (0, 1] with spike_multiplier {}, got {}",
               call.name, options.spike_multiplier, options.spike_epsilon);
}

template <typename T>
math::AffineLimits<T> limits_of(const AffineOptions& options) {
  return {static_cast<T>(options.qmin), static_cast<T>(options.qmax),
          static_cast<T>(options.zero_point_shift), options.rounding};
}

AffineLayout layout_of(const Call& call, const Tensor& x, const Tensor& scale,
                       MemoryFormat format) {
  return detail::affine_layout(call.name, "scale", x.sizes(), scale.sizes(),
                               call.options.block_size, format);
}

Tensor forward(const Call& call, const Tensor& x, const Tensor& scale, const Tensor& offset) {
  const MemoryFormat format = x.suggested_format();
  const AffineLayout layout = layout_of(call, x, scale, format);
  const Tensor src = x.contiguous(format);
  const Tensor scales = scale.contiguous();
  const Tensor offsets = offset.contiguous();
  Tensor y = Tensor::empty(x.sizes(), x.dtype(), format);
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::affine_forward<T>(call.op, src.data<T>(), layout, scales.data<T>(), offsets.data<T>(),
                           limits_of<T>(call.options), call.step, static_cast<T*>(y.data_ptr()));
  });
  return y;
}

Tensor sums_as(const std::vector<double>& sums, const Tensor& like) {
  Tensor result = Tensor::empty(like.sizes(), like.dtype());
  detail::visit_floats(like.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto* dst = static_cast<T*>(result.data_ptr());
    for (std::size_t i = 0; i < sums.size(); ++i) dst[i] = static_cast<T>(sums[i]);
  });
  return result;
}

// Multiplies the gradients of what lies near a tie.
template <typename T>
void spike(const AffineOptions& options, const T* src, const AffineLayout& layout, const T* scale,
           T* gradient) {
  const auto shift = static_cast<T>(options.zero_point_shift);
  const auto border = static_cast<T>((1.0 - options.spike_epsilon) / 2.0);
  const auto multiplier = static_cast<T>(options.spike_multiplier);
  const cpu::AffineRows rows(layout);
  rows.for_each_run(0, rows.count(), [&](std::int64_t first, std::int64_t count, std::int64_t at) {
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t i = 0; i < rows.length(); ++i) {
        const std::int64_t element = (first + row) * rows.length() + i;
        const std::int64_t parameter = at + row * rows.run_stride() + i * rows.step();
        const T steps = src[element] / scale[parameter] - shift;
        const T rounded = math::affine_round(steps, options.rounding);
        if (std::abs(rounded - steps) > border) gradient[element] *= multiplier;
      }
    }
  });
}

std::vector<Tensor> backward(const Call& call, const BackwardContext& b) {
  const Tensor x = b.saved(0);
  const MemoryFormat format = x.suggested_format();
  const Tensor src = x.contiguous(format);
  const Tensor grad = b.grad().contiguous(format);
  const Tensor scales = b.saved(1).contiguous();
  const Tensor offsets = b.saved(2).contiguous();
  const AffineLayout layout = layout_of(call, x, scales, format);
  Tensor x_grad = Tensor::empty(x.sizes(), x.dtype(), format);
  std::vector<double> scale_grad(static_cast<std::size_t>(layout.parameters));
  std::vector<double> offset_grad(scale_grad.size());
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto* dst = static_cast<T*>(x_grad.data_ptr());
    cpu::affine_backward<T>(call.op, src.data<T>(), grad.data<T>(), layout, scales.data<T>(),
                            offsets.data<T>(), limits_of<T>(call.options), dst, scale_grad.data(),
                            offset_grad.data());
    if (call.options.spike_multiplier != 1.0 && call.op == AffineOp::QuantizeDequantize) {
      spike<T>(call.options, src.data<T>(), layout, scales.data<T>(), dst);
    }
  });
  return {x_grad, sums_as(scale_grad, scales), sums_as(offset_grad, offsets)};
}

// x, scale and offset in the dtype of the calculation.
Tensor run_recorded(const Call& call, const Tensor& x, const Tensor& scale, const Tensor& offset) {
  Tensor y = forward(call, detail::off_tape(x), detail::off_tape(scale), detail::off_tape(offset));
  if (!autograd::needs_grad(x, scale, offset)) return y;
  return autograd::record(call.name, {x, scale, offset}, std::move(y), {x, scale, offset},
                          [call](const BackwardContext& b) { return backward(call, b); });
}

Tensor run(Call call, const Tensor& x, const Tensor& scale, const Tensor& offset) {
  check_floating(call.name, "x", x);
  check_floating(call.name, "scale", scale);
  check_floating(call.name, "offset", offset);
  check_options(call);
  const AffineOptions& options = call.options;
  QUANTA_CHECK(offset.sizes() == scale.sizes(),
               "{}: offset: expected the sizes of scale, {}, got {}", call.name, scale.sizes(),
               offset.sizes());
  QUANTA_CHECK(call.op != AffineOp::Quantize || holds_grid(x.dtype(), options.qmin, options.qmax),
               "{}: x: expected a dtype that can represent the range {}..{}, got {}", call.name,
               options.qmin, options.qmax, x.dtype());
  layout_of(call, x, scale, MemoryFormat::Contiguous);

  const DType dtype = internal_dtype(x.dtype(), options.qmin, options.qmax);
  if (dtype == DType::Float16) call.step = AffineStep::Float16;
  if (dtype == DType::BFloat16) call.step = AffineStep::BFloat16;
  const DType real = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const auto converted = [&](const Tensor& value) { return value.to(dtype).to(real); };
  return run_recorded(call, converted(x), converted(scale), converted(offset)).to(x.dtype());
}

// The axis of x that carries the scales, -1 for one scale, nothing for several axes.
std::optional<std::int64_t> channel_axis(const Tensor& x, const Tensor& scale) {
  std::optional<std::int64_t> axis;
  for (std::int64_t d = 0; d < scale.dim(); ++d) {
    if (scale.size(d) == 1) continue;
    if (axis.has_value()) return std::nullopt;
    axis = x.dim() - scale.dim() + d;
  }
  return axis.value_or(-1);
}

bool is_whole(float value) { return value == std::trunc(value) && std::fabs(value) < 0x1p31F; }

// Zero points as torch's fake quantization takes them, or nothing where it cannot.
std::optional<Tensor> torch_zero_points(const Tensor& offset, const AffineOptions& options,
                                        bool in_range) {
  const std::vector<float> offsets = offset.detach().to_float_vector();
  Tensor zero_points = Tensor::empty({offset.numel()}, DType::Int32);
  auto* dst = static_cast<std::int32_t*>(zero_points.data_ptr());
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (!is_whole(offsets[i])) return std::nullopt;
    const auto zero_point = static_cast<std::int64_t>(-offsets[i]);
    if (in_range && (zero_point < options.qmin || zero_point > options.qmax)) return std::nullopt;
    dst[i] = static_cast<std::int32_t>(zero_point);
  }
  return zero_points;
}

// The result by torch's fake quantization, or nothing where it does not apply.
std::optional<Tensor> by_inverse(const Tensor& x, const Tensor& scale, const Tensor& offset,
                                 const AffineOptions& options) {
  constexpr std::int64_t kLargestCode = std::int64_t{1} << 24;
  if (autograd::needs_grad(scale, offset) || !options.block_size.empty() ||
      options.zero_point_shift != 0.0 || options.rounding != AffineRounding::HalfEven ||
      options.spike_multiplier != 1.0 || x.dtype() == DType::Float64 ||
      options.qmin < -kLargestCode || options.qmax > kLargestCode) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> axis = channel_axis(x, scale);
  if (!axis.has_value()) return std::nullopt;
  const std::optional<Tensor> zero_points = torch_zero_points(offset, options, *axis >= 0);
  if (!zero_points.has_value()) return std::nullopt;
  const Tensor scales = scale.detach().reshape({scale.numel()});
  if (*axis < 0) {
    return fake_quantize_per_tensor_affine(x, scales, *zero_points, options.qmin, options.qmax);
  }
  return fake_quantize_per_channel_affine(x, scales, *zero_points, *axis, options.qmin,
                                          options.qmax);
}

}  // namespace

Tensor quantize_affine(const Tensor& x, const Tensor& scale, const Tensor& offset,
                       const AffineOptions& options) {
  if (replay::is_recording()) {
    return replay::call(
        "quantize_affine",
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return quantize_affine(a, b, c, options);
        },
        x, scale, offset);
  }
  OpScope scope("quantize_affine");
  scope.kernel("simd");
  return run({"quantize_affine", AffineOp::Quantize, options}, x, scale, offset);
}

Tensor dequantize_affine(const Tensor& q, const Tensor& scale, const Tensor& offset,
                         const AffineOptions& options) {
  if (replay::is_recording()) {
    return replay::call(
        "dequantize_affine",
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return dequantize_affine(a, b, c, options);
        },
        q, scale, offset);
  }
  OpScope scope("dequantize_affine");
  scope.kernel("simd");
  AffineOptions blocks;
  blocks.block_size = options.block_size;
  // Codes count as they are: no range decides about the precision.
  blocks.qmin = blocks.qmax = 0;
  return run({"dequantize_affine", AffineOp::Dequantize, blocks}, q, scale, offset);
}

Tensor quantize_dequantize_affine(const Tensor& x, const Tensor& scale, const Tensor& offset,
                                  const AffineOptions& options) {
  if (replay::is_recording()) {
    return replay::call(
        "quantize_dequantize_affine",
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return quantize_dequantize_affine(a, b, c, options);
        },
        x, scale, offset);
  }
  constexpr std::string_view kOp = "quantize_dequantize_affine";
  OpScope scope(kOp);
  scope.kernel("simd");
  const Call call{kOp, AffineOp::QuantizeDequantize, options};
  if (options.kernel == AffineKernel::Divide) return run(call, x, scale, offset);
  check_floating(kOp, "x", x);
  check_floating(kOp, "scale", scale);
  check_floating(kOp, "offset", offset);
  check_options(call);
  layout_of(call, x, scale, MemoryFormat::Contiguous);
  QUANTA_CHECK(offset.sizes() == scale.sizes(),
               "{}: offset: expected the sizes of scale, {}, got {}", kOp, scale.sizes(),
               offset.sizes());
  if (std::optional<Tensor> y = by_inverse(x, scale, offset, options)) return *std::move(y);
  QUANTA_CHECK(options.kernel == AffineKernel::Automatic,
               "{}: kernel: expected what InverseMultiply can do (one scale or one per channel, "
               "whole offsets in the range, no blocks, no gradient of scale and offset), got scale "
               "{}",
               kOp, scale.sizes());
  return run(call, x, scale, offset);
}

}  // namespace quanta
