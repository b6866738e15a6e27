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

template <int N>
std::shared_ptr<Module> Conv<N>::from_float(const Module& module) {
  return detail::share_layer<Conv, nn::Conv<N>>(fmt::format("qat.Conv{}d.from_float", N), module,
                                                module);
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;

}  // namespace quanta::nn::qat

namespace quanta::nn::intrinsic::qat {

template <int N>
std::shared_ptr<Module> ConvReLU<N>::from_float(const Module& module) {
  const std::string op = fmt::format("qat.ConvReLU{}d.from_float", N);
  const auto& fused =
      detail::expect_module<intrinsic::ConvReLU<N>>(op, module, "the float module of that name");
  return detail::share_layer<ConvReLU, nn::Conv<N>>(op, module, detail::first_part(op, fused));
}

template <int N>
Tensor ConvReLU<N>::forward(const Tensor& x) const {
  return relu(nn::qat::Conv<N>::forward(x));
}

template <int N>
std::shared_ptr<Module> ConvReLU<N>::to_float() const {
  return detail::with_relu<intrinsic::ConvReLU<N>>(nn::qat::Conv<N>::to_float());
}

template class ConvReLU<1>;
template class ConvReLU<2>;
template class ConvReLU<3>;

}  // namespace quanta::nn::intrinsic::qat
