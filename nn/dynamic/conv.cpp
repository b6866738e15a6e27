#include "quanta/nn/dynamic/conv.h"

#include "quanta/nn/conv.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/recorder.h"

namespace quanta::nn::quantized::dynamic {
namespace {

template <typename Dynamic, typename Float>
std::shared_ptr<Module> convert_conv(std::string_view op, const Module& module,
                                     std::string_view wanted) {
  const auto& source = nn::detail::expect_module<Float>(op, module, wanted);
  const ConvNdOptions& options = source.options();
  return make_module<Dynamic>(ConvOptions{.stride = options.stride,
                                          .padding = options.padding,
                                          .dilation = options.dilation,
                                          .groups = options.groups},
                              nn::detail::quantize_weight(op, module, source.weight), source.bias,
                              options.padding_mode);
}

template <typename Dynamic, typename Float>
std::shared_ptr<Module> convert_conv_transpose(std::string_view op, const Module& module,
                                               std::string_view wanted) {
  const auto& source = nn::detail::expect_module<Float>(op, module, wanted);
  const ConvTransposeNdOptions& options = source.options();
  return make_module<Dynamic>(
      ConvTransposeOptions{.stride = options.stride,
                           .padding = options.padding,
                           .output_padding = options.output_padding,
                           .dilation = options.dilation,
                           .groups = options.groups},
      nn::detail::quantize_weight_per_tensor(
          op, module, source.weight,
          "transposed convolutions have no per-channel weights: use default_dynamic_qconfig"),
      source.bias);
}

}  // namespace

template <typename Static>
Tensor DynamicConv<Static>::forward(const Tensor& x) const {
  if (replay::is_recording()) {
    return replay::call(
        "conv_dynamic", [self = *this](const Tensor& t) { return self.forward(t); }, x);
  }
  const math::QParams qparams = choose_qparams_per_tensor(x, reduce_range_ == ReduceRange::Yes);
  return dequantize(
      this->run(quantize_per_tensor(x, qparams.scale, qparams.zero_point, DType::QUInt8),
                qparams.scale, qparams.zero_point));
}

template <typename Static>
std::string DynamicConv<Static>::type_name() const {
  return "Dynamic" + Static::type_name();
}

template <typename Static>
void DynamicConv<Static>::save_state(StateDict& state, const std::string& prefix) const {
  Static::save_state(state, prefix);
  save_reduce_range(state, prefix + "reduce_range", reduce_range_);
}

template <typename Static>
void DynamicConv<Static>::load_state(StateReader& reader) {
  Static::load_state(reader);
  load_reduce_range(reader, "reduce_range", reduce_range_);
}

template class DynamicConv<quantized::Conv1d>;
template class DynamicConv<quantized::Conv2d>;
template class DynamicConv<quantized::Conv3d>;
template class DynamicConv<quantized::ConvTranspose1d>;
template class DynamicConv<quantized::ConvTranspose2d>;
template class DynamicConv<quantized::ConvTranspose3d>;

std::shared_ptr<Module> Conv1d::from_float(const Module& module) {
  return convert_conv<Conv1d, nn::Conv1d>("dynamic::Conv1d.from_float", module, "Conv1d");
}
std::shared_ptr<Module> Conv2d::from_float(const Module& module) {
  return convert_conv<Conv2d, nn::Conv2d>("dynamic::Conv2d.from_float", module, "Conv2d");
}
std::shared_ptr<Module> Conv3d::from_float(const Module& module) {
  return convert_conv<Conv3d, nn::Conv3d>("dynamic::Conv3d.from_float", module, "Conv3d");
}
std::shared_ptr<Module> ConvTranspose1d::from_float(const Module& module) {
  return convert_conv_transpose<ConvTranspose1d, nn::ConvTranspose1d>(
      "dynamic::ConvTranspose1d.from_float", module, "ConvTranspose1d");
}
std::shared_ptr<Module> ConvTranspose2d::from_float(const Module& module) {
  return convert_conv_transpose<ConvTranspose2d, nn::ConvTranspose2d>(
      "dynamic::ConvTranspose2d.from_float", module, "ConvTranspose2d");
}
std::shared_ptr<Module> ConvTranspose3d::from_float(const Module& module) {
  return convert_conv_transpose<ConvTranspose3d, nn::ConvTranspose3d>(
      "dynamic::ConvTranspose3d.from_float", module, "ConvTranspose3d");
}

}  // namespace quanta::nn::quantized::dynamic
