#include "quanta/nn/intrinsic/quantized.h"

#include <type_traits>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/padding.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/norm.h"

namespace quanta::nn::intrinsic::quantized {
namespace {

namespace ops = quanta::quantized;
namespace detail = nn::detail;
using ops::ConvPackedParams;

// The fused module carries qconfig and observer; its first part has the weight.
template <typename Quantized, typename Fused>
std::shared_ptr<Module> convert_conv(std::string_view op, const Module& module,
                                     std::string_view wanted) {
  const Fused& fused = detail::expect_module<Fused>(op, module, wanted);
  QUANTA_CHECK(!fused.empty(), "{}: module: expected a float {}, got a quantized one", op, wanted);
  const auto& source = detail::expect_module<nn::ConvNd>(op, fused[0], "a convolution");
  const detail::OutputParams output = detail::quint8_output_params(op, module);
  const ConvNdOptions& options = source.options();
  const ConvOptions conv{.stride = options.stride,
                         .padding = options.padding,
                         .dilation = options.dilation,
                         .groups = options.groups};
  const QTensor weight = detail::quantize_weight(op, module, source.weight);
  if constexpr (std::is_base_of_v<nn::quantized::ConvNd, Quantized>) {
    return make_module<Quantized>(conv, weight, source.bias, output.scale, output.zero_point,
                                  options.padding_mode);
  } else {
    QUANTA_SUPPORTED(options.padding_mode == PaddingMode::Zeros,
                     "{}: padding_mode: expected zeros, got {}", op,
                     detail::to_string(options.padding_mode));
    return make_module<Quantized>(conv, weight, source.bias, output.scale, output.zero_point);
  }
}

template <typename Quantized>
std::shared_ptr<Module> from_reference_conv(const nn::reference::ConvNd& module, double scale,
                                            std::int64_t zero_point) {
  const ConvNdOptions& options = module.options();
  return make_module<Quantized>(ConvOptions{.stride = options.stride,
                                            .padding = options.padding,
                                            .dilation = options.dilation,
                                            .groups = options.groups},
                                module.get_quantized_weight(), module.bias, scale, zero_point,
                                options.padding_mode);
}

constexpr std::string_view kConvReLU = "quantized::conv_relu";

template <typename Fused>
const nn::Linear& linear_part(std::string_view op, const Module& module, std::string_view wanted) {
  const Fused& fused = detail::expect_module<Fused>(op, module, wanted);
  return detail::expect_module<nn::Linear>(op, fused[0], "Linear");
}

template <typename Quantized, typename Fused, typename BatchNorm>
std::shared_ptr<Module> convert_batch_norm(std::string_view op, const Module& module,
                                           std::string_view wanted) {
  const Fused& fused = detail::expect_module<Fused>(op, module, wanted);
  const auto& source = detail::expect_module<BatchNorm>(op, fused[0], "a batch norm");
  const detail::OutputParams output = detail::output_params(op, module);
  auto result = make_module<Quantized>(source.options(), output.scale, output.zero_point);
  result->copy_from(source);
  return result;
}

}  // namespace

std::shared_ptr<Module> ConvReLU1d::from_float(const Module& module) {
  return convert_conv<ConvReLU1d, intrinsic::ConvReLU1d>("ConvReLU1d.from_float", module,
                                                         "ConvReLU1d");
}
std::shared_ptr<Module> ConvReLU2d::from_float(const Module& module) {
  return convert_conv<ConvReLU2d, intrinsic::ConvReLU2d>("ConvReLU2d.from_float", module,
                                                         "ConvReLU2d");
}
std::shared_ptr<Module> ConvReLU3d::from_float(const Module& module) {
  return convert_conv<ConvReLU3d, intrinsic::ConvReLU3d>("ConvReLU3d.from_float", module,
                                                         "ConvReLU3d");
}

std::shared_ptr<Module> ConvReLU1d::from_reference(const nn::reference::Conv1d& module,
                                                   double scale, std::int64_t zero_point) {
  return from_reference_conv<ConvReLU1d>(module, scale, zero_point);
}
std::shared_ptr<Module> ConvReLU2d::from_reference(const nn::reference::Conv2d& module,
                                                   double scale, std::int64_t zero_point) {
  return from_reference_conv<ConvReLU2d>(module, scale, zero_point);
}
std::shared_ptr<Module> ConvReLU3d::from_reference(const nn::reference::Conv3d& module,
                                                   double scale, std::int64_t zero_point) {
  return from_reference_conv<ConvReLU3d>(module, scale, zero_point);
}

Tensor ConvReLU1d::forward(const Tensor& x) const {
  return ops::conv_relu(input(kConvReLU, x), packed(), scale, zero_point);
}
Tensor ConvReLU2d::forward(const Tensor& x) const {
  return ops::conv_relu(input(kConvReLU, x), packed(), scale, zero_point);
}
Tensor ConvReLU3d::forward(const Tensor& x) const {
  return ops::conv_relu(input(kConvReLU, x), packed(), scale, zero_point);
}

ConvAdd2d::ConvAdd2d(const ConvOptions& options, const QTensor& weight, const Tensor& bias,
                     double output_scale, std::int64_t output_zero_point)
    : scale(output_scale), zero_point(output_zero_point), packed_(weight, bias, options, 2) {
  detail::check_qparams("ConvAdd2d", output_scale, output_zero_point, {0, 255});
}

std::shared_ptr<Module> ConvAdd2d::from_float(const Module& module) {
  return convert_conv<ConvAdd2d, intrinsic::ConvAdd2d>("ConvAdd2d.from_float", module, "ConvAdd2d");
}

std::string ConvAdd2d::extra_repr() const { return detail::conv_repr(packed_, scale, zero_point); }

Tensor ConvAdd2d::run(const Tensor& x, const Tensor& accum) const {
  return ops::conv_add(x.as_quantized("quantized::conv2d_add", "x"),
                       accum.as_quantized("quantized::conv2d_add", "accum"), packed_, scale,
                       zero_point);
}

void ConvAdd2d::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_conv(state, prefix, packed_);
  detail::save_qparams(state, prefix, scale, zero_point);
}

