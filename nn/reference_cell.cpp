#include "quanta/nn/reference_cell.h"

#include <array>
#include <string_view>

#include "quanta/nn/detail/from_float.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/rnn.h"

namespace quanta::nn::reference {
namespace {

WeightQParams observed(const QConfig& qconfig, const Tensor& weight) {
  const std::shared_ptr<Observer> observer = qconfig.weight();
  observer->forward(weight);
  return WeightQParams::from_observer(*observer);
}

template <typename Reference, typename Float>
std::shared_ptr<Reference> make(const Float& source, const CellQParams& qparams) {
  detail::require_finite_weight("reference.from_float", source.weight_ih);
  detail::require_finite_weight("reference.from_float", source.weight_hh);
  auto module = make_module<Reference>(source, qparams);
  module->train(source.is_training());
  return module;
}

template <typename Reference, typename Float>
std::shared_ptr<Module> from_observed(std::string_view op, const Module& module) {
  const auto& source = detail::expect_module<Float>(op, module, "the float cell of that name");
  const QConfig* qconfig = module.qconfig();
  QUANTA_CHECK(qconfig != nullptr && qconfig->weight,
               "{}: module: expected a {} with a qconfig for weights, got none", op,
               module.type_name());
  return make<Reference>(
      source, {observed(*qconfig, source.weight_ih), observed(*qconfig, source.weight_hh)});
}

}  // namespace

template <typename Float>
ReferenceCell<Float>::ReferenceCell(const Float& source, const CellQParams& qparams)
    : Float(source), qparams_{qparams.weight_ih.affine(), qparams.weight_hh.affine()} {
  // The copy shares tensors with the source, and has what prepare attached to that one.
  for (Tensor* tensor : {&this->weight_ih, &this->weight_hh, &this->bias_ih, &this->bias_hh}) {
    if (tensor->defined()) *tensor = tensor->detach().clone();
  }
  this->clear_pre_hooks();
  this->clear_forward_hooks();
  this->clear_qconfig();
  this->set_activation_post_process(nullptr);
  static_cast<void>(qparams_.weight_ih.rounded(this->weight_ih));
  static_cast<void>(qparams_.weight_hh.rounded(this->weight_hh));
}

template <typename Float>
std::string ReferenceCell<Float>::type_name() const {
  return "Quantized" + Module::type_name() + "(Reference)";
}

template <typename Float>
LstmState ReferenceCell<Float>::step(const Tensor& x, const Tensor& h, const Tensor& c) const {
  const std::array<std::int64_t, 1> batch{x.sizes()[0]};
  const RecurrentSteps steps{
      .kind = this->kind(), .hidden_size = this->options().hidden_size, .batch_sizes = batch};
  const Tensor input = linear(x, qparams_.weight_ih.rounded(this->weight_ih), this->bias_ih);
  const RecurrentResult result = recurrent_steps(
      steps, {qparams_.weight_hh.rounded(this->weight_hh), this->bias_hh, {}}, input, h, c);
  return {result.h_n, result.c_n};
}

template <typename Float>
void ReferenceCell<Float>::save_state(StateDict& state, const std::string& prefix) const {
  qparams_.weight_ih.save(state, prefix + "weight_ih");
  qparams_.weight_hh.save(state, prefix + "weight_hh");
}

template <typename Float>
void ReferenceCell<Float>::load_state(StateReader& reader) {
  qparams_.weight_ih.load(reader, "weight_ih", this->weight_ih);
  qparams_.weight_hh.load(reader, "weight_hh", this->weight_hh);
}

template class ReferenceCell<nn::RNNCell>;
template class ReferenceCell<nn::LSTMCell>;
template class ReferenceCell<nn::GRUCell>;

std::shared_ptr<RNNCell> RNNCell::from_float(const nn::RNNCell& source,
                                             const CellQParams& qparams) {
  return make<RNNCell>(source, qparams);
}
std::shared_ptr<Module> RNNCell::from_float(const Module& module) {
  return from_observed<RNNCell, nn::RNNCell>("reference.RNNCell.from_float", module);
}

std::shared_ptr<LSTMCell> LSTMCell::from_float(const nn::LSTMCell& source,
                                               const CellQParams& qparams) {
  return make<LSTMCell>(source, qparams);
}
std::shared_ptr<Module> LSTMCell::from_float(const Module& module) {
  return from_observed<LSTMCell, nn::LSTMCell>("reference.LSTMCell.from_float", module);
}

std::shared_ptr<GRUCell> GRUCell::from_float(const nn::GRUCell& source,
                                             const CellQParams& qparams) {
  return make<GRUCell>(source, qparams);
}
std::shared_ptr<Module> GRUCell::from_float(const Module& module) {
  return from_observed<GRUCell, nn::GRUCell>("reference.GRUCell.from_float", module);
}

}  // namespace quanta::nn::reference
