// RNN, GRU and LSTM: modules where torch has the same layer, else direction by direction with all
// that ONNX allows.

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/skip_init.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/rnn_general.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

enum Input : std::size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeephole };

/// Functions by ONNX's names, with their defaults; whether a file may say alpha and beta.
struct KnownFunction {
  std::string_view name;
  GateFunction function;
  bool has_alpha, has_beta;
  double alpha, beta;
};
constexpr std::array kFunctions{
    KnownFunction{"sigmoid", GateFunction::Sigmoid, false, false, 0.0, 0.0},
    KnownFunction{"tanh", GateFunction::Tanh, false, false, 0.0, 0.0},
    KnownFunction{"relu", GateFunction::Relu, false, false, 0.0, 0.0},
    KnownFunction{"affine", GateFunction::Affine, true, true, 1.0, 0.0},
    KnownFunction{"leakyrelu", GateFunction::LeakyRelu, true, false, 0.01, 0.0},
    KnownFunction{"thresholdedrelu", GateFunction::ThresholdedRelu, true, false, 1.0, 0.0},
    KnownFunction{"scaledtanh", GateFunction::ScaledTanh, true, true, 1.0, 1.0},
    KnownFunction{"hardsigmoid", GateFunction::HardSigmoid, true, true, 0.2, 0.5},
    KnownFunction{"elu", GateFunction::Elu, true, false, 1.0, 0.0},
    KnownFunction{"softsign", GateFunction::Softsign, false, false, 0.0, 0.0},
    KnownFunction{"softplus", GateFunction::Softplus, false, false, 0.0, 0.0}};

const KnownFunction& known_function(const NodeCall& call, std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const KnownFunction& known : kFunctions) {
    if (known.name == name) return known;
  }
  call.unsupported(fmt::format("attribute activations: '{}' is no function of ONNX's list", name));
}

std::vector<std::string> text_list(const NodeCall& call, std::string_view name) {
  const auto found = call.node().attributes.find(name);
  if (found == call.node().attributes.end()) return {};
  const auto* texts = std::get_if<std::vector<std::string>>(&found->second);
  if (texts == nullptr) call.fail(fmt::format("attribute {}: expected a list of strings", name));
  return *texts;
}

GeneralCell cell_of(const NodeCall& call) {
  if (call.op() == "LSTM") return GeneralCell::Lstm;
  return call.op() == "GRU" ? GeneralCell::Gru : GeneralCell::Rnn;
}

std::int64_t gates_of(GeneralCell cell) {
  return cell == GeneralCell::Lstm ? 4 : cell == GeneralCell::Gru ? 3 : 1;
}

std::vector<std::string> default_functions(GeneralCell cell) {
  if (cell == GeneralCell::Lstm) return {"Sigmoid", "Tanh", "Tanh"};
  if (cell == GeneralCell::Gru) return {"Sigmoid", "Tanh"};
  return {"Tanh"};
}

/// The next number of a list: by position where there is one for each function, else one for each
/// function that has it.
class Numbers {
 public:
  Numbers(std::vector<double> values, std::size_t functions)
      : values_(std::move(values)), by_position_(values_.size() == functions) {}
  double next(bool has_it, double otherwise) {
    if (!has_it && !by_position_) return otherwise;
    const std::size_t i = at_++;
    return has_it && i < values_.size() ? values_[i] : otherwise;
  }

 private:
  std::vector<double> values_;
  bool by_position_;
  std::size_t at_ = 0;
};

