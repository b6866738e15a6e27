#pragma once

// Private: the activation functions with their settings, and the slopes that gradients take.

#include <array>
#include <cmath>
#include <limits>

#include "quanta/ops/activation.h"
#include "quanta/ops/activation/pointwise.h"
#include "quanta/ops/cpu/gelu.h"
#include "quanta/ops/cpu/gradient_kernels.h"
#include "quanta/ops/cuda/float_map.h"
#include "quanta/runtime/detail/activation_math.h"
#include "quanta/runtime/detail/slope_math.h"

namespace quanta {

inline std::span<const std::string_view> enumerators(GeluApproximation) {
  static constexpr std::array<std::string_view, 2> kNames{"none", "tanh"};
  return kNames;
}

namespace activation {

/// The parameters that torch fixes by the function's range, in steps of 2^-8 or 2^-7 (QInt32: 2^-32
/// or 2^-31).
inline Quantizer unit_range(DType dtype) {
  if (dtype == DType::QInt32) return Quantizer::per_tensor(0x1p-32, 0);
  return Quantizer::per_tensor(0x1p-8, dtype == DType::QUInt8 ? 0 : -128);
}
inline Quantizer symmetric_range(DType dtype) {
  if (dtype == DType::QInt32) return Quantizer::per_tensor(0x1p-31, 0);
  return Quantizer::per_tensor(0x1p-7, dtype == DType::QUInt8 ? 128 : 0);
}

struct Threshold : PointwiseFunction {
  static constexpr std::string_view kName = "threshold";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;
  double threshold = 0.0;
  double value = 0.0;

  template <typename T>
  T operator()(T v) const {
    return math::threshold(v, static_cast<T>(threshold), static_cast<T>(value));
  }
  cuda::FloatCall on_cuda() const {
    return {cuda::FloatFunction::Threshold,
            {static_cast<float>(threshold), static_cast<float>(value)}};
  }
  template <typename T>
  T slope(T gradient, T v) const {
    return math::threshold_slope(gradient, v, static_cast<T>(threshold));
  }
  std::array<double, 3> parameters() const { return {threshold, value}; }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{
        attribute<Op, &Op::function, &Threshold::threshold>("threshold"),
        attribute<Op, &Op::function, &Threshold::value>("value")};
    return kTable;
  }
};

struct LeakyReLU : PointwiseFunction {
  static constexpr std::string_view kName = "leaky_relu";
  static constexpr std::string_view kQuantizedName = "quantized::leaky_relu";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;
  double negative_slope = 0.01;

  template <typename T>
  T operator()(T v) const {
    return math::leaky_relu(v, static_cast<T>(negative_slope));
  }
  cuda::FloatCall on_cuda() const {
    return {cuda::FloatFunction::LeakyReLU, {static_cast<float>(negative_slope)}};
  }
  template <typename T>
  T slope(T gradient, T v) const {
    return math::leaky_relu_slope(gradient, v, static_cast<T>(negative_slope));
  }
  std::array<double, 3> parameters() const { return {negative_slope}; }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{
        attribute<Op, &Op::function, &LeakyReLU::negative_slope>("negative_slope")};
    return kTable;
  }
};

struct HardSigmoid : PointwiseFunction {
  static constexpr std::string_view kName = "hardsigmoid";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;

  template <typename T>
  T operator()(T v) const {
    return math::hardsigmoid(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::HardSigmoid}; }
  template <typename T>
  T slope(T gradient, T v) const {
    return math::hardsigmoid_slope(gradient, v);
  }
  void slope_rows(const float* gradient, const float* value, float* dst, std::int64_t count) const {
    cpu::gate_gradient(gradient, value, dst, count, {-3.0F, 3.0F, static_cast<float>(1.0 / 6.0)});
  }
  std::optional<Quantizer> range(DType dtype) const { return unit_range(dtype); }
};

struct Sigmoid : PointwiseFunction {
  static constexpr std::string_view kName = "sigmoid";
  static constexpr std::string_view kQuantizedName = "quantized::sigmoid";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;
  static constexpr bool kSlopeOfResult = true;

  template <typename T>
  T operator()(T v) const {
    return math::sigmoid(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::Sigmoid}; }
  template <typename T>
  T slope(T gradient, T result) const {
    return math::sigmoid_slope(gradient, result);
  }
  std::optional<Quantizer> range(DType dtype) const { return unit_range(dtype); }
};

struct Tanh : PointwiseFunction {
  static constexpr std::string_view kName = "tanh";
  static constexpr std::string_view kQuantizedName = "quantized::tanh";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;
  static constexpr bool kSlopeOfResult = true;

  template <typename T>
  T operator()(T v) const {
    return std::tanh(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::Tanh}; }
  template <typename T>
  T slope(T gradient, T result) const {
    return math::tanh_slope(gradient, result);
  }
  std::optional<Quantizer> range(DType dtype) const { return symmetric_range(dtype); }
};

struct Gelu : PointwiseFunction {
  static constexpr std::string_view kName = "gelu";
  static constexpr std::string_view kQuantizedName = "quantized::gelu";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;
  GeluApproximation approximate = GeluApproximation::None;

