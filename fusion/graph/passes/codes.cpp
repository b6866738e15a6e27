#include "quanta/fusion/graph/passes/codes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/run.h"
#include "quanta/ops/catalogue.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"

namespace quanta::graph {
namespace {

const Tensor& constant_of(const Graph& graph, ValueId id) {
  static const Tensor none;
  return id == kNone ? none : graph.values[index_of(id)].constant;
}

bool is_four_bits(const Graph& graph, ValueId id) {
  const OnnxType type = graph.values[index_of(id)].type;
  return type == OnnxType::UInt4 || type == OnnxType::Int4 || type == OnnxType::UInt2 ||
         type == OnnxType::Int2;
}

bool is_byte(DType dtype) { return dtype == DType::UInt8 || dtype == DType::Int8; }

bool is_linear(const Node& node, std::string_view op) {
  return is_plain(node) && node.op == op && (node.domain.empty() || node.domain == "com.microsoft");
}

/// The value turned over where the sign differs.
Tensor turned(const Tensor& codes, DType from, DType to) {
  if (from == to) return codes.contiguous();
  Tensor result = codes.clone(MemoryFormat::Contiguous).bit_cast(to);
  auto* bytes = static_cast<std::uint8_t*>(result.data_ptr());
  for (std::int64_t i = 0; i < result.numel(); ++i) bytes[i] ^= 0x80U;
  return result;
}

/// Products with codes and the reciprocal have to be finite in float32: the scale of a mask whose
/// least number is float32's is not.
bool usable(double scale) {
  const auto narrow = static_cast<float>(scale);
  return narrow > 0.0F && std::isfinite(256.0F * narrow) && std::isfinite(1.0F / narrow);
}

}  // namespace

bool is_plain(const Node& node) {
  return node.row != nullptr && node.operation == nullptr && node.module.empty() &&
         node.graphs.empty() && !node.outputs.empty();
}
bool is_op(const Node& node, std::string_view op) {
  return is_plain(node) && node.domain.empty() && node.op == op;
}
bool is_made(const Node& node, std::string_view op) {
  return node.domain == kQuantaDomain && node.op == op;
}

ValueId input_of(const Node& node, std::size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : kNone;
}

const Node* producer_of(const Graph& graph, const Uses& uses, ValueId id) {
  const NodeId made = id == kNone || graph.is_constant(id) ? kNone : uses.producer(id);
  return made == kNone ? nullptr : &graph.nodes[index_of(made)];
}

Tensor constant_input(const Graph& graph, const Node& node, std::size_t i) {
  return constant_of(graph, input_of(node, i));
}

std::optional<TensorCodes> tensor_codes(const Graph& graph, const Node& node) {
  const bool quantizes = is_linear(node, "QuantizeLinear");
  if (!quantizes && !is_linear(node, "DequantizeLinear")) return {};
  if (node.inputs.size() < 2 || node.inputs[0] == kNone || node.outputs.size() != 1 ||
      node.outputs[0] == kNone || integer_attribute(node, "block_size", 0) != 0) {
    return {};
  }
  const Tensor& scale = constant_of(graph, node.inputs[1]);
  if (!scale.defined() || scale.numel() != 1 || !scale.is_floating_point()) return {};
  const double value = scale.item();
  if (!usable(value)) return {};

  const ValueId zero_id = node.inputs.size() > 2 ? node.inputs[2] : kNone;
  DType stored = DType::UInt8;
  std::int64_t zero_point = 0;
  if (zero_id != kNone) {
    const Tensor& zero = constant_of(graph, zero_id);
    if (!zero.defined() || zero.numel() != 1 || !is_byte(zero.dtype())) return {};
    if (is_four_bits(graph, zero_id)) return {};
    stored = zero.dtype();
    zero_point = zero.to_int64_vector()[0];
  } else if (quantizes) {
    const auto wanted = static_cast<OnnxType>(integer_attribute(node, "output_dtype", 2));
    if (wanted != OnnxType::UInt8 && wanted != OnnxType::Int8) return {};
    stored = *dtype_of(wanted);
  } else {
    const OnnxType type = graph.values[index_of(node.inputs[0])].type;
    if (type != OnnxType::UInt8 && type != OnnxType::Int8) return {};
    stored = *dtype_of(type);
  }
  if (!quantizes) {
    const auto wanted = static_cast<OnnxType>(integer_attribute(node, "output_dtype", 0));
    if (wanted != OnnxType::Undefined && wanted != OnnxType::Float) return {};
  }
  // 16-bit floats are rounded in between, which codes do not show.
  if (scale.dtype() != DType::Float32) return {};
  if (stored == DType::Int8) zero_point += 128;
  return TensorCodes{{DType::QUInt8, value, zero_point}, stored};
}

Tensor constant_floats(const Graph& graph, ValueId id) {
  if (id == kNone) return {};
  if (graph.is_constant(id)) return graph.values[index_of(id)].constant;
  const NodeId made = graph.producer(id);
  if (made == kNone) return {};
  const Node& node = graph.nodes[index_of(made)];
  if (!is_linear(node, "DequantizeLinear")) return {};
  std::vector<Tensor> inputs;
  std::vector<OnnxType> types;
  for (const ValueId input : node.inputs) {
    if (input != kNone && !graph.is_constant(input)) return {};
    inputs.push_back(constant_of(graph, input));
    types.push_back(input == kNone ? OnnxType::Undefined : graph.values[index_of(input)].type);
  }
  return run_node(node, nullptr, inputs, types)[0];
}

std::optional<WeightCodes> weight_codes(const Graph& graph, ValueId id) {
  if (id == kNone) return {};
  const NodeId made = graph.producer(id);
  if (made == kNone) return {};
  const Node& node = graph.nodes[index_of(made)];
  if (!is_linear(node, "DequantizeLinear") || node.inputs.size() < 2 ||
      integer_attribute(node, "block_size", 0) != 0) {
    return {};
  }
  WeightCodes weight;
  weight.codes = constant_of(graph, node.inputs[0]);
  const Tensor& scale = constant_of(graph, node.inputs[1]);
  if (!weight.codes.defined() || !scale.defined() || !is_byte(weight.codes.dtype()) ||
      scale.dtype() != DType::Float32 || scale.numel() < 1 || weight.codes.numel() < 1) {
    return {};
  }
  for (const float value : scale.to_float_vector()) {
    weight.scales.push_back(static_cast<double>(value));
  }
  weight.zero_points.assign(weight.scales.size(), 0);
  if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
    const Tensor& zero = constant_of(graph, node.inputs[2]);
    if (!zero.defined()) return {};
    const std::vector<std::int64_t> zeros = zero.to_int64_vector();
    if (zeros.size() != 1 && zeros.size() != weight.scales.size()) return {};
    for (std::size_t i = 0; i < weight.zero_points.size(); ++i) {
      weight.zero_points[i] = zeros[zeros.size() == 1 ? 0 : i];
    }
  }
  const std::int64_t rank = weight.codes.dim();
  weight.axis = integer_attribute(node, "axis", 1);
  if (weight.axis < 0) weight.axis += rank;
  if (weight.scales.size() > 1 &&
      (weight.axis < 0 || weight.axis >= rank ||
       weight.codes.size(weight.axis) != static_cast<std::int64_t>(weight.scales.size()))) {
    return {};
  }
  return weight;
}