/// The settings of each direction.
std::vector<GeneralRecurrentOptions> directions_of(const NodeCall& call) {
  const GeneralCell cell = cell_of(call);
  const std::string direction = call.text("direction", "forward");
  std::vector<StepOrder> orders;
  if (direction != "reverse") orders.push_back(StepOrder::Forward);
  if (direction != "forward") orders.push_back(StepOrder::Reverse);
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    call.fail(fmt::format(
        "attribute direction: expected forward, reverse or bidirectional, got '{}'", direction));
  }
  const std::vector<std::string> usual = default_functions(cell);
  std::vector<std::string> names = text_list(call, "activations");
  if (names.empty()) {
    for (std::size_t i = 0; i < orders.size(); ++i) {
      names.insert(names.end(), usual.begin(), usual.end());
    }
  }
  if (names.size() != usual.size() * orders.size()) {
    call.fail(fmt::format("attribute activations: expected {} names, got {}",
                          usual.size() * orders.size(), names.size()));
  }
  Numbers alphas(call.number_list("activation_alpha", {}), names.size());
  Numbers betas(call.number_list("activation_beta", {}), names.size());
  std::vector<GeneralRecurrentOptions> all;
  for (std::size_t d = 0; d < orders.size(); ++d) {
    GeneralRecurrentOptions options{.cell = cell, .order = orders[d]};
    options.functions.clear();
    options.alpha.clear();
    options.beta.clear();
    for (std::size_t i = 0; i < usual.size(); ++i) {
      const KnownFunction known = known_function(call, names[d * usual.size() + i]);
      options.functions.push_back(known.function);
      options.alpha.push_back(alphas.next(known.has_alpha, known.alpha));
      options.beta.push_back(betas.next(known.has_beta, known.beta));
    }
    options.clip = call.number("clip", 0.0);
    options.linear_before_reset =
        cell == GeneralCell::Gru && call.flag("linear_before_reset", false);
    options.input_forget = cell == GeneralCell::Lstm && call.flag("input_forget", false);
    all.push_back(std::move(options));
  }
  return all;
}

void check_rank(const NodeCall& call, std::size_t i, std::string_view name, std::int64_t rank) {
  const Tensor& x = call.input(i, name);
  if (x.dim() != rank) {
    call.fail(fmt::format("input {} ({}): expected {} dimensions, got sizes {}", i, name, rank,
                          x.sizes()));
  }
}

/// Part `d` of an input with a part for each direction, or nothing.
Tensor of_direction(const NodeCall& call, std::size_t i, std::string_view name, std::size_t d,
                    std::size_t directions) {
  if (!call.has(i)) return {};
  const Tensor& x = call.input(i, name);
  if (x.dim() < 1 || x.size(0) != static_cast<std::int64_t>(directions)) {
    call.fail(fmt::format("input {} ({}): expected {} as the first size, got {}", i, name,
                          directions, x.sizes()));
  }
  return x.select(0, static_cast<std::int64_t>(d));
}

/// layout 1 has the batch first everywhere.
struct Layout {
  bool batch_first;
  Tensor sequence(const Tensor& x) const { return batch_first ? x.transpose(0, 1) : x; }
  Tensor state(const Tensor& x) const { return batch_first && x.defined() ? x.transpose(0, 1) : x; }
  /// y [steps, directions, batch, hidden]
  Tensor output(const Tensor& y) const { return batch_first ? y.permute({2, 0, 1, 3}) : y; }
};

struct DirectionBias {
  Tensor input, hidden;
};

DirectionBias bias_of(const NodeCall& call, std::size_t d, std::size_t directions,
                      std::int64_t gates) {
  const Tensor bias = of_direction(call, kB, "B", d, directions);
  if (!bias.defined()) return {};
  if (bias.sizes() != Dims{2 * gates}) {
    call.fail(fmt::format("input 3 (B): expected [{}, {}], got sizes {}", directions, 2 * gates,
                          call.input(kB, "B").sizes()));
  }
  return {bias.slice(0, 0, gates), bias.slice(0, gates, 2 * gates)};
}

