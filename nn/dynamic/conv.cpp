#include "quanta/nn/dynamic/conv.h"

#include "quanta/nn/conv.h"
#include "quanta/nn/detail/float_conv.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/ops/conv_dynamic.h"

namespace quanta::nn::quantized::dynamic {

template <typename Static>
Tensor DynamicConv<Static>::forward(const Tensor& x) const {
  return quanta::quantized::conv_dynamic(this->padded("conv_dynamic", x), this->packed(),
                                         reduce_range_);
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

template <int N>
std::shared_ptr<Module> Conv<N>::from_float(const Module& module) {
  const std::string name = fmt::format("Conv{}d", N);
  const std::string op = fmt::format("dynamic::{}.from_float", name);
  const auto& source = nn::detail::expect_module<nn::Conv<N>>(op, module, name);
  return make_module<Conv>(nn::detail::op_options(source.options()),
                           nn::detail::quantize_weight(op, module, source.weight), source.bias,
                           source.options().padding_mode);
}

template <int N>
std::shared_ptr<Module> ConvTranspose<N>::from_float(const Module& module) {
  const std::string name = fmt::format("ConvTranspose{}d", N);
  const std::string op = fmt::format("dynamic::{}.from_float", name);
  const auto& source = nn::detail::expect_module<nn::ConvTranspose<N>>(op, module, name);
  return make_module<ConvTranspose>(
      nn::detail::op_options(source.options()),
      nn::detail::quantize_weight_per_tensor(
          op, module, source.weight,
          "transposed convolutions have no per-channel weights: use default_dynamic_qconfig"),
      source.bias);
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;
template class ConvTranspose<1>;
template class ConvTranspose<2>;
template class ConvTranspose<3>;

}  // namespace quanta::nn::quantized::dynamic
