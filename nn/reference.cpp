#include "quanta/nn/reference.h"

#include "quanta/nn/detail/float_conv.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::reference {
namespace {

QScheme affine_scheme(QScheme scheme) {
  switch (scheme) {
    case QScheme::PerTensorAffine:
    case QScheme::PerTensorSymmetric:
      return QScheme::PerTensorAffine;
    case QScheme::PerChannelAffine:
    case QScheme::PerChannelSymmetric:
      return QScheme::PerChannelAffine;
    case QScheme::PerChannelAffineFloatQParams:
      return QScheme::PerChannelAffineFloatQParams;
  }
  throw InternalError("affine_scheme: scheme: unknown");
}

QTensor quantized(const WeightQParams& qparams, const Tensor& weight) {
  QUANTA_CHECK(qparams.scale.defined() && qparams.zero_point.defined(),
               "WeightQParams: scale: expected tensors for scale and zero_point, got none");
  if (!is_per_channel(qparams.qscheme)) {
    return quantize_per_tensor(weight, qparams.scale, qparams.zero_point, qparams.dtype);
  }
  const bool float_zero_points = qparams.qscheme == QScheme::PerChannelAffineFloatQParams;
  QUANTA_CHECK(qparams.zero_point.is_floating_point() == float_zero_points,
               "WeightQParams: zero_point: expected {} ones for {}, got {}",
               float_zero_points ? "floating" : "integer", qparams.qscheme,
               qparams.zero_point.dtype());
  return quantize_per_channel(weight, qparams.scale, qparams.zero_point, qparams.axis,
                              qparams.dtype);
}

template <typename Reference, typename Float>
std::shared_ptr<Reference> make(const Float& source, const WeightQParams& qparams) {
  detail::require_finite_weight("reference.from_float", source.weight);
  auto module = make_module<Reference>(source, qparams);
  module->train(source.is_training());
  return module;
}

}  // namespace

WeightQParams WeightQParams::from_observer(const Observer& observer) {
  QUANTA_CHECK(observer.has_data(),
               "WeightQParams.from_observer: observer: expected a {} that saw data",
               observer.name());
  const ObservedQParams observed = observer.calculate_qparams();
  return {.qscheme = affine_scheme(observer.qscheme()),
          .dtype = observer.dtype(),
          .scale = observed.scale,
          .zero_point = observed.zero_point,
          .axis = observer.ch_axis()};
}

WeightQParams WeightQParams::affine() const {
  WeightQParams result = *this;
  result.qscheme = affine_scheme(qscheme);
  return result;
}

QTensor WeightQParams::quantize(const Tensor& weight) const {
  detail::require_finite_weight("WeightQParams", weight);
  return quantized(*this, weight);
}

Tensor WeightQParams::rounded(const Tensor& weight) const {
  return dequantize(quantized(*this, weight));
}

void WeightQParams::save(StateDict& state, const std::string& name) const {
  state.set(name + "_scale", scale);
  state.set(name + "_zero_point", zero_point);
  state.set(name + "_axis", Tensor::scalar(static_cast<double>(axis), DType::Int32));
}

void WeightQParams::load(StateReader& reader, const std::string& name, const Tensor& weight) {
  const Tensor* new_scale = reader.require(name + "_scale");
  const Tensor* new_zero_point = reader.require(name + "_zero_point");
  const Tensor* new_axis = reader.find(name + "_axis");  // per tensor it says nothing
  if (new_scale == nullptr || new_zero_point == nullptr) return;
  try {
    WeightQParams loaded = *this;
    loaded.scale = new_scale->clone();
    loaded.zero_point = new_zero_point->clone();
    if (new_axis != nullptr) {
      QUANTA_CHECK(
          new_axis->numel() == 1 && !new_axis->is_quantized() && !new_axis->is_floating_point(),
          "{}_axis: expected one integer, got {} {}", name, new_axis->dtype(), new_axis->sizes());
      loaded.axis = new_axis->to_int64_vector()[0];
    }
    // Whether they suit a weight of these sizes: it may hold anything before it is loaded.
    static_cast<void>(quantized(loaded, weight));
    reader.on_commit([this, loaded = std::move(loaded)] { *this = loaded; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name(name + "_scale"), error.what()));
  }
  const Tensor* new_weight = reader.find(name);
  if (new_weight == nullptr || !new_weight->is_floating_point()) return;
  try {
    detail::require_finite_weight("load_state_dict", *new_weight);
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name(name), error.what()));
  }
}

