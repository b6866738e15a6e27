#include "quanta/nn/qat/batch_norm.h"

#include "quanta/nn/detail/float_conv.h"
#include "quanta/nn/detail/qat_from_float.h"
#include "quanta/nn/fold_batch_norm.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/linear.h"

namespace quanta::nn::intrinsic::qat {
namespace {

std::int64_t channels(const ConvNdOptions& options) { return options.out_channels; }
std::int64_t channels(const LinearOptions& options) { return options.out_features; }

BatchNormOptions with_features(BatchNormOptions options, std::int64_t features) {
  options.num_features = features;
  return options;
}

Tensor apply(const ConvNdOptions& options, const Tensor& x, const Tensor& weight,
             const Tensor& bias) {
  return detail::conv(detail::pad_for(x, options), weight, bias, options);
}
Tensor apply(const LinearOptions&, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear(x, weight, bias);
}

// Dimension 0 of a weight.
Tensor as_rows(const Tensor& values, const Tensor& weight) {
  Dims sizes = Dims::filled(static_cast<std::size_t>(weight.dim()), 1);
  sizes[0] = values.numel();
  return values.reshape(sizes);
}

// Dimension 1 of the layer's result.
Tensor as_channels(const Tensor& values, std::int64_t rank) {
  Dims sizes = Dims::filled(static_cast<std::size_t>(rank), 1);
  sizes[1] = values.numel();
  return values.reshape(sizes);
}

// sqrt(var + eps) of running statistics, which are no part of the tape.
Tensor standard_deviation(const Tensor& variance, double eps) {
  return sqrt(add_scalar(variance.detach(), eps));
}

}  // namespace

template <typename Layer, typename Norm, typename Options>
LayerBn<Layer, Norm, Options>::LayerBn(const Options& options, const BatchNormOptions& bn_options,
                                       const QConfig& qconfig)
    : Layer(options), QatModule("qat.ConvBn", qconfig) {
  QUANTA_CHECK(bn_options.affine && bn_options.track_running_stats,
               "qat.ConvBn: bn_options: expected affine parameters and running statistics, got "
               "affine={}, track_running_stats={}",
               bn_options.affine, bn_options.track_running_stats);
  this->register_module("bn", bn, with_features(bn_options, channels(options)));
}

template <typename Layer, typename Norm, typename Options>
Tensor LayerBn<Layer, Norm, Options>::forward(const Tensor& x) const {
  const Tensor factor = div(bn->weight, standard_deviation(bn->running_var, bn->options().eps));
  const Tensor scaled = fake_quantized(mul(this->weight, as_rows(factor, this->weight)));
  if (bn->is_plain_call() && !bn->is_training()) {
    // (sums / factor + bias - mean) * factor + bn.bias: the factor goes, the rest is a bias.
    const Tensor centred = this->bias.defined() ? sub(this->bias, bn->running_mean)
                                                : mul_scalar(bn->running_mean, -1.0);
    return apply(this->options(), x, scaled, add(mul(centred, factor), bn->bias));
  }
  const Tensor sums = apply(this->options(), x, scaled, Tensor());
  if (bn->is_plain_call()) return bn->forward_quotient(sums, factor, this->bias);
  // Somebody watches what goes into the batch norm.
  Tensor y = div(sums, as_channels(factor, sums.dim()));
  if (this->bias.defined()) y = add(y, as_channels(this->bias, sums.dim()));
  return bn(y);
}

template <typename Layer, typename Norm, typename Options>
std::shared_ptr<Module> LayerBn<Layer, Norm, Options>::to_float() const {
  auto result = make_module<Layer>(this->options());
  const auto plain = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.detach() : tensor;
  };
  const FoldedWeights folded =
      fold_batch_norm(plain(this->weight), plain(this->bias), bn->running_mean, bn->running_var,
                      bn->options().eps, plain(bn->weight), plain(bn->bias));
  result->weight = folded.weight;
  result->bias = folded.bias;
  result->eval();
  return result;
}

