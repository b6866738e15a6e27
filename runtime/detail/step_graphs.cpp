#include "quanta/runtime/detail/step_graphs.h"

#include <algorithm>
#include <utility>

namespace quanta::replay::detail {
namespace {

std::size_t end_of_run(const std::vector<bool>& alone, std::size_t begin) {
  const auto from = alone.begin() + static_cast<std::ptrdiff_t>(begin);
  return static_cast<std::size_t>(std::find(from, alone.end(), !*from) - alone.begin());
}

}  // namespace

StepGraphs::StepGraphs(Device device, std::size_t steps, std::vector<bool>& alone,
                       const RunSteps& run) {
  alone.resize(steps);
  for (std::size_t begin = 0; begin < steps;) {
    const std::size_t end = end_of_run(alone, begin);
    if (alone[begin]) {
      stretches_.push_back({begin, end, std::nullopt});
      begin = end;
      continue;
    }
    std::size_t step = begin;
    try {
      cuda::Capture capture(device);
      for (; step < end; ++step) {
        run(step, step + 1);
        capture.require_no_memory_left();
      }
      stretches_.push_back({begin, end, capture.finish()});
      begin = end;
    } catch (const cuda::CaptureError&) {
      if (step == end) throw;  // not a step's fault
      alone[step] = true;      // and once more, without it
    }
  }
}

void StepGraphs::launch(const RunSteps& run) const {
  for (const Stretch& stretch : stretches_) {
    stretch.graph ? stretch.graph->launch() : run(stretch.begin, stretch.end);
  }
}

}  // namespace quanta::replay::detail
