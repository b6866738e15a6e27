#include "quanta/nn/quantized/conv.h"

#include <array>

#include "quanta/nn/conv.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/padding.h"
#include "quanta/nn/detail/quantized_state.h"

namespace quanta::nn::quantized {
namespace {

using quanta::quantized::ConvPackedParams;

// Names for messages, by the number of spatial dimensions.
constexpr std::array<std::string_view, 4> kConv = {"", "quantized::conv1d", "quantized::conv2d",
                                                   "quantized::conv3d"};
constexpr std::array<std::string_view, 4> kConvTranspose = {"", "quantized::conv_transpose1d",
                                                            "quantized::conv_transpose2d",
                                                            "quantized::conv_transpose3d"};

// Of the convolution that follows the padding of the input, where that is not with zeros.
ConvOptions packed_options(ConvOptions options, std::int64_t spatial, PaddingMode mode) {
  if (mode == PaddingMode::Zeros) return options;
  QUANTA_SUPPORTED(mode == PaddingMode::Reflect && spatial < 3,
                   "{}: padding_mode: expected {}, got {} (a null QConfig leaves the layer in "
                   "float)",
                   kConv[static_cast<std::size_t>(spatial)],
                   spatial < 3 ? "zeros or reflect" : "zeros (reflect is for 1d and 2d)",
                   detail::to_string(mode));
  options.padding = Dims{0};
  return options;
}

template <typename Quantized, typename Float>
std::shared_ptr<Module> convert_conv(std::string_view op, const Module& module,
                                     std::string_view wanted) {
  const Float& source = detail::expect_module<Float>(op, module, wanted);
  const detail::OutputParams output = detail::quint8_output_params(op, module);
  const ConvNdOptions& options = source.options();
  return make_module<Quantized>(ConvOptions{.stride = options.stride,
                                            .padding = options.padding,
                                            .dilation = options.dilation,
                                            .groups = options.groups},
                                detail::quantize_weight(op, module, source.weight), source.bias,
                                output.scale, output.zero_point, options.padding_mode);
}

template <typename Quantized>
std::shared_ptr<Module> from_reference_conv(const reference::ConvNd& module, double scale,
                                            std::int64_t zero_point) {
  const ConvNdOptions& options = module.options();
  return make_module<Quantized>(ConvOptions{.stride = options.stride,
                                            .padding = options.padding,
                                            .dilation = options.dilation,
                                            .groups = options.groups},
                                module.get_quantized_weight(), module.bias, scale, zero_point,
                                options.padding_mode);
}

template <typename Quantized>
std::shared_ptr<Module> from_reference_conv_transpose(const reference::ConvTransposeNd& module,
                                                      double scale, std::int64_t zero_point) {
  const ConvTransposeNdOptions& options = module.options();
  return make_module<Quantized>(ConvTransposeOptions{.stride = options.stride,
                                                     .padding = options.padding,
                                                     .output_padding = options.output_padding,
                                                     .dilation = options.dilation,
                                                     .groups = options.groups},
                                module.get_quantized_weight(), module.bias, scale, zero_point);
}

template <typename Quantized, typename Float>
std::shared_ptr<Module> convert_conv_transpose(std::string_view op, const Module& module,
                                               std::string_view wanted) {
  const Float& source = detail::expect_module<Float>(op, module, wanted);
  const detail::OutputParams output = detail::quint8_output_params(op, module);
  const ConvTransposeNdOptions& options = source.options();
  return make_module<Quantized>(
      ConvTransposeOptions{.stride = options.stride,
                           .padding = options.padding,
                           .output_padding = options.output_padding,
                           .dilation = options.dilation,
                           .groups = options.groups},
      detail::quantize_weight_per_tensor(
          op, module, source.weight,
          "transposed convolutions have no per-channel weights: use default_qconfig"),
      source.bias, output.scale, output.zero_point);
}

}  // namespace

ConvBase::ConvBase(ConvPackedParams packed, double output_scale, std::int64_t output_zero_point)
    : OutputQuantized(output_scale, output_zero_point, quant_range(DType::QUInt8)),
      packed_(std::move(packed)) {}

void ConvBase::set_weight_bias(const QTensor& weight, const Tensor& bias) {
  packed_ = detail::repacked(packed_, weight, bias);
}

std::string ConvBase::extra_repr() const { return detail::conv_repr(packed_, scale, zero_point); }

void ConvBase::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_conv(state, prefix, packed_);
  OutputQuantized::save_state(state, prefix);
}

void ConvBase::load_state(StateReader& reader) {
  detail::load_conv(reader, packed_);
  OutputQuantized::load_state(reader);
}

ConvNd::ConvNd(const ConvOptions& options, std::int64_t spatial, const QTensor& weight,
               const Tensor& bias, double output_scale, std::int64_t output_zero_point,
               PaddingMode padding_mode)
    : ConvBase(
          ConvPackedParams(weight, bias, packed_options(options, spatial, padding_mode), spatial),
          output_scale, output_zero_point),
      padding_mode_(padding_mode) {
  if (padding_mode == PaddingMode::Reflect) {
    reflected_ = detail::expand_spatial(kConv[static_cast<std::size_t>(spatial)], "padding",
                                        options.padding, spatial, 0);
  }
}

