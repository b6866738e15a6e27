#include "quanta/nn/qat/conv.h"

#include "quanta/nn/detail/float_conv.h"
#include "quanta/nn/detail/qat_from_float.h"
#include "quanta/ops/activation.h"

namespace quanta::nn::qat {

template <typename Layer>
ConvOf<Layer>::ConvOf(const ConvNdOptions& options, const QConfig& qconfig)
    : Layer(options), QatModule("qat.Conv", qconfig) {}

template <typename Layer>
Tensor ConvOf<Layer>::forward(const Tensor& x) const {
  return detail::conv(detail::pad_for(x, this->options()), fake_quantized(this->weight), this->bias,
                      this->options());
}

template <typename Layer>
std::shared_ptr<Module> ConvOf<Layer>::to_float() const {
  return detail::float_copy<Layer>(*this);
}

template class ConvOf<nn::Conv1d>;
template class ConvOf<nn::Conv2d>;
template class ConvOf<nn::Conv3d>;

std::shared_ptr<Module> Conv1d::from_float(const Module& module) {
  return detail::share_layer<Conv1d, nn::Conv1d>("qat.Conv1d.from_float", module, module);
}
std::shared_ptr<Module> Conv2d::from_float(const Module& module) {
  return detail::share_layer<Conv2d, nn::Conv2d>("qat.Conv2d.from_float", module, module);
}
std::shared_ptr<Module> Conv3d::from_float(const Module& module) {
  return detail::share_layer<Conv3d, nn::Conv3d>("qat.Conv3d.from_float", module, module);
}

}  // namespace quanta::nn::qat

namespace quanta::nn::intrinsic::qat {
namespace {

template <typename Qat, typename Float, typename Fused>
std::shared_ptr<Module> fused_from_float(std::string_view op, const Module& module) {
  const auto& fused = detail::expect_module<Fused>(op, module, "the float module of that name");
  return detail::share_layer<Qat, Float>(op, module, detail::first_part(op, fused));
}

}  // namespace

std::shared_ptr<Module> ConvReLU1d::from_float(const Module& module) {
  return fused_from_float<ConvReLU1d, nn::Conv1d, intrinsic::ConvReLU1d>(
      "qat.ConvReLU1d.from_float", module);
}
std::shared_ptr<Module> ConvReLU2d::from_float(const Module& module) {
  return fused_from_float<ConvReLU2d, nn::Conv2d, intrinsic::ConvReLU2d>(
      "qat.ConvReLU2d.from_float", module);
}
std::shared_ptr<Module> ConvReLU3d::from_float(const Module& module) {
  return fused_from_float<ConvReLU3d, nn::Conv3d, intrinsic::ConvReLU3d>(
      "qat.ConvReLU3d.from_float", module);
}

Tensor ConvReLU1d::forward(const Tensor& x) const { return relu(nn::qat::Conv1d::forward(x)); }
Tensor ConvReLU2d::forward(const Tensor& x) const { return relu(nn::qat::Conv2d::forward(x)); }
Tensor ConvReLU3d::forward(const Tensor& x) const { return relu(nn::qat::Conv3d::forward(x)); }

std::shared_ptr<Module> ConvReLU1d::to_float() const {
  return detail::with_relu<intrinsic::ConvReLU1d>(nn::qat::Conv1d::to_float());
}
std::shared_ptr<Module> ConvReLU2d::to_float() const {
  return detail::with_relu<intrinsic::ConvReLU2d>(nn::qat::Conv2d::to_float());
}
std::shared_ptr<Module> ConvReLU3d::to_float() const {
  return detail::with_relu<intrinsic::ConvReLU3d>(nn::qat::Conv3d::to_float());
}

}  // namespace quanta::nn::intrinsic::qat