ReferenceModule::ReferenceModule(const Tensor& float_weight, const Tensor& float_bias,
                                 const WeightQParams& qparams, std::string repr)
    : weight(float_weight.clone()), qparams_(qparams.affine()), repr_(std::move(repr)) {
  if (float_bias.defined()) bias = float_bias.clone();
  static_cast<void>(quantized(qparams_, weight));
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

QTensor ReferenceModule::get_quantized_weight() const { return qparams_.quantize(weight); }

Tensor ReferenceModule::get_weight() const { return qparams_.rounded(weight); }

std::string ReferenceModule::type_name() const {
  return "Quantized" + Module::type_name() + "(Reference)";
}

void ReferenceModule::save_state(StateDict& state, const std::string& prefix) const {
  qparams_.save(state, prefix + "weight");
}

void ReferenceModule::load_state(StateReader& reader) { qparams_.load(reader, "weight", weight); }

Linear::Linear(const nn::Linear& source, const WeightQParams& qparams)
    : ReferenceModule(source.weight, source.bias, qparams, source.extra_repr()),
      options_(source.options()) {}

std::shared_ptr<Linear> Linear::from_float(const nn::Linear& source, const WeightQParams& qparams) {
  return make<Linear>(source, qparams);
}

Tensor Linear::forward(const Tensor& x) const { return quanta::linear(x, get_weight(), bias); }

ConvNd::ConvNd(const nn::ConvNd& source, const WeightQParams& qparams)
    : ReferenceModule(source.weight, source.bias, qparams, source.extra_repr()),
      options_(source.options()),
      spatial_(source.spatial()) {}

Tensor ConvNd::forward(const Tensor& x) const {
  return detail::conv(detail::pad_for(x, options_), get_weight(), bias, options_);
}

template <int N>
std::shared_ptr<Conv<N>> Conv<N>::from_float(const nn::Conv<N>& source,
                                             const WeightQParams& qparams) {
  return make<Conv>(source, qparams);
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;

ConvTransposeNd::ConvTransposeNd(const nn::ConvTransposeNd& source, const WeightQParams& qparams)
    : ReferenceModule(source.weight, source.bias, qparams, source.extra_repr()),
      options_(source.options()),
      spatial_(source.spatial()) {}

Tensor ConvTransposeNd::forward(const Tensor& x) const {
  return detail::conv_transpose(x, get_weight(), bias, options_);
}

template <int N>
std::shared_ptr<ConvTranspose<N>> ConvTranspose<N>::from_float(const nn::ConvTranspose<N>& source,
                                                               const WeightQParams& qparams) {
  return make<ConvTranspose>(source, qparams);
}

template class ConvTranspose<1>;
template class ConvTranspose<2>;
template class ConvTranspose<3>;

Embedding::Embedding(const nn::Embedding& source, const WeightQParams& qparams)
    : nn::Embedding(source.options()), qparams_(qparams.affine()) {
  weight.copy_(source.weight);
  static_cast<void>(quantized(qparams_, weight));
}

std::shared_ptr<Embedding> Embedding::from_float(const nn::Embedding& source,
                                                 const WeightQParams& qparams) {
  return make<Embedding>(source, qparams);
}

QTensor Embedding::get_quantized_weight() const { return qparams_.quantize(weight); }
Tensor Embedding::get_weight() const { return qparams_.rounded(weight); }

Tensor Embedding::forward(const Tensor& indices) const {
  nn::Embedding table(*this);
  table.weight = get_weight();
  return table.forward(indices);
}

void Embedding::save_state(StateDict& state, const std::string& prefix) const {
  qparams_.save(state, prefix + "weight");
}

void Embedding::load_state(StateReader& reader) { qparams_.load(reader, "weight", weight); }

EmbeddingBag::EmbeddingBag(const nn::EmbeddingBag& source, const WeightQParams& qparams)
    : nn::EmbeddingBag(source.options()), qparams_(qparams.affine()) {
  QUANTA_CHECK(source.weight.defined(),
               "reference::EmbeddingBag: source: expected a float EmbeddingBag, got {}",
               source.type_name());
  weight.copy_(source.weight);
  static_cast<void>(quantized(qparams_, weight));
}

std::shared_ptr<EmbeddingBag> EmbeddingBag::from_float(const nn::EmbeddingBag& source,
                                                       const WeightQParams& qparams) {
  return make<EmbeddingBag>(source, qparams);
}

QTensor EmbeddingBag::get_quantized_weight() const { return qparams_.quantize(weight); }
Tensor EmbeddingBag::get_weight() const { return qparams_.rounded(weight); }

Tensor EmbeddingBag::run(const Tensor& indices, const Tensor& offsets,
                         const Tensor& per_sample_weights) const {
  nn::EmbeddingBag bag(*this);
  bag.weight = get_weight();
  bag.set_activation_post_process(nullptr);  // this module's sees the result
  return bag.forward(indices, offsets, per_sample_weights);
}

void EmbeddingBag::save_state(StateDict& state, const std::string& prefix) const {
  qparams_.save(state, prefix + "weight");
}

void EmbeddingBag::load_state(StateReader& reader) { qparams_.load(reader, "weight", weight); }

}  // namespace quanta::nn::reference
