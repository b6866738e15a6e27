#pragma once

// Private: names of the modules that passes make of nodes.

#include <span>
#include <string>

#include "quanta/fusion/graph/graph.h"
#include "quanta/nn/module.h"

namespace quanta::graph {

/// A name of the file as one in the tree of modules, where a dot would be a step down.
std::string in_module_tree(std::string name);

/// The node's name in the tree of modules, or its operator's where it has none; with "_2" and so on
/// where one of `children` or `others` has it.
std::string child_name(const Node& node, std::span<const nn::Module::NamedChild> children,
                       std::span<const nn::Module::NamedChild> others = {});

}  // namespace quanta::graph