QTensor ConvNd::input(std::string_view op, const Tensor& x) const {
  const QTensor codes = x.as_quantized(op, "x");
  if (padding_mode_ == PaddingMode::Zeros) return codes;
  return QTensor(detail::pad_input(op, codes, reflected_, padding_mode_));
}

QTensor ConvNd::run(const Tensor& x, double result_scale, std::int64_t result_zero_point) const {
  const std::string_view op = kConv[static_cast<std::size_t>(packed().spatial())];
  return quanta::quantized::conv(input(op, x), packed(), result_scale, result_zero_point);
}

Tensor ConvNd::forward(const Tensor& x) const { return run(x, scale, zero_point); }

std::string ConvNd::extra_repr() const {
  if (padding_mode_ == PaddingMode::Zeros) return ConvBase::extra_repr();
  return fmt::format("{}, padding={}, padding_mode={}", ConvBase::extra_repr(),
                     detail::python_tuple(reflected_), detail::to_string(padding_mode_));
}

std::shared_ptr<Module> Conv1d::from_float(const Module& module) {
  return convert_conv<Conv1d, nn::Conv1d>("Conv1d.from_float", module, "Conv1d");
}
std::shared_ptr<Module> Conv2d::from_float(const Module& module) {
  return convert_conv<Conv2d, nn::Conv2d>("Conv2d.from_float", module, "Conv2d");
}
std::shared_ptr<Module> Conv3d::from_float(const Module& module) {
  return convert_conv<Conv3d, nn::Conv3d>("Conv3d.from_float", module, "Conv3d");
}

std::shared_ptr<Module> Conv1d::from_reference(const reference::Conv1d& module, double scale,
                                               std::int64_t zero_point) {
  return from_reference_conv<Conv1d>(module, scale, zero_point);
}
std::shared_ptr<Module> Conv2d::from_reference(const reference::Conv2d& module, double scale,
                                               std::int64_t zero_point) {
  return from_reference_conv<Conv2d>(module, scale, zero_point);
}
std::shared_ptr<Module> Conv3d::from_reference(const reference::Conv3d& module, double scale,
                                               std::int64_t zero_point) {
  return from_reference_conv<Conv3d>(module, scale, zero_point);
}

ConvTransposeNd::ConvTransposeNd(const ConvTransposeOptions& options, std::int64_t spatial,
                                 const QTensor& weight, const Tensor& bias, double output_scale,
                                 std::int64_t output_zero_point)
    : ConvBase(ConvPackedParams::transposed(weight, bias, options, spatial), output_scale,
               output_zero_point) {}

QTensor ConvTransposeNd::run(const Tensor& x, double result_scale,
                             std::int64_t result_zero_point) const {
  const std::string_view op = kConvTranspose[static_cast<std::size_t>(packed().spatial())];
  return quanta::quantized::conv(x.as_quantized(op, "x"), packed(), result_scale,
                                 result_zero_point);
}

Tensor ConvTransposeNd::forward(const Tensor& x) const { return run(x, scale, zero_point); }

std::shared_ptr<Module> ConvTranspose1d::from_float(const Module& module) {
  return convert_conv_transpose<ConvTranspose1d, nn::ConvTranspose1d>("ConvTranspose1d.from_float",
                                                                      module, "ConvTranspose1d");
}
std::shared_ptr<Module> ConvTranspose2d::from_float(const Module& module) {
  return convert_conv_transpose<ConvTranspose2d, nn::ConvTranspose2d>("ConvTranspose2d.from_float",
                                                                      module, "ConvTranspose2d");
}
std::shared_ptr<Module> ConvTranspose3d::from_float(const Module& module) {
  return convert_conv_transpose<ConvTranspose3d, nn::ConvTranspose3d>("ConvTranspose3d.from_float",
                                                                      module, "ConvTranspose3d");
}

std::shared_ptr<Module> ConvTranspose1d::from_reference(const reference::ConvTranspose1d& module,
                                                        double scale, std::int64_t zero_point) {
  return from_reference_conv_transpose<ConvTranspose1d>(module, scale, zero_point);
}
std::shared_ptr<Module> ConvTranspose2d::from_reference(const reference::ConvTranspose2d& module,
                                                        double scale, std::int64_t zero_point) {
  return from_reference_conv_transpose<ConvTranspose2d>(module, scale, zero_point);
}
std::shared_ptr<Module> ConvTranspose3d::from_reference(const reference::ConvTranspose3d& module,
                                                        double scale, std::int64_t zero_point) {
  return from_reference_conv_transpose<ConvTranspose3d>(module, scale, zero_point);
}

}  // namespace quanta::nn::quantized
