#pragma once

#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/graph/model.h"

/// Networks that were written as classes, as graphs: one run on an example is recorded, each
/// operation becomes a node, and what has views between operations becomes Reshape, Transpose,
/// Slice, Expand or Gather. Safe from many threads on a network that nobody changes.
namespace quanta::graph {

struct TraceOptions {
  /// Names of the graph's inputs and outputs, one each; empty: `input` and `output`, with a number
  /// behind where there are several.
  std::vector<std::string> input_names{};
  std::vector<std::string> output_names{};
  /// The size of dimension 0 of all inputs may differ from run to run. It is the same number in all
  /// examples; the network is run on twice as many and on three times as many samples, and what
  /// differs between the two graphs is calculated from the input's size.
  bool dynamic_batch = false;
};

/// The network in eval mode as a graph::Model that gives the same results. Nodes and values have
/// the names of the modules that ran them ("conv1", "layer1.0.relu"), weights those of state_dict;
/// what depends on weights alone is a constant, except for quantizers of weights, which stay. LSTM,
/// GRU and RNN are nodes of ONNX's names, one for each layer. Sizes are those of the example.
///
/// Observers within fake quantizers see nothing of the runs. The model is not one for
/// prepare_jit: from_onnx(to_onnx(net, example)) makes layers of the nodes.
///
/// Throws ArgumentError for a network in train mode, an example that is undefined, quantized, not on
/// the CPU or shares memory with another one, names that are not one each or not unique, and with
/// dynamic_batch for examples without a common dimension 0; UnsupportedError for what a recording
/// cannot take (docs/freeze.md), for tensors that are written to in part, for results that no
/// operation makes, and with dynamic_batch for what cannot follow the batch, by name.
Model trace(const nn::Module& model, std::span<const Tensor> example,
            const TraceOptions& options = {});
inline Model trace(const nn::Module& model, const Tensor& example,
                   const TraceOptions& options = {}) {
  return trace(model, std::span<const Tensor>(&example, 1), options);
}

}  // namespace quanta::graph
