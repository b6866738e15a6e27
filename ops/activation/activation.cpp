#include "quanta/ops/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "quanta/ops/activation/cpu_clamp.h"
#include "quanta/ops/activation/gradient.h"
#include "quanta/ops/activation/math.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/gelu.h"
#include "quanta/ops/cpu/unary.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// relu is a clamp from the zero point on; its upper end is the dtype's.
cpu::ClampBounds relu_bounds(const Tensor& x) {
  cpu::ClampBounds bounds{0.0, kInfinity, 0, 0};
  if (x.is_quantized()) {
    bounds.low_code = static_cast<std::int32_t>(x.impl()->quantizer.zero_point);
    bounds.high_code = static_cast<std::int32_t>(cpu::code_range(x.dtype()).max);
  }
  return bounds;
}

cpu::ClampBounds clamp_bounds(const Tensor& x, std::optional<double> low,
                              std::optional<double> high) {
  cpu::ClampBounds bounds{low.value_or(-kInfinity), high.value_or(kInfinity), 0, 0};
  if (x.is_quantized()) {
    const cpu::ScalarQuantizer to_code{QTensor(x)};
    bounds.low_code = low ? to_code(static_cast<float>(bounds.low)) : to_code.min;
    bounds.high_code = high ? to_code(static_cast<float>(bounds.high)) : to_code.max;
  }
  return bounds;
}

Tensor clamp_to(std::string_view op, const Tensor& x, std::optional<double> low,
                std::optional<double> high) {
  OpScope scope(op);
  cpu::check_unary(op, x);
  scope.maps(x);
  QUANTA_CHECK(low || high, "{}: low: expected at least one bound, got none", op);
  QUANTA_CHECK(!low || !std::isnan(*low), "{}: low: expected a number, got NaN", op);
  QUANTA_CHECK(!high || !std::isnan(*high), "{}: high: expected a number, got NaN", op);
  scope.kernel("simd");
  Tensor y = cpu::clamp(x, clamp_bounds(x, low, high));
  if (!autograd::needs_grad(x)) return y;
  if (op == "clamp") return gradients::record_clamp(x, std::move(y), low, high);
  return gradients::record_open_clamp(op, x, std::move(y), *low, *high);
}

// Whether no two indices reach the same element: each stride clears all smaller ones.
bool has_own_elements(const Tensor& x) {
  Dims order;
  for (std::size_t d = 0; d < x.sizes().size(); ++d) {
    if (x.sizes()[d] == 0) return true;
    if (x.sizes()[d] > 1) order.push_back(static_cast<std::int64_t>(d));
  }
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return x.strides()[static_cast<std::size_t>(a)] < x.strides()[static_cast<std::size_t>(b)];
  });
  std::int64_t reach = 0;
  for (const std::int64_t d : order) {
    const auto i = static_cast<std::size_t>(d);
    if (x.strides()[i] <= reach) return false;
    reach += x.strides()[i] * (x.sizes()[i] - 1);
  }
  return true;
}

// The parameters that torch fixes by the function's range, in steps of 2^-8 or 2^-7 (QInt32: 2^-32
// or 2^-31).
Quantizer unit_range(DType dtype) {
  if (dtype == DType::QInt32) return Quantizer::per_tensor(0x1p-32, 0);
  return Quantizer::per_tensor(0x1p-8, dtype == DType::QUInt8 ? 0 : -128);
}
Quantizer symmetric_range(DType dtype) {
  if (dtype == DType::QInt32) return Quantizer::per_tensor(0x1p-31, 0);
  return Quantizer::per_tensor(0x1p-7, dtype == DType::QUInt8 ? 128 : 0);
}

// Float: function(x). Quantized: the same through a table, into `quantizer` or x's parameters.
template <typename Function>
Tensor map(std::string_view op, const Tensor& x, std::optional<Quantizer> quantizer,
           cpu::CodeFunction kind, Function&& function, double parameter0 = 0.0,
           double parameter1 = 0.0) {
  if (!x.is_quantized()) return cpu::map_floats(op, x, function);
  const Quantizer to = quantizer ? *quantizer : x.impl()->quantizer;
  return cpu::map_quantized(op, QTensor(x), to.scale, to.zero_point, kind, function, parameter0,
                            parameter1);
}

