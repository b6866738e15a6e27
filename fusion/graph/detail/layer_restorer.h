#pragma once

// Private: what restore_layers knows while it goes through a graph.

#include <optional>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_metadata.h"
#include "quanta/fusion/graph/passes/lowering.h"

namespace quanta::graph {

class LayerRestorer {
 public:
  LayerRestorer(Graph& graph, const detail::OnnxMetadata& metadata,
                std::vector<nn::Module::NamedChild>& children)
      : graph_(graph), metadata_(metadata), uses_(graph), lowering_(graph, children) {}

  bool run();

 private:
  /// Where a layer of several nodes ends.
  struct End {
    ValueId output = kNone;
    std::vector<NodeId> nodes;  ///< behind the one with the weight
    Tensor bias;
  };
  /// The node that alone takes a value, if it is this operator; it is added to the end.
  const Node* step(End& end, std::string_view op) const;
  /// The bias and the relu that the note speaks of. False where they are not there.
  bool find_tail(End& end, const detail::LayerNote& note) const;
  void put(const Node& node, std::shared_ptr<nn::Module> module, ValueId x, const End& end);

  const Node* producer(ValueId id) const { return producer_of(graph_, uses_, id); }
  /// The numbers of a DequantizeLinear, or a Cast of halves: QInt8 with the channels along
  /// dimension `axis`, or Float16. Undefined for anything else.
  Tensor coded_weight(ValueId id, std::int64_t axis) const;

  // Each gives whether it has put the module in; `restore` throws ArgumentError where no module can
  // be made of what stands in the file.
  bool fits(const Node& node, const detail::LayerNote& note);
  bool restore(const Node& node, const detail::LayerNote& note);
  bool restore_linear(const Node& node, const detail::LayerNote& note);
  bool restore_halves(const Node& node, const detail::LayerNote& note);
  bool restore_weight_only(const Node& node, const detail::LayerNote& note);
  bool restore_recurrent(const Node& node, const detail::LayerNote& note);

  // Of recurrent layers.
  struct Directions {
    std::vector<Tensor> ih, hh;  ///< QInt8 or Float16 [gates * hidden, in], gates in torch's order
  };
  std::vector<Tensor> direction_weights(ValueId id, std::size_t gates) const;
  std::vector<Tensor> packed_directions(const Node& node, std::size_t codes,
                                        std::size_t scale) const;

  Graph& graph_;
  const detail::OnnxMetadata& metadata_;
  Uses uses_;
  Lowering lowering_;
};

}  // namespace quanta::graph
