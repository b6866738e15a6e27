#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/layer_call.h"
#include "quanta/fusion/graph/passes/lowered_ops.h"
#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

/// DynamicQuantizeLinear - MatMulInteger or ConvInteger - Cast - Mul(x scale * weight scale) - Add,
/// as ONNX Runtime writes dynamic layers.
class DynamicLayers {
 public:
  explicit DynamicLayers(Graph& graph) : graph_(graph), uses_(graph) {}

  bool run() {
    bool changed = false;
    for (Node& node : graph_.nodes) {
      if (is_op(node, "MatMulInteger") || is_op(node, "ConvInteger")) {
        changed = replace(node) || changed;
      }
    }
    // What stood behind a layer may take what stands before it: the layer moved there.
    if (changed) {
      for (auto& [at, node] : moved_) graph_.nodes[index_of(at)] = std::move(node);
      erase_dead(graph_);
    }
    return changed;
  }

 private:
  struct End {
    NodeId last = kNone;  ///< the node that makes the layer's result
    Tensor scale;         ///< of the weight
    Tensor bias;
  };

  const Node* only_user(ValueId id, NodeId& user) const {
    if (id == kNone || !uses_.used_once(id)) return nullptr;
    user = uses_.users(id)[0];
    return &graph_.nodes[index_of(user)];
  }
  static ValueId other_input(const Node& node, ValueId id) {
    if (node.inputs.size() != 2) return kNone;
    return node.inputs[0] == id ? node.inputs[1] : node.inputs[0];
  }
  Tensor constant(ValueId id) const {
    return id == kNone ? Tensor() : graph_.values[index_of(id)].constant;
  }

  /// The weight's scale, where `id` is the product of it and of the scale that `quantize` chooses.
  Tensor weight_scale(ValueId id, const Node& quantize) const {
    const NodeId made = id == kNone ? kNone : uses_.producer(id);
    if (made == kNone) return {};
    const Node& node = graph_.nodes[index_of(made)];
    if (!is_op(node, "Mul") || node.inputs.size() != 2) return {};
    const ValueId scale = quantize.outputs[1];
    if (node.inputs[0] != scale && node.inputs[1] != scale) return {};
    return constant(other_input(node, scale));
  }

  std::optional<End> find_end(const Node& layer, const Node& quantize,
                              std::int64_t channels) const {
    End end;
    const Node* cast = only_user(layer.outputs[0], end.last);
    if (cast == nullptr || !is_op(*cast, "Cast") || integer_attribute(*cast, "to", 0) != 1) {
      return {};
    }
    const ValueId floats = cast->outputs[0];
    const Node* product = only_user(floats, end.last);
    if (product == nullptr || !is_op(*product, "Mul")) return {};
    end.scale = weight_scale(other_input(*product, floats), quantize);
    if (!end.scale.defined() || end.scale.dtype() != DType::Float32 ||
        (end.scale.numel() != 1 && end.scale.numel() != channels)) {
      return {};
    }
    const ValueId scaled = product->outputs[0];
    NodeId user = kNone;
    const Node* sum = only_user(scaled, user);
    if (sum == nullptr || !is_op(*sum, "Add")) return end;
    const Tensor bias = constant(other_input(*sum, scaled));
    if (!bias.defined() || bias.dtype() != DType::Float32 || bias.numel() != channels) return end;
    // One a feature, or one a channel of an image.
    const std::int64_t at = layer.op == "MatMulInteger" ? -1 : -(image_rank(layer) - 1);
    if (bias.dim() < -at || bias.size(at) != channels) return end;
    end.last = user;
    end.bias = bias.reshape({-1}).contiguous();
    return end;
  }

  std::int64_t image_rank(const Node& layer) const { return constant(layer.inputs[1]).dim(); }

  bool replace(const Node& layer) {
    if (layer.inputs.size() < 3 || layer.inputs[0] == kNone) return false;
    const NodeId made = uses_.producer(layer.inputs[0]);
    const Tensor codes = constant(layer.inputs[1]);
    if (made == kNone || !codes.defined() || codes.dim() < 2) return false;
    const Node& quantize = graph_.nodes[index_of(made)];
    if (!is_op(quantize, "DynamicQuantizeLinear") || quantize.outputs.size() != 3 ||
        layer.inputs[0] != quantize.outputs[0] || layer.inputs[2] != quantize.outputs[2]) {
      return false;
    }
    const bool linear = layer.op == "MatMulInteger";
    if (linear && codes.dim() != 2) return false;
    const std::int64_t channels = codes.size(linear ? 1 : 0);
    const std::optional<End> end = find_end(layer, quantize, channels);
    if (!end) return false;

    WeightCodes weight{.codes = linear ? codes.t().contiguous() : codes};
    for (const float value : end->scale.to_float_vector()) {
      weight.scales.push_back(static_cast<double>(value));
    }
    std::vector<std::int64_t> zeros{0};
    if (layer.inputs.size() > 3 && layer.inputs[3] != kNone) {
      if (!constant(layer.inputs[3]).defined()) return false;
      zeros = constant(layer.inputs[3]).to_int64_vector();
    }
    const std::size_t count = std::max(zeros.size(), weight.scales.size());
    if (zeros.empty() ||
        (zeros.size() != 1 && zeros.size() != static_cast<std::size_t>(channels))) {
      return false;
    }
    weight.scales.resize(count, weight.scales[0]);
    zeros.resize(count, zeros[0]);
    weight.zero_points = std::move(zeros);
    const std::optional<QTensor> packed = signed_weight(weight, 0);
    if (!packed) return false;
    std::shared_ptr<const Operation> operation;
    if (linear) {
      operation = linear_of_codes_operation({*packed, end->bias});
    } else {
      std::string reason;
      const std::optional<ConvCall> call = conv_call(layer, codes.sizes(), reason);
      if (!call || call->padding) return false;
      operation = conv_of_codes_operation({*packed,
                                           end->bias,
                                           {.stride = call->options.stride,
                                            .padding = call->options.padding,
                                            .dilation = call->options.dilation,
                                            .groups = call->options.groups},
                                           call->spatial});
    }
    const Node& last = graph_.nodes[index_of(end->last)];
    moved_.emplace_back(
        end->last,
        made_node(layer.name, layer.op, std::move(operation),
                  {quantize.outputs[0], quantize.outputs[1], quantize.outputs[2]}, last.outputs));
    return true;
  }

  Graph& graph_;
  Uses uses_;
  std::vector<std::pair<NodeId, Node>> moved_;
};

}  // namespace

bool lower_dynamic(Graph& graph) { return DynamicLayers(graph).run(); }

}  // namespace quanta::graph