Tensor gelu_floats(const Tensor& x, GeluApproximation approximate) {
  const auto kind =
      approximate == GeluApproximation::Tanh ? cpu::GeluKind::Tanh : cpu::GeluKind::Erf;
  const MemoryFormat format = x.suggested_format();
  Tensor out = Tensor::empty(x.sizes(), DType::Float32, format);
  const Tensor dense = x.contiguous(format);
  const auto run = [kind](const Tensor& from, const Tensor& to) {
    const auto* src = static_cast<const float*>(from.data_ptr());
    auto* dst = static_cast<float*>(to.data_ptr());
    cpu::parallel_elements(from.numel(), [&](std::int64_t begin, std::int64_t end) {
      cpu::gelu_row(kind, src + begin, end - begin, dst + begin);
    });
  };
  run(dense, out);
  if (replay::is_recording()) {
    replay::record({.op = "gelu",
                    .inputs = {dense},
                    .outputs = {out},
                    .run = [run](const replay::Frame& frame) { run(frame.in(), frame.out()); }});
  }
  return out;
}

std::string_view kernel_name(const Tensor& x) { return x.is_quantized() ? "lookup" : "scalar"; }

}  // namespace

Tensor relu(const Tensor& x) {
  OpScope scope("relu");
  cpu::check_unary("relu", x);
  scope.maps(x);
  scope.kernel("simd");
  Tensor y = cpu::clamp(x, relu_bounds(x));
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_open_clamp("relu", x, std::move(y), 0.0, kInfinity);
}

const Tensor& relu_(const Tensor& x) {
  OpScope scope("relu_");
  cpu::check_unary("relu_", x);
  scope.maps(x);
  autograd::require_changeable("relu_", x);
  QUANTA_CHECK(
      has_own_elements(x),
      "relu_: x: expected each element at an address of its own, got sizes {} with strides "
      "{}; clone it first",
      x.sizes(), x.strides());
  scope.kernel("simd");
  replay::before_write("relu_", x);
  x.storage()->bump_version();
  const cpu::ClampBounds bounds = relu_bounds(x);
  cpu::clamp_in_place(x, bounds);
  if (replay::is_recording() && x.numel() > 0) {
    replay::record(
        {.op = "relu_", .inputs = {x}, .outputs = {x}, .run = [bounds](const replay::Frame& frame) {
           cpu::clamp_in_place(frame.out(), bounds);
         }});
  }
  return x;
}

Tensor relu6(const Tensor& x) { return clamp_to("relu6", x, 0.0, 6.0); }
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high) {
  return clamp_to("clamp", x, low, high);
}
Tensor hardtanh(const Tensor& x, double low, double high) {
  return clamp_to("hardtanh", x, low, high);
}

Tensor threshold(const Tensor& x, double threshold, double value) {
  OpScope scope("threshold");
  cpu::check_unary("threshold", x);
  scope.maps(x);
  scope.kernel(kernel_name(x));
  Tensor y = map(
      "threshold", x, {}, cpu::CodeFunction::Threshold,
      [=](auto v) {
        using T = decltype(v);
        return cpu::threshold(v, static_cast<T>(threshold), static_cast<T>(value));
      },
      threshold, value);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_threshold(x, std::move(y), threshold);
}

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  OpScope scope("leaky_relu");
  cpu::check_unary("leaky_relu", x);
  scope.maps(x);
  scope.kernel(kernel_name(x));
  Tensor y = map(
      "leaky_relu", x, {}, cpu::CodeFunction::LeakyReLU,
      [=](auto v) { return cpu::leaky_relu(v, static_cast<decltype(v)>(negative_slope)); },
      negative_slope);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_leaky_relu(x, std::move(y), negative_slope);
}

Tensor hardsigmoid(const Tensor& x) {
  OpScope scope("hardsigmoid");
  cpu::check_unary("hardsigmoid", x);
  scope.maps(x);
  scope.kernel(kernel_name(x));
  Tensor y = map("hardsigmoid", x, unit_range(x.dtype()), cpu::CodeFunction::HardSigmoid,
                 cpu::hardsigmoid);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_hardsigmoid(x, std::move(y));
}

