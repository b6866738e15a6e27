#include "quanta/ops/fake_quantize.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/fake_quantize/cpu_kernels.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using autograd::BackwardContext;
using cpu::FakeQuantizeChannels;
using cpu::FakeQuantizeRows;

// Axis of the per-tensor forms.
constexpr std::int64_t kNoAxis = -1;

void check_x(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::Float32 || x.dtype() == DType::Float64 ||
                   x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16,
               "{}: x: expected Float32, Float64, Float16 or BFloat16, got {}", op, x.dtype());
}

void check_range(std::string_view op, std::int64_t quant_min, std::int64_t quant_max) {
  QUANTA_CHECK(quant_min <= quant_max,
               "{}: quant_min: expected quant_min <= quant_max, got {} and {}", op, quant_min,
               quant_max);
}

void check_zero_point(std::string_view op, std::int64_t zero_point, std::int64_t quant_min,
                      std::int64_t quant_max) {
  QUANTA_CHECK(zero_point >= quant_min && zero_point <= quant_max,
               "{}: zero_point: expected {}..{}, got {}", op, quant_min, quant_max, zero_point);
}

void check_plain(std::string_view op, std::string_view argument, const Tensor& values,
                 std::int64_t count) {
  QUANTA_CHECK(values.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  QUANTA_CHECK(!values.is_quantized() && values.dtype() != DType::Bool,
               "{}: {}: expected a plain numeric tensor, got {}", op, argument, values.dtype());
  QUANTA_CHECK(values.dim() <= 1 && values.numel() == count, "{}: {}: expected {} in [{}], got {}",
               op, argument, count == 1 ? "one value" : "one value for each index along axis",
               count, values.sizes());
}

void check_floating(std::string_view op, std::string_view argument, const Tensor& values) {
  QUANTA_CHECK(values.is_floating_point(), "{}: {}: expected a floating tensor, got {}", op,
               argument, values.dtype());
}

FakeQuantizeChannels make_channels(std::vector<float> scale, std::vector<float> zero_point,
                                   bool float_zero_point, std::int64_t quant_min,
                                   std::int64_t quant_max) {
  FakeQuantizeChannels channels;
  channels.inv_scale.reserve(scale.size());
  for (const float one : scale) channels.inv_scale.push_back(math::inverse_scale(one));
  channels.scale = std::move(scale);
  channels.zero_point = std::move(zero_point);
  channels.float_zero_point = float_zero_point;
  channels.min = static_cast<float>(quant_min);
  channels.max = static_cast<float>(quant_max);
  return channels;
}

FakeQuantizeRows rows_of(const Tensor& dense, std::int64_t axis) {
  if (axis == kNoAxis) return {FakeQuantizeRows::Kind::OneChannel, 1, dense.numel()};
  const cpu::ChannelLayout layout(dense, axis);
  if (layout.inner == 1 && layout.channels > 1) {
    return {FakeQuantizeRows::Kind::AllChannels, layout.outer, layout.channels};
  }
  return {FakeQuantizeRows::Kind::OneChannel, layout.outer * layout.channels, layout.inner};
}

// call(T*) for the dtype of `x`: Float32 or Float64.
template <typename Call>
void visit_real(const Tensor& x, Call&& call) {
  if (x.dtype() == DType::Float64) {
    call(double{});
  } else {
    call(float{});
  }
}

Tensor mask_gradient(const Tensor& grad, const Tensor& mask, MemoryFormat format,
                     const FakeQuantizeRows& rows) {
  const Tensor dense = grad.contiguous(format);
  Tensor result = Tensor::empty(dense.sizes(), dense.dtype(), format);
  visit_real(dense, [&](auto real) {
    using T = decltype(real);
    cpu::masked_gradient(dense.data<T>(), rows, mask.data<std::uint8_t>(),
                         static_cast<T*>(result.data_ptr()));
  });
  return result;
}

// Small floats are calculated in float32; the conversions are on the tape themselves.
template <typename Run>
Tensor in_real(const Tensor& x, Run&& run) {
  if (x.dtype() == DType::Float32 || x.dtype() == DType::Float64) return run(x);
  return run(x.to(DType::Float32)).to(x.dtype());
}

Tensor straight_through(std::string_view op, const Tensor& x, std::int64_t axis,
                        const FakeQuantizeChannels& channels) {
  return in_real(x, [&](const Tensor& real) {
    const MemoryFormat format = real.suggested_format();
    const Tensor dense = real.detach().contiguous(format);
    const FakeQuantizeRows rows = rows_of(dense, axis);
    Tensor y = Tensor::empty(dense.sizes(), dense.dtype(), format);
    Tensor mask;
    const bool recorded = autograd::needs_grad(real);
    if (recorded) mask = Tensor::empty({rows.mask_bytes()}, DType::UInt8);
    visit_real(dense, [&](auto number) {
      using T = decltype(number);
      cpu::fake_quantize(dense.data<T>(), rows, channels, static_cast<T*>(y.data_ptr()),
                         recorded ? static_cast<std::uint8_t*>(mask.data_ptr()) : nullptr);
    });
    if (!recorded) return y;
    return autograd::record(op, {real}, std::move(y), {mask},
                            [format, rows](const BackwardContext& b) -> std::vector<Tensor> {
                              return {mask_gradient(b.grad(), b.saved(0), format, rows)};
                            });
  });
}

std::vector<float> floats_of(const Tensor& values) { return values.detach().to_float_vector(); }

Tensor per_tensor_with_tensors(std::string_view op, const Tensor& x, const Tensor& scale,
                               const Tensor& zero_point, std::int64_t quant_min,
                               std::int64_t quant_max) {
  check_x(op, x);
  check_range(op, quant_min, quant_max);
  check_plain(op, "scale", scale, 1);
  check_floating(op, "scale", scale);
  check_plain(op, "zero_point", zero_point, 1);
  return straight_through(
      op, x, kNoAxis,
      make_channels(floats_of(scale), floats_of(zero_point), false, quant_min, quant_max));
}

// Learned scale and zero point -------------------------------------------------------------------

struct LearnedCall {
  std::string_view op;
  std::int64_t axis;
  std::int64_t quant_min;
  std::int64_t quant_max;
  double grad_factor;
};

enum class Direction : bool { Forward, Backward };

FakeQuantizeChannels learned_channels(const LearnedCall& call, Direction direction,
                                      const Tensor& scale, const Tensor& zero_point) {
  const auto min = static_cast<float>(call.quant_min);
  const auto max = static_cast<float>(call.quant_max);
  const bool shifted = direction == Direction::Backward && call.axis == kNoAxis;
  std::vector<float> zero_points = floats_of(zero_point);
  for (float& one : zero_points) {
    one = shifted ? math::learned_zero_point_backward(one, min, max)
                  : math::learned_zero_point(one, min, max);
  }
  return make_channels(floats_of(scale), std::move(zero_points), false, call.quant_min,
                       call.quant_max);
}

Tensor from_doubles(const std::vector<double>& values, double factor, const Tensor& like) {
  Tensor result = Tensor::empty(like.sizes(), DType::Float64);
  auto* data = static_cast<double*>(result.data_ptr());
  for (std::size_t i = 0; i < values.size(); ++i) data[i] = values[i] * factor;
  return result.to(like.dtype());
}

std::vector<Tensor> learned_backward(const LearnedCall& call, const BackwardContext& b) {
  const Tensor x = b.saved(0);
  const Tensor scale = b.saved(1);
  const Tensor zero_point = b.saved(2);
  const FakeQuantizeChannels channels =
      learned_channels(call, Direction::Backward, scale, zero_point);
  const MemoryFormat format = x.suggested_format();
  const Tensor dense = x.detach().contiguous(format);
  const Tensor grad = b.grad().contiguous(format);
  Tensor x_grad = Tensor::empty(dense.sizes(), dense.dtype(), format);
  std::vector<double> scale_grad(channels.scale.size());
  std::vector<double> zero_point_grad(channels.scale.size());
  visit_real(dense, [&](auto number) {
    using T = decltype(number);
    cpu::learned_gradients(dense.data<T>(), grad.data<T>(), rows_of(dense, call.axis), channels,
                           static_cast<T*>(x_grad.data_ptr()), scale_grad.data(),
                           zero_point_grad.data());
  });
  return {x_grad, from_doubles(scale_grad, call.grad_factor, scale),
          from_doubles(zero_point_grad, call.grad_factor, zero_point)};
}

Tensor learnable(const LearnedCall& call, const Tensor& x, const Tensor& scale,
                 const Tensor& zero_point) {
  check_floating(call.op, "scale", scale);
  check_floating(call.op, "zero_point", zero_point);
  check_range(call.op, call.quant_min, call.quant_max);
  return in_real(x, [&](const Tensor& real) {
    const MemoryFormat format = real.suggested_format();
    const Tensor dense = real.detach().contiguous(format);
    Tensor y = Tensor::empty(dense.sizes(), dense.dtype(), format);
    const FakeQuantizeChannels channels =
        learned_channels(call, Direction::Forward, scale, zero_point);
    visit_real(dense, [&](auto number) {
      using T = decltype(number);
      cpu::fake_quantize<T>(dense.data<T>(), rows_of(dense, call.axis), channels,
                            static_cast<T*>(y.data_ptr()), nullptr);
    });
    if (!autograd::needs_grad(real, scale, zero_point)) return y;
    return autograd::record(call.op, {real, scale, zero_point}, std::move(y),
                            {real, scale, zero_point},
                            [call](const BackwardContext& b) { return learned_backward(call, b); });
  });
}

}  // namespace

Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, std::int64_t zero_point,
                                       std::int64_t quant_min, std::int64_t quant_max) {
  constexpr std::string_view kOp = "fake_quantize_per_tensor_affine";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& t) {
          return fake_quantize_per_tensor_affine(t, scale, zero_point, quant_min, quant_max);
        },
        x);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_x(kOp, x);
  check_range(kOp, quant_min, quant_max);
  check_zero_point(kOp, zero_point, quant_min, quant_max);
  QUANTA_CHECK(std::isfinite(scale) && static_cast<float>(scale) > 0.0F,
               "{}: scale: expected a finite number > 0, got {}", kOp, scale);
  return straight_through(
      kOp, x, kNoAxis,
      make_channels({static_cast<float>(scale)}, {static_cast<float>(zero_point)}, false, quant_min,
                    quant_max));
}

