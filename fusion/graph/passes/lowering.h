#pragma once

// Private: what lower_codes knows while it goes through a graph, node by node.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quanta/fusion/graph/graph.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/nn/module.h"

namespace quanta::graph {

/// What becomes of the floats that a node makes: relu or clip, then codes.
struct Wanted {
  Codes codes;
  ValueId result = kNone;        ///< of the Quantize node
  std::vector<NodeId> consumed;  ///< nodes that are part of it
  bool relu = false;
  /// Of a clip: the codes of its ends.
  std::uint8_t low = 0, high = 255;
  bool clips() const { return low != 0 || high != 255; }
};

/// A value that is a function of the codes of another one.
struct ValueTable {
  ValueId source = kNone;
  Tensor floats;  ///< Float32 [256]
};

class Lowering {
 public:
  Lowering(Graph& graph, std::vector<nn::Module::NamedChild>& children)
      : graph(graph), uses(graph), children(children), done(graph.nodes.size(), false) {}

  /// All nodes; the graph has the new ones afterwards.
  void run();

  const std::optional<Codes>& codes(ValueId id) const { return graph.values[index_of(id)].codes; }
  bool is_coded(ValueId id) const { return id != kNone && codes(id).has_value(); }
  /// How the result of a node is wanted: nothing where somebody takes the floats.
  std::optional<Wanted> wanted(ValueId id) const;
  /// A value of floats, made of codes or of a table where need be.
  ValueId floats(ValueId id);
  /// The answers of a value that is coded, or a function of one that is.
  std::optional<ValueTable> table_of(ValueId id) const;
  /// A coded value, for an operand that is coded or a constant of codes with one scale.
  std::optional<ValueId> coded_operand(ValueId id);

  void emit(Node node) { nodes.push_back(std::move(node)); }
  /// Emits what makes the codes that are wanted: `make(result, relu)` emits a node that makes codes,
  /// with relu where `can_relu`; a clip follows as a table.
  template <typename Make>
  void emit_wanted(const Node& node, const Wanted& want, const Make& make) {
    for (const NodeId id : want.consumed) done[index_of(id)] = true;
    if (!want.clips()) return make(want.result);
    const ValueId whole = add_coded(node.name + "_unclipped", want.codes);
    make(whole);
    emit_clip(node, want, whole);
  }
  ValueId add_coded(std::string name, const Codes& codes);
  /// Under the node's name; gives the child's.
  std::string add_child(const Node& node, std::shared_ptr<nn::Module> module);
  /// A node that runs a child.
  void emit_child(const Node& node, std::shared_ptr<nn::Module> module, ValueId input,
                  ValueId output);

  // Each gives whether it has lowered the node.
  bool lower_conv(const Node& node);
  bool lower_linear(const Node& node);
  bool lower_matmul(const Node& node);
  bool lower_binary(const Node& node);
  bool lower_concat(const Node& node);
  bool lower_table(const Node& node);
  bool lower_mean(const Node& node);
  bool lower_torch_mean(const Node& node);

  Graph& graph;
  Uses uses;
  std::vector<nn::Module::NamedChild>& children;
  std::vector<Node> nodes;
  std::vector<bool> done;
  std::string reason;             ///< why the last node was not lowered
  bool torch_arithmetic = false;  ///< see use_torch_arithmetic

 private:
  void visit(Node node);
  void visit_quantize(const Node& node);
  void keep(Node node);
  /// A function of codes whose answers are numbers that these codes stand for, as relu's are, keeps
  /// the codes where more than another table takes it.
  bool stays_coded(const Node& node, const ValueTable& table);
  /// A Gather from dequantized constants takes the codes.
  void take_coded_table(Node& node);
  void emit_clip(const Node& node, const Wanted& want, ValueId whole);

  std::map<ValueId, ValueTable> tables_;
  std::map<ValueId, ValueId> dequantized_;
  std::map<ValueId, ValueId> same_;
  std::map<ValueId, ValueId> constants_;
};

/// The bias of a layer: as Int32 in units of x_scale * weight scale where the file has it so, else
/// as Float32. `fits` says whether it is a constant of `channels` numbers at all.
struct LayerBias {
  Tensor values;  ///< undefined: none
  bool fits = true;
};
LayerBias layer_bias(const Graph& graph, ValueId id, double x_scale, const QTensor& weight,
                     std::int64_t channels, double factor = 1.0);

/// Codes of numbers under these parameters, by division.
std::uint8_t code_of(double value, const Codes& codes);
/// The same of 256 numbers; with torch's arithmetic by multiplication.
std::shared_ptr<const ByteTable> codes_table(const Tensor& floats, const Codes& codes,
                                             bool torch_arithmetic);

}  // namespace quanta::graph
