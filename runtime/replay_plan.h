#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "quanta/runtime/recorder.h"
#include "quanta/runtime/tensor.h"

namespace quanta::replay {

namespace detail {
struct Division;
struct Instance;
struct Layout;
struct Place;
class PlanForks;
}  // namespace detail

/// A recorded run made ready to be run again: steps that do not matter are left out, equal ones are
/// done once, tables are joined with the steps before them, and all results but the last lie in one
/// block of memory where those share bytes that are not needed at the same time.
/// run() is safe from many threads; each that runs at the same time has a block of its own, kept
/// for later runs.
/// Where every step works on each row (dimension 0) by itself, as those of a convolutional network in
/// int8 do, the threads of a run on the CPU share the rows instead of each step, if they all get
/// enough to do: a thread takes some rows through all steps, and the next ones when it is ready. Not
/// while a Profiler or set_verbose() watches.
/// Otherwise runs with several threads time some steps at first: where it takes less time, branches of
/// the network run side by side with a thread each, and small steps on one thread (docs/freeze.md).
/// On a CUDA device a block's first run is captured: later ones are a copy of the inputs, one graph
/// launch and a copy of the outputs. Steps that wait for the host (embeddings, which look at their
/// indices) run launch by launch between graphs; to_string() says which. All steps do while a Profiler
/// or set_verbose() watches them, or with QUANTA_CUDA_SYNC=1.
class ReplayPlan {
 public:
  /// `inputs` is what was recorded with, of any strides, `outputs` what came out. Throws
  /// UnsupportedError when an output is not the result of recorded steps, or a step reads what lies
  /// in an input's memory but is none of its elements.
  ReplayPlan(const Recording& recording, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs);
  ReplayPlan(const Recording& recording, const Tensor& input, const Tensor& output)
      : ReplayPlan(recording, std::span<const Tensor>(&input, 1),
                   std::span<const Tensor>(&output, 1)) {}
  ~ReplayPlan();
  ReplayPlan(const ReplayPlan&) = delete;
  ReplayPlan& operator=(const ReplayPlan&) = delete;

  /// Throws ArgumentError unless x has the sizes, dtype and quantization parameters of the recorded
  /// input. Of other strides it is copied first, into as much memory as the recorded input's
  /// elements span; UnsupportedError where several of those are one place in memory, as after
  /// expand().
  Tensor run(const Tensor& x) const;
  /// The same of a plan with any number of inputs and outputs.
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;

  struct Info {
    std::size_t recorded_steps = 0;
    std::size_t steps = 0;
    std::size_t arena_bytes = 0;   ///< the size of the block, where steps come one after the other
    std::size_t result_bytes = 0;  ///< what all results would take, had each its own memory
    std::int64_t rows = 0;         ///< that all steps work on by themselves; 0: there are none
  };
  const Info& info() const noexcept { return info_; }
  /// What runs do, and a line for each step: module path, op, sizes of the results, where they lie if
  /// steps come one after the other.
  std::string to_string() const;

 private:
  /// Throws ArgumentError unless the inputs are as the examples were.
  void check(std::span<const Tensor> inputs) const;
  void run_between(std::span<const Tensor> inputs, std::span<detail::Place> in_places,
                   std::span<detail::Place> out_places) const;
  void run_on_device(std::span<const Tensor> inputs,
                     std::span<const detail::Place> out_places) const;
  /// How so many threads share the rows; null where they share steps, or take some each.
  const detail::Division* division_for(int threads) const;
  const detail::PlanForks& forks_for(int threads) const;
  std::string forks_to_string() const;
  /// Which steps no graph holds; empty before the first graph.
  std::vector<bool> launched_alone() const;

  Info info_;
  std::unique_ptr<const detail::Layout> layout_;
  mutable std::mutex mutex_;
  mutable std::vector<bool> alone_;
  mutable std::vector<std::unique_ptr<const detail::Division>> divisions_;
  mutable std::vector<std::unique_ptr<const detail::PlanForks>> forks_;
};

}  // namespace quanta::replay
