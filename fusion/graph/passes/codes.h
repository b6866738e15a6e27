#pragma once

// Private: what the passes over codes share.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/graph.h"
#include "quanta/runtime/operation.h"

namespace quanta::graph {

/// Nodes that the passes make have this domain, and an operation.
inline constexpr std::string_view kQuantaDomain = "quanta";

/// An operator of the file that its row runs.
bool is_plain(const Node& node);
/// One of ONNX's of that name.
bool is_op(const Node& node, std::string_view op);
/// A node of these passes.
bool is_made(const Node& node, std::string_view op);
/// Input i; kNone where the node has not so many: files may leave out what operators need.
ValueId input_of(const Node& node, std::size_t i);
/// The node that makes a value; null for constants, inputs and kNone.
const Node* producer_of(const Graph& graph, const Uses& uses, ValueId id);
/// The constant that input i is; undefined where it is none.
Tensor constant_input(const Graph& graph, const Node& node, std::size_t i);

/// Scale and zero point of a QuantizeLinear or DequantizeLinear with one constant of each and 8-bit
/// codes: `codes` has them as QUInt8, whatever the file stores.
struct TensorCodes {
  Codes codes;
  DType stored = DType::UInt8;
};
std::optional<TensorCodes> tensor_codes(const Graph& graph, const Node& node);

/// The constant that a value is: itself, or what DequantizeLinear makes of constants. Undefined when
/// it is none.
Tensor constant_floats(const Graph& graph, ValueId id);

/// Codes of a weight: what DequantizeLinear takes.
struct WeightCodes {
  Tensor codes;                             ///< UInt8 or Int8
  std::vector<double> scales{};             ///< one, or one for each index along the axis
  std::vector<std::int64_t> zero_points{};  ///< as many
  std::int64_t axis = 0;
};
/// Nothing where the value is not made of constant codes of 8 bits or fewer, or has blocks.
std::optional<WeightCodes> weight_codes(const Graph& graph, ValueId id);

/// The same as QInt8 with the channels along dimension `axis`, which becomes `channel_axis` of the
/// quantizer. Nothing for scales along another axis, or such that no tensor can have.
std::optional<QTensor> signed_weight(const WeightCodes& weight, std::int64_t axis);
/// The same with one scale, as QUInt8.
std::optional<QTensor> unsigned_constant(const WeightCodes& weight);

/// An operation of the catalogue with these settings.
std::shared_ptr<const Operation> make_operation(
    std::string_view name,
    const std::vector<std::pair<std::string_view, Attribute>>& settings = {});
std::shared_ptr<const Operation> quantize_operation(const Codes& codes);

/// A node of the passes' own.
Node made_node(std::string name, std::string_view op, std::shared_ptr<const Operation> operation,
               std::vector<ValueId> inputs, std::vector<ValueId> outputs);

/// Whether a node only moves what input 0 has, so that its codes stay what they are.
bool moves_codes(const Graph& graph, const Node& node);

}  // namespace quanta::graph