Tensor sigmoid(const Tensor& x) {
  OpScope scope("sigmoid");
  cpu::check_unary("sigmoid", x);
  scope.maps(x);
  scope.kernel(kernel_name(x));
  Tensor y = map("sigmoid", x, unit_range(x.dtype()), cpu::CodeFunction::Sigmoid, cpu::sigmoid);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_sigmoid(x, std::move(y));
}

Tensor tanh(const Tensor& x) {
  OpScope scope("tanh");
  cpu::check_unary("tanh", x);
  scope.maps(x);
  scope.kernel(kernel_name(x));
  Tensor y = map("tanh", x, symmetric_range(x.dtype()), cpu::CodeFunction::Tanh,
                 [](auto v) { return std::tanh(v); });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_tanh(x, std::move(y));
}

Tensor gelu(const Tensor& x, GeluApproximation approximate) {
  OpScope scope("gelu");
  cpu::check_unary("gelu", x);
  scope.maps(x);
  scope.kernel(x.is_quantized() ? "lookup" : "simd");
  Tensor y;
  if (x.dtype() == DType::Float32) {
    y = gelu_floats(x, approximate);
  } else if (approximate == GeluApproximation::Tanh) {
    y = map("gelu", x, {}, cpu::CodeFunction::GeluTanh, cpu::gelu_tanh);
  } else {
    y = map("gelu", x, {}, cpu::CodeFunction::Gelu, cpu::gelu);
  }
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_gelu(x, std::move(y), approximate);
}

Tensor dropout(const Tensor& x, double p) {
  OpScope scope("dropout");
  cpu::check_float_unary("dropout", x);
  QUANTA_CHECK(p >= 0.0 && p <= 1.0, "dropout: p: expected 0..1, got {}", p);
  scope.kernel("scalar");
  Tensor mask = Tensor::empty(x.sizes(), x.dtype());
  Generator& generator = default_generator();
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto* values = mask.mutable_data<T>();
    const auto kept = p < 1.0 ? static_cast<T>(1.0 / (1.0 - p)) : T{0};
    for (std::int64_t i = 0; i < mask.numel(); ++i) {
      values[i] = static_cast<double>(generator.uniform()) < p ? T{0} : kept;
    }
  });
  return mul(x, mask);
}

Tensor hardswish(const Tensor& x) {
  OpScope scope("hardswish");
  cpu::check_float_unary("hardswish", x);
  scope.maps(x);
  scope.kernel("scalar");
  Tensor y = cpu::map_floats("hardswish", x, cpu::hardswish);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_hardswish(x, std::move(y));
}

Tensor silu(const Tensor& x) {
  OpScope scope("silu");
  cpu::check_float_unary("silu", x);
  scope.maps(x);
  scope.kernel("scalar");
  Tensor y = cpu::map_floats("silu", x, cpu::silu);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_silu(x, std::move(y));
}

Tensor elu(const Tensor& x, double alpha) {
  OpScope scope("elu");
  cpu::check_float_unary("elu", x);
  scope.maps(x);
  scope.kernel("scalar");
  Tensor y = cpu::map_floats("elu", x, [=](auto v) {
    using T = decltype(v);
    return cpu::elu(v, static_cast<T>(alpha), T{1}, T{1});
  });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_elu("elu", x, std::move(y), alpha, 1.0, 1.0);
}

Tensor celu(const Tensor& x, double alpha) {
  OpScope scope("celu");
  cpu::check_float_unary("celu", x);
  scope.maps(x);
  QUANTA_CHECK(alpha != 0.0, "celu: alpha: expected a number other than 0, got 0");
  scope.kernel("scalar");
  Tensor y = cpu::map_floats("celu", x, [=](auto v) {
    using T = decltype(v);
    return cpu::elu(v, static_cast<T>(alpha), T{1}, static_cast<T>(1.0 / alpha));
  });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_elu("celu", x, std::move(y), alpha, 1.0, 1.0 / alpha);
}