void ConvAdd2d::load_state(StateReader& reader) {
  detail::load_conv(reader, packed_);
  detail::load_qparams(reader, scale, zero_point, {0, 255});
}

ConvAddReLU2d::ConvAddReLU2d(const ConvOptions& options, const QTensor& weight, const Tensor& bias,
                             double output_scale, std::int64_t output_zero_point)
    : scale(output_scale), zero_point(output_zero_point), packed_(weight, bias, options, 2) {
  detail::check_qparams("ConvAddReLU2d", output_scale, output_zero_point, {0, 255});
}

std::shared_ptr<Module> ConvAddReLU2d::from_float(const Module& module) {
  return convert_conv<ConvAddReLU2d, intrinsic::ConvAddReLU2d>("ConvAddReLU2d.from_float", module,
                                                               "ConvAddReLU2d");
}

std::string ConvAddReLU2d::extra_repr() const {
  return detail::conv_repr(packed_, scale, zero_point);
}

Tensor ConvAddReLU2d::run(const Tensor& x, const Tensor& accum) const {
  return ops::conv_add_relu(x.as_quantized("quantized::conv2d_add_relu", "x"),
                            accum.as_quantized("quantized::conv2d_add_relu", "accum"), packed_,
                            scale, zero_point);
}

void ConvAddReLU2d::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_conv(state, prefix, packed_);
  detail::save_qparams(state, prefix, scale, zero_point);
}

void ConvAddReLU2d::load_state(StateReader& reader) {
  detail::load_conv(reader, packed_);
  detail::load_qparams(reader, scale, zero_point, {0, 255});
}

std::shared_ptr<Module> LinearReLU::from_float(const Module& module) {
  constexpr std::string_view kOp = "LinearReLU.from_float";
  const nn::Linear& source = linear_part<intrinsic::LinearReLU>(kOp, module, "LinearReLU");
  const detail::OutputParams output = detail::quint8_output_params(kOp, module);
  return make_module<LinearReLU>(detail::quantize_weight(kOp, module, source.weight), source.bias,
                                 output.scale, output.zero_point);
}

