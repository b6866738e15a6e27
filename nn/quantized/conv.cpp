#include "quanta/nn/quantized/conv.h"

#include <array>

#include "quanta/nn/conv.h"
#include "quanta/nn/detail/float_conv.h"
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

// The options of the convolution that follows the padding of the input, where that is not with
// zeros.
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

Tensor ConvNd::padded(std::string_view op, const Tensor& x) const {
  if (padding_mode_ == PaddingMode::Zeros) return x;
  return detail::pad_input(op, x, reflected_, padding_mode_);
}

QTensor ConvNd::input(std::string_view op, const Tensor& x) const {
  return QTensor(padded(op, x.as_quantized(op, "x")));
}

Tensor ConvNd::forward(const Tensor& x) const {
  const std::string_view op = kConv[static_cast<std::size_t>(packed().spatial())];
  return quanta::quantized::conv(input(op, x), packed(), scale, zero_point);
}

std::string ConvNd::extra_repr() const {
  if (padding_mode_ == PaddingMode::Zeros) return ConvBase::extra_repr();
  return fmt::format("{}, padding={}, padding_mode={}", ConvBase::extra_repr(),
                     detail::python_tuple(reflected_), detail::to_string(padding_mode_));
}

template <int N>
std::shared_ptr<Module> Conv<N>::from_float(const Module& module) {
  const std::string name = fmt::format("Conv{}d", N);
  const std::string op = name + ".from_float";
  const auto& source = detail::expect_module<nn::Conv<N>>(op, module, name);
  const detail::OutputParams output = detail::quint8_output_params(op, module);
  return make_module<Conv>(detail::op_options(source.options()),
                           detail::quantize_weight(op, module, source.weight), source.bias,
                           output.scale, output.zero_point, source.options().padding_mode);
}

template <int N>
std::shared_ptr<Module> Conv<N>::from_reference(const reference::Conv<N>& module, double scale,
                                                std::int64_t zero_point) {
  return make_module<Conv>(detail::op_options(module.options()), module.get_quantized_weight(),
                           module.bias, scale, zero_point, module.options().padding_mode);
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;

ConvTransposeNd::ConvTransposeNd(const ConvTransposeOptions& options, std::int64_t spatial,
                                 const QTensor& weight, const Tensor& bias, double output_scale,
                                 std::int64_t output_zero_point)
    : ConvBase(ConvPackedParams::transposed(weight, bias, options, spatial), output_scale,
               output_zero_point) {}

Tensor ConvTransposeNd::forward(const Tensor& x) const {
  const std::string_view op = kConvTranspose[static_cast<std::size_t>(packed().spatial())];
  return quanta::quantized::conv(x.as_quantized(op, "x"), packed(), scale, zero_point);
}

template <int N>
std::shared_ptr<Module> ConvTranspose<N>::from_float(const Module& module) {
  const std::string name = fmt::format("ConvTranspose{}d", N);
  const std::string op = name + ".from_float";
  const auto& source = detail::expect_module<nn::ConvTranspose<N>>(op, module, name);
  const detail::OutputParams output = detail::quint8_output_params(op, module);
  return make_module<ConvTranspose>(
      detail::op_options(source.options()),
      detail::quantize_weight_per_tensor(
          op, module, source.weight,
          "transposed convolutions have no per-channel weights: use default_qconfig"),
      source.bias, output.scale, output.zero_point);
}

template <int N>
std::shared_ptr<Module> ConvTranspose<N>::from_reference(const reference::ConvTranspose<N>& module,
                                                         double scale, std::int64_t zero_point) {
  return make_module<ConvTranspose>(detail::op_options(module.options()),
                                    module.get_quantized_weight(), module.bias, scale, zero_point);
}

template class ConvTranspose<1>;
template class ConvTranspose<2>;
template class ConvTranspose<3>;

}  // namespace quanta::nn::quantized
