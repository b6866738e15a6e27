#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/onnx_file.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/tensor.h"

/// Graphs of operations: nodes in the order in which they run, and the values between them. The
/// passes rewrite them, graph::Model runs them. A graph is for one thread while it is changed; many
/// threads may read one that nobody changes. Functions throw ArgumentError for ids that the graph
/// does not have.
namespace quanta::graph {

struct OpRow;
struct Graph;

/// Values and nodes are named by their position in Graph::values and Graph::nodes.
using ValueId = std::int32_t;
using NodeId = std::int32_t;
/// An input that is left out, an output that nobody wants; a value that no node makes.
inline constexpr std::int32_t kNone = -1;
/// The position that an id stands for; not for kNone.
inline std::size_t index_of(std::int32_t id) { return static_cast<std::size_t>(id); }

/// Codes that stand for a value: x = (code - zero_point) * scale.
struct Codes {
  DType dtype = DType::QUInt8;  ///< QUInt8, QInt8 or QInt32
  double scale = 1.0;
  std::int64_t zero_point = 0;
  bool operator==(const Codes&) const = default;
};

/// What flows between nodes.
struct Value {
  std::string name;
  /// Of a constant: a weight or what was folded. Undefined otherwise.
  Tensor constant{};
  /// As the file says, or as followed from the nodes; Undefined where it is not known.
  OnnxType type = OnnxType::Undefined;
  /// Declared sizes: hints only. Empty where nothing is declared.
  std::optional<std::vector<OnnxDim>> sizes{};
  /// Set by absorb_qdq: the floats of this value are these codes.
  std::optional<Codes> codes{};
};

/// A call: of an ONNX operator through its row, of an operation, or of a module (a child of the
/// graph::Model that runs the graph).
struct Node {
  std::string name;
  std::string op;        ///< "Conv"; what stands in the file
  std::string domain{};  ///< "" is ai.onnx
  std::int64_t opset = 0;
  std::vector<ValueId> inputs{};
  std::vector<ValueId> outputs{};
  OnnxAttributes attributes{};
  const OpRow* row = nullptr;
  /// Graphs within (If, Loop, Scan), by attribute. Their inputs are the formal ones and then what
  /// they capture, which are the node's last inputs: `captured` of them, in this order for each.
  std::map<std::string, std::shared_ptr<const Graph>, std::less<>> graphs{};
  std::size_t captured = 0;

  /// Runs instead of the row, where a pass has put one. Inputs as the operation takes them.
  std::shared_ptr<const Operation> operation{};
  /// The name of the child module that runs instead of the row; "" for none.
  std::string module{};
  /// Why it runs in float although there are codes around it; for `inspect`.
  std::string float_reason{};
};

/// An attribute of a node; `otherwise` where it is absent or of another type.
std::int64_t integer_attribute(const Node& node, std::string_view name, std::int64_t otherwise);
double number_attribute(const Node& node, std::string_view name, double otherwise);
std::string text_attribute(const Node& node, std::string_view name, std::string_view otherwise);
/// Empty where it is absent.
std::vector<std::int64_t> list_attribute(const Node& node, std::string_view name);

/// A network, or a graph within one of its nodes.
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;  ///< each after those whose results it takes
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  ValueId add_value(Value value);
  ValueId add_constant(std::string name, Tensor constant);
  /// "base", or "base_2" and so on where there is one already.
  std::string unique_value_name(std::string_view base) const;

  bool is_constant(ValueId id) const;
  bool is_input(ValueId id) const;
  bool is_output(ValueId id) const;
  /// The node that makes a value, or kNone.
  NodeId producer(ValueId id) const;
  /// The nodes that take a value, each once, in order.
  std::vector<NodeId> users(ValueId id) const;
  /// Whoever took `from`, the graph's outputs included, takes `to`. An output keeps its name.
  void replace_all_uses(ValueId from, ValueId to);
};

/// Who makes and takes each value of a graph, found in one walk; for passes, which look often. It
/// is of the graph as it was then.
class Uses {
 public:
  explicit Uses(const Graph& graph);
  NodeId producer(ValueId id) const { return producers_[static_cast<std::size_t>(id)]; }
  std::span<const NodeId> users(ValueId id) const { return users_[static_cast<std::size_t>(id)]; }
  /// Taken by one node once, and no output of the graph.
  bool used_once(ValueId id) const;

 private:
  std::vector<NodeId> producers_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
};

/// Removes nodes whose results nobody takes, and values that nothing refers to (so ids change).
/// Gives whether there were any.
bool erase_dead(Graph& graph);

/// Reads graphs as text, a line for each node: for tests, logs and people.
std::string to_string(const Graph& graph);

/// "12 nodes, 9f86d081884c7d65": the same for graphs with the same nodes, names and connections,
/// whatever their weights are.
std::string fingerprint(const Graph& graph);

}  // namespace quanta::graph
