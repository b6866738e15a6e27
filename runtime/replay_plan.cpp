#include "quanta/runtime/replay_plan.h"

#include <algorithm>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/path_override.h"
#include "quanta/runtime/detail/replay_steps.h"
#include "quanta/runtime/verbose.h"

namespace quanta::replay {

using detail::Buffer;
using detail::BufferKind;
using detail::PlannedStep;
using detail::Program;
using detail::Value;

namespace {

std::size_t written_bytes(const Program& program) {
  std::size_t bytes = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind == BufferKind::Arena) bytes += buffer.bytes;
  }
  return bytes;
}

Tensor tensor_of(const Value& value, IntrusivePtr<Storage> storage, std::byte* begin) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->storage = std::move(storage);
  impl->data = begin + value.offset;
  impl->sizes = value.sizes;
  impl->strides = value.strides;
  impl->numel = value.numel();
  impl->dtype = value.dtype;
  impl->quantizer = value.quantizer;
  return Tensor(std::move(impl));
}

}  // namespace

struct ReplayPlan::Layout {
  Program program;
  Value input;  ///< of the recorded run; its offset is where the elements began
  std::size_t arena_bytes = 0;
};

/// The tensors of all steps over one block of memory. Those that lie in the input or the output get
/// their address for each run.
struct ReplayPlan::Instance {
  struct Moving {
    TensorImpl* tensor;
    std::size_t offset;
  };
  IntrusivePtr<Storage> arena;
  std::vector<Tensor> tensors;           // inputs, then outputs, step by step
  std::vector<const Tensor*> arguments;  // step by step, those that are left out too
  std::vector<Moving> in_input, in_output;

  explicit Instance(const Layout& layout)
      : arena(new Storage(std::max<std::size_t>(layout.arena_bytes, 1), Device::cpu())) {
    for (const PlannedStep& step : layout.program.steps) {
      for (const Value& value : step.inputs) add(layout.program, value);
      for (const Value& value : step.outputs) add(layout.program, value);
    }
    static const Tensor undefined;
    const Tensor* next = tensors.data();
    for (const PlannedStep& step : layout.program.steps) {
      for (const bool is_given : step.is_given) arguments.push_back(is_given ? next++ : &undefined);
      next += step.outputs.size();
    }
  }

  static void move(const std::vector<Moving>& group, const IntrusivePtr<Storage>& storage,
                   std::byte* begin) {
    for (const Moving& moving : group) {
      moving.tensor->storage = storage;
      moving.tensor->data = begin + moving.offset;
    }
  }

 private:
  void add(const Program& program, const Value& value) {
    const Buffer& buffer = program.buffers[value.buffer];
    if (buffer.kind == BufferKind::Constant) {
      tensors.push_back(tensor_of(value, buffer.constant, buffer.constant->data()));
      return;
    }
    tensors.push_back(tensor_of(value, arena, arena->data() + buffer.offset));
    const Moving moving{tensors.back().impl().get(), value.offset};
    if (buffer.kind == BufferKind::Input) in_input.push_back(moving);
    if (buffer.kind == BufferKind::Output) in_output.push_back(moving);
  }
};

ReplayPlan::ReplayPlan(const Recording& recording, const Tensor& input, const Tensor& output) {
  auto layout = std::make_unique<Layout>();
  Program& program = layout->program;
  program = detail::make_program(recording, input, output);
  info_.recorded_steps = program.steps.size();
  info_.result_bytes = written_bytes(program);
  detail::drop_unused(program);
  detail::share_equal_steps(program);
  detail::join_tables(program);
  layout->arena_bytes = detail::place_buffers(program);
  layout->input = {0,
                   static_cast<std::size_t>(static_cast<const std::byte*>(input.data_ptr()) -
                                            input.storage()->data()),
                   input.sizes(),
                   input.strides(),
                   input.dtype(),
                   input.impl()->quantizer};
  info_.steps = program.steps.size();
  info_.arena_bytes = layout->arena_bytes;
  layout_ = std::move(layout);
}