Outputs evaluate_recurrent(const NodeCall& call) {
  const std::vector<GeneralRecurrentOptions> directions = directions_of(call);
  const Layout layout{call.flag("layout", false)};
  check_rank(call, kX, "X", 3);
  check_rank(call, kW, "W", 3);
  check_rank(call, kR, "R", 3);
  const Tensor x = layout.sequence(call.input(kX, "X"));
  const std::int64_t gates = call.input(kR, "R").size(1);
  const std::int64_t hidden = call.input(kR, "R").size(2);
  const std::int64_t given = call.integer("hidden_size", hidden);
  if (given != hidden || gates != gates_of(directions[0].cell) * hidden) {
    call.fail(fmt::format("input 2 (R): expected [{}, {} * hidden_size, hidden_size], got sizes {}",
                          directions.size(), gates_of(directions[0].cell),
                          call.input(kR, "R").sizes()));
  }
  const std::int64_t steps = x.size(0);
  const std::int64_t batch = x.size(1);
  const bool is_lstm = directions[0].cell == GeneralCell::Lstm;
  const auto initial = [&](std::size_t i, std::string_view name, std::size_t d) {
    if (!call.has(i)) return Tensor::zeros({batch, hidden}, x.dtype());
    check_rank(call, i, name, 3);
    return layout.batch_first ? call.input(i, name).select(1, static_cast<std::int64_t>(d))
                              : of_direction(call, i, name, d, directions.size());
  };
  std::vector<Tensor> outputs, last_h, last_c;
  for (std::size_t d = 0; d < directions.size(); ++d) {
    const DirectionBias bias = bias_of(call, d, directions.size(), gates);
    const Tensor rows = x.reshape({steps * batch, x.size(2)});
    const Tensor sums = linear(rows, of_direction(call, kW, "W", d, directions.size()), bias.input);
    GeneralRecurrentInputs inputs{.gates = sums.reshape({steps, batch, gates}),
                                  .weight = of_direction(call, kR, "R", d, directions.size()),
                                  .bias = bias.hidden,
                                  .h_0 = initial(kInitialH, "initial_h", d)};
    if (is_lstm) {
      inputs.c_0 = initial(kInitialC, "initial_c", d);
      inputs.peephole = of_direction(call, kPeephole, "P", d, directions.size());
    }
    inputs.lengths = call.optional(kLengths);
    const RecurrentResult result = general_recurrent(directions[d], inputs);
    outputs.push_back(result.output);
    last_h.push_back(result.h_n);
    if (is_lstm) last_c.push_back(result.c_n);
  }
  Outputs results{layout.output(stack(outputs, 1)), layout.state(stack(last_h, 0))};
  if (is_lstm) results.push_back(layout.state(stack(last_c, 0)));
  return results;
}

// Modules ------------------------------------------------------------------------------------------

bool is_left_out(const NodeCall& call, std::size_t i) {
  return i >= call.node().inputs.size() || call.node().inputs[i] == kNone;
}

bool is_float_constant(const NodeCall& call, std::size_t i, std::int64_t rank) {
  const Tensor x = call.optional(i);
  return x.defined() && x.dtype() == DType::Float32 && x.dim() == rank && x.numel() > 0;
}

/// The gates in torch's order: ONNX has i, o, f, c for i, f, g, o and z, r, h for r, z, n.
Tensor in_order_of_torch(const Tensor& x, GeneralCell cell, std::int64_t hidden) {
  std::vector<std::int64_t> order{0};
  if (cell == GeneralCell::Lstm) order = {0, 2, 3, 1};
  if (cell == GeneralCell::Gru) order = {1, 0, 2};
  std::vector<Tensor> parts;
  for (const std::int64_t gate : order) parts.push_back(x.narrow(0, gate * hidden, hidden));
  return cat(parts, 0);
}

/// Whether torch's layer is the same; the functions of an RNN may be tanh or relu.
bool is_usual(const std::vector<GeneralRecurrentOptions>& directions) {
  using enum GateFunction;
  for (const GeneralRecurrentOptions& d : directions) {
    if (d.clip != 0.0 || d.input_forget) return false;
    const bool is_known =
        d.cell == GeneralCell::Lstm ? d.functions == std::vector{Sigmoid, Tanh, Tanh}
        : d.cell == GeneralCell::Gru
            ? d.functions == std::vector{Sigmoid, Tanh} && d.linear_before_reset
            : d.functions == std::vector{Tanh} || d.functions == std::vector{Relu};
    if (!is_known || d.functions != directions[0].functions) return false;
  }
  return directions.size() == 2 || directions[0].order == StepOrder::Forward;
}

std::shared_ptr<nn::RecurrentLayer> make_layer(const nn::RecurrentOptions& options,
                                               const GeneralRecurrentOptions& direction) {
  const nn::SkipInit no_random_weights;
  switch (direction.cell) {
    case GeneralCell::Lstm:
      return nn::make_module<nn::LSTM>(options);
    case GeneralCell::Gru:
      return nn::make_module<nn::GRU>(options);
    case GeneralCell::Rnn:
      break;
  }
  return nn::make_module<nn::RNN>(options, direction.functions[0] == GateFunction::Relu
                                               ? nn::RnnNonlinearity::Relu
                                               : nn::RnnNonlinearity::Tanh);
}

