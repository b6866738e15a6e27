#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "quanta/fusion/graph/detail/layer_restorer.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/ops/cat.h"

// Dynamic LSTM and GRU: ONNX's float layers with weights of codes or halves, or com.microsoft's
// DynamicQuantizeLSTM.

namespace quanta::graph {
namespace {

/// Where ONNX has torch's gates: i, o, f, c for i, f, g, o and z, r, h for r, z, n.
std::span<const std::int64_t> gate_order(std::size_t gates) {
  static constexpr std::array<std::int64_t, 4> kLstm{0, 2, 3, 1};
  static constexpr std::array<std::int64_t, 3> kGru{1, 0, 2};
  if (gates == kLstm.size()) return kLstm;
  return kGru;
}

/// Rows in torch's order of gates.
Tensor in_order_of_torch(const Tensor& x, std::size_t gates) {
  const std::int64_t hidden = x.size(0) / static_cast<std::int64_t>(gates);
  std::vector<Tensor> parts;
  for (const std::int64_t gate : gate_order(gates)) {
    parts.push_back(x.narrow(0, gate * hidden, hidden));
  }
  return cat(parts, 0);
}

/// The same of numbers for each row; one number stays one.
template <typename T>
std::vector<T> in_order_of_torch(const std::vector<T>& x, std::size_t gates) {
  if (x.size() == 1) return x;
  const auto hidden = static_cast<std::ptrdiff_t>(x.size() / gates);
  std::vector<T> result;
  for (const std::int64_t gate : gate_order(gates)) {
    const auto from = x.begin() + gate * hidden;
    result.insert(result.end(), from, from + hidden);
  }
  return result;
}

/// Undefined where the codes have scales that a weight cannot have.
Tensor ordered_weight(WeightCodes weight, std::size_t gates) {
  weight.codes = in_order_of_torch(weight.codes, gates);
  weight.scales = in_order_of_torch(weight.scales, gates);
  weight.zero_points = in_order_of_torch(weight.zero_points, gates);
  const std::optional<QTensor> made = signed_weight(weight, 0);
  return made ? Tensor(*made) : Tensor();
}

bool is_matrix(const Tensor& x, std::int64_t rows) {
  return x.defined() && x.dim() == 2 && x.size(0) == rows && x.size(1) > 0;
}

}  // namespace

// [Concat -] Reshape - DequantizeLinear or Cast. Empty for anything else.
std::vector<Tensor> LayerRestorer::direction_weights(ValueId id, std::size_t gates) const {
  const Node* made = producer(id);
  if (made == nullptr) return {};
  std::vector<ValueId> parts{id};
  if (is_op(*made, "Concat")) parts = made->inputs;
  std::vector<Tensor> weights;
  for (const ValueId part : parts) {
    const Node* reshape = producer(part);
    if (reshape == nullptr || !is_op(*reshape, "Reshape")) return {};
    const ValueId floats = input_of(*reshape, 0);
    Tensor weight = coded_weight(floats, 0);
    if (!weight.defined() || weight.dim() != 2 ||
        weight.size(0) % static_cast<std::int64_t>(gates) != 0) {
      return {};
    }
    weight = weight.is_quantized() ? ordered_weight(*weight_codes(graph_, floats), gates)
                                   : in_order_of_torch(weight, gates);
    if (!weight.defined()) return {};
    weights.push_back(weight);
  }
  return weights;
}

// Codes [directions, in, 4 * hidden] with one scale and zero point a direction, or one a column.
std::vector<Tensor> LayerRestorer::packed_directions(const Node& node, std::size_t codes,
                                                     std::size_t scale) const {
  const Tensor all = constant_input(graph_, node, codes);
  const Tensor scales = constant_input(graph_, node, scale);
  const Tensor zeros = constant_input(graph_, node, scale + 1);
  if (!all.defined() || all.dim() != 3 || all.size(2) % 4 != 0 || !scales.defined() ||
      scales.dtype() != DType::Float32 || !zeros.defined() || zeros.numel() != scales.numel()) {
    return {};
  }
  const std::int64_t directions = all.size(0);
  if (directions < 1) return {};
  const std::int64_t count = scales.numel() / directions;
  if (scales.numel() % directions != 0 || (count != 1 && count != all.size(2))) return {};
  std::vector<Tensor> weights;
  for (std::int64_t d = 0; d < directions; ++d) {
    WeightCodes weight{.codes = all.select(0, d).t().contiguous()};
    for (const float value : scales.reshape({directions, count}).select(0, d).to_float_vector()) {
      weight.scales.push_back(static_cast<double>(value));
    }
    weight.zero_points = zeros.reshape({directions, count}).select(0, d).to_int64_vector();
    weights.push_back(ordered_weight(std::move(weight), 4));
    if (!weights.back().defined()) return {};
  }
  return weights;
}

namespace {

/// Whether torch's layer does the same.
bool is_usual(const Node& node, std::int64_t directions) {
  const std::string direction = text_attribute(node, "direction", "forward");
  return direction == (directions == 2 ? "bidirectional" : "forward") &&
         number_attribute(node, "clip", 0.0) == 0.0 &&
         integer_attribute(node, "input_forget", 0) == 0 &&
         integer_attribute(node, "layout", 0) == 0 &&
         (node.op != "GRU" || integer_attribute(node, "linear_before_reset", 0) == 1);
}

}  // namespace

bool LayerRestorer::restore_recurrent(const Node& node, const detail::LayerNote& note) {
  namespace dynamic = nn::quantized::dynamic;
  const bool lstm = note.form == "DynamicLSTM";
  const bool packed = node.op == "DynamicQuantizeLSTM" && node.domain == "com.microsoft";
  const std::size_t gates = lstm ? 4 : 3;
  if (!(packed && lstm) && !is_op(node, lstm ? "LSTM" : "GRU")) return false;
  const std::vector<Tensor> ih =
      packed ? packed_directions(node, 1, 8) : direction_weights(input_of(node, 1), gates);
  const std::vector<Tensor> hh =
      packed ? packed_directions(node, 2, 10) : direction_weights(input_of(node, 2), gates);
  const auto directions = static_cast<std::int64_t>(ih.size());
  if (ih.empty() || ih.size() > 2 || hh.size() != ih.size() || !is_usual(node, directions)) {
    return false;
  }
  const std::int64_t hidden = hh[0].size(1);
  const std::int64_t rows = static_cast<std::int64_t>(gates) * hidden;
  const Tensor bias = constant_input(graph_, node, 3);
  const bool has_bias = input_of(node, 3) != kNone;
  if (has_bias && (!bias.defined() || bias.dtype() != DType::Float32 ||
                   bias.sizes() != Dims{directions, 2 * rows})) {
    return false;
  }
  std::vector<dynamic::GateWeights> weights;
  for (std::size_t d = 0; d < ih.size(); ++d) {
    if (!is_matrix(ih[d], rows) || ih[d].size(1) != ih[0].size(1) || !is_matrix(hh[d], rows) ||
        hh[d].size(1) != hidden) {
      return false;
    }
    const auto part = [&](std::int64_t from) {
      if (!has_bias) return Tensor();
      const Tensor own = bias.select(0, static_cast<std::int64_t>(d));
      return in_order_of_torch(own.narrow(0, from, rows), gates);
    };
    weights.push_back(
        {dynamic::GateWeight(ih[d], part(0)), dynamic::GateWeight(hh[d], part(rows))});
  }
  const nn::RecurrentOptions options{.input_size = ih[0].size(1),
                                     .hidden_size = hidden,
                                     .bias = has_bias,
                                     .bidirectional = directions == 2};
  const auto finish = [&](const auto& layer) {
    using quantized::ReduceRange;
    layer->set_reduce_range(note.all_bits ? ReduceRange::No : ReduceRange::Yes);
    Node made = node;
    made.op = lstm ? "LSTM" : "GRU";
    made.domain = "";
    if (packed) made.opset = 7;
    made.row = op_table().find("", made.op, made.opset);
    // The module has them.
    made.inputs.resize(std::min<std::size_t>(made.inputs.size(), 7));
    for (std::size_t i = 1; i < std::min<std::size_t>(made.inputs.size(), 4); ++i) {
      made.inputs[i] = kNone;
    }
    made.module = lowering_.add_child(node, layer);
    lowering_.emit(std::move(made));
  };
  if (lstm) {
    finish(nn::make_module<dynamic::LSTM>(options, std::move(weights)));
  } else {
    finish(nn::make_module<dynamic::GRU>(options, std::move(weights)));
  }
  return true;
}

}  // namespace quanta::graph
