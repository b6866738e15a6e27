#include "quanta/runtime/recorder.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/detail/state.h"
#include "quanta/runtime/module_path.h"

namespace quanta::replay {

namespace detail {
thread_local constinit Recording* recording = nullptr;
thread_local constinit Recording* noting = nullptr;
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

Recording::Recording(std::span<const Tensor> inputs, ConstantSteps constants)
    : seen_(std::make_unique<Seen>()), constants_(constants) {
  QUANTA_CHECK(!is_recording(), "freeze: recording: expected one at a time, got another inside");
  for (const Tensor& input : inputs) {
    const bool is_new =
        seen_->made
            .emplace(input.storage().get(), Seen::Memory{.storage = input.storage(),
                                                         .is_written = true,
                                                         .is_input = true,
                                                         .version = input.version()})
            .second;
    QUANTA_CHECK(is_new, "freeze: inputs: expected memory of its own for each, got two that share");
  }
  detail::recording = this;
  detail::noting = this;
}

Recording::~Recording() {
  detail::recording = nullptr;
  detail::noting = nullptr;
}

void Recording::require_known(std::string_view op, std::string_view what, const Tensor& x) const {
  if (!x.defined() || x.numel() == 0) return;
  const auto found = seen_->made.find(x.storage().get());
  if (found == seen_->made.end()) return;  // older than the recording
  const Seen::Memory& memory = found->second;
  QUANTA_SUPPORTED(
      memory.is_written || memory.is_constant,
      "freeze: {}: {}: expected the result of operations that can be replayed (see "
      "docs/freeze.md), got one that cannot{}",
      op, what,
      steps_.empty() ? "" : fmt::format(", made after {}", steps_.back().operation->name()));
  QUANTA_SUPPORTED(memory.version == x.version(),
                   "freeze: {}: {}: expected a tensor that only recorded operations have written "
                   "to, got one that was changed in place",
                   op, what);
}

bool Recording::is_made(const Tensor& x) const noexcept {
  return seen_->made.contains(x.storage().get());
}

bool Recording::is_constant(const Tensor& x) const noexcept {
  const auto found = seen_->made.find(x.storage().get());
  return found == seen_->made.end() || (found->second.is_constant && !found->second.is_written);
}

namespace {

struct CopyBytes final : Op<CopyBytes> {
  static constexpr std::string_view kName = "constant";
  static constexpr ArgumentCount kArguments{1};
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    std::memcpy(out[0].data_ptr(), in[0].data_ptr(), in[0].nbytes());
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::copy_same_dtype(out[0], in[0]);
    return "copy";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    static constexpr std::array kBytes{DType::UInt8};
    return kBytes;
  }
};

Tensor all_bytes(const IntrusivePtr<Storage>& storage) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->storage = storage;
  impl->data = storage->data();
  impl->numel = static_cast<std::int64_t>(storage->bytes());
  impl->sizes = {impl->numel};
  impl->strides = {1};
  impl->dtype = DType::UInt8;
  return Tensor(std::move(impl));
}

}  // namespace

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
  const std::string_view op = step.operation->name();
  Recording& self = *detail::recording;
  const auto is_constant = [&](const Tensor& x) { return !x.defined() || self.is_constant(x); };
  bool is_new = true;
  for (const Tensor& x : step.outputs) {
    const auto found = self.seen_->made.find(x.storage().get());
    QUANTA_SUPPORTED(found != self.seen_->made.end() && !found->second.is_input,
                     "freeze: {}: output: expected new memory, got a tensor that is older than the "
                     "recording (an operation in place on the input or on a parameter?)",
                     op);
    is_new = is_new && !found->second.is_written && x.nbytes() == x.storage()->bytes();
  }
  for (const Tensor& x : step.inputs) {
    if (!x.defined()) continue;
    // What an op in place writes to was looked at by before_write.
    const bool is_output = std::ranges::any_of(step.outputs, [&](const Tensor& output) {
      return output.storage().get() == x.storage().get();
    });
    if (!is_output) self.require_known(op, "input", x);
  }
  if (is_new && std::ranges::all_of(step.inputs, is_constant)) {
    for (const Tensor& x : step.outputs) mark_constant(x);
    if (self.constants_ == ConstantSteps::Skip) return;
  } else {
    for (const Tensor& x : step.outputs) {
      Recording::Seen::Memory& memory = self.seen_->made.at(x.storage().get());
      memory.is_written = true;
      memory.version = x.version();
    }
  }
  step.path = current_module_path();
  self.steps_.push_back(std::move(step));
}

void before_write(std::string_view op, const Tensor& x) {
  if (!is_recording() || x.numel() == 0) return;
  Recording& self = *detail::recording;
  const auto found = self.seen_->made.find(x.storage().get());
  if (found == self.seen_->made.end()) return;  // refused when the write is recorded
  Recording::Seen::Memory& memory = found->second;
  if (memory.is_written || memory.is_constant) self.require_known(op, "x", x);
  if (memory.is_written || !memory.is_constant) return;
  const Tensor whole = all_bytes(x.storage());
  const Tensor before = [&] {
    const PauseRecording pause;
    return whole.clone();
  }();
  mark_constant(before);
  memory.is_written = true;
  memory.version = x.version();
  // First of all: steps before this write may have read the constant.
  self.steps_.insert(
      self.steps_.begin(),
      Step{.operation = std::make_shared<CopyBytes>(), .inputs = {before}, .outputs = {whole}});
}

void note_storage(Storage* storage) {
  // The pointer last: it must not die here and take the storage, which nobody else has yet, along.
  const auto [place, is_new] = detail::noting->seen_->made.try_emplace(storage);
  if (is_new) place->second.storage = IntrusivePtr<Storage>(storage);
}

}  // namespace quanta::replay

void quanta::detail::require_no_recording(std::string_view op, std::string_view argument) {
  QUANTA_SUPPORTED(!replay::is_recording(),
                   "freeze: {}: {}: expected no statistics that a call changes, got some", op,
                   argument);
}
