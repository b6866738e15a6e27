#pragma once

#include <functional>
#include <span>
#include <vector>

#include "quanta/fusion/graph/graph.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/nn/module.h"

/// Running graphs eagerly. Safe from many threads at once on a graph that nobody changes. Functions
/// throw what operators throw, with the node's name and the sizes of its inputs added.
namespace quanta::graph {

/// Called with each value as it is made.
using Watch = std::function<void(ValueId id, const Tensor& value)>;

/// Runs a node: its module if one is given, else its operation, else its row. One tensor for each
/// output of the node.
Outputs run_node(const Node& node, const nn::Module* module, std::span<const Tensor> inputs,
                 std::span<const OnnxType> types);

/// Runs a graph: nodes in order; values are let go after their last use. `modules` has the child
/// module of each node, null where it has none; it may be empty.
std::vector<Tensor> run_graph(const Graph& graph, std::span<const Tensor> inputs,
                              std::span<const nn::Module* const> modules = {},
                              const Watch& watch = {});

}  // namespace quanta::graph
