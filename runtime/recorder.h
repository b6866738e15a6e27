#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/operation.h"
#include "quanta/runtime/tensor.h"

/// How an eager run is noted down so that it can be run again: `run` appends each operation that it
/// has run, with its tensors. quanta::freeze makes a plan of that.
///
/// Nobody has to record a view. A composition is not recorded, but the operations within it are.
/// What was written by anything else than an operation is noticed when an operation reads it, and
/// refused. An operation whose inputs are all constants is done once, while recording.
///
/// A recording belongs to the thread that makes it: operations of other threads are not noted.
namespace quanta::replay {

/// A call of an operation, as it was recorded.
struct Step {
  std::shared_ptr<const Operation> operation;
  std::vector<Tensor> inputs;  ///< by position; those left out are undefined
  std::vector<Tensor> outputs;
  std::string path{};  ///< the module's path; record() fills it in
};

/// Whether steps of constants alone, which have the same results in every run, are noted too.
enum class ConstantSteps : bool { Skip, Keep };

/// Notes the steps of the calling thread while it lives. Recordings do not nest.
class Recording {
 public:
  /// `inputs` is what the run is given: what another run will have other values in. Each has
  /// memory of its own.
  explicit Recording(std::span<const Tensor> inputs, ConstantSteps constants = ConstantSteps::Skip);
  explicit Recording(const Tensor& input) : Recording(std::span<const Tensor>(&input, 1)) {}
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  const std::vector<Step>& steps() const noexcept { return steps_; }
  /// Throws UnsupportedError unless these elements are the result of a step, or older than the
  /// recording.
  void require_known(std::string_view op, std::string_view what, const Tensor& x) const;
  /// Whether the elements are the same in every run: older than the recording, or marked.
  bool is_constant(const Tensor& x) const noexcept;
  /// Whether its memory is of the time of the recording.
  bool is_made(const Tensor& x) const noexcept;

  struct Seen;

 private:
  friend void record(Step step);
  friend void note_storage(Storage* storage);
  friend void mark_constant(const Tensor& x);
  friend void before_write(std::string_view op, const Tensor& x);
  std::vector<Step> steps_;
  std::unique_ptr<Seen> seen_;
  ConstantSteps constants_;
};

namespace detail {
extern thread_local constinit Recording* recording;
/// The recording that hears of new storages, while steps are not recorded too.
extern thread_local constinit Recording* noting;
}  // namespace detail

inline bool is_recording() noexcept { return detail::recording != nullptr; }

/// Only while is_recording(). Throws UnsupportedError naming op and module when a step reads what
/// no step, and nothing before the recording, has written, or writes to what is older than that.
void record(Step step);

/// For an op in place, before it writes to x and changes its version: what a constant tensor held
/// before the first write is put there in every run. Does nothing unless is_recording().
void before_write(std::string_view op, const Tensor& x);

/// Says that this new tensor holds the same values in every run. Only while is_recording().
void mark_constant(const Tensor& x);

/// Throws UnsupportedError while recording, when values that a run has calculated are about to be
/// looked at: what follows from them could not be replayed.
void check_read(std::string_view op, const Tensor& x);

/// Called by Storage for new memory.
void note_storage(Storage* storage);

/// While it lives, no steps are recorded: for what is not a part of the run that is noted down.
class PauseRecording {
 public:
  PauseRecording() noexcept : before_(detail::recording) { detail::recording = nullptr; }
  ~PauseRecording() { detail::recording = before_; }
  PauseRecording(const PauseRecording&) = delete;
  PauseRecording& operator=(const PauseRecording&) = delete;

 private:
  Recording* before_;
};

}  // namespace quanta::replay
