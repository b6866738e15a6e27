#include "quanta/nn/dynamic/rnn_cell.h"

#include <array>
#include <string_view>

#include "quanta/nn/detail/from_float.h"
#include "quanta/ops/rnn.h"

namespace quanta::nn::quantized::dynamic {
namespace {

constexpr const char* kIhName = "_packed_weight_ih";
constexpr const char* kHhName = "_packed_weight_hh";
constexpr const char* kReduceRangeName = "reduce_range";

GateWeights gates_from_float(std::string_view op, const RecurrentCell& cell) {
  return {GateWeight::from_float(op, cell, cell.weight_ih, cell.bias_ih),
          GateWeight::from_float(op, cell, cell.weight_hh, cell.bias_hh)};
}

}  // namespace

template <typename Float>
void DynamicCell<Float>::check_sizes() const {
  const std::int64_t rows = this->gates() * this->options().hidden_size;
  weights_.ih.check_sizes("DynamicCell: weight_ih", {rows, this->options().input_size});
  weights_.hh.check_sizes("DynamicCell: weight_hh", {rows, this->options().hidden_size});
}

template <typename Float>
RecurrentWeights DynamicCell<Float>::weights() const {
  return weights_.unpacked();
}

template <typename Float>
std::string DynamicCell<Float>::type_name() const {
  return "DynamicQuantized" + Module::type_name();
}

template <typename Float>
LstmState DynamicCell<Float>::step(const Tensor& x, const Tensor& h, const Tensor& c) const {
  const std::shared_ptr<const HiddenProduct> hidden = weights_.hh.hidden_product(reduce_range_);
  const std::array<std::int64_t, 1> batch{x.sizes()[0]};
  const RecurrentSteps steps{.kind = this->kind(),
                             .hidden_size = this->options().hidden_size,
                             .batch_sizes = batch,
                             .hidden = hidden.get()};
  const RecurrentResult result = recurrent_steps(steps, weights_.ih(x, reduce_range_), h, c);
  return {result.h_n, result.c_n};
}

template <typename Float>
void DynamicCell<Float>::save_state(StateDict& state, const std::string& prefix) const {
  weights_.save(state, prefix + kIhName, prefix + kHhName);
  save_reduce_range(state, prefix + kReduceRangeName, reduce_range_);
}

template <typename Float>
void DynamicCell<Float>::load_state(StateReader& reader) {
  weights_.load(reader, kIhName, kHhName);
  load_reduce_range(reader, kReduceRangeName, reduce_range_);
}

template class DynamicCell<nn::RNNCell>;
template class DynamicCell<nn::LSTMCell>;
template class DynamicCell<nn::GRUCell>;

std::shared_ptr<Module> RNNCell::from_float(const Module& module) {
  constexpr std::string_view kOp = "RNNCell.from_float";
  const auto& source = nn::detail::expect_module<nn::RNNCell>(kOp, module, "RNNCell");
  return make_module<RNNCell>(source.options(), gates_from_float(kOp, source),
                              source.nonlinearity());
}

std::shared_ptr<Module> LSTMCell::from_float(const Module& module) {
  constexpr std::string_view kOp = "LSTMCell.from_float";
  const auto& source = nn::detail::expect_module<nn::LSTMCell>(kOp, module, "LSTMCell");
  return make_module<LSTMCell>(source.options(), gates_from_float(kOp, source));
}

std::shared_ptr<Module> GRUCell::from_float(const Module& module) {
  constexpr std::string_view kOp = "GRUCell.from_float";
  const auto& source = nn::detail::expect_module<nn::GRUCell>(kOp, module, "GRUCell");
  return make_module<GRUCell>(source.options(), gates_from_float(kOp, source));
}

}  // namespace quanta::nn::quantized::dynamic
