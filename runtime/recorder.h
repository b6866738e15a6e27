#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/tensor.h"

/// How an eager run is noted down so that it can be run again: each op that has calculated a result
/// says how to calculate it into given memory. quanta::freeze makes a plan of that.
///
///   Tensor out = Tensor::empty(...);
///   run_add(lhs, rhs, out);
///   if (replay::is_recording()) {
///     replay::record({.op = "add", .inputs = {lhs, rhs}, .outputs = {out},
///                     .run = [](const replay::Frame& f) { run_add(f.in(0), f.in(1), f.out()); }});
///   }
///
/// Nobody has to record a view. An op that is made of other recorded ops need not record either; if
/// it does, its own step takes the place of theirs. What was written by an op that does not record
/// is noticed when another step reads it, and refused.
namespace quanta::replay {

/// The tensors of one step in one run, of the sizes, strides, dtypes and quantizers that it was
/// recorded with.
struct Frame {
  const Tensor* inputs = nullptr;
  const Tensor* outputs = nullptr;
  const Tensor& in(std::size_t i = 0) const noexcept { return inputs[i]; }
  const Tensor& out(std::size_t i = 0) const noexcept { return outputs[i]; }
};

/// Calculates the outputs of a frame from its inputs. Must be safe from many threads, and may not
/// hold any tensor of the recorded run but constants.
using Kernel = std::function<void(const Frame&)>;

/// What becomes of each 8-bit code, by its bits.
using ByteTable = std::array<std::uint8_t, 256>;
using ByteTableKernel = std::function<Kernel(std::shared_ptr<const ByteTable>)>;

struct Step {
  std::string_view op;  ///< lives as long as the process
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  Kernel run;

  // What a plan may make of it; all may be left out.

  /// Steps of equal identity and inputs calculate the same: one of them is enough.
  std::string identity{};
  /// Output 0 may lie where input 0 lay.
  bool in_place = false;
  /// Set for a step that maps the bytes of input 0, in their order in memory, to those of output 0.
  std::shared_ptr<const ByteTable> table{};
  /// The step again, but with each byte of output 0 looked up in a table at the end; for a step
  /// with `table`, that of another table.
  ByteTableKernel with_table{};
  /// Between floats and codes of one scale per tensor, in the same order in memory. A Quantize step
  /// has with_codes: the step from 8-bit codes instead of floats, by a table.
  enum class Role : std::uint8_t { Other, Quantize, Dequantize } role = Role::Other;
  ByteTableKernel with_codes{};

  std::string path{};  ///< of the module; record() fills it in
};

/// Notes the steps of the calling thread while it lives. Recordings do not nest.
class Recording {
 public:
  /// `input` is what the run is given: what another run will have other values in.
  explicit Recording(const Tensor& input);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Throws UnsupportedError naming op and module when a step reads what no step, and nothing
  /// before the recording, has written, or when a step has noted down such memory before.
  const std::vector<Step>& steps() const noexcept { return steps_; }
  /// Throws UnsupportedError unless these elements are the result of a step, or older than the
  /// recording.
  void require_known(std::string_view op, std::string_view what, const Tensor& x) const;
  /// Whether the elements are the same in every run: older than the recording, or marked.
  bool is_constant(const Tensor& x) const noexcept;

  struct Seen;

 private:
  friend void record(Step step);
  friend void note_storage(Storage* storage);
  friend void mark_constant(const Tensor& x);
  std::vector<Step> steps_;
  std::unique_ptr<Seen> seen_;
};

namespace detail {
extern thread_local constinit Recording* recording;
}  // namespace detail

inline bool is_recording() noexcept { return detail::recording != nullptr; }

/// Only while is_recording().
void record(Step step);

/// For a step that is not worth a kernel of its own: `function(const Frame&)` gives the result as
/// the eager op does, and it is copied to output 0.
void record_call(std::string_view op, std::vector<Tensor> inputs, const Tensor& output,
                 std::function<Tensor(const Frame&)> function);

/// Says that this new tensor holds the same values in every run. Only while is_recording().
void mark_constant(const Tensor& x);

/// Throws UnsupportedError while recording, when values that a run has calculated are about to be
/// looked at: what follows from them could not be replayed.
void check_read(std::string_view op, const Tensor& x);

/// Called by Storage for new memory.
void note_storage(Storage* storage);

/// While it lives, nothing is recorded: for an op that tries things out.
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
