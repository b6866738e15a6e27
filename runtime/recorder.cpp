#include "quanta/runtime/recorder.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/module_path.h"

namespace quanta::replay {

namespace detail {
thread_local constinit Recording* recording = nullptr;
}  // namespace detail

struct Recording::Seen {
  struct Memory {
    IntrusivePtr<Storage> storage;  // kept, so that no later storage has its address
    bool is_written = false;        // by a step
    bool is_constant = false;
    bool is_input = false;
    std::uint32_t version = 0;  // when it was
  };
  // Storages made while recording.
  std::unordered_map<const Storage*, Memory> made;
};

Recording::Recording(const Tensor& input) : seen_(std::make_unique<Seen>()) {
  QUANTA_CHECK(!is_recording(), "freeze: recording: expected one at a time, got another inside");
  seen_->made.emplace(input.storage().get(), Seen::Memory{.storage = input.storage(),
                                                          .is_written = true,
                                                          .is_input = true,
                                                          .version = input.version()});
  detail::recording = this;
}

Recording::~Recording() { detail::recording = nullptr; }

void Recording::require_known(std::string_view op, std::string_view what, const Tensor& x) const {
  if (!x.defined() || x.numel() == 0) return;
  const auto found = seen_->made.find(x.storage().get());
  if (found == seen_->made.end()) return;  // older than the recording
  const Seen::Memory& memory = found->second;
  QUANTA_SUPPORTED(memory.is_written || memory.is_constant,
                   "freeze: {}: {}: expected the result of operations that can be replayed (see "
                   "docs/freeze.md), got one that cannot{}",
                   op, what,
                   steps_.empty() ? "" : fmt::format(", made after {}", steps_.back().op));
  QUANTA_SUPPORTED(memory.version == x.version(),
                   "freeze: {}: {}: expected a tensor that only recorded operations have written "
                   "to, got one that was changed in place",
                   op, what);
}

bool Recording::is_constant(const Tensor& x) const noexcept {
  const auto found = seen_->made.find(x.storage().get());
  return found == seen_->made.end() || (found->second.is_constant && !found->second.is_written);
}

void mark_constant(const Tensor& x) {
  const auto found = detail::recording->seen_->made.find(x.storage().get());
  if (found == detail::recording->seen_->made.end()) return;
  found->second.is_constant = true;
  found->second.version = x.version();
}

void check_read(std::string_view op, const Tensor& x) {
  if (!is_recording() || detail::recording->is_constant(x)) return;
  throw UnsupportedError(fmt::format(
      "freeze: {}: x: expected a network whose steps do not depend on the values that it "
      "calculates, got {} of a calculated tensor",
      op, op));
}

void record(Step step) {
  Recording& self = *detail::recording;
  for (const Tensor& x : step.inputs) self.require_known(step.op, "input", x);
  for (const Tensor& x : step.outputs) {
    const auto found = self.seen_->made.find(x.storage().get());
    QUANTA_SUPPORTED(found != self.seen_->made.end() && !found->second.is_input,
                     "freeze: {}: output: expected new memory, got a tensor that is older than the "
                     "recording (an operation in place on the input or on a parameter?)",
                     step.op);
    found->second.is_written = true;
    found->second.version = x.version();
  }
  step.path = current_module_path();
  self.steps_.push_back(std::move(step));
}

void record_call(std::string_view op, std::vector<Tensor> inputs, const Tensor& output,
                 std::function<Tensor(const Frame&)> function) {
  record({.op = op,
          .inputs = std::move(inputs),
          .outputs = {output},
          .run = [function = std::move(function)](const Frame& frame) {
            const Tensor result = function(frame);
            // Same code, same arguments: same layout.
            std::memcpy(frame.out().data_ptr(), result.data_ptr(), result.nbytes());
          }});
}

void note_storage(Storage* storage) {
  detail::recording->seen_->made.emplace(
      storage, Recording::Seen::Memory{.storage = IntrusivePtr<Storage>(storage)});
}

}  // namespace quanta::replay
