#include "quanta/fusion/graph/ops/dynamic_lstm.h"

#include <string>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/integer.h"
#include "quanta/ops/quantize_linear.h"
#include "quanta/ops/shape.h"

namespace quanta::graph {
namespace {

/// A weight of one direction: codes [rows, 4 * hidden], one scale and zero point or one for each
/// column.
struct CodedWeight {
  Tensor codes, scale, zero_point;
};

CodedWeight weight_of(const NodeCall& call, std::size_t codes, std::size_t scale,
                      std::int64_t direction) {
  const Tensor& all = call.input(codes, "W");
  const std::int64_t directions = all.size(0);
  const auto part = [&](const Tensor& values) {
    if (!values.defined()) return values;
    if (values.numel() == 1) return values.reshape({});
    if (values.numel() % directions != 0) call.fail("W_scale: expected some for each direction");
    const Tensor one = values.reshape({directions, -1}).select(0, direction);
    return one.numel() == 1 ? one.reshape({}) : one;
  };
  return {all.select(0, direction), part(call.input(scale, "W_scale").to(DType::Float32)),
          part(call.optional(scale + 1))};
}

/// x, quantized anew, times the weight.
Tensor dynamic_product(const Tensor& x, const CodedWeight& weight) {
  const DynamicCodes codes = dynamic_quantize_linear(x);
  const Tensor sums =
      matmul_integer(codes.codes, weight.codes, codes.zero_point, weight.zero_point);
  return mul(sums.to(DType::Float32), mul(codes.scale, weight.scale));
}

struct Layer {
  std::int64_t hidden = 0;
  CodedWeight input, recurrent;
  Tensor bias{};                                    ///< [4 * hidden], or undefined
  Tensor peephole_i{}, peephole_o{}, peephole_f{};  ///< [hidden], or undefined
  double clip = 0.0;
  bool input_forget = false;
};

struct State {
  Tensor h, c;  ///< [batch, hidden]
};

Tensor gate(const Layer& layer, const Tensor& sums, std::int64_t number) {
  const Tensor part = sums.narrow(-1, number * layer.hidden, layer.hidden);
  return layer.clip > 0.0 ? clamp(part, -layer.clip, layer.clip) : part;
}

// The gates lie in the order i, o, f, c.
State step(const Layer& layer, const Tensor& x, const State& from) {
  const Tensor sums = add(x, dynamic_product(from.h, layer.recurrent));
  const auto peep = [](const Tensor& part, const Tensor& weight, const Tensor& cell) {
    return weight.defined() ? add(part, mul(weight, cell)) : part;
  };
  const Tensor i = sigmoid(peep(gate(layer, sums, 0), layer.peephole_i, from.c));
  const Tensor f = layer.input_forget
                       ? add_scalar(mul_scalar(i, -1.0), 1.0)
                       : sigmoid(peep(gate(layer, sums, 2), layer.peephole_f, from.c));
  const Tensor c = add(mul(f, from.c), mul(i, tanh(gate(layer, sums, 3))));
  const Tensor o = sigmoid(peep(gate(layer, sums, 1), layer.peephole_o, c));
  return {mul(o, tanh(c)), c};
}

void check_supported(const NodeCall& call, const std::string& direction) {
  const auto* names = [&]() -> const std::vector<std::string>* {
    const auto at = call.node().attributes.find("activations");
    return at == call.node().attributes.end() ? nullptr
                                              : std::get_if<std::vector<std::string>>(&at->second);
  }();
  const std::size_t directions = direction == "bidirectional" ? 2 : 1;
  if (names != nullptr) {
    for (std::size_t k = 0; k < names->size(); ++k) {
      std::string lower = (*names)[k];
      for (char& letter : lower) {
        if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
      }
      if (lower != (k % 3 == 0 ? "sigmoid" : "tanh")) {
        call.unsupported("activations other than Sigmoid, Tanh, Tanh");
      }
    }
    if (!names->empty() && names->size() != 3 * directions) {
      call.fail("activations: expected three for each direction");
    }
  }
  if (call.has(4)) call.unsupported("sequence_lens");
}

}  // namespace

Outputs evaluate_dynamic_lstm(const NodeCall& call) {
  const std::string direction = call.text("direction", "forward");
  check_supported(call, direction);
  const Tensor& x = call.input(0, "X");
  const Tensor& w = call.input(1, "W");
  const Tensor& r = call.input(2, "R");
  if (x.dim() != 3 || w.dim() != 3 || r.dim() != 3) {
    call.fail("X: expected three dimensions, as W and R have");
  }
  const std::int64_t steps = x.size(0);
  const std::int64_t batch = x.size(1);
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  const std::int64_t hidden = r.size(1);
  if (w.size(0) != directions || r.size(0) != directions || w.size(2) != 4 * hidden ||
      r.size(2) != 4 * hidden || call.integer("hidden_size", hidden) != hidden) {
    call.fail("R: expected [directions, hidden_size, 4 * hidden_size], and W like it");
  }
  std::vector<Tensor> all_steps;
  std::vector<Tensor> last_h;
  std::vector<Tensor> last_c;
  for (std::int64_t d = 0; d < directions; ++d) {
    Layer layer{.hidden = hidden,
                .input = weight_of(call, 1, 8, d),
                .recurrent = weight_of(call, 2, 10, d),
                .clip = call.number("clip", 0.0),
                .input_forget = call.flag("input_forget", false)};
    if (call.has(3)) {
      const Tensor biases = call.input(3, "B").to(DType::Float32).select(0, d);
      layer.bias = add(biases.narrow(0, 0, 4 * hidden), biases.narrow(0, 4 * hidden, 4 * hidden));
    }
    if (call.has(7)) {
      const Tensor peepholes = call.input(7, "P").to(DType::Float32).select(0, d);
      layer.peephole_i = peepholes.narrow(0, 0, hidden);
      layer.peephole_o = peepholes.narrow(0, hidden, hidden);
      layer.peephole_f = peepholes.narrow(0, 2 * hidden, hidden);
    }
    const auto initial = [&](std::size_t i) {
      return call.has(i) ? call.input(i, "initial_h").to(DType::Float32).select(0, d)
                         : Tensor::zeros({batch, hidden});
    };
    State state{initial(5), initial(6)};
    Tensor products = dynamic_product(x, layer.input);
    if (layer.bias.defined()) products = add(products, layer.bias);
    const bool backwards = direction == "reverse" || d == 1;
    std::vector<Tensor> outputs(static_cast<std::size_t>(steps));
    for (std::int64_t t = 0; t < steps; ++t) {
      const std::int64_t at = backwards ? steps - 1 - t : t;
      state = step(layer, products.select(0, at), state);
      outputs[static_cast<std::size_t>(at)] = state.h;
    }
    if (call.wants(0)) all_steps.push_back(stack(outputs, 0));
    last_h.push_back(state.h);
    last_c.push_back(state.c);
  }
  Outputs results(call.output_count());
  if (call.wants(0)) results[0] = stack(all_steps, 1);
  if (call.wants(1)) results[1] = stack(last_h, 0);
  if (call.wants(2)) results[2] = stack(last_c, 0);
  return results;
}

}  // namespace quanta::graph