  template <typename T>
  T operator()(T v) const {
    return approximate == GeluApproximation::Tanh ? math::gelu_tanh(v) : math::gelu(v);
  }
  cuda::FloatCall on_cuda() const {
    return {approximate == GeluApproximation::Tanh ? cuda::FloatFunction::GeluTanh
                                                   : cuda::FloatFunction::Gelu};
  }
  void rows(const float* src, std::int64_t count, float* dst) const {
    const auto kind =
        approximate == GeluApproximation::Tanh ? cpu::GeluKind::Tanh : cpu::GeluKind::Erf;
    cpu::gelu_row(kind, src, count, dst);
  }
  template <typename T>
  T slope(T gradient, T x) const {
    return approximate == GeluApproximation::Tanh ? math::gelu_tanh_slope(gradient, x)
                                                  : math::gelu_slope(gradient, x);
  }
  std::array<double, 3> parameters() const {
    return {approximate == GeluApproximation::Tanh ? 1.0 : 0.0};
  }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{
        attribute<Op, &Op::function, &Gelu::approximate>("approximate")};
    return kTable;
  }
};

struct HardSwish : PointwiseFunction {
  static constexpr std::string_view kName = "hardswish";
  static constexpr std::string_view kQuantizedName = "quantized::hardswish";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;

  template <typename T>
  T operator()(T v) const {
    return math::hardswish(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::HardSwish}; }
  template <typename T>
  T slope(T gradient, T x) const {
    return math::hardswish_slope(gradient, x);
  }
  void slope_rows(const float* gradient, const float* value, float* dst, std::int64_t count) const {
    cpu::hardswish_gradient(gradient, value, dst, count);
  }
};

struct Silu : PointwiseFunction {
  static constexpr std::string_view kName = "silu";
  static constexpr std::string_view kQuantizedName = "quantized::silu";
  static constexpr Takes kTakes = Takes::FloatsOrScaled;

  template <typename T>
  T operator()(T v) const {
    return math::silu(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::Silu}; }
  template <typename T>
  T slope(T gradient, T x) const {
    return math::silu_slope(gradient, x);
  }
};

/// What the slope of elu, celu and selu takes: its factor is rounded once, for both devices.
struct EluSlope {
  double slope, scale, input_scale;
  EluSlope(double alpha, double of_scale, double of_input)
      : slope(alpha * of_scale * of_input), scale(of_scale), input_scale(of_input) {}
  template <typename T>
  T operator()(T gradient, T value) const {
    return math::elu_slope(gradient, value, static_cast<T>(slope), static_cast<T>(scale),
                           static_cast<T>(input_scale));
  }
  cuda::FloatCall on_cuda() const {
    return {
        cuda::FloatFunction::Elu,
        {static_cast<float>(slope), static_cast<float>(scale), static_cast<float>(input_scale)}};
  }
};

struct Elu : PointwiseFunction {
  static constexpr bool kKeepsOrderOfCodes = false;
  static constexpr std::string_view kName = "elu";
  static constexpr std::string_view kQuantizedName = "quantized::elu";
  static constexpr Takes kTakes = Takes::FloatsAndCodes;
  double alpha = 1.0;
  double scale = 1.0;
  double input_scale = 1.0;

  template <typename T>
  T operator()(T v) const {
    return math::elu(v, static_cast<T>(alpha), static_cast<T>(scale), static_cast<T>(input_scale));
  }
  cuda::FloatCall on_cuda() const {
    return {
        cuda::FloatFunction::Elu,
        {static_cast<float>(alpha), static_cast<float>(scale), static_cast<float>(input_scale)}};
  }
  template <typename T>
  T slope(T gradient, T value) const {
    return EluSlope(alpha, scale, input_scale)(gradient, value);
  }
  cuda::FloatCall slope_on_cuda() const { return EluSlope(alpha, scale, input_scale).on_cuda(); }
  std::array<double, 3> parameters() const { return {alpha, scale, input_scale}; }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{
        attribute<Op, &Op::function, &Elu::alpha>("alpha"),
        attribute<Op, &Op::function, &Elu::scale>("elu_scale"),
        attribute<Op, &Op::function, &Elu::input_scale>("input_scale")};
    return kTable;
  }
};

struct Celu : PointwiseFunction {
  static constexpr bool kKeepsOrderOfCodes = false;
  static constexpr std::string_view kName = "celu";
  static constexpr std::string_view kQuantizedName = "quantized::celu";
  static constexpr Takes kTakes = Takes::FloatsOrScaled;
  double alpha = 1.0;

