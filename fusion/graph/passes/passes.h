#pragma once

#include <vector>

#include "quanta/fusion/graph/graph.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/nn/module.h"

/// What rewrites graphs. Each is a plain function that gives whether it changed anything; they may
/// be called in any order, and load_onnx calls them in a good one. They are for one thread at a time
/// for each graph.
namespace quanta::graph {

/// Inputs of these names become constants. Throws ArgumentError for a name that is no input, and for
/// another dtype than the input's.
bool bind_constants(Graph& graph, const NamedTensors& constants);

/// Calculates what depends on constants alone; takes the branch of an If whose condition is constant
/// into the graph. Constants of more than a megabyte that an operator blows up (ConstantOfShape,
/// Expand, Tile ...) are left to be calculated in each run.
bool fold_constants(Graph& graph);

/// Drops Identity, Dropout, Cast and Reshape that change nothing.
bool drop_identity(Graph& graph);

/// A child module for each node whose row has one (see OpRow::make_module), named after the node;
/// the node's constants that the module holds are its parameters.
std::vector<nn::Module::NamedChild> make_modules(Graph& graph);

}  // namespace quanta::graph
