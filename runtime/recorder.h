#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/runtime/operation.h"
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
/// An op that is not worth a kernel of its own calls itself through call(), which makes one step of
/// it. Nobody has to record a view. An op that is made of other recorded ops need not record
/// either; if it does, its own step takes the place of theirs. What was written by an op that does
/// not record is noticed when another step reads it, and refused. A step whose inputs are all
/// constants is done once, while recording.
namespace quanta::replay {

/// A call of an operation, as it was recorded.
struct Step {
  std::shared_ptr<const Operation> operation;
  std::vector<Tensor> inputs;  ///< by position; those left out are undefined
  std::vector<Tensor> outputs;
  std::string path{};  ///< of the module; record() fills it in
};

// Steps that are not operations yet -------------------------------------------------------------

/// The tensors of one step in one run, of the sizes, strides, dtypes and quantizers that it was
/// recorded with.
struct Frame {
  const Tensor* const* inputs = nullptr;
  const Tensor* outputs = nullptr;
  const Tensor& in(std::size_t i = 0) const noexcept { return *inputs[i]; }
  const Tensor& out(std::size_t i = 0) const noexcept { return outputs[i]; }
};

/// Calculates the outputs of a frame from its inputs. Must be safe from many threads, and may not
/// hold any tensor of the recorded run but constants.
using Kernel = std::function<void(const Frame&)>;

using ByteTable = quanta::ByteTable;
using ByteTableKernel = std::function<Kernel(std::shared_ptr<const ByteTable>)>;

struct ClosureStep {
  std::string_view op;  ///< lives as long as the process
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  Kernel run;
  /// Steps of equal identity and inputs calculate the same: one of them is enough.
  std::string identity{};
  bool in_place = false;
  std::shared_ptr<const ByteTable> table{};
  ByteTableKernel with_table{};
  PlanUse::Role role = PlanUse::Role::Other;
  ByteTableKernel with_codes{};
};

/// Notes the steps of the calling thread while it lives. Recordings do not nest.
class Recording {
 public:
  /// `input` is what the run is given: what another run will have other values in.
  explicit Recording(const Tensor& input);
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
};

namespace detail {
extern thread_local constinit Recording* recording;
/// Of new storages, while steps are not recorded too.
extern thread_local constinit Recording* noting;
}  // namespace detail

inline bool is_recording() noexcept { return detail::recording != nullptr; }

/// Only while is_recording(). Throws UnsupportedError naming op and module when a step reads what
/// no step, and nothing before the recording, has written, or writes to what is older than that.
void record(Step step);
void record(ClosureStep step);

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

/// While it lives, no steps are recorded: for an op that records itself as a whole.
class PauseRecording {
 public:
  PauseRecording() noexcept : before_(detail::recording) { detail::recording = nullptr; }
  ~PauseRecording() { detail::recording = before_; }
  PauseRecording(const PauseRecording&) = delete;
  PauseRecording& operator=(const PauseRecording&) = delete;

 private:
  Recording* before_;
};

namespace detail {

/// Gives the results of an op from its arguments.
using Call = std::function<std::vector<Tensor>(const Tensor* arguments)>;
void record_call(std::string_view op, std::vector<Tensor> arguments, std::vector<Tensor> results,
                 Call call);

inline void append_results(std::vector<Tensor>& all, const Tensor& result) {
  all.push_back(result);
}
inline void append_results(std::vector<Tensor>& all, const std::vector<Tensor>& results) {
  all.insert(all.end(), results.begin(), results.end());
}
/// quanta::ValuesIndices.
template <typename Result>
requires requires(const Result& result) { result.values, result.indices; }
void append_results(std::vector<Tensor>& all, const Result& result) {
  all.push_back(result.values);
  all.push_back(result.indices);
}
template <typename First, typename Second>
void append_results(std::vector<Tensor>& all, const std::pair<First, Second>& results) {
  append_results(all, results.first);
  append_results(all, results.second);
}

}  // namespace detail

/// function(arguments...), recorded as one step that calls it again and copies the results. Some
/// arguments may be undefined; the function owns everything else that it needs. For the begin of
/// an op, as nothing is recorded within:
///
///   Tensor flip(const Tensor& x, const Dims& dims) {
///     if (replay::is_recording()) {
///       return replay::call("flip", [=](const Tensor& t) { return flip(t, dims); }, x);
///     }
///
/// Results are a Tensor, a vector or a pair of them, or ValuesIndices. Those that share memory with
/// an argument are views: nothing has to be done for them.
template <typename Function, typename... Tensors>
auto call(std::string_view op, Function function, const Tensors&... arguments) {
  auto result = [&] {
    const PauseRecording pause;
    return function(arguments...);
  }();
  std::vector<Tensor> results;
  detail::append_results(results, result);
  detail::record_call(op, {arguments...}, std::move(results),
                      [function = std::move(function)](const Tensor* given) {
                        return [&]<std::size_t... i>(std::index_sequence<i...>) {
                          std::vector<Tensor> again;
                          detail::append_results(again, function(Tensors(given[i])...));
                          return again;
                        }
                        (std::index_sequence_for<Tensors...>{});
                      });
  return result;
}

}  // namespace quanta::replay
