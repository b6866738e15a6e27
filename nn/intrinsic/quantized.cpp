#include "quanta/nn/intrinsic/quantized.h"

#include <type_traits>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/float_conv.h"
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
  const ConvOptions conv = detail::op_options(options);
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

constexpr std::string_view kConvReLU = "quantized::conv_relu";

template <typename Float>
constexpr std::string_view kConvAdd =
    std::is_same_v<Float, intrinsic::ConvAddReLU2d> ? "ConvAddReLU2d" : "ConvAdd2d";

// `settings` of the activation come between bias and scale.
template <typename Quantized, typename Fused, typename... Settings>
std::shared_ptr<Module> convert_linear(std::string_view name, const Module& module,
                                       Settings... settings) {
  const std::string op = fmt::format("{}.from_float", name);
  const Fused& fused = detail::expect_module<Fused>(op, module, name);
  const auto& source = detail::expect_module<nn::Linear>(op, fused[0], "Linear");
  const detail::OutputParams output = detail::quint8_output_params(op, module);
  return make_module<Quantized>(detail::quantize_weight(op, module, source.weight), source.bias,
                                settings..., output.scale, output.zero_point);
}

}  // namespace

template <int N>
std::shared_ptr<Module> ConvReLU<N>::from_float(const Module& module) {
  const std::string name = fmt::format("ConvReLU{}d", N);
  return convert_conv<ConvReLU, intrinsic::ConvReLU<N>>(name + ".from_float", module, name);
}

template <int N>
std::shared_ptr<Module> ConvReLU<N>::from_reference(const nn::reference::Conv<N>& module,
                                                    double scale, std::int64_t zero_point) {
  return make_module<ConvReLU>(detail::op_options(module.options()), module.get_quantized_weight(),
                               module.bias, scale, zero_point, module.options().padding_mode);
}

template <int N>
Tensor ConvReLU<N>::forward(const Tensor& x) const {
  return ops::conv_relu(this->input(kConvReLU, x), this->packed(), this->scale, this->zero_point);
}

template class ConvReLU<1>;
template class ConvReLU<2>;
template class ConvReLU<3>;

template <typename Float>
ConvAdd<Float>::ConvAdd(const ConvOptions& options, const QTensor& weight, const Tensor& bias,
                        double output_scale, std::int64_t output_zero_point)
    : scale(output_scale), zero_point(output_zero_point), packed_(weight, bias, options, 2) {
  detail::check_qparams(kConvAdd<Float>, output_scale, output_zero_point, {0, 255});
}

template <typename Float>
std::shared_ptr<Module> ConvAdd<Float>::from_float(const Module& module) {
  const std::string name(kConvAdd<Float>);
  return convert_conv<ConvAdd, Float>(name + ".from_float", module, name);
}

template <typename Float>
std::string ConvAdd<Float>::type_name() const {
  return "Quantized" + std::string(kConvAdd<Float>);
}

template <typename Float>
std::string ConvAdd<Float>::extra_repr() const {
  return detail::conv_repr(packed_, scale, zero_point);
}

template <typename Float>
Tensor ConvAdd<Float>::run(const Tensor& x, const Tensor& accum) const {
  constexpr bool kReLU = std::is_same_v<Float, intrinsic::ConvAddReLU2d>;
  constexpr std::string_view kOp = kReLU ? "quantized::conv2d_add_relu" : "quantized::conv2d_add";
  const QTensor codes = x.as_quantized(kOp, "x");
  const QTensor added = accum.as_quantized(kOp, "accum");
  return kReLU ? ops::conv_add_relu(codes, added, packed_, scale, zero_point)
               : ops::conv_add(codes, added, packed_, scale, zero_point);
}

template <typename Float>
void ConvAdd<Float>::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_conv(state, prefix, packed_);
  detail::save_qparams(state, prefix, scale, zero_point);
}

template <typename Float>
void ConvAdd<Float>::load_state(StateReader& reader) {
  detail::load_conv(reader, packed_);
  detail::load_qparams(reader, scale, zero_point, {0, 255});
}

template class ConvAdd<intrinsic::ConvAdd2d>;
template class ConvAdd<intrinsic::ConvAddReLU2d>;

std::shared_ptr<Module> LinearReLU::from_float(const Module& module) {
  return convert_linear<LinearReLU, intrinsic::LinearReLU>("LinearReLU", module);
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
  constexpr std::string_view kName = "LinearLeakyReLU";
  const auto& fused = detail::expect_module<intrinsic::LinearLeakyReLU>(
      "LinearLeakyReLU.from_float", module, kName);
  const auto& activation =
      detail::expect_module<nn::LeakyReLU>("LinearLeakyReLU.from_float", fused[1], "LeakyReLU");
  return convert_linear<LinearLeakyReLU, intrinsic::LinearLeakyReLU>(kName, module,
                                                                     activation.negative_slope());
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
  return convert_linear<LinearTanh, intrinsic::LinearTanh>("LinearTanh", module);
}

std::shared_ptr<Module> LinearTanh::from_reference(const nn::reference::Linear& module,
                                                   double scale, std::int64_t zero_point) {
  return make_module<LinearTanh>(module.get_quantized_weight(), module.bias, scale, zero_point);
}

Tensor LinearTanh::forward(const Tensor& x) const {
  return ops::linear_tanh(x.as_quantized("quantized::linear_tanh", "x"), packed(), scale,
                          zero_point);
}

template <int N>
std::shared_ptr<Module> BNReLU<N>::from_float(const Module& module) {
  const std::string name = fmt::format("BNReLU{}d", N);
  const std::string op = name + ".from_float";
  const auto& fused = detail::expect_module<intrinsic::BNReLU<N>>(op, module, name);
  const auto& source = detail::expect_module<nn::BatchNorm<N>>(op, fused[0], "a batch norm");
  const detail::OutputParams output = detail::output_params(op, module);
  auto result = make_module<BNReLU>(source.options(), output.scale, output.zero_point);
  result->copy_from(source);
  return result;
}

template <int N>
Tensor BNReLU<N>::forward(const Tensor& x) const {
  this->check_input(x);
  constexpr std::string_view kOp =
      N == 2 ? "quantized::batch_norm2d_relu" : "quantized::batch_norm3d_relu";
  return ops::batch_norm_relu(x.as_quantized(kOp, "x"), this->weight, this->bias,
                              this->running_mean, this->running_var, this->options().eps,
                              this->scale, this->zero_point);
}

template class BNReLU<2>;
template class BNReLU<3>;

}  // namespace quanta::nn::intrinsic::quantized
