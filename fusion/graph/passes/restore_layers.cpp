#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "quanta/fusion/graph/detail/layer_restorer.h"
#include "quanta/fusion/graph/passes/grouped_weight.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/runtime/error.h"

namespace quanta::graph {
namespace {

constexpr std::string_view kLinear = "DynamicLinear";
constexpr std::string_view kLinearRelu = "DynamicLinearReLU";

std::vector<double> doubles(const Tensor& scales) {
  const std::vector<float> values = scales.to_float_vector();
  return {values.begin(), values.end()};
}

std::shared_ptr<nn::Module> dynamic_linear(const Tensor& weight, const Tensor& bias,
                                           const detail::LayerNote& note) {
  namespace fused = nn::intrinsic::quantized::dynamic;
  using quantized::ReduceRange;
  std::shared_ptr<nn::quantized::dynamic::Linear> layer;
  if (note.form == kLinearRelu) {
    layer = nn::make_module<fused::LinearReLU>(weight, bias);
  } else {
    layer = nn::make_module<nn::quantized::dynamic::Linear>(weight, bias);
  }
  layer->set_reduce_range(note.all_bits ? ReduceRange::No : ReduceRange::Yes);
  return layer;
}

}  // namespace

const Node* LayerRestorer::step(End& end, std::string_view op) const {
  if (end.output == kNone || !uses_.used_once(end.output)) return nullptr;
  const NodeId user = uses_.users(end.output)[0];
  const Node& node = graph_.nodes[index_of(user)];
  if (!is_op(node, op) || node.outputs.size() != 1) return nullptr;
  end.nodes.push_back(user);
  end.output = node.outputs[0];
  return &node;
}

bool LayerRestorer::find_tail(End& end, const detail::LayerNote& note) const {
  if (note.bias) {
    const Node* add = step(end, "Add");
    if (add == nullptr || add->inputs.size() != 2) return false;
    end.bias = constant_input(graph_, *add, 1);
    if (!end.bias.defined() || end.bias.dtype() != DType::Float32 || end.bias.dim() != 1) {
      return false;
    }
  }
  return note.form != kLinearRelu || step(end, "Relu") != nullptr;
}

void LayerRestorer::put(const Node& node, std::shared_ptr<nn::Module> module, ValueId x,
                        const End& end) {
  for (const NodeId id : end.nodes) lowering_.done[index_of(id)] = true;
  lowering_.emit_child(node, std::move(module), x, end.output);
}

Tensor LayerRestorer::coded_weight(ValueId id, std::int64_t axis) const {
  const Node* made = producer(id);
  if (made == nullptr) return {};
  if (is_op(*made, "Cast")) {
    const Tensor halves = constant_input(graph_, *made, 0);
    return halves.defined() && halves.dtype() == DType::Float16 ? halves : Tensor();
  }
  const std::optional<WeightCodes> codes = weight_codes(graph_, id);
  const std::optional<QTensor> weight = codes ? signed_weight(*codes, axis) : std::nullopt;
  return weight ? Tensor(*weight) : Tensor();
}

// DynamicQuantizeLinear - MatMulInteger - Cast - Mul(x scale * weight scale) - Add - Relu.
bool LayerRestorer::restore_linear(const Node& node, const detail::LayerNote& note) {
  const Node* quantize = producer(node.inputs[0]);
  const Tensor codes = constant_input(graph_, node, 1);
  const Tensor zeros = constant_input(graph_, node, 3);
  if (quantize == nullptr || !is_op(*quantize, "DynamicQuantizeLinear") || !codes.defined() ||
      codes.dim() != 2 || codes.dtype() != DType::UInt8 || !zeros.defined()) {
    return false;
  }
  End end{.output = node.outputs[0], .nodes = {}, .bias = {}};
  if (step(end, "Cast") == nullptr) return false;
  const Node* scaled = step(end, "Mul");
  const Node* unit = scaled == nullptr ? nullptr : producer(input_of(*scaled, 1));
  if (unit == nullptr || !is_op(*unit, "Mul") || !find_tail(end, note)) return false;
  const Tensor scales = constant_input(graph_, *unit, 1);
  const std::int64_t features = codes.size(1);
  if (!scales.defined() || scales.dtype() != DType::Float32 || zeros.numel() != scales.numel() ||
      (scales.numel() != 1 && scales.numel() != features) ||
      (end.bias.defined() && end.bias.numel() != features)) {
    return false;
  }
  const std::optional<QTensor> weight = signed_weight({.codes = codes.t().contiguous(),
                                                       .scales = doubles(scales),
                                                       .zero_points = zeros.to_int64_vector()},
                                                      0);
  if (!weight) return false;
  put(node, dynamic_linear(*weight, end.bias, note), input_of(*quantize, 0), end);
  return true;
}

// Cast - MatMul - Add - Relu.
bool LayerRestorer::restore_halves(const Node& node, const detail::LayerNote& note) {
  const Tensor weight = coded_weight(node.inputs[1], 0);
  if (!weight.defined() || weight.dtype() != DType::Float16 || weight.dim() != 2) return false;
  End end{.output = node.outputs[0], .nodes = {}, .bias = {}};
  if (!find_tail(end, note)) return false;
  if (end.bias.defined() && end.bias.numel() != weight.size(1)) return false;
  put(node, dynamic_linear(weight.t().contiguous(), end.bias, note), node.inputs[0], end);
  return true;
}

// DequantizeLinear - MatMul - Add, DequantizeLinear - Gemm, or MatMulNBits.
bool LayerRestorer::restore_weight_only(const Node& node, const detail::LayerNote& note) {
  const bool nbits = node.op == "MatMulNBits";
  std::optional<GroupedWeight> weight =
      nbits ? weight_of_nbits(graph_, node) : weight_of_blocks(graph_, node, ByteRows::Yes);
  if (!weight) return false;
  // Zero points are written where the weight has some of its own.
  if (nbits) {
    weight->symmetric = node.inputs.size() < 4 || node.inputs[3] == kNone;
  } else if (weight->zero_points.defined()) {
    weight->symmetric = false;
  }
  End end{.output = node.outputs[0], .nodes = {}, .bias = {}};
  if (!find_tail(end, note)) return false;
  const std::size_t bias_at = nbits ? 5 : 2;
  if (node.inputs.size() > bias_at) end.bias = constant_input(graph_, node, bias_at);
  if (end.bias.defined() && (end.bias.dtype() != DType::Float32 || end.bias.dim() != 1 ||
                             end.bias.numel() != weight->codes.size(0))) {
    return false;
  }
  const std::optional<WeightOnlyPackedParams> packed = packed_weight(*weight, end.bias);
  if (!packed) return false;
  put(node, nn::make_module<nn::weight_only::Linear>(*packed), node.inputs[0], end);
  return true;
}

bool LayerRestorer::restore(const Node& node, const detail::LayerNote& note) {
  if (!is_plain(node) || node.inputs.size() < 2 || node.inputs[0] == kNone ||
      node.inputs[1] == kNone) {
    return false;
  }
  const bool product = is_op(node, "MatMul");
  if (note.form == kLinear || note.form == kLinearRelu) {
    if (is_op(node, "MatMulInteger")) return restore_linear(node, note);
    return product && restore_halves(node, note);
  }
  if (note.form == "WeightOnlyLinear") {
    const bool nbits = node.op == "MatMulNBits" && node.domain == "com.microsoft";
    return (product || nbits || is_op(node, "Gemm")) && restore_weight_only(node, note);
  }
  if (note.form == "DynamicLSTM" || note.form == "DynamicGRU") return restore_recurrent(node, note);
  return false;
}

bool LayerRestorer::fits(const Node& node, const detail::LayerNote& note) {
  try {
    return restore(node, note);
  } catch (const ArgumentError&) {  // sizes or numbers that the layer cannot have
    return false;
  }
}

bool LayerRestorer::run() {
  bool changed = false;
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    if (lowering_.done[n]) continue;
    const Node& node = graph_.nodes[n];
    const std::optional<detail::LayerNote> note = detail::find_layer(metadata_, node.name);
    if (note && fits(node, *note)) {
      changed = true;
    } else {
      lowering_.emit(node);
    }
  }
  graph_.nodes = std::move(lowering_.nodes);
  return changed && (erase_dead(graph_) || changed);
}

bool restore_layers(Graph& graph, const std::map<std::string, std::string>& metadata,
                    std::vector<nn::Module::NamedChild>& children) {
  if (metadata.empty()) return false;
  return LayerRestorer(graph, metadata, children).run();
}

}  // namespace quanta::graph
