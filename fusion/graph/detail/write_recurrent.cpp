// Recurrent layers with weights of codes or halves: ONNX's float layers whose weights are
// dequantized, or com.microsoft's DynamicQuantizeLSTM.

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/gate_order.h"
#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {

Tensor in_onnx_order(const Tensor& x, std::size_t gates) {
  if (gates == 1) return x;
  const std::array<std::int64_t, 4> lstm{0, 3, 1, 2};
  const std::array<std::int64_t, 4> gru{1, 0, 2, 0};
  const std::int64_t hidden = x.size(0) / static_cast<std::int64_t>(gates);
  const Tensor result = x.clone();
  for (std::size_t i = 0; i < gates; ++i) {
    const std::int64_t from = gates == 4 ? lstm[i] : gru[i];
    result.narrow(0, static_cast<std::int64_t>(i) * hidden, hidden)
        .copy_(x.narrow(0, from * hidden, hidden));
  }
  return result;
}

namespace {

/// The floats of one direction's weight, [1, gates * hidden, in]; gives the name.
std::string direction_weight(GraphWriter& writer, const std::string& base, const Tensor& weight,
                             std::size_t gates) {
  std::string floats;
  if (weight.is_quantized()) {
    CodedWeight coded = coded_of(QTensor(weight));
    coded.codes = in_onnx_order(coded.codes, gates);
    if (coded.axis == 0) {
      coded.scales = in_onnx_order(coded.scales, gates);
      if (coded.zero_points.defined()) coded.zero_points = in_onnx_order(coded.zero_points, gates);
    }
    floats = writer.coded_weight(base, coded);
  } else {
    floats = writer.state.unique_value(base + "_floats");
    writer.emit(base + "_Cast", "Cast", {writer.weight(base, in_onnx_order(weight, gates))},
                {floats}, {{"to", static_cast<std::int64_t>(OnnxType::Float)}});
  }
  const std::string result = writer.state.unique_value(base + "_direction");
  const std::vector<std::int64_t> whole{1, weight.size(0), weight.size(1)};
  const std::string sizes = writer.weight(base + "_sizes", Tensor::from_int64(whole));
  writer.state.need(5, "Reshape");
  writer.emit(base + "_Reshape", "Reshape", {floats, sizes}, {result});
  return result;
}

std::string joined(GraphWriter& writer, const std::string& base,
                   const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts[0];
  const std::string result = writer.state.unique_value(base);
  writer.emit(base + "_Concat", "Concat", parts, {result}, {{"axis", std::int64_t{0}}});
  return result;
}

/// [directions, 2 * gates * hidden]; "" where there is none.
std::string biases(GraphWriter& writer, const Node& node, const nn::RecurrentLayer& layer,
                   std::size_t gates) {
  std::vector<Tensor> all;
  for (std::int64_t d = 0; d < layer.num_directions(); ++d) {
    const nn::RecurrentWeights weights = layer.weights(0, d);
    if (!weights.bias_ih.defined() || !weights.bias_hh.defined()) return "";
    all.push_back(in_onnx_order(weights.bias_ih, gates));
    all.push_back(in_onnx_order(weights.bias_hh, gates));
  }
  const Tensor bias = cat(all).reshape({layer.num_directions(), -1});
  if (node.inputs.size() > 3 && node.inputs[3] != kNone) {
    const Tensor& stored = writer.value(node.inputs[3]).constant;
    if (stored.defined() && stored.equal(bias)) return writer.input(node.inputs[3]);
  }
  return writer.weight(node.module + ".bias", bias);
}

void write_layer(GraphWriter& writer, const Node& node, const nn::RecurrentLayer& layer,
                 std::size_t gates) {
  std::vector<std::string> w;
  std::vector<std::string> r;
  for (std::int64_t d = 0; d < layer.num_directions(); ++d) {
    const nn::RecurrentWeights weights = layer.weights(0, d);
    const std::string base = fmt::format("{}.{}", node.module, d);
    w.push_back(direction_weight(writer, base + ".weight_ih", weights.weight_ih, gates));
    r.push_back(direction_weight(writer, base + ".weight_hh", weights.weight_hh, gates));
  }
  writer.write_plain(node, {{1, joined(writer, node.module + ".weight_ih", w)},
                            {2, joined(writer, node.module + ".weight_hh", r)},
                            {3, biases(writer, node, layer, gates)}});
  writer.note_layer(layer, false);
}

/// Both weights of all directions as com.microsoft has them: UInt8 [directions, in, gates * hidden]
/// with scales and zero points, by name.
struct PackedWeights {
  std::string codes, scales, zero_points;
};

PackedWeights packed_weights(GraphWriter& writer, const std::string& base,
                             const std::vector<Tensor>& weights) {
  std::vector<Tensor> codes;
  std::vector<Tensor> scales;
  std::vector<Tensor> zeros;
  for (const Tensor& weight : weights) {
    const CodedWeight coded = as_unsigned(coded_of(QTensor(weight)));
    const auto rows = [&](const Tensor& x) {
      return x.numel() == 1 ? x.reshape({1}) : in_onnx_order(x, 4);
    };
    codes.push_back(in_onnx_order(coded.codes, 4).t().contiguous());
    scales.push_back(rows(coded.scales));
    zeros.push_back(rows(coded.zero_points));
  }
  const auto count = static_cast<std::int64_t>(weights.size());
  // One number for each direction, or a row of them.
  const auto by_direction = [&](const std::vector<Tensor>& parts) {
    const Tensor all = cat(parts);
    return all.numel() == count ? all : all.reshape({count, -1});
  };
  return {writer.weight(base + "_quantized", stack(codes, 0)),
          writer.weight(base + "_scale", by_direction(scales)),
          writer.weight(base + "_zero_point", by_direction(zeros))};
}

/// False where com.microsoft's operator cannot say it.
bool write_dynamic_lstm(GraphWriter& writer, const Node& node, const nn::RecurrentLayer& layer) {
  std::vector<Tensor> ih;
  std::vector<Tensor> hh;
  for (std::int64_t d = 0; d < layer.num_directions(); ++d) {
    const nn::RecurrentWeights weights = layer.weights(0, d);
    ih.push_back(weights.weight_ih);
    hh.push_back(weights.weight_hh);
    if (!ih.back().is_quantized() || !hh.back().is_quantized()) return false;
  }
  const PackedWeights w = packed_weights(writer, node.module + ".weight_ih", ih);
  const PackedWeights r = packed_weights(writer, node.module + ".weight_hh", hh);
  const auto input = [&](std::size_t i) {
    return i < node.inputs.size() ? writer.input(node.inputs[i]) : std::string();
  };
  std::vector<std::string> outputs;
  for (const ValueId id : node.outputs) outputs.push_back(writer.output(id));
  OnnxAttributes attributes = node.attributes;
  attributes.erase("layout");  // 0, as there
  writer.emit(node.name, "DynamicQuantizeLSTM",
              {input(0), w.codes, r.codes, biases(writer, node, layer, 4), input(4), input(5),
               input(6), input(7), w.scales, w.zero_points, r.scales, r.zero_points},
              std::move(outputs), std::move(attributes), "com.microsoft");
  writer.note_layer(layer, false);
  return true;
}

}  // namespace

bool GraphWriter::write_recurrent(const Node& node, const nn::Module& module) {
  if (node.op != "LSTM" && node.op != "GRU") return false;
  if (const auto* lstm = dynamic_cast<const nn::quantized::dynamic::LSTM*>(&module)) {
    const bool microsoft = state.options.target == OnnxTarget::OnnxRuntime;
    if (!microsoft || !write_dynamic_lstm(*this, node, *lstm)) write_layer(*this, node, *lstm, 4);
    state.torch_arithmetic = true;
    return true;
  }
  if (const auto* gru = dynamic_cast<const nn::quantized::dynamic::GRU*>(&module)) {
    write_layer(*this, node, *gru, 3);
    state.torch_arithmetic = true;
    return true;
  }
  return false;
}

}  // namespace quanta::graph::detail
