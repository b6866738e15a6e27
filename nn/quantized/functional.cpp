#include "quanta/nn/quantized/functional.h"

#include <array>
#include <string_view>

#include "quanta/nn/detail/padding.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::quantized::functional {
namespace {

namespace ops = quanta::quantized;

QTensor expect_quantized(std::string_view op, const Tensor& input) {
  QUANTA_CHECK(input.defined() && input.is_quantized(),
               "{}: input: expected a quantized tensor, got {}", op,
               input.defined() ? quanta::to_string(input.dtype()) : "an undefined one");
  return QTensor(input);
}

QTensor expect_weight(std::string_view op, const Tensor& weight) {
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::QInt8,
               "{}: weight: expected QInt8, got {}", op,
               weight.defined() ? quanta::to_string(weight.dtype()) : "an undefined tensor");
  return QTensor(weight);
}

QTensor expect_quint8(std::string_view op, const Tensor& input) {
  const QTensor codes = expect_quantized(op, input);
  QUANTA_CHECK(codes.dtype() == DType::QUInt8 && !codes.is_per_channel(),
               "{}: input: expected QUInt8 per tensor, got {} {}", op, codes.dtype(),
               codes.qscheme());
  return codes;
}

Tensor conv(std::int64_t spatial, const Tensor& input, const Tensor& weight, const Tensor& bias,
            const ConvArguments& arguments) {
  constexpr std::array<std::string_view, 4> kNames = {"", "functional::conv1d",
                                                      "functional::conv2d", "functional::conv3d"};
  const std::string_view op = kNames[static_cast<std::size_t>(spatial)];
  const QTensor x = expect_quint8(op, input);
  const QTensor w = expect_weight(op, weight);
  QUANTA_CHECK(x.dim() == spatial + 1 || x.dim() == spatial + 2,
               "{}: input: expected {} or {} dimensions, got {}", op, spatial + 1, spatial + 2,
               x.sizes());
  QUANTA_SUPPORTED(arguments.padding_mode == PaddingMode::Zeros,
                   "{}: padding_mode: expected zeros, got {} (pad the input first)", op,
                   nn::detail::to_string(arguments.padding_mode));
  QUANTA_SUPPORTED(arguments.dtype == DType::QUInt8, "{}: dtype: expected QUInt8, got {}", op,
                   arguments.dtype);
  const ops::ConvPackedParams packed(w, bias,
                                     {.stride = arguments.stride,
                                      .padding = arguments.padding,
                                      .dilation = arguments.dilation,
                                      .groups = arguments.groups},
                                     spatial);
  return ops::conv(x, packed, arguments.scale, arguments.zero_point);
}

}  // namespace

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const ConvArguments& arguments) {
  return conv(1, input, weight, bias, arguments);
}
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const ConvArguments& arguments) {
  return conv(2, input, weight, bias, arguments);
}
Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const ConvArguments& arguments) {
  return conv(3, input, weight, bias, arguments);
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias,
              std::optional<double> scale, std::optional<std::int64_t> zero_point) {
  constexpr std::string_view kOp = "functional::linear";
  const QTensor x = expect_quint8(kOp, input);
  const ops::LinearPackedParams packed(expect_weight(kOp, weight), bias);
  return ops::linear(x, packed, scale.value_or(x.q_scale()), zero_point.value_or(x.q_zero_point()));
}

Tensor max_pool1d(const Tensor& input, const MaxPoolOptions& options) {
  return quanta::max_pool1d(expect_quantized("functional::max_pool1d", input), options);
}
Tensor max_pool2d(const Tensor& input, const MaxPoolOptions& options) {
  return quanta::max_pool2d(expect_quantized("functional::max_pool2d", input), options);
}
Tensor avg_pool2d(const Tensor& input, const AvgPoolOptions& options) {
  return quanta::avg_pool2d(expect_quantized("functional::avg_pool2d", input), options);
}
Tensor avg_pool3d(const Tensor& input, const AvgPoolOptions& options) {
  return quanta::avg_pool3d(expect_quantized("functional::avg_pool3d", input), options);
}
Tensor adaptive_avg_pool2d(const Tensor& input, const Dims& output_size) {
  return quanta::adaptive_avg_pool2d(expect_quantized("functional::adaptive_avg_pool2d", input),
                                     output_size);
}
Tensor adaptive_avg_pool3d(const Tensor& input, const Dims& output_size) {
  return quanta::adaptive_avg_pool3d(expect_quantized("functional::adaptive_avg_pool3d", input),
                                     output_size);
}

Tensor interpolate(const Tensor& input, const InterpolateOptions& options) {
  return quanta::interpolate(expect_quantized("functional::interpolate", input), options);
}
Tensor upsample(const Tensor& input, const InterpolateOptions& options) {
  return quanta::upsample(expect_quantized("functional::upsample", input), options);
}
Tensor upsample_nearest(const Tensor& input, const Dims& size,
                        const std::vector<double>& scale_factor) {
  return quanta::upsample_nearest(expect_quantized("functional::upsample_nearest", input), size,
                                  scale_factor);
}
Tensor upsample_bilinear(const Tensor& input, const Dims& size,
                         const std::vector<double>& scale_factor) {
  return quanta::upsample_bilinear(expect_quantized("functional::upsample_bilinear", input), size,
                                   scale_factor);
}

Tensor relu(const Tensor& input) {
  return quanta::relu(expect_quantized("functional::relu", input));
}

Tensor hardtanh(const Tensor& input, double min_val, double max_val) {
  return quanta::hardtanh(expect_quantized("functional::hardtanh", input), min_val, max_val);
}
Tensor clamp(const Tensor& input, double min, double max) {
  return quanta::clamp(expect_quantized("functional::clamp", input), min, max);
}
Tensor threshold(const Tensor& input, double threshold, double value) {
  return quanta::threshold(expect_quantized("functional::threshold", input), threshold, value);
}

Tensor hardsigmoid(const Tensor& input) {
  return quanta::hardsigmoid(expect_quantized("functional::hardsigmoid", input));
}

Tensor leaky_relu(const Tensor& input, double negative_slope, std::optional<double> scale,
                  std::optional<std::int64_t> zero_point) {
  constexpr std::string_view kOp = "functional::leaky_relu";
  QUANTA_CHECK(scale.has_value() == zero_point.has_value(),
               "{}: {}: expected scale and zero_point together, got one of them", kOp,
               scale.has_value() ? "zero_point" : "scale");
  if (!scale) return quanta::leaky_relu(input, negative_slope);
  return ops::leaky_relu(expect_quantized(kOp, input), negative_slope, *scale, *zero_point);
}

Tensor hardswish(const Tensor& input, double scale, std::int64_t zero_point) {
  return ops::hardswish(expect_quantized("functional::hardswish", input), scale, zero_point);
}
Tensor elu(const Tensor& input, double scale, std::int64_t zero_point, double alpha) {
  return ops::elu(expect_quantized("functional::elu", input), scale, zero_point, alpha);
}
Tensor celu(const Tensor& input, double scale, std::int64_t zero_point, double alpha) {
  return ops::celu(expect_quantized("functional::celu", input), scale, zero_point, alpha);
}

}  // namespace quanta::nn::quantized::functional