std::optional<QTensor> signed_weight(const WeightCodes& weight, std::int64_t axis) {
  Tensor codes = turned(weight.codes, weight.codes.dtype(), DType::Int8);
  std::vector<std::int64_t> zero_points = weight.zero_points;
  if (weight.codes.dtype() == DType::UInt8) {
    for (std::int64_t& zero : zero_points) zero -= 128;
  }
  std::vector<double> scales = weight.scales;
  if (scales.size() == 1) {
    if (!usable(scales[0])) return {};
    return QTensor::from_int_repr(codes, Quantizer::per_tensor(scales[0], zero_points[0]));
  }
  if (weight.axis != axis) return {};
  for (std::size_t n = 0; n < scales.size(); ++n) {
    if (usable(scales[n])) continue;
    if (scales[n] != 0.0) return {};
    // All of the channel is 0: so it is under any other scale with the zero point's code.
    if (codes.is_same(weight.codes)) codes = codes.clone(MemoryFormat::Contiguous);
    codes.select(axis, static_cast<std::int64_t>(n)).fill_(static_cast<double>(zero_points[n]));
    scales[n] = 1.0;
  }
  return QTensor::from_int_repr(
      codes, Quantizer::per_channel(std::move(scales), std::move(zero_points), axis));
}

std::optional<QTensor> unsigned_constant(const WeightCodes& weight) {
  if (weight.scales.size() != 1 || !usable(weight.scales[0])) return {};
  const bool is_signed = weight.codes.dtype() == DType::Int8;
  return QTensor::from_int_repr(
      turned(weight.codes, weight.codes.dtype(), DType::UInt8),
      Quantizer::per_tensor(weight.scales[0], weight.zero_points[0] + (is_signed ? 128 : 0)));
}

std::shared_ptr<const Operation> make_operation(
    std::string_view name, const std::vector<std::pair<std::string_view, Attribute>>& settings) {
  const OperationEntry* entry = operations().find(name);
  if (entry == nullptr) throw InternalError("no operation " + std::string(name));
  std::shared_ptr<Operation> operation = entry->make();
  for (const auto& [setting, value] : settings) set_attribute(*operation, setting, value);
  return operation;
}

std::shared_ptr<const Operation> quantize_operation(const Codes& codes) {
  return make_operation(
      "quantized::quantize_linear",
      {{"scale", codes.scale}, {"zero_point", codes.zero_point}, {"dtype", codes.dtype}});
}

Node made_node(std::string name, std::string_view op, std::shared_ptr<const Operation> operation,
               std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  Node node;
  node.name = std::move(name);
  node.op = op;
  node.domain = kQuantaDomain;
  node.opset = 1;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.operation = std::move(operation);
  return node;
}

bool moves_codes(const Graph& graph, const Node& node) {
  if (!is_plain(node) || !node.domain.empty() || node.inputs.empty() || node.inputs[0] == kNone) {
    return false;
  }
  constexpr std::array kMoving{"DepthToSpace", "Expand",        "Flatten", "Gather",  "Identity",
                               "MaxPool",      "GlobalMaxPool", "Pad",     "Reshape", "Resize",
                               "Slice",        "SpaceToDepth",  "Split",   "Squeeze", "Tile",
                               "Transpose",    "Unsqueeze"};
  if (std::ranges::find(kMoving, std::string_view(node.op)) == kMoving.end()) return false;
  if (node.op == "MaxPool") return node.outputs.size() < 2 || node.outputs[1] == kNone;
  if (node.op == "Resize")
    return text_attribute(node, "mode", "nearest") == "nearest" &&
           text_attribute(node, "coordinate_transformation_mode", "") != "tf_crop_and_resize";
  if (node.op != "Pad") return true;
  // What is put around has to be 0, which all codes have.
  if (text_attribute(node, "mode", "constant") != "constant") return true;
  if (number_attribute(node, "value", 0.0) != 0.0) return false;
  if (node.inputs.size() < 3 || node.inputs[2] == kNone) return true;
  const Tensor value = constant_floats(graph, node.inputs[2]);
  return value.defined() && value.is_floating_point() && value.numel() == 1 && value.item() == 0.0;
}

}  // namespace quanta::graph
