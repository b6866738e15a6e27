#pragma once

// Private: a model taken apart, so that graph and children can be changed together.

#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/graph/model.h"

namespace quanta::graph::detail {

struct Parts {
  Graph graph;
  std::vector<nn::Module::NamedChild> children;
  std::shared_ptr<const OnnxModel> file;

  nn::Module* find(const std::string& name) const {
    for (const auto& child : children) {
      if (child.name == name) return child.module.get();
    }
    return nullptr;
  }
  /// The child that a node calls, or null.
  nn::Module* module_of(const Node& node) const {
    return node.module.empty() ? nullptr : find(node.module);
  }
  std::string unique_child_name(const std::string& base) const;
};

/// Copies of the graph and of the children.
Parts take_apart(const Model& model);
/// Children that no node calls any more are left out.
Model put_together(Parts parts);

/// Layers that belong together become one (the fusion rules of the table of module forms); with
/// `only_batch_norm`, only layers and batch norms.
bool fuse_layers(Parts& parts, bool only_batch_norm);
/// Multiplications by and additions of constants behind a linear layer go into its weight and bias;
/// those behind convolutions: passes.h.
bool fold_linear_scales(Parts& parts);
/// Add with a Relu behind it becomes one node, AddRelu.
bool fuse_add_relu(Parts& parts);
/// A ReLU6 behind a convolution or linear layer of its own becomes a ReLU, which fuses with the layer,
/// and what is left to clip.
bool split_relu6(Parts& parts);
/// The other half, when `converted` was made of `prepared`: layers with a ReLU whose codes go beyond 6
/// get those of 0..6, and the clip behind them goes where it has nothing to do any more.
bool absorb_relu6(Parts& converted, const Model& prepared);
/// Stubs where codes begin and end, given the QConfigs that the children have. With `observe_means`
/// the results of GlobalAveragePool get codes of their own.
bool insert_stubs(Parts& parts, bool observe_means);
/// In a converted model: GlobalAveragePool of dequantized codes sums the codes.
bool absorb_means(Parts& converted);
/// What a prepared model becomes with quantize and dequantize nodes instead of quantized modules.
Model convert_literally(const Model& prepared);

}  // namespace quanta::graph::detail
