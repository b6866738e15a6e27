#include "quanta/fusion/saved_types.h"

#include <cstddef>
#include <typeinfo>
#include <utility>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/uncalibrated.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/dynamic/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantizable/attention.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/attention.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/quantized/functional.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/lstm.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;

template <typename Float>
const Float& expect(const Module& occupant) {
  QUANTA_CHECK(typeid(occupant) == typeid(Float),
               "expected another layer in the float network, got {}", occupant.type_name());
  return static_cast<const Float&>(occupant);
}

template <typename Float, typename Quantized>
ModulePtr restore(const Module& occupant, const Saved& saved) {
  return from_uncalibrated(expect<Float>(occupant).clone(), &Quantized::from_float, saved.dtype);
}

template <typename Float, typename Activation, typename Fused, typename Quantized>
ModulePtr restore_fused(const Module& occupant, const Saved& saved) {
  auto activation = nn::make_module<Activation>();
  activation->train(occupant.is_training());
  return from_uncalibrated(nn::make_module<Fused>(expect<Float>(occupant).clone(), activation),
                           &Quantized::from_float, saved.dtype);
}

using Restore = ModulePtr (*)(const Module&, const Saved&);

/// Null unless codes are saved under that name that can stand for a weight of these sizes.
const Tensor* saved_codes(const Saved& saved, std::string_view name, const Dims& sizes) {
  const Tensor* codes = saved.find(name);
  const bool fits = codes != nullptr && codes->dtype() == DType::QInt8 && codes->sizes() == sizes;
  return fits ? codes : nullptr;
}

Tensor saved_or_none(const Saved& saved, std::string_view name) {
  const Tensor* found = saved.find(name);
  return found == nullptr ? Tensor() : *found;
}

// Made of the saved codes: the float weight is not touched, and nothing is packed twice. What does
// not fit goes the long way, which tells what is wrong.
template <typename Float, typename Quantized, Restore kOtherwise>
ModulePtr restore_conv(const Module& occupant, const Saved& saved) {
  const auto& source = expect<Float>(occupant);
  const Tensor* codes = saved_codes(saved, "weight", source.weight.sizes());
  if (codes == nullptr || saved.dtype != DType::QUInt8) return kOtherwise(occupant, saved);
  const nn::ConvNdOptions& options = source.options();
  const auto module = nn::make_module<Quantized>(ConvOptions{.stride = options.stride,
                                                             .padding = options.padding,
                                                             .dilation = options.dilation,
                                                             .groups = options.groups},
                                                 QTensor(*codes), saved_or_none(saved, "bias"), 1.0,
                                                 0, options.padding_mode);
  saved.taken("weight", module->weight());
  saved.taken("bias", module->bias());
  return module;
}

template <typename Quantized, Restore kOtherwise>
ModulePtr restore_linear(const Module& occupant, const Saved& saved) {
  const auto* source = dynamic_cast<const nn::Linear*>(&occupant);
  if (source == nullptr || saved.dtype != DType::QUInt8) return kOtherwise(occupant, saved);
  const nn::detail::LinearNames names;
  const Tensor* codes = saved_codes(saved, names.weight, source->weight.sizes());
  if (codes == nullptr) return kOtherwise(occupant, saved);
  const auto module = nn::make_module<Quantized>(QTensor(*codes), saved_or_none(saved, names.bias));
  saved.taken(names.weight, module->weight());
  saved.taken(names.bias, module->bias());
  return module;
}

// Whether the rows have 8 or 4 bits follows from the state.
template <typename Float, typename Quantized>
ModulePtr restore_embedding(const Module& occupant, const Saved&) {
  const ModulePtr source = expect<Float>(occupant).clone();
  source->set_qconfig(float_qparams_weight_only_qconfig());
  return Quantized::from_float(*source);
}

// Its weight is QUInt8, which is not what the default weight observer gives.
ModulePtr restore_prelu(const Module& occupant, const Saved& saved) {
  const ModulePtr copy = expect<nn::PReLU>(occupant).clone();
  const ObserverFactory observer = MinMaxObserver::with_args({.dtype = DType::QUInt8});
  copy->set_qconfig(QConfig{observer, observer});
  return from_uncalibrated(copy, &nn::quantized::PReLU::from_float, saved.dtype);
}

// Bits and groups follow from the state.
ModulePtr restore_weight_only(const Module& occupant, const Saved&) {
  return nn::weight_only::Linear::from_float(expect<nn::Linear>(occupant));
}

ModulePtr restore_identity(const Module&, const Saved&) { return nn::make_module<nn::Identity>(); }

// By way of the observed form, whose parts get their parameters from the state.
ModulePtr restore_custom(const std::shared_ptr<Module>& observed, const FromFloat& from_observed) {
  const ObserverFactory unit = FixedQParamsObserver::with_args({});
  prepare_(*observed, QConfig{unit, default_weight_observer()});
  convert_(*observed, {.uncalibrated = Uncalibrated::Allow});
  return from_observed(*observed);
}