Tensor fake_quantize_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                       const Tensor& zero_point, std::int64_t quant_min,
                                       std::int64_t quant_max) {
  constexpr std::string_view kOp = "fake_quantize_per_tensor_affine";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return fake_quantize_per_tensor_affine(a, b, c, quant_min, quant_max);
        },
        x, scale, zero_point);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  return per_tensor_with_tensors(kOp, x, scale, zero_point, quant_min, quant_max);
}

Tensor fake_quantize_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                       const Tensor& zero_point, const Tensor& fake_quant_enabled,
                                       std::int64_t quant_min, std::int64_t quant_max) {
  constexpr std::string_view kOp = "fake_quantize_per_tensor_affine";
  check_x(kOp, x);
  check_plain(kOp, "fake_quant_enabled", fake_quant_enabled, 1);
  if (fake_quant_enabled.item() == 0.0) return x;
  return fake_quantize_per_tensor_affine(x, scale, zero_point, quant_min, quant_max);
}

Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale,
                                        const Tensor& zero_point, std::int64_t axis,
                                        std::int64_t quant_min, std::int64_t quant_max) {
  constexpr std::string_view kOp = "fake_quantize_per_channel_affine";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return fake_quantize_per_channel_affine(a, b, c, axis, quant_min, quant_max);
        },
        x, scale, zero_point);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_x(kOp, x);
  check_range(kOp, quant_min, quant_max);
  const std::int64_t channel_axis = wrap_dim(axis, x.dim(), kOp, "axis");
  check_plain(kOp, "scale", scale, x.size(channel_axis));
  check_floating(kOp, "scale", scale);
  check_plain(kOp, "zero_point", zero_point, x.size(channel_axis));
  const bool float_zero_point = zero_point.is_floating_point();
  if (!float_zero_point) {
    for (const std::int64_t one : zero_point.to(DType::Int64).to_int64_vector()) {
      check_zero_point(kOp, one, quant_min, quant_max);
    }
  }
  return straight_through(kOp, x, channel_axis,
                          make_channels(floats_of(scale), floats_of(zero_point), float_zero_point,
                                        quant_min, quant_max));
}