namespace quantized {

QTensor leaky_relu(const QTensor& x, double negative_slope, double scale, std::int64_t zero_point) {
  OpScope scope("quantized::leaky_relu");
  scope.kernel("lookup");
  scope.maps(x);
  const auto slope = static_cast<float>(negative_slope);
  return cpu::map_quantized(
      "quantized::leaky_relu", x, scale, zero_point, cpu::CodeFunction::LeakyReLU,
      [=](float v) { return cpu::leaky_relu(v, slope); }, negative_slope);
}

QTensor hardswish(const QTensor& x, double scale, std::int64_t zero_point) {
  OpScope scope("quantized::hardswish");
  scope.kernel("lookup");
  scope.maps(x);
  return cpu::map_quantized("quantized::hardswish", x, scale, zero_point,
                            cpu::CodeFunction::HardSwish, cpu::hardswish);
}

QTensor elu(const QTensor& x, double output_scale, std::int64_t output_zero_point, double alpha,
            double scale, double input_scale) {
  OpScope scope("quantized::elu");
  scope.kernel("lookup");
  scope.maps(x);
  const auto factor = static_cast<float>(alpha);
  const auto outer = static_cast<float>(scale);
  const auto inner = static_cast<float>(input_scale);
  return cpu::map_quantized(
      "quantized::elu", x, output_scale, output_zero_point, cpu::CodeFunction::Elu,
      [=](float v) { return cpu::elu(v, factor, outer, inner); }, alpha, scale, input_scale);
}

QTensor celu(const QTensor& x, double scale, std::int64_t zero_point, double alpha) {
  QUANTA_CHECK(alpha != 0.0, "quantized::celu: alpha: expected a number other than 0, got 0");
  OpScope scope("quantized::celu");
  scope.kernel("lookup");
  scope.maps(x);
  const auto factor = static_cast<float>(alpha);
  const auto inner = static_cast<float>(1.0 / alpha);
  return cpu::map_quantized(
      "quantized::celu", x, scale, zero_point, cpu::CodeFunction::Elu,
      [=](float v) { return cpu::elu(v, factor, 1.0F, inner); }, alpha, 1.0, 1.0 / alpha);
}

QTensor sigmoid(const QTensor& x, double scale, std::int64_t zero_point) {
  OpScope scope("quantized::sigmoid");
  scope.kernel("lookup");
  scope.maps(x);
  return cpu::map_quantized("quantized::sigmoid", x, scale, zero_point, cpu::CodeFunction::Sigmoid,
                            cpu::sigmoid);
}

QTensor tanh(const QTensor& x, double scale, std::int64_t zero_point) {
  OpScope scope("quantized::tanh");
  scope.kernel("lookup");
  scope.maps(x);
  return cpu::map_quantized("quantized::tanh", x, scale, zero_point, cpu::CodeFunction::Tanh,
                            [](float v) { return std::tanh(v); });
}

QTensor gelu(const QTensor& x, double scale, std::int64_t zero_point,
             GeluApproximation approximate) {
  OpScope scope("quantized::gelu");
  scope.kernel("lookup");
  scope.maps(x);
  if (approximate == GeluApproximation::Tanh) {
    return cpu::map_quantized("quantized::gelu", x, scale, zero_point, cpu::CodeFunction::GeluTanh,
                              cpu::gelu_tanh);
  }
  return cpu::map_quantized("quantized::gelu", x, scale, zero_point, cpu::CodeFunction::Gelu,
                            cpu::gelu);
}

QTensor silu(const QTensor& x, double scale, std::int64_t zero_point) {
  OpScope scope("quantized::silu");
  scope.kernel("lookup");
  scope.maps(x);
  return cpu::map_quantized("quantized::silu", x, scale, zero_point, cpu::CodeFunction::Silu,
                            cpu::silu);
}

QTensor dropout(const QTensor& x, double p) {
  QUANTA_CHECK(x.defined(),
               "quantized::dropout: x: expected a quantized tensor, got an undefined one");
  QUANTA_CHECK(p >= 0.0 && p <= 1.0, "quantized::dropout: p: expected 0..1, got {}", p);
  return x;
}

}  // namespace quantized
}  // namespace quanta