template <nn::quantizable::GateForm kForm>
ModulePtr restore_lstm(const Module& occupant, const Saved&) {
  return restore_custom(nn::quantizable::LSTM::from_float(expect<nn::LSTM>(occupant), kForm),
                        &nn::quantized::LSTM::from_observed);
}

ModulePtr restore_attention(const Module& occupant, const Saved&) {
  return restore_custom(
      nn::quantizable::MultiheadAttention::from_float(expect<nn::MultiheadAttention>(occupant)),
      &nn::quantized::MultiheadAttention::from_observed);
}

template <nn::quantizable::GateForm kForm>
bool has_form(const Module& module) {
  return dynamic_cast<const nn::quantized::LSTM&>(module).form() == kForm;
}

// The dtype of the weights follows from the state.
template <typename Dynamic>
ModulePtr dynamic_from(const ModulePtr& source) {
  source->set_qconfig(default_dynamic_qconfig());
  return Dynamic::from_float(*source);
}

template <typename Dynamic>
ModulePtr restore_dynamic(const Module& occupant, const Saved&) {
  return dynamic_from<Dynamic>(occupant.clone());
}

ModulePtr restore_dynamic_linear_relu(const Module& occupant, const Saved&) {
  auto relu = nn::make_module<nn::ReLU>();
  relu->train(occupant.is_training());
  return dynamic_from<nn::intrinsic::quantized::dynamic::LinearReLU>(
      nn::make_module<nn::intrinsic::LinearReLU>(expect<nn::Linear>(occupant).clone(), relu));
}

template <typename Float, typename Dynamic>
ModulePtr restore_recurrent(const Module& occupant, const Saved& saved) {
  const auto& source = expect<Float>(occupant);
  std::vector<nn::quantized::dynamic::GateWeights> weights;
  const auto count =
      static_cast<std::size_t>(source.options().num_layers * source.num_directions());
  for (std::size_t number = 0; number < count; ++number) {
    const std::string name = nn::quantized::dynamic::gate_weights_name(number);
    const Tensor ih = saved_or_none(saved, name + "/0/0");
    const Tensor hh = saved_or_none(saved, name + "/1/0");
    if (!ih.defined() || !hh.defined() || ih.dtype() != DType::QInt8 ||
        hh.dtype() != DType::QInt8) {
      return restore_dynamic<Dynamic>(occupant, saved);
    }
    weights.push_back(
        {{ih, saved_or_none(saved, name + "/0/1")}, {hh, saved_or_none(saved, name + "/1/1")}});
    for (const auto& [part, gates] :
         {std::pair{"/0", weights.back().ih}, std::pair{"/1", weights.back().hh}}) {
      saved.taken(name + part + "/0", gates.weight());
      saved.taken(name + part + "/1", gates.bias());
    }
  }
  return nn::make_module<Dynamic>(source.options(), std::move(weights));
}

template <typename Dynamic>
SavedType dynamic_row(std::string_view name) {
  return {name, typeid(Dynamic), &restore_dynamic<Dynamic>};
}

template <typename Float, typename Quantized>
SavedType conv_row(std::string_view name) {
  return {name, typeid(Quantized), &restore_conv<Float, Quantized, &restore<Float, Quantized>>};
}

template <typename Float, typename Fused, typename Quantized>
SavedType conv_relu_row(std::string_view name) {
  return {name, typeid(Quantized),
          &restore_conv<Float, Quantized, &restore_fused<Float, nn::ReLU, Fused, Quantized>>};
}

template <typename Float, typename Quantized>
SavedType row(std::string_view name) {
  return {name, typeid(Quantized), &restore<Float, Quantized>};
}

template <typename Float, typename Fused, typename Quantized>
SavedType relu_row(std::string_view name) {
  return {name, typeid(Quantized), &restore_fused<Float, nn::ReLU, Fused, Quantized>};
}

