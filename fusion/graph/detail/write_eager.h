#pragma once

// Private: operations of traced networks as ONNX's nodes, a file a family.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/runtime/operation.h"

namespace quanta::graph::detail {

using Names = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

/// A node of a traced graph on its way into the file. Results that are codes are quantized once the
/// node has been written: writers say what their floats are.
class EagerCall {
 public:
  EagerCall(GraphWriter& graph_writer, const Node& written_node)
      : writer(graph_writer), node(written_node), operation(*written_node.operation) {}

  std::string_view op() const { return operation.name(); }
  /// The name without "quantized::": what it calculates.
  std::string_view function() const;

  // Settings, by the operation's own names. Those that are left out or of another type: `otherwise`.
  template <typename T>
  T setting(std::string_view name, T otherwise) const {
    for (const AttributeInfo& info : operation.attributes()) {
      if (info.name != name) continue;
      const Attribute attribute = info.get(operation);
      if (const T* value = std::get_if<T>(&attribute)) return *value;
      if constexpr (std::is_same_v<T, double>) {
        if (const auto* integer = std::get_if<std::int64_t>(&attribute)) {
          return static_cast<double>(*integer);
        }
      }
    }
    return otherwise;
  }
  bool is_set(std::string_view name) const;
  float number(std::string_view name, double otherwise) const {
    return static_cast<float>(setting(name, otherwise));
  }
  /// A list with one number for each of `count` dimensions.
  Numbers list(std::string_view name, std::size_t count, std::int64_t otherwise) const;

  // Arguments.
  std::size_t input_count() const { return node.inputs.size(); }
  bool has(std::size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNone; }
  /// "" where it is left out.
  std::string input(std::size_t i) { return has(i) ? writer.input(node.inputs[i]) : ""; }
  const Value& value(std::size_t i) const { return writer.value(node.inputs[i]); }
  const Tensor& constant(std::size_t i) const { return value(i).constant; }
  bool is_constant(std::size_t i) const { return has(i) && constant(i).defined(); }
  Dims sizes(std::size_t i) const;
  std::int64_t rank(std::size_t i) const { return static_cast<std::int64_t>(sizes(i).size()); }
  OnnxType type(std::size_t i) const;
  DType dtype(std::size_t i) const { return *dtype_of(type(i)); }

  // Results.
  Dims result_sizes(std::size_t i = 0) const;
  OnnxType result_type(std::size_t i = 0) const { return result_value(i).type; }
  /// What the codes of result `i` are; null for plain results.
  const std::optional<Codes>& result_codes(std::size_t i = 0) const {
    return result_value(i).codes;
  }
  bool wants(std::size_t i) const { return i < node.outputs.size() && node.outputs[i] != kNone; }
  /// The name under which result `i` is to be written, as floats.
  std::string result(std::size_t i = 0);

  // Writing.
  /// Constants.
  std::string weight(std::string_view suffix, const Tensor& tensor,
                     OnnxType type = OnnxType::Undefined) {
    return writer.weight(name(suffix), tensor, type);
  }
  std::string integers(std::string_view suffix, const Numbers& numbers) {
    return weight(suffix, Tensor::from_int64(numbers));
  }
  /// A scalar of the type of argument 0.
  std::string scalar(std::string_view suffix, double number);
  std::string scalar(std::string_view suffix, double number, OnnxType type);
  /// A node whose first result has a name of its own, which is given back.
  std::string part(std::string_view onnx_op, Names inputs, OnnxAttributes attributes = {});
  /// The node that makes result 0 (or what `y` names).
  void emit(std::string_view onnx_op, Names inputs, OnnxAttributes attributes = {},
            std::string y = {});
  /// Says from which opset on ONNX has the operator as it is written.
  void need(std::int64_t opset, std::string_view onnx_op) { writer.state.need(opset, onnx_op); }
  std::int64_t opset() const { return writer.state.opset; }
  /// A Reduce operator along `axes` (all for none) of `x`.
  void reduce(std::string_view onnx_op, const std::string& x, const Numbers& axes, bool keepdims,
              std::string y = {});
  std::string name(std::string_view suffix) const;

  /// Notes why there is no form; writers return what it gives.
  bool refuse(const std::string& why) {
    why_ = why;
    return false;
  }
  const std::string& why() const { return why_; }
  /// Says that result `i` has been written without a name from result().
  void wrote(std::size_t i) { given_.insert(i); }
  /// Makes codes of the results that are codes. False where one that is wanted was not written.
  bool finish();

  GraphWriter& writer;
  const Node& node;
  const Operation& operation;

 private:
  const Value& result_value(std::size_t i) const { return writer.value(node.outputs[i]); }

  std::vector<std::pair<std::size_t, std::string>> coded_;
  std::set<std::size_t> given_;
  std::string why_;
};

/// Writes the node and gives true, or says why it cannot (EagerCall::refuse) before it has written
/// anything.
using EagerWriter = bool (*)(EagerCall& call);

struct EagerRow {
  std::string_view function;  ///< EagerCall::function
  EagerWriter write;
};

// A table a family.
std::span<const EagerRow> eager_pointwise();
std::span<const EagerRow> eager_layers();
std::span<const EagerRow> eager_norms();
std::span<const EagerRow> eager_pools();
std::span<const EagerRow> eager_shapes();
std::span<const EagerRow> eager_reductions();
std::span<const EagerRow> eager_attention();
std::span<const EagerRow> eager_codes();
std::span<const EagerRow> eager_quantizers();
std::span<const EagerRow> eager_indices();

/// Null for an operation that no table has.
EagerWriter find_eager_writer(std::string_view function);

}  // namespace quanta::graph::detail