ReplayPlan::~ReplayPlan() = default;

std::unique_ptr<ReplayPlan::Instance> ReplayPlan::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Instance> instance = std::move(free_.back());
      free_.pop_back();
      return instance;
    }
  }
  return std::make_unique<Instance>(*layout_);
}

void ReplayPlan::give(std::unique_ptr<Instance> instance) const noexcept {
  // The caller's memory is not kept.
  Instance::move(instance->in_input, instance->arena, instance->arena->data());
  Instance::move(instance->in_output, instance->arena, instance->arena->data());
  try {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(instance));
  } catch (...) {  // no memory to remember it: it is freed
  }
}

Tensor ReplayPlan::run(const Tensor& x) const {
  const Program& program = layout_->program;
  const Value& expected = layout_->input;
  QUANTA_CHECK(x.defined(), "freeze: x: expected a tensor, got an undefined one");
  QUANTA_CHECK(x.dtype() == expected.dtype && x.sizes() == expected.sizes,
               "freeze: x: expected {} {} as the example was, got {} {} (freeze the network for "
               "these sizes too)",
               expected.dtype, expected.sizes, x.dtype(), x.sizes());
  QUANTA_CHECK(!x.is_quantized() || x.impl()->quantizer == expected.quantizer,
               "freeze: x: expected the quantization parameters of the example, got others");
  if (x.strides() != expected.strides) {
    const bool last = expected.strides == contiguous_strides(x.sizes(), MemoryFormat::ChannelsLast);
    const Tensor copy = x.clone(last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
    return run(copy);
  }
  std::unique_ptr<Instance> instance = take();
  const Buffer& result = program.buffers[program.output.buffer];
  IntrusivePtr<Storage> storage;
  if (result.kind == BufferKind::Output) {
    storage = IntrusivePtr<Storage>(new Storage(result.bytes, Device::cpu()));
  } else {
    storage = result.kind == BufferKind::Constant ? result.constant : x.storage();
  }
  // Offsets count from the recorded input's storage.
  std::byte* input_begin = static_cast<std::byte*>(x.data_ptr()) - expected.offset;
  Instance::move(instance->in_input, x.storage(), input_begin);
  if (result.kind == BufferKind::Output) {
    Instance::move(instance->in_output, storage, storage->data());
  }
  const Tensor* next = instance->tensors.data();
  const Tensor* const* arguments = instance->arguments.data();
  for (const PlannedStep& step : program.steps) {
    const PathOverride path(step.path);
    OpScope scope([&] { return step.operation->name(); });
    const Arguments in(arguments, step.is_given.size());
    arguments += step.is_given.size();
    const std::span<const Tensor> out(next + step.inputs.size(), step.outputs.size());
    next += step.inputs.size() + step.outputs.size();
    scope.kernel(step.operation->cpu(in, out));
    scope.work([&] { return step.operation->work(in, out); });
  }
  give(std::move(instance));
  std::byte* begin = result.kind == BufferKind::Input ? input_begin : storage->data();
  return tensor_of(program.output, std::move(storage), begin);
}

std::string ReplayPlan::to_string() const {
  const Program& program = layout_->program;
  std::string text =
      fmt::format("{} steps (of {} recorded), {} bytes shared by results of {}\n", info_.steps,
                  info_.recorded_steps, info_.arena_bytes, info_.result_bytes);
  for (const PlannedStep& step : program.steps) {
    const Value& out = step.outputs[0];
    const Buffer& buffer = program.buffers[out.buffer];
    const std::string place = buffer.kind == BufferKind::Output
                                  ? "result"
                                  : fmt::format("at {}", buffer.offset + out.offset);
    text += fmt::format("{:<32} {}{} -> {} {} {}\n", step.path, quanta::to_string(*step.operation),
                        step.note, out.dtype, out.sizes, place);
  }
  return text;
}

}  // namespace quanta::replay