std::shared_ptr<nn::Module> make_recurrent(const NodeCall& constants) {
  const bool has_bias = !is_left_out(constants, kB);
  if (!is_float_constant(constants, kW, 3) || !is_float_constant(constants, kR, 3) ||
      (has_bias && !is_float_constant(constants, kB, 2)) || !is_left_out(constants, kLengths) ||
      !is_left_out(constants, kPeephole) || constants.flag("layout", false)) {
    return nullptr;
  }
  const std::vector<GeneralRecurrentOptions> directions = directions_of(constants);
  if (!is_usual(directions)) return nullptr;
  const GeneralCell cell = directions[0].cell;
  const Tensor w = constants.optional(kW);
  const Tensor r = constants.optional(kR);
  const std::int64_t hidden = r.size(2);
  const std::int64_t gates = gates_of(cell) * hidden;
  const auto count = static_cast<std::int64_t>(directions.size());
  // What does not fit is for evaluate to say.
  if (w.size(0) != count || w.size(1) != gates || r.size(0) != count || r.size(1) != gates ||
      (has_bias && constants.optional(kB).sizes() != Dims{count, 2 * gates}) ||
      constants.integer("hidden_size", hidden) != hidden) {
    return nullptr;
  }
  const std::shared_ptr<nn::RecurrentLayer> layer = make_layer({.input_size = w.size(2),
                                                                .hidden_size = hidden,
                                                                .bias = has_bias,
                                                                .bidirectional = count == 2},
                                                               directions[0]);
  for (std::int64_t d = 0; d < count; ++d) {
    const nn::RecurrentWeights weights = layer->weights(0, d);
    const auto set = [&](const Tensor& parameter, const Tensor& value) {
      parameter.detach().copy_(in_order_of_torch(value, cell, hidden));
    };
    set(weights.weight_ih, w.select(0, d));
    set(weights.weight_hh, r.select(0, d));
    if (!has_bias) continue;
    const Tensor bias = constants.optional(kB).select(0, d);
    set(weights.bias_ih, bias.narrow(0, 0, gates));
    set(weights.bias_hh, bias.narrow(0, gates, gates));
  }
  layer->eval();
  return layer;
}

/// y [steps, batch, directions * hidden] as ONNX has it.
Tensor by_direction(const Tensor& y, const nn::RecurrentLayer& layer) {
  const std::int64_t directions = layer.num_directions();
  return y.reshape({y.size(0), y.size(1), directions, y.size(2) / directions})
      .permute({0, 2, 1, 3});
}

Outputs call_recurrent(const nn::Module& module, const NodeCall& call) {
  const auto* layer = dynamic_cast<const nn::RecurrentLayer*>(&module);
  if (layer == nullptr) {
    call.fail(fmt::format("expected a recurrent layer in the place of '{}', got {}",
                          call.node().module, module.type_name()));
  }
  check_rank(call, kX, "X", 3);
  const Tensor& x = call.input(kX, "X");
  const Tensor h = call.optional(kInitialH);
  const Tensor c = call.optional(kInitialC);
  if (!h.defined() && !c.defined() && !call.wants(1) && !call.wants(2)) {
    return {by_direction(module(x), *layer)};
  }
  const Dims sizes{layer->num_directions(), x.size(1), layer->options().hidden_size};
  if (const auto* lstm = dynamic_cast<const nn::LSTM*>(layer)) {
    // One state alone: the other one is zeros.
    nn::LstmState state{h, c};
    if (h.defined() && !c.defined()) state.c = Tensor::zeros(sizes, h.dtype());
    if (c.defined() && !h.defined()) state.h = Tensor::zeros(sizes, c.dtype());
    const nn::LstmOutput result = lstm->forward(x, state);
    return {by_direction(result.output, *layer), result.state.h, result.state.c};
  }
  const auto results = [&](const nn::RnnOutput& result) -> Outputs {
    return {by_direction(result.output, *layer), result.h_n};
  };
  if (const auto* gru = dynamic_cast<const nn::GRU*>(layer)) return results(gru->forward(x, h));
  if (const auto* rnn = dynamic_cast<const nn::RNN*>(layer)) return results(rnn->forward(x, h));
  call.fail(fmt::format("expected an LSTM, GRU or RNN, got {}", module.type_name()));
}

}  // namespace

void add_rnn_ops(OpTable& table) {
  for (const std::string_view name : {"GRU", "LSTM", "RNN"}) {
    table.add({.name = name,
               .evaluate = evaluate_recurrent,
               .rule = CodeRule::Layer,
               .make_module = make_recurrent,
               .call_module = call_recurrent});
  }
}

}  // namespace quanta::graph
