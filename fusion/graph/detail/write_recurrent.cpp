// Recurrent layers with weights of codes or halves: ONNX's float layers whose weights are
// dequantized.

#include <array>
#include <string>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

/// The gates in ONNX's order, along dimension 0: i, o, f, c of i, f, g, o and z, r, h of r, z, n.
Tensor reordered(const Tensor& x, std::size_t gates) {
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

/// The floats of one direction's weight, [1, gates * hidden, in]; gives the name.
std::string direction_weight(GraphWriter& writer, const std::string& base, const Tensor& weight,
                             std::size_t gates) {
  std::string floats;
  if (weight.is_quantized()) {
    CodedWeight coded = coded_of(QTensor(weight));
    coded.codes = reordered(coded.codes, gates);
    if (coded.axis == 0) {
      coded.scales = reordered(coded.scales, gates);
      if (coded.zero_points.defined()) coded.zero_points = reordered(coded.zero_points, gates);
    }
    floats = writer.coded_weight(base, coded);
  } else {
    floats = writer.state.unique_value(base + "_floats");
    writer.emit(base + "_Cast", "Cast", {writer.weight(base, reordered(weight, gates))}, {floats},
                {{"to", static_cast<std::int64_t>(OnnxType::Float)}});
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

template <typename Layer>
void write_layer(GraphWriter& writer, const Node& node, const Layer& layer, std::size_t gates) {
  std::vector<std::string> w;
  std::vector<std::string> r;
  for (std::int64_t d = 0; d < layer.num_directions(); ++d) {
    const nn::RecurrentWeights weights = layer.weights(0, d);
    const std::string base = fmt::format("{}.{}", node.module, d);
    w.push_back(direction_weight(writer, base + ".weight_ih", weights.weight_ih, gates));
    r.push_back(direction_weight(writer, base + ".weight_hh", weights.weight_hh, gates));
  }
  writer.write_plain(node, {{1, joined(writer, node.module + ".weight_ih", w)},
                            {2, joined(writer, node.module + ".weight_hh", r)}});
}

}  // namespace

bool GraphWriter::write_recurrent(const Node& node, const nn::Module& module) {
  if (node.op != "LSTM" && node.op != "GRU") return false;
  if (const auto* lstm = dynamic_cast<const nn::quantized::dynamic::LSTM*>(&module)) {
    write_layer(*this, node, *lstm, 4);
    return true;
  }
  if (const auto* gru = dynamic_cast<const nn::quantized::dynamic::GRU*>(&module)) {
    write_layer(*this, node, *gru, 3);
    return true;
  }
  return false;
}

}  // namespace quanta::graph::detail