std::shared_ptr<Module> LinearReLU::from_reference(const nn::reference::Linear& module,
                                                   double scale, std::int64_t zero_point) {
  return make_module<LinearReLU>(module.get_quantized_weight(), module.bias, scale, zero_point);
}

Tensor LinearReLU::forward(const Tensor& x) const {
  return ops::linear_relu(x.as_quantized("quantized::linear_relu", "x"), packed(), scale,
                          zero_point);
}

std::shared_ptr<Module> LinearLeakyReLU::from_float(const Module& module) {
  constexpr std::string_view kOp = "LinearLeakyReLU.from_float";
  const nn::Linear& source =
      linear_part<intrinsic::LinearLeakyReLU>(kOp, module, "LinearLeakyReLU");
  const auto& fused = dynamic_cast<const intrinsic::LinearLeakyReLU&>(module);
  const auto& activation = detail::expect_module<nn::LeakyReLU>(kOp, fused[1], "LeakyReLU");
  const detail::OutputParams output = detail::quint8_output_params(kOp, module);
  return make_module<LinearLeakyReLU>(detail::quantize_weight(kOp, module, source.weight),
                                      source.bias, activation.negative_slope(), output.scale,
                                      output.zero_point);
}

std::shared_ptr<Module> LinearLeakyReLU::from_reference(const nn::reference::Linear& module,
                                                        double negative_slope, double scale,
                                                        std::int64_t zero_point) {
  return make_module<LinearLeakyReLU>(module.get_quantized_weight(), module.bias, negative_slope,
                                      scale, zero_point);
}

Tensor LinearLeakyReLU::forward(const Tensor& x) const {
  return ops::linear_leaky_relu(x.as_quantized("quantized::linear_leaky_relu", "x"), packed(),
                                scale, zero_point, negative_slope_);
}

std::shared_ptr<Module> LinearTanh::from_float(const Module& module) {
  constexpr std::string_view kOp = "LinearTanh.from_float";
  const nn::Linear& source = linear_part<intrinsic::LinearTanh>(kOp, module, "LinearTanh");
  const detail::OutputParams output = detail::quint8_output_params(kOp, module);
  return make_module<LinearTanh>(detail::quantize_weight(kOp, module, source.weight), source.bias,
                                 output.scale, output.zero_point);
}

std::shared_ptr<Module> LinearTanh::from_reference(const nn::reference::Linear& module,
                                                   double scale, std::int64_t zero_point) {
  return make_module<LinearTanh>(module.get_quantized_weight(), module.bias, scale, zero_point);
}

Tensor LinearTanh::forward(const Tensor& x) const {
  return ops::linear_tanh(x.as_quantized("quantized::linear_tanh", "x"), packed(), scale,
                          zero_point);
}

std::shared_ptr<Module> BNReLU2d::from_float(const Module& module) {
  return convert_batch_norm<BNReLU2d, intrinsic::BNReLU2d, nn::BatchNorm2d>("BNReLU2d.from_float",
                                                                            module, "BNReLU2d");
}
std::shared_ptr<Module> BNReLU3d::from_float(const Module& module) {
  return convert_batch_norm<BNReLU3d, intrinsic::BNReLU3d, nn::BatchNorm3d>("BNReLU3d.from_float",
                                                                            module, "BNReLU3d");
}

Tensor BNReLU2d::forward(const Tensor& x) const {
  check_input(x);
  return ops::batch_norm_relu(x.as_quantized("quantized::batch_norm2d_relu", "x"), weight, bias,
                              running_mean, running_var, options().eps, scale, zero_point);
}
Tensor BNReLU3d::forward(const Tensor& x) const {
  check_input(x);
  return ops::batch_norm_relu(x.as_quantized("quantized::batch_norm3d_relu", "x"), weight, bias,
                              running_mean, running_var, options().eps, scale, zero_point);
}

}  // namespace quanta::nn::intrinsic::quantized
