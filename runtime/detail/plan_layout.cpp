#include "quanta/runtime/detail/plan_layout.h"

#include <algorithm>
#include <utility>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/path_override.h"
#include "quanta/runtime/detail/upcoming_memory.h"
#include "quanta/runtime/verbose.h"

namespace quanta::replay::detail {

Tensor tensor_of(const Value& value, IntrusivePtr<Storage> storage, std::byte* begin) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->device = storage->device();
  impl->storage = std::move(storage);
  impl->data = begin + value.offset;
  impl->sizes = value.sizes;
  impl->strides = value.strides;
  impl->numel = value.numel();
  impl->dtype = value.dtype;
  impl->quantizer = value.quantizer;
  return Tensor(std::move(impl));
}

Instance::Instance(const Layout& layout)
    : arena(new Storage(std::max<std::size_t>(layout.arena_bytes, 1), layout.device)) {
  for (const PlannedStep& step : layout.program.steps) {
    for (const Value& value : step.inputs) add(layout.program, value);
    for (const Value& value : step.outputs) add(layout.program, value);
  }
  static const Tensor undefined;
  std::size_t next = 0;
  for (const PlannedStep& step : layout.program.steps) {
    begins.push_back({arguments.size(), next + step.inputs.size()});
    for (const bool is_given : step.is_given) {
      arguments.push_back(is_given ? &tensors[next++] : &undefined);
    }
    next += step.outputs.size();
  }
  if (layout.device.is_cuda()) own_ends(layout);
}

void Instance::move(const std::vector<Moving>& group, std::span<const Place> places) {
  for (const Moving& moving : group) {
    const Place& place = places[moving.number];
    moving.tensor->storage = place.storage;
    moving.tensor->data = place.begin + moving.offset;
  }
}

void Instance::move_on(const std::vector<Moving>& group, std::span<const std::size_t> bytes,
                       std::int64_t times) {
  for (const Moving& moving : group) {
    moving.tensor->data += bytes[moving.number] * static_cast<std::size_t>(times);
  }
}

void Instance::forget() noexcept {
  for (const auto* group : {&in_input, &in_output}) {
    for (const Moving& moving : *group) {
      moving.tensor->storage = arena;
      moving.tensor->data = arena->data();
    }
  }
}

// Memory for the inputs and outputs.
void Instance::own_ends(const Layout& layout) {
  own_inputs.resize(layout.inputs.size());
  own_outputs.resize(layout.program.outputs.size());
  for (const Buffer& buffer : layout.program.buffers) {
    if (buffer.kind != BufferKind::Input && buffer.kind != BufferKind::Output) continue;
    auto& places = buffer.kind == BufferKind::Input ? own_inputs : own_outputs;
    IntrusivePtr<Storage> storage(new Storage(buffer.bytes, layout.device));
    places[buffer.number] = {storage, storage->data()};
  }
  for (std::size_t i = 0; i < own_inputs.size(); ++i) {
    const Place& place = own_inputs[i];
    // The same tensor may have been given twice.
    input_tensors.push_back(place.begin == nullptr
                                ? Tensor()
                                : tensor_of(layout.inputs[i], place.storage, place.begin));
  }
  move(in_input, own_inputs);
  move(in_output, own_outputs);
}

void Instance::add(const Program& program, const Value& value) {
  const Buffer& buffer = program.buffers[value.buffer];
  if (buffer.kind == BufferKind::Constant) {
    tensors.push_back(tensor_of(value, buffer.constant, buffer.constant->data()));
    return;
  }
  tensors.push_back(tensor_of(value, arena, arena->data() + buffer.offset));
  const Moving moving{tensors.back().impl().get(), value.offset, buffer.number};
  if (buffer.kind == BufferKind::Input) in_input.push_back(moving);
  if (buffer.kind == BufferKind::Output) in_output.push_back(moving);
}

std::unique_ptr<Instance> Layout::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Instance> instance = std::move(free_.back());
      free_.pop_back();
      return instance;
    }
  }
  return std::make_unique<Instance>(*this);
}

void Layout::give(std::unique_ptr<Instance> instance) const noexcept {
  if (device.is_cpu()) instance->forget();
  try {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(instance));
  } catch (...) {  // no memory to remember it: it is freed
  }
}

void Layout::forget_free() const noexcept {
  std::vector<std::unique_ptr<Instance>> freed;
  const std::lock_guard lock(mutex_);
  freed.swap(free_);
}

void Layout::run_step(const Instance& instance, std::size_t index, std::size_t next) const {
  const PlannedStep& step = program.steps[index];
  const Instance::Begin& at = instance.begins[index];
  const bool on_cpu = device.is_cpu();
  const PathOverride path(step.path);
  const quanta::detail::UpcomingMemory upcoming(on_cpu && next < program.steps.size()
                                                    ? program.steps[next].operation->weight_memory()
                                                    : std::span<const std::byte>());
  OpScope scope([&] { return step.operation->name(); });
  const Arguments in(instance.arguments.data() + at.arguments, step.is_given.size());
  const std::span<const Tensor> out(instance.tensors.data() + at.outputs, step.outputs.size());
  if (on_cpu) {
    scope.kernel(step.operation->cpu(in, out));
  } else {
    scope.device_begins(device);
    scope.kernel(step.operation->cuda(in, out));
    scope.device_ends();
    if (cuda::synchronizes_each_op()) synchronize(device);
  }
  scope.work([&] { return step.operation->work(in, out); });
}

void Layout::run_steps(const Instance& instance, std::size_t begin, std::size_t end) const {
  for (std::size_t i = begin; i < end; ++i) run_step(instance, i, i + 1);
}

void Layout::run(std::unique_ptr<Instance> instance, std::span<const Place> in_places,
                 std::span<const Place> out_places) const {
  run_between(std::move(instance), in_places, out_places,
              [&](const Instance& own) { run_steps(own, 0, program.steps.size()); });
}

}  // namespace quanta::replay::detail
