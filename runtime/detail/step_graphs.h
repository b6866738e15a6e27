#pragma once

// Private: the steps of a plan on a CUDA device, in stretches that are one graph each.

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "quanta/runtime/cuda/graph.h"
#include "quanta/runtime/device.h"

namespace quanta::replay::detail {

/// Steps that wait for the host, or take bytes from it, cannot be captured: they run launch by
/// launch between the graphs.
class StepGraphs {
 public:
  /// Asks the device for what the steps from `begin` to `end` do; `end` is the one behind them.
  using RunSteps = std::function<void(std::size_t begin, std::size_t end)>;

  /// Captures all `steps`, which have run before: what they make at first is there. `alone` says
  /// which cannot be captured as far as that is known; those that turn out not to are added.
  StepGraphs(Device device, std::size_t steps, std::vector<bool>& alone, const RunSteps& run);

  /// All steps.
  void launch(const RunSteps& run) const;

 private:
  struct Stretch {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<cuda::Graph> graph;
  };
  std::vector<Stretch> stretches_;
};

}  // namespace quanta::replay::detail