template <typename Layer, typename Norm, typename Options>
Module& LayerBn<Layer, Norm, Options>::train(bool on) {
  const bool bn_mode = bn->is_training();
  Module::train(on);
  if (frozen_) bn->train(bn_mode);
  return *this;
}

template <typename Layer, typename Norm, typename Options>
void LayerBn<Layer, Norm, Options>::freeze_bn_stats() {
  frozen_ = true;
  bn->eval();
}

template <typename Layer, typename Norm, typename Options>
void LayerBn<Layer, Norm, Options>::update_bn_stats() {
  frozen_ = false;
  bn->train();
}

template class LayerBn<nn::Conv1d, nn::BatchNorm1d, ConvNdOptions>;
template class LayerBn<nn::Conv2d, nn::BatchNorm2d, ConvNdOptions>;
template class LayerBn<nn::Conv3d, nn::BatchNorm3d, ConvNdOptions>;
template class LayerBn<nn::Linear, nn::BatchNorm1d, LinearOptions>;

namespace {

// A Qat that trains the tensors of the fused module's layer and batch norm.
template <typename Qat, typename Layer, typename Norm, typename Fused>
std::shared_ptr<Module> from_fused(std::string_view op, const Module& module) {
  const auto& fused = detail::expect_module<Fused>(op, module, "the float module of that name");
  const auto& layer =
      detail::expect_module<Layer>(op, detail::first_part(op, fused), "a float layer");
  const auto& norm = detail::expect_module<Norm>(op, fused[1], "a batch norm");
  const QConfig& qconfig = detail::expect_qconfig(op, module);
  auto result = make_module<Qat>(layer.options(), norm.options(), qconfig);
  result->weight = layer.weight;
  result->bias = layer.bias;
  result->bn->weight = norm.weight;
  result->bn->bias = norm.bias;
  result->bn->running_mean = norm.running_mean;
  result->bn->running_var = norm.running_var;
  result->bn->num_batches_tracked = norm.num_batches_tracked;
  result->set_qconfig(qconfig);
  result->train(module.is_training());
  return result;
}

}  // namespace

template <int N>
std::shared_ptr<Module> ConvBn<N>::from_float(const Module& module) {
  return from_fused<ConvBn, nn::Conv<N>, nn::BatchNorm<N>, intrinsic::ConvBn<N>>(
      fmt::format("qat.ConvBn{}d.from_float", N), module);
}

std::shared_ptr<Module> LinearBn1d::from_float(const Module& module) {
  return from_fused<LinearBn1d, nn::Linear, nn::BatchNorm1d, intrinsic::LinearBn1d>(
      "qat.LinearBn1d.from_float", module);
}

template <int N>
std::shared_ptr<Module> ConvBnReLU<N>::from_float(const Module& module) {
  return from_fused<ConvBnReLU, nn::Conv<N>, nn::BatchNorm<N>, intrinsic::ConvBnReLU<N>>(
      fmt::format("qat.ConvBnReLU{}d.from_float", N), module);
}

template <int N>
Tensor ConvBnReLU<N>::forward(const Tensor& x) const {
  return relu(ConvBn<N>::forward(x));
}

template <int N>
std::shared_ptr<Module> ConvBnReLU<N>::to_float() const {
  return detail::with_relu<intrinsic::ConvReLU<N>>(ConvBn<N>::to_float());
}

template class ConvBn<1>;
template class ConvBn<2>;
template class ConvBn<3>;
template class ConvBnReLU<1>;
template class ConvBnReLU<2>;
template class ConvBnReLU<3>;

void freeze_bn_stats(Module& model) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (auto* control = dynamic_cast<BatchNormControl*>(entry.module)) control->freeze_bn_stats();
  }
}

void update_bn_stats(Module& model) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (auto* control = dynamic_cast<BatchNormControl*>(entry.module)) control->update_bn_stats();
  }
}

}  // namespace quanta::nn::intrinsic::qat
