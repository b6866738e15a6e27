#pragma once

// Private: the memory of a plan's steps and what runs them there.

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quanta/runtime/detail/replay_steps.h"
#include "quanta/runtime/detail/row_program.h"
#include "quanta/runtime/detail/step_graphs.h"
#include "quanta/runtime/device.h"
#include "quanta/runtime/tensor.h"

namespace quanta::replay::detail {

/// The tensor whose elements lie from `begin` as those of `value` do from their buffer's begin.
Tensor tensor_of(const Value& value, IntrusivePtr<Storage> storage, std::byte* begin);

/// Where an input or output lies in this run.
struct Place {
  IntrusivePtr<Storage> storage;
  std::byte* begin = nullptr;
};

struct Layout;

/// The tensors of all steps over one block of memory. On the CPU those that lie in the input or the
/// output get their address for each run. On a CUDA device, whose graphs know addresses, there is
/// memory for inputs and outputs too, and their bytes are copied.
struct Instance {
  struct Moving {
    TensorImpl* tensor;
    std::size_t offset;
    std::size_t number;  ///< of the input or output
  };
  IntrusivePtr<Storage> arena;
  std::vector<Tensor> tensors;           // inputs, then outputs, step by step
  std::vector<const Tensor*> arguments;  // step by step, those that are left out too
  std::vector<Moving> in_input, in_output;
  /// Where a step's own begin: in `arguments`, and its outputs in `tensors`.
  struct Begin {
    std::size_t arguments;
    std::size_t outputs;
  };
  std::vector<Begin> begins;
  // On a CUDA device, by number.
  std::vector<Place> own_inputs, own_outputs;
  std::vector<Tensor> input_tensors;
  std::optional<StepGraphs> graphs;  // after the first run

  explicit Instance(const Layout& layout);

  static void move(const std::vector<Moving>& group, std::span<const Place> places);
  /// On by so many bytes from where the last move put them.
  static void move_on(const std::vector<Moving>& group, std::span<const std::size_t> bytes,
                      std::int64_t times);
  /// Lets go of the caller's memory.
  void forget() noexcept;

 private:
  void own_ends(const Layout& layout);
  void add(const Program& program, const Value& value);
};

/// Steps and where their results lie, and what has been made to run them.
struct Layout {
  Program program;
  std::vector<Value> inputs;   ///< of the recorded run; offsets are where the elements began
  std::vector<bool> overlaps;  ///< whether elements of that input are one place in memory
  std::size_t arena_bytes = 0;
  Device device;  ///< of all its memory
  RowWork rows;

  std::unique_ptr<Instance> take() const;
  void give(std::unique_ptr<Instance> instance) const noexcept;
  /// Frees those that nobody has taken.
  void forget_free() const noexcept;
  /// What step `next` reads beside its arguments is asked for meanwhile, unless it is behind all steps.
  void run_step(const Instance& instance, std::size_t step, std::size_t next) const;
  void run_steps(const Instance& instance, std::size_t begin, std::size_t end) const;
  /// On the CPU: run(instance) with one that was taken, whose inputs and outputs lie there; gives it back.
  template <typename Run>
  void run_between(std::unique_ptr<Instance> instance, std::span<const Place> in_places,
                   std::span<const Place> out_places, const Run& run) const {
    Instance::move(instance->in_input, in_places);
    Instance::move(instance->in_output, out_places);
    run(std::as_const(*instance));
    give(std::move(instance));
  }
  /// Those that run all steps in their order.
  void run(std::unique_ptr<Instance> instance, std::span<const Place> in_places,
           std::span<const Place> out_places) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Instance>> free_;
};

}  // namespace quanta::replay::detail
