#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

/// NNCF gives the input of a depthwise convolution a scale for each channel. Such a scale moves into
/// the weight's, which has one a channel too, and out of that of the convolution before it.
class ChannelScales {
 public:
  explicit ChannelScales(Graph& graph) : graph_(graph) {}

  bool run() {
    bool changed = false;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const std::size_t before = graph_.nodes.size();
      if (!fold(n)) continue;
      changed = true;
      n += graph_.nodes.size() - before;
    }
    return changed;
  }

 private:
  Tensor constant(const Node& node, std::size_t i) const {
    return i < node.inputs.size() && node.inputs[i] != kNone
               ? graph_.values[index_of(node.inputs[i])].constant
               : Tensor();
  }
  const Node* producer(ValueId id) const {
    const NodeId made = id == kNone ? kNone : graph_.producer(id);
    return made == kNone ? nullptr : &graph_.nodes[index_of(made)];
  }
  bool is_by_channel(const Node& node, std::string_view op) const {
    if (!is_op(node, op) || node.inputs.size() != 3 || node.outputs.size() != 1) return false;
    const Tensor scale = constant(node, 1);
    const Tensor zero = constant(node, 2);
    const bool bytes =
        zero.defined() && (zero.dtype() == DType::UInt8 || zero.dtype() == DType::Int8);
    return integer_attribute(node, "axis", 1) == 1 && bytes && scale.defined() &&
           scale.dtype() == DType::Float32 && scale.numel() > 1 && scale.dim() == 1 &&
           integer_attribute(node, "block_size", 0) == 0;
  }
  static bool is_depthwise(const Node& node, ValueId input, std::int64_t channels) {
    return is_op(node, "Conv") && node.inputs.size() >= 2 && node.inputs[0] == input &&
           node.inputs[1] != input && integer_attribute(node, "group", 1) == channels;
  }

  bool fold(std::size_t n) {
    const Node quantize = graph_.nodes[n];
    if (!is_by_channel(quantize, "QuantizeLinear")) return false;
    const std::vector<float> scales = constant(quantize, 1).to_float_vector();
    const std::vector<std::int64_t> zeros = constant(quantize, 2).to_int64_vector();
    const auto positive = [](float s) { return std::isfinite(s) && s > 0.0F; };
    if (!std::ranges::all_of(scales, positive) ||
        std::ranges::any_of(zeros, [&](std::int64_t z) { return z != zeros[0]; })) {
      return false;
    }
    // All who take the codes are depthwise convolutions behind DequantizeLinear.
    const auto channels = static_cast<std::int64_t>(scales.size());
    std::vector<NodeId> dequantizers = graph_.users(quantize.outputs[0]);
    if (dequantizers.empty() || graph_.is_output(quantize.outputs[0])) return false;
    std::vector<NodeId> layers;
    for (const NodeId id : dequantizers) {
      const Node& node = graph_.nodes[index_of(id)];
      if (!is_by_channel(node, "DequantizeLinear") || graph_.is_output(node.outputs[0]) ||
          constant(node, 1).to_float_vector() != scales ||
          constant(node, 2).to_int64_vector() != zeros) {
        return false;
      }
      for (const NodeId user : graph_.users(node.outputs[0])) {
        const Node& layer = graph_.nodes[index_of(user)];
        if (!is_depthwise(layer, node.outputs[0], channels) || !has_scales(layer, channels)) {
          return false;
        }
        layers.push_back(user);
      }
    }
    if (layers.empty()) return false;
    const std::int64_t spatial =
        weight_codes(graph_, graph_.nodes[index_of(layers[0])].inputs[1])->codes.dim() - 2;
    for (const NodeId id : layers) scale_weight(graph_.nodes[index_of(id)], scales, false);
    const ValueId one = graph_.add_constant(quantize.name + "_one", Tensor::scalar(1.0));
    const ValueId zero = graph_.add_constant(
        quantize.name + "_zero",
        Tensor::full({}, static_cast<double>(zeros[0]), constant(quantize, 2).dtype()));
    for (const NodeId id : dequantizers) {
      graph_.nodes[index_of(id)].inputs[1] = one;
      graph_.nodes[index_of(id)].inputs[2] = zero;
    }
    graph_.nodes[n].inputs[1] = one;
    graph_.nodes[n].inputs[2] = zero;
    if (!scale_producer(quantize, scales, zeros[0])) divide(n, scales, spatial);
    return true;
  }

  /// Whether the weight is made of codes whose scales can be multiplied.
  bool has_scales(const Node& layer, std::int64_t channels) const {
    const std::optional<WeightCodes> weight = weight_codes(graph_, layer.inputs[1]);
    return weight && (weight->scales.size() == 1 || weight->axis == 0) &&
           weight->codes.dim() >= 3 && weight->codes.size(0) == channels &&
           graph_.users(layer.inputs[1]).size() == 1;
  }

  static Tensor moved(const Tensor& values, const std::vector<float>& scales, bool divides) {
    std::vector<float> result = values.to_float_vector();
    if (result.size() == 1) result.resize(scales.size(), result[0]);
    for (std::size_t c = 0; c < scales.size(); ++c) {
      result[c] = divides ? result[c] / scales[c] : result[c] * scales[c];
    }
    return Tensor::from_values(result, {static_cast<std::int64_t>(result.size())});
  }

  void scale_weight(const Node& layer, const std::vector<float>& scales, bool divides) {
    Node& weight = graph_.nodes[index_of(graph_.producer(layer.inputs[1]))];
    weight.inputs[1] =
        graph_.add_constant(weight.name + "_scales", moved(constant(weight, 1), scales, divides));
    weight.attributes["axis"] = std::int64_t{0};
  }

  /// Conv - Relu or Clip - Q: the convolution before gives what is divided already.
  bool scale_producer(const Node& quantize, const std::vector<float>& scales, std::int64_t zero) {
    const auto channels = static_cast<std::int64_t>(scales.size());
    const Node* made = producer(quantize.inputs[0]);
    const auto alone = [&](ValueId id) {
      return graph_.users(id).size() == 1 && !graph_.is_output(id);
    };
    if (made == nullptr || !alone(quantize.inputs[0])) return false;
    const Node* conv = made;
    bool clips = false;
    if (is_op(*made, "Relu") || is_op(*made, "Clip")) {
      clips = made->op == "Clip";
      conv = producer(made->inputs[0]);
      if (conv == nullptr || !alone(made->inputs[0])) return false;
      if (clips && !saturates(*made, scales, zero, constant(quantize, 2).dtype())) return false;
    }
    if (!is_op(*conv, "Conv") || conv->inputs.size() < 2 || !has_scales(*conv, channels)) {
      return false;
    }
    const NodeId layer = graph_.producer(conv->outputs[0]);
    if (conv->inputs.size() > 2 && conv->inputs[2] != kNone) {
      const Tensor bias = constant_floats(graph_, conv->inputs[2]);
      if (!bias.defined() || bias.dtype() != DType::Float32 || bias.numel() != channels) {
        return false;
      }
      const ValueId scaled =
          graph_.add_constant(conv->name + "_scaled_bias", moved(bias, scales, true));
      graph_.nodes[index_of(layer)].inputs[2] = scaled;
    }
    scale_weight(graph_.nodes[index_of(layer)], scales, true);
    if (clips) {  // its upper end is that of the codes
      Node& end = graph_.nodes[index_of(graph_.producer(quantize.inputs[0]))];
      end.op = "Relu";
      end.inputs.resize(1);
      end.attributes.clear();
      end.opset = 14;
      end.row = op_table().find("", "Relu", end.opset);
    }
    return true;
  }

  /// Clip from 0 on, to what lies beyond the codes of every channel.
  bool saturates(const Node& clip, const std::vector<float>& scales, std::int64_t zero,
                 DType dtype) const {
    const auto bound = [&](std::size_t i, std::string_view name, double otherwise) {
      if (i >= clip.inputs.size() || clip.inputs[i] == kNone) {
        return number_attribute(clip, name, otherwise);
      }
      const Tensor value = constant_floats(graph_, clip.inputs[i]);
      return value.defined() && value.numel() == 1 ? value.item() : std::nan("");
    };
    const double high = bound(2, "max", HUGE_VAL);
    const auto most = static_cast<double>((dtype == DType::Int8 ? 127 : 255) - zero);
    return bound(1, "min", -HUGE_VAL) == 0.0 && std::ranges::all_of(scales, [&](float scale) {
             return high / static_cast<double>(scale) >= most - 0.499;
           });
  }

  /// x / scales before the node, as it was within.
  void divide(std::size_t n, const std::vector<float>& scales, std::int64_t spatial) {
    const auto channels = static_cast<std::int64_t>(scales.size());
    const ValueId source = graph_.nodes[n].inputs[0];
    const std::string name = graph_.nodes[n].name + "_divide";
    Dims sizes{channels};
    for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(1);
    const ValueId divisor =
        graph_.add_constant(name + "_scales", Tensor::from_values(scales, sizes));
    Node node{.name = name, .op = "Div", .opset = 14};
    node.inputs = {source, divisor};
    node.outputs = {graph_.add_value({.name = name + "_result", .type = OnnxType::Float})};
    node.row = op_table().find("", "Div", node.opset);
    graph_.nodes[n].inputs[0] = node.outputs[0];
    graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(n), std::move(node));
  }

  Graph& graph_;
};

}  // namespace

bool fold_channel_scales(Graph& graph) { return ChannelScales(graph).run(); }

}  // namespace quanta::graph