  void check(std::string_view op) const {
    QUANTA_CHECK(alpha != 0.0, "{}: alpha: expected a number other than 0, got 0", op);
  }
  template <typename T>
  T operator()(T v) const {
    return math::elu(v, static_cast<T>(alpha), T{1}, static_cast<T>(1.0 / alpha));
  }
  cuda::FloatCall on_cuda() const {
    return {cuda::FloatFunction::Elu,
            {static_cast<float>(alpha), 1.0F, static_cast<float>(1.0 / alpha)}};
  }
  template <typename T>
  T slope(T gradient, T value) const {
    return EluSlope(alpha, 1.0, 1.0 / alpha)(gradient, value);
  }
  cuda::FloatCall slope_on_cuda() const { return EluSlope(alpha, 1.0, 1.0 / alpha).on_cuda(); }
  std::array<double, 3> parameters() const { return {alpha}; }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{attribute<Op, &Op::function, &Celu::alpha>("alpha")};
    return kTable;
  }
};

struct Softplus : PointwiseFunction {
  static constexpr std::string_view kName = "softplus";
  static constexpr std::string_view kQuantizedName = "quantized::softplus";
  static constexpr Takes kTakes = Takes::FloatsOrScaled;
  double beta = 1.0;
  double threshold = 20.0;

  void check(std::string_view op) const {
    QUANTA_CHECK(std::isfinite(beta) && beta != 0.0, "{}: beta: expected a number but 0, got {}",
                 op, beta);
  }
  template <typename T>
  T operator()(T v) const {
    return math::softplus(v, static_cast<T>(beta), static_cast<T>(threshold));
  }
  cuda::FloatCall on_cuda() const {
    return {cuda::FloatFunction::Softplus,
            {static_cast<float>(beta), static_cast<float>(threshold)}};
  }
  template <typename T>
  T slope(T gradient, T value) const {
    return math::softplus_slope(gradient, value, static_cast<T>(beta), static_cast<T>(threshold));
  }
  std::array<double, 3> parameters() const { return {beta, threshold}; }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{
        attribute<Op, &Op::function, &Softplus::beta>("beta"),
        attribute<Op, &Op::function, &Softplus::threshold>("threshold")};
    return kTable;
  }
};

struct Mish : PointwiseFunction {
  static constexpr std::string_view kName = "mish";
  static constexpr std::string_view kQuantizedName = "quantized::mish";
  static constexpr Takes kTakes = Takes::FloatsOrScaled;

  template <typename T>
  T operator()(T v) const {
    return math::mish(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::Mish}; }
  template <typename T>
  T slope(T gradient, T value) const {
    return math::mish_slope(gradient, value);
  }
};

struct Selu : PointwiseFunction {
  static constexpr std::string_view kName = "selu";
  static constexpr std::string_view kQuantizedName = "quantized::selu";
  static constexpr Takes kTakes = Takes::FloatsOrScaled;
  // Klambauer et al., Self-Normalizing Neural Networks.
  static constexpr double kAlpha = 1.6732632423543772848170429916717;
  static constexpr double kScale = 1.0507009873554804934193349852946;

  template <typename T>
  T operator()(T v) const {
    return math::elu(v, static_cast<T>(kAlpha), static_cast<T>(kScale), T{1});
  }
  cuda::FloatCall on_cuda() const {
    return {cuda::FloatFunction::Elu,
            {static_cast<float>(kAlpha), static_cast<float>(kScale), 1.0F}};
  }
  template <typename T>
  T slope(T gradient, T value) const {
    return EluSlope(kAlpha, kScale, 1.0)(gradient, value);
  }
  cuda::FloatCall slope_on_cuda() const { return EluSlope(kAlpha, kScale, 1.0).on_cuda(); }
};

struct LogSigmoid : PointwiseFunction {
  static constexpr std::string_view kName = "logsigmoid";
  static constexpr std::string_view kQuantizedName = "quantized::logsigmoid";
  static constexpr Takes kTakes = Takes::FloatsOrScaled;

  template <typename T>
  T operator()(T v) const {
    return math::logsigmoid(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::LogSigmoid}; }
  template <typename T>
  T slope(T gradient, T value) const {
    return math::logsigmoid_slope(gradient, value);
  }
};

struct Softsign : PointwiseFunction {
  static constexpr std::string_view kName = "softsign";
  static constexpr std::string_view kQuantizedName = "quantized::softsign";
  static constexpr Takes kTakes = Takes::FloatsOrScaled;

  template <typename T>
  T operator()(T v) const {
    return math::softsign(v);
  }
  cuda::FloatCall on_cuda() const { return {cuda::FloatFunction::Softsign}; }
  template <typename T>
  T slope(T gradient, T value) const {
    return math::softsign_slope(gradient, value);
  }
};

struct HardShrink : PointwiseFunction {
  static constexpr std::string_view kName = "hardshrink";
  double lambd = 0.5;

  template <typename T>
  T operator()(T v) const {
    return math::hardshrink(v, static_cast<T>(lambd));
  }
  cuda::FloatCall on_cuda() const {
    return {cuda::FloatFunction::HardShrink, {static_cast<float>(lambd)}};
  }
  template <typename T>
  T slope(T gradient, T value) const {
    return math::hardshrink_slope(gradient, value, static_cast<T>(lambd));
  }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{attribute<Op, &Op::function, &HardShrink::lambd>("lambd")};
    return kTable;
  }
};

}  // namespace activation
}  // namespace quanta
