#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/graph.h"
#include "quanta/nn/module.h"

/// The table of ONNX operators: what each is made of. One row an operator, a file a family in
/// fusion/graph/ops. Reading the table is safe from many threads; adding is for the start of a
/// program.
namespace quanta::graph {

/// What a call of an operator is given. Functions throw ArgumentError that names node, operator
/// and argument.
class NodeCall {
 public:
  NodeCall(const Node& node, std::span<const Tensor> inputs, std::span<const OnnxType> types)
      : node_(&node), inputs_(inputs), types_(types) {}

  const Node& node() const noexcept { return *node_; }
  std::string_view op() const noexcept { return node_->op; }
  /// Of the node's domain, as the file imports it.
  std::int64_t opset() const noexcept { return node_->opset; }

  // Inputs, by position. `name` is ONNX's, for messages.
  std::size_t input_count() const noexcept { return inputs_.size(); }
  bool has(std::size_t i) const noexcept { return i < inputs_.size() && inputs_[i].defined(); }
  /// Throws ArgumentError when it is left out.
  const Tensor& input(std::size_t i, std::string_view name) const;
  /// Undefined when it is left out.
  Tensor optional(std::size_t i) const { return has(i) ? inputs_[i] : Tensor(); }
  std::span<const Tensor> inputs() const noexcept { return inputs_; }
  /// The elements of an integer tensor. Throws UnsupportedError while a plan is recorded, when a
  /// run has calculated them (sizes that depend on values).
  std::vector<std::int64_t> integers(std::size_t i, std::string_view name) const;
  /// The same of floats, as doubles.
  std::vector<double> numbers(std::size_t i, std::string_view name) const;
  /// What the file says of the input's type: tells INT4 from INT8, which have one dtype.
  OnnxType input_type(std::size_t i) const noexcept;

  // Attributes. With a default: it may be absent. Throws ArgumentError for one of another type.
  bool has_attribute(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  bool flag(std::string_view name, bool otherwise) const { return integer(name, otherwise) != 0; }
  double number(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  std::string text(std::string_view name, std::string_view otherwise) const;
  std::vector<std::int64_t> integer_list(std::string_view name) const;
  std::vector<std::int64_t> integer_list(std::string_view name,
                                         const std::vector<std::int64_t>& otherwise) const;
  std::vector<double> number_list(std::string_view name, std::vector<double> otherwise) const;
  OnnxTensor tensor(std::string_view name) const;

  // Results.
  std::size_t output_count() const noexcept { return node_->outputs.size(); }
  /// Whether somebody takes result `i`.
  bool wants(std::size_t i) const noexcept {
    return i < node_->outputs.size() && node_->outputs[i] != kNone;
  }

  /// Throws ArgumentError "Op 'node': text".
  [[noreturn]] void fail(const std::string& text) const;
  /// Throws UnsupportedError "Op 'node': text".
  [[noreturn]] void unsupported(const std::string& text) const;

 private:
  const Node* node_;
  std::span<const Tensor> inputs_;
  std::span<const OnnxType> types_;
};

using Outputs = std::vector<Tensor>;

/// How codes go through an operator: what observers, Q and DQ, lowering and export share.
enum class CodeRule : std::uint8_t {
  Float,   ///< runs in float
  Layer,   ///< weights: Conv, ConvTranspose, Gemm, MatMul, LSTM
  Pass,    ///< the result has the codes of input 0: Reshape, Transpose, MaxPool, Relu ...
  Table,   ///< one input, each element by itself: Sigmoid, HardSwish ...
  Join,    ///< the result needs codes of its own, all inputs alike: Concat
  Binary,  ///< two inputs and codes of its own: Add, Mul
};

/// A row of the table.
struct OpRow {
  std::string_view name;
  /// Runs the operator as ONNX defines it on plain tensors.
  Outputs (*evaluate)(const NodeCall& call) = nullptr;
  CodeRule rule = CodeRule::Float;
  std::string_view domain = "";
  /// The opsets in which this row is right.
  std::int64_t since = 1;
  std::int64_t last = 1000;
  /// How evaluate is called with 16-bit floats where it has no kernels for them: in Float32, with
  /// Float32 results rounded back.
  bool widens = true;

  /// A module for a node whose weights are constants, or null where none fits; `constants` are the
  /// inputs that are constants, undefined where they are not.
  std::shared_ptr<nn::Module> (*make_module)(const NodeCall& constants) = nullptr;
  /// Calls that module, or whoever the workflow has put in its place. Null: module(input 0).
  Outputs (*call_module)(const nn::Module& module, const NodeCall& call) = nullptr;
};

class OpTable {
 public:
  void add(const OpRow& row) { rows_.push_back(row); }
  /// Null for an operator that Quanta does not have in that opset.
  const OpRow* find(std::string_view domain, std::string_view name, std::int64_t opset) const;
  const std::deque<OpRow>& rows() const noexcept { return rows_; }

 private:
  std::deque<OpRow> rows_;
};

/// All operators that Quanta knows.
const OpTable& op_table();

/// Adds a row of the user's own, before models that need it are loaded.
void register_onnx_op(const OpRow& row);

}  // namespace quanta::graph
