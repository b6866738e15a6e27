#include "quanta/nn/dynamic/rnn.h"

#include <string_view>
#include <utility>

#include "quanta/nn/detail/from_float.h"
#include "quanta/ops/rnn.h"

namespace quanta::nn::quantized::dynamic {
namespace {

std::string param_name(std::size_t number) {
  return fmt::format("_all_weight_values.{}.param", number);
}

// The first one's stands for all: torch's modules set it for the whole layer.
std::string reduce_range_name() { return param_name(0) + "/3/0"; }

template <typename Float, typename Dynamic>
std::shared_ptr<Module> make_from_float(std::string_view op, const Module& module,
                                        std::string_view wanted) {
  const auto& source = nn::detail::expect_module<Float>(op, module, wanted);
  const RecurrentOptions& options = source.options();
  std::vector<GateWeights> weights;
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer) {
    for (std::int64_t direction = 0; direction < source.num_directions(); ++direction) {
      const RecurrentWeights given = source.weights(layer, direction);
      weights.push_back({GateWeight::from_float(op, module, given.weight_ih, given.bias_ih),
                         GateWeight::from_float(op, module, given.weight_hh, given.bias_hh)});
    }
  }
  return make_module<Dynamic>(options, std::move(weights));
}

}  // namespace

std::string gate_weights_name(std::size_t number) { return param_name(number) + "/4"; }

template <typename Float>
DynamicLayer<Float>::DynamicLayer(const RecurrentOptions& options, std::vector<GateWeights> weights)
    : Float(options, Float::FloatWeights::None), weights_(std::move(weights)) {
  QUANTA_SUPPORTED(options.proj_size == 0,
                   "DynamicLayer: proj_size: expected 0 (dynamically quantized layers have no "
                   "projection; a null QConfig leaves the module in float), got {}",
                   options.proj_size);
  const std::int64_t directions = this->num_directions();
  QUANTA_CHECK(static_cast<std::int64_t>(weights_.size()) == options.num_layers * directions,
               "DynamicLayer: weights: expected {} for {} layers and {} directions, got {}",
               options.num_layers * directions, options.num_layers, directions, weights_.size());
  const std::int64_t rows = this->gates() * options.hidden_size;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const bool first = static_cast<std::int64_t>(i) < directions;
    const std::int64_t inputs = first ? options.input_size : options.hidden_size * directions;
    weights_[i].ih.check_sizes("DynamicLayer: weight_ih", {rows, inputs});
    weights_[i].hh.check_sizes("DynamicLayer: weight_hh", {rows, options.hidden_size});
  }
}

template <typename Float>
std::size_t DynamicLayer<Float>::layer_index(std::int64_t layer, std::int64_t direction) const {
  const std::int64_t layers = this->options().num_layers;
  QUANTA_CHECK(layer >= 0 && layer < layers, "weights: layer: expected 0..{}, got {}", layers - 1,
               layer);
  QUANTA_CHECK(direction >= 0 && direction < this->num_directions(),
               "weights: direction: expected 0..{}, got {}", this->num_directions() - 1, direction);
  return static_cast<std::size_t>(layer * this->num_directions() + direction);
}

template <typename Float>
RecurrentWeights DynamicLayer<Float>::weights(std::int64_t layer, std::int64_t direction) const {
  return weights_[layer_index(layer, direction)].unpacked();
}

template <typename Float>
std::string DynamicLayer<Float>::type_name() const {
  return "DynamicQuantized" + Module::type_name();
}

template <typename Float>
typename DynamicLayer<Float>::StepsOutput DynamicLayer<Float>::run_layer(
    std::int64_t layer, std::int64_t direction, const Tensor& x,
    std::span<const std::int64_t> batch_sizes, const Tensor& h, const Tensor& c) const {
  const GateWeights& gates = weights_[layer_index(layer, direction)];
  const std::shared_ptr<const HiddenProduct> hidden = gates.hh.hidden_product(reduce_range_);
  const RecurrentSteps steps{.kind = this->kind(),
                             .hidden_size = this->options().hidden_size,
                             .batch_sizes = batch_sizes,
                             .order = direction == 0 ? StepOrder::Forward : StepOrder::Reverse,
                             .hidden = hidden.get()};
  const RecurrentResult result = recurrent_steps(steps, gates.ih(x, reduce_range_), h, c);
  return {result.output, result.h_n, result.c_n};
}

template <typename Float>
void DynamicLayer<Float>::save_state(StateDict& state, const std::string& prefix) const {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const std::string name = prefix + gate_weights_name(i);
    weights_[i].save(state, name + "/0", name + "/1");
  }
  save_reduce_range(state, prefix + reduce_range_name(), reduce_range_);
}

template <typename Float>
void DynamicLayer<Float>::load_state(StateReader& reader) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const std::string name = param_name(i);
    // torch writes the biases twice.
    reader.find(name + "/1/0");
    reader.find(name + "/1/1");
    if (i > 0) reader.find(name + "/3/0");
    weights_[i].load(reader, gate_weights_name(i) + "/0", gate_weights_name(i) + "/1");
  }
  load_reduce_range(reader, reduce_range_name(), reduce_range_);
}

template class DynamicLayer<nn::LSTM>;
template class DynamicLayer<nn::GRU>;

std::shared_ptr<Module> LSTM::from_float(const Module& module) {
  return make_from_float<nn::LSTM, LSTM>("LSTM.from_float", module, "LSTM");
}

std::shared_ptr<Module> GRU::from_float(const Module& module) {
  return make_from_float<nn::GRU, GRU>("GRU.from_float", module, "GRU");
}

}  // namespace quanta::nn::quantized::dynamic
