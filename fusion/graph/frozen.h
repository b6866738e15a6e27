#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/tensor.h"

namespace quanta::graph {

/// A graph model as plans: the steps of a recorded run without modules, checks and allocations
/// between them (see quanta::freeze). The first run with new sizes runs eagerly and is recorded; the
/// eight last used sizes are kept, and their plans share packed weights. Nodes whose results have
/// sizes that depend on values (NonZero, a Loop on calculated values) run eagerly between plans.
///
///   const graph::FrozenGraph fast(net);
///   NamedTensors y = fast.run({{"x", x}});   // as net.run, sooner
///
/// It keeps a copy of the model: later changes of that are not seen. Copies share plans. Safe to call
/// from many threads at once. Throws ArgumentError for a model in train mode, or with hooks or
/// observers; calls throw what graph::Model::run throws.
class FrozenGraph {
 public:
  explicit FrozenGraph(const Model& model);

  /// For one input and one output.
  Tensor operator()(const Tensor& x) const;
  NamedTensors run(const NamedTensors& inputs) const;
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;

  const Model& model() const noexcept;
  struct Info {
    std::size_t plans = 0;        ///< kept at the moment
    std::size_t steps = 0;        ///< of the plans that were used last
    std::size_t eager_nodes = 0;  ///< that run between plans
  };
  Info info() const;
  /// The plans that were used last, a line for each step, and the nodes between them.
  std::string to_string() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace quanta::graph
