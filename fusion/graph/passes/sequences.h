#pragma once

// Private: sequences of tensors, for the folding of constants.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "quanta/fusion/graph/graph.h"

namespace quanta::graph {

/// Follows sequences through a graph and writes operators of tensors in the place of theirs: how
/// long they are and which member is taken has to follow from constants. For one walk through the
/// nodes, in order, in which constants are already calculated.
class Sequences {
 public:
  explicit Sequences(Graph& graph) : graph_(graph) {}

  /// What takes the node's place. Nothing where it has nothing to do with sequences. Throws
  /// UnsupportedError where it depends on values.
  std::optional<std::vector<Node>> resolve(const Node& node);
  /// Throws UnsupportedError for results of the graph that are sequences.
  void check_outputs() const;

 private:
  struct Sequence {
    std::vector<ValueId> members{};
    /// Of SplitToSequence with one size, whose count is not known: parts of `source`.
    ValueId source = kNone;
    std::int64_t size = 1;
    std::int64_t axis = 0;
    bool keeps_dimension = true;
  };

  const Sequence& sequence_of(const Node& node, std::size_t input) const;
  /// Of a sequence of `count` members, one more where a member may be put behind them.
  std::size_t position(const Node& node, std::size_t input, std::size_t count, bool behind) const;
  std::vector<std::int64_t> constants(const Node& node, std::size_t input) const;
  std::vector<Node> split(const Node& node);
  std::vector<Node> take(const Node& node);
  std::vector<Node> join(const Node& node);

  Graph& graph_;
  std::map<ValueId, Sequence> sequences_;
};

}  // namespace quanta::graph