Tensor fake_quantize_learnable_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                                 const Tensor& zero_point, std::int64_t quant_min,
                                                 std::int64_t quant_max, double grad_factor) {
  constexpr std::string_view kOp = "fake_quantize_learnable_per_tensor_affine";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return fake_quantize_learnable_per_tensor_affine(a, b, c, quant_min, quant_max,
                                                           grad_factor);
        },
        x, scale, zero_point);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_x(kOp, x);
  check_plain(kOp, "scale", scale, 1);
  check_plain(kOp, "zero_point", zero_point, 1);
  return learnable({kOp, kNoAxis, quant_min, quant_max, grad_factor}, x, scale, zero_point);
}

Tensor fake_quantize_learnable_per_channel_affine(const Tensor& x, const Tensor& scale,
                                                  const Tensor& zero_point, std::int64_t axis,
                                                  std::int64_t quant_min, std::int64_t quant_max,
                                                  double grad_factor) {
  constexpr std::string_view kOp = "fake_quantize_learnable_per_channel_affine";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return fake_quantize_learnable_per_channel_affine(a, b, c, axis, quant_min, quant_max,
                                                            grad_factor);
        },
        x, scale, zero_point);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  check_x(kOp, x);
  const std::int64_t channel_axis = wrap_dim(axis, x.dim(), kOp, "axis");
  check_plain(kOp, "scale", scale, x.size(channel_axis));
  check_plain(kOp, "zero_point", zero_point, x.size(channel_axis));
  return learnable({kOp, channel_axis, quant_min, quant_max, grad_factor}, x, scale, zero_point);
}

}  // namespace quanta