const std::vector<SavedType>& saved_types() {
  namespace q = nn::quantized;
  namespace ni = nn::intrinsic;
  namespace niq = nn::intrinsic::quantized;
  namespace qd = nn::quantized::dynamic;
  using nn::quantizable::GateForm;
  static const std::vector<SavedType> types{
      {"Identity", typeid(nn::Identity), &restore_identity},
      row<nn::QuantStub, q::Quantize>("Quantize"),
      row<nn::DeQuantStub, q::DeQuantize>("DeQuantize"),
      row<nn::FloatFunctional, q::QFunctional>("QFunctional"),
      conv_row<nn::Conv1d, q::Conv1d>("Conv1d"),
      conv_row<nn::Conv2d, q::Conv2d>("Conv2d"),
      conv_row<nn::Conv3d, q::Conv3d>("Conv3d"),
      row<nn::ConvTranspose1d, q::ConvTranspose1d>("ConvTranspose1d"),
      row<nn::ConvTranspose2d, q::ConvTranspose2d>("ConvTranspose2d"),
      row<nn::ConvTranspose3d, q::ConvTranspose3d>("ConvTranspose3d"),
      {"Linear", typeid(q::Linear), &restore_linear<q::Linear, &restore<nn::Linear, q::Linear>>},
      conv_relu_row<nn::Conv1d, ni::ConvReLU1d, niq::ConvReLU1d>("ConvReLU1d"),
      conv_relu_row<nn::Conv2d, ni::ConvReLU2d, niq::ConvReLU2d>("ConvReLU2d"),
      conv_relu_row<nn::Conv3d, ni::ConvReLU3d, niq::ConvReLU3d>("ConvReLU3d"),
      {"LinearReLU", typeid(niq::LinearReLU),
       &restore_linear<niq::LinearReLU,
                       &restore_fused<nn::Linear, nn::ReLU, ni::LinearReLU, niq::LinearReLU>>},
      {"LinearTanh", typeid(niq::LinearTanh),
       &restore_fused<nn::Linear, nn::Tanh, ni::LinearTanh, niq::LinearTanh>},
      row<nn::BatchNorm2d, q::BatchNorm2d>("BatchNorm2d"),
      row<nn::BatchNorm3d, q::BatchNorm3d>("BatchNorm3d"),
      relu_row<nn::BatchNorm2d, ni::BNReLU2d, niq::BNReLU2d>("BNReLU2d"),
      relu_row<nn::BatchNorm3d, ni::BNReLU3d, niq::BNReLU3d>("BNReLU3d"),
      {"Embedding", typeid(q::Embedding), &restore_embedding<nn::Embedding, q::Embedding>},
      {"EmbeddingBag", typeid(q::EmbeddingBag),
       &restore_embedding<nn::EmbeddingBag, q::EmbeddingBag>},
      {"LSTM", typeid(q::LSTM), &restore_lstm<GateForm::Joined>, true, &has_form<GateForm::Joined>},
      {"LSTM of split gates", typeid(q::LSTM), &restore_lstm<GateForm::Split>, true,
       &has_form<GateForm::Split>},
      {"MultiheadAttention", typeid(q::MultiheadAttention), &restore_attention, true},
      row<nn::LayerNorm, q::LayerNorm>("LayerNorm"),
      row<nn::GroupNorm, q::GroupNorm>("GroupNorm"),
      row<nn::InstanceNorm1d, q::InstanceNorm1d>("InstanceNorm1d"),
      row<nn::InstanceNorm2d, q::InstanceNorm2d>("InstanceNorm2d"),
      row<nn::InstanceNorm3d, q::InstanceNorm3d>("InstanceNorm3d"),
      row<nn::ReLU6, q::ReLU6>("ReLU6"),
      row<nn::Hardswish, q::Hardswish>("Hardswish"),
      row<nn::LeakyReLU, q::LeakyReLU>("LeakyReLU"),
      row<nn::ELU, q::ELU>("ELU"),
      {"PReLU", typeid(q::PReLU), &restore_prelu},
      row<nn::Dropout, q::Dropout>("Dropout"),
      {"DynamicLinear", typeid(qd::Linear),
       &restore_linear<qd::Linear, &restore_dynamic<qd::Linear>>},
      {"DynamicLinearReLU", typeid(niq::dynamic::LinearReLU),
       &restore_linear<niq::dynamic::LinearReLU, &restore_dynamic_linear_relu>},
      {"DynamicLSTM", typeid(qd::LSTM), &restore_recurrent<nn::LSTM, qd::LSTM>},
      {"DynamicGRU", typeid(qd::GRU), &restore_recurrent<nn::GRU, qd::GRU>},
      dynamic_row<qd::LSTMCell>("DynamicLSTMCell"),
      dynamic_row<qd::GRUCell>("DynamicGRUCell"),
      dynamic_row<qd::RNNCell>("DynamicRNNCell"),
      dynamic_row<qd::Conv1d>("DynamicConv1d"),
      dynamic_row<qd::Conv2d>("DynamicConv2d"),
      dynamic_row<qd::Conv3d>("DynamicConv3d"),
      dynamic_row<qd::ConvTranspose1d>("DynamicConvTranspose1d"),
      dynamic_row<qd::ConvTranspose2d>("DynamicConvTranspose2d"),
      dynamic_row<qd::ConvTranspose3d>("DynamicConvTranspose3d"),
      {"WeightOnlyLinear", typeid(nn::weight_only::Linear), &restore_weight_only},
  };
  return types;
}

}  // namespace

const SavedType* find_saved_type(const nn::Module& module) {
  for (const SavedType& saved : saved_types()) {
    if (saved.type == typeid(module) && (saved.is_form == nullptr || saved.is_form(module))) {
      return &saved;
    }
  }
  return nullptr;
}

const SavedType* find_saved_type(std::string_view name) {
  for (const SavedType& saved : saved_types()) {
    if (saved.name == name) return &saved;
  }
  return nullptr;
}

}  // namespace quanta::detail
