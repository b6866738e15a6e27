#include "quanta/runtime/replay_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/buffer_places.h"
#include "quanta/runtime/detail/overlap.h"
#include "quanta/runtime/detail/plan_division.h"
#include "quanta/runtime/detail/plan_forks.h"
#include "quanta/runtime/detail/plan_layout.h"
#include "quanta/runtime/detail/row_program.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/verbose.h"

namespace quanta::replay {

using detail::Buffer;
using detail::BufferKind;
using detail::Division;
using detail::Instance;
using detail::Layout;
using detail::Place;
using detail::PlanForks;
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

/// Whether `x`, of the example's sizes, has its elements where the example has them.
bool lies_as(const Value& example, const Tensor& x) {
  return x.numel() == 0 || detail::same_strides(example.sizes, example.strides, x.strides());
}

/// A copy of `x` in memory of its own with the strides of an example, whose elements lie apart.
Tensor laid_out_as(const Value& example, const Tensor& x) {
  const Dims& wanted = example.strides;
  if (wanted == contiguous_strides(x.sizes())) return x.clone(MemoryFormat::Contiguous);
  if (x.dim() >= 3 && x.dim() <= 5 &&
      wanted == contiguous_strides(x.sizes(), MemoryFormat::ChannelsLast)) {
    return x.clone(MemoryFormat::ChannelsLast);
  }
  Value place = example;
  place.offset = 0;
  IntrusivePtr<Storage> storage(new Storage(place.spanned_bytes(), x.device()));
  std::byte* const begin = storage->data();
  Tensor result = tensor_of(place, std::move(storage), begin);
  result.copy_(x.detach());
  return result;
}

// The device of all tensors of a recorded run.
Device common_device(const Recording& recording, std::span<const Tensor> inputs) {
  const Device device = inputs.empty() ? Device::cpu() : inputs[0].device();
  const auto require = [&](const Tensor& x) {
    QUANTA_SUPPORTED(!x.defined() || x.device() == device,
                     "freeze: model: expected one that runs on one device (move it with to()), got "
                     "tensors on {} and {}",
                     quanta::to_string(device), quanta::to_string(x.device()));
  };
  for (const Tensor& x : inputs) require(x);
  for (const Step& step : recording.steps()) {
    for (const Tensor& x : step.inputs) require(x);
    for (const Tensor& x : step.outputs) require(x);
  }
  return device;
}

// The bytes that the elements of an input lie in: all that it spans if it is dense.
class Places {
 public:
  Places(const Value& input, bool is_dense)
      : begin_(input.offset), spanned_(input.spanned_bytes()), taken_(is_dense ? 0 : spanned_) {
    if (!is_dense) visit(input, [&](std::size_t byte) { return taken_[byte - begin_] = true; });
  }

  bool hold(const Value& value) const {
    if (value.offset < begin_ || value.offset - begin_ + value.spanned_bytes() > spanned_) {
      return false;
    }
    return taken_.empty() || visit(value, [&](std::size_t byte) { return taken_[byte - begin_]; });
  }

 private:
  // The bytes of one element after the other, until `each` returns false.
  template <typename Each>
  static bool visit(const Value& value, Each&& each) {
    return quanta::detail::each_offset(value.sizes, value.strides, [&](std::int64_t element) {
      const std::size_t end = storage_bytes(value.dtype, element + 1);
      // Two of four bits share a byte.
      for (std::size_t byte = std::min(storage_bytes(value.dtype, element), end - 1); byte < end;
           ++byte) {
        if (!each(value.offset + byte)) return false;
      }
      return true;
    });
  }

  std::size_t begin_;
  std::size_t spanned_;
  std::vector<bool> taken_;
};

// Another input has the elements of the example, not what else is in the example's memory.
void require_within(const Program& program, std::span<const Value> values,
                    std::span<const Tensor> inputs) {
  std::vector<Places> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    places.emplace_back(values[i], inputs[i].is_dense());
  }
  const auto require = [&](std::string_view op, const Value& value) {
    const Buffer& buffer = program.buffers[value.buffer];
    if (buffer.kind != BufferKind::Input || value.numel() == 0) return;
    QUANTA_SUPPORTED(places[buffer.number].hold(value),
                     "freeze: {}: input: expected elements of the example, got others of its "
                     "memory: {} with strides {} (as_strided counts from the begin of the memory: "
                     "clone the example before it is recorded)",
                     op, value.sizes, value.strides);
  };
  for (const PlannedStep& step : program.steps) {
    for (const Value& value : step.inputs) require(step.operation->name(), value);
  }
  for (const Value& value : program.outputs) require("the network", value);
}

bool is_watched() { return is_verbose() || quanta::detail::op_listener() != nullptr; }

}  // namespace

ReplayPlan::ReplayPlan(const Recording& recording, std::span<const Tensor> inputs,
                       std::span<const Tensor> outputs) {
  for (const Tensor& input : inputs) {
    QUANTA_CHECK(input.defined(), "freeze: inputs: expected tensors, got an undefined one");
  }
  auto layout = std::make_unique<Layout>();
  layout->device = common_device(recording, inputs);
  Program& program = layout->program;
  program = detail::make_program(recording, inputs, outputs);
  for (const Tensor& input : inputs) {
    layout->inputs.push_back(
        {0, static_cast<std::size_t>(input.device_ptr() - input.storage()->data()), input.sizes(),
         input.strides(), input.dtype(), input.impl()->quantizer});
    layout->overlaps.push_back(!input.is_dense() &&
                               quanta::detail::overlaps_itself(input.sizes(), input.strides()));
  }
  require_within(program, layout->inputs, inputs);
  info_.recorded_steps = program.steps.size();
  info_.result_bytes = written_bytes(program);
  detail::simplify(program, layout->device);
  detail::reuse_inputs(program);
  layout->arena_bytes = detail::place_buffers(program);
  info_.steps = program.steps.size();
  info_.arena_bytes = layout->arena_bytes;
  const bool begin_at_once =
      std::ranges::all_of(layout->inputs, [](const Value& input) { return input.offset == 0; });
  if (layout->device.is_cpu() && begin_at_once) layout->rows = detail::row_work(program);
  info_.rows = layout->rows.rows;
  layout_ = std::move(layout);
}

ReplayPlan::~ReplayPlan() = default;

void ReplayPlan::check(std::span<const Tensor> inputs) const {
  QUANTA_CHECK(inputs.size() == layout_->inputs.size(),
               "freeze: inputs: expected {} as in the example, got {}", layout_->inputs.size(),
               inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    const Value& expected = layout_->inputs[i];
    QUANTA_CHECK(x.defined(), "freeze: x: expected a tensor, got an undefined one");
    QUANTA_CHECK(x.device() == layout_->device,
                 "freeze: x: expected a tensor on {} as the example was, got one on {}",
                 quanta::to_string(layout_->device), quanta::to_string(x.device()));
    QUANTA_CHECK(x.dtype() == expected.dtype && x.sizes() == expected.sizes,
                 "freeze: x: expected {} {} as the example was, got {} {} (freeze the network for "
                 "these sizes too)",
                 expected.dtype, expected.sizes, x.dtype(), x.sizes());
    QUANTA_CHECK(!x.is_quantized() || x.impl()->quantizer == expected.quantizer,
                 "freeze: x: expected the quantization parameters of the example, got others");
    QUANTA_SUPPORTED(!layout_->overlaps[i] || lies_as(expected, x),
                     "freeze: x: expected strides {} as the example had, some of whose elements "
                     "are one place in "
                     "memory, got {} (clone the example before it is recorded)",
                     expected.strides, x.strides());
  }
}

// Launch by launch the first time, which packs what is not packed yet, and while somebody wants to
// know about each operation; else by graphs.
void ReplayPlan::run_on_device(std::span<const Tensor> inputs,
                               std::span<const Place> out_places) const {
  std::unique_ptr<Instance> owned = layout_->take();
  Instance& instance = *owned;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& own = instance.input_tensors[i];
    if (own.defined()) cuda::copy_same_dtype(own, inputs[i]);
  }
  const auto run = [&](std::size_t begin, std::size_t end) {
    layout_->run_steps(instance, begin, end);
  };
  const std::size_t steps = layout_->program.steps.size();
  if (cuda::synchronizes_each_op() || is_watched()) {
    run(0, steps);
  } else if (instance.graphs) {
    instance.graphs->launch(run);
  } else {
    run(0, steps);
    std::vector<bool> alone = launched_alone();
    instance.graphs.emplace(layout_->device, steps, alone, run);
    const std::lock_guard lock(mutex_);
    alone_ = std::move(alone);
  }
  for (std::size_t i = 0; i < out_places.size(); ++i) {
    const Place& own = instance.own_outputs[i];
    if (own.begin == nullptr) continue;  // an input, a constant, or in another one's buffer
    cuda::driver(layout_->device)
        .copy_on_device(out_places[i].begin, own.begin, own.storage->bytes());
  }
  layout_->give(std::move(owned));
}

const Division* ReplayPlan::division_for(int threads) const {
  const std::int64_t rows = detail::rows_at_a_time(layout_->rows, threads);
  if (rows == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  for (const auto& known : divisions_) {
    if (known->rows == rows) return known.get();
  }
  divisions_.push_back(std::make_unique<const Division>(layout_->program, rows, info_.rows));
  return divisions_.back().get();
}

const PlanForks& ReplayPlan::forks_for(int threads) const {
  const std::lock_guard lock(mutex_);
  for (const auto& known : forks_) {
    if (known->threads() == threads) return *known;
  }
  forks_.push_back(std::make_unique<const PlanForks>(*layout_, threads));
  return *forks_.back();
}

std::vector<bool> ReplayPlan::launched_alone() const {
  const std::lock_guard lock(mutex_);
  return alone_;
}

void ReplayPlan::run_between(std::span<const Tensor> inputs, std::span<Place> in_places,
                             std::span<Place> out_places) const {
  check(inputs);
  const Program& program = layout_->program;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& expected = layout_->inputs[i];
    const Tensor& x = inputs[i];
    // Offsets count from the recorded input's storage.
    const auto place = [&](const Tensor& from) {
      in_places[i] = {from.storage(), from.device_ptr() - expected.offset};
    };
    if (lies_as(expected, x)) {
      place(x);
    } else {
      place(laid_out_as(expected, x));
    }
  }
  for (std::size_t i = 0; i < out_places.size(); ++i) {
    const Buffer& buffer = program.buffers[program.outputs[i].buffer];
    Place& place = out_places[i];
    switch (buffer.kind) {
      case BufferKind::Input:
        place = in_places[buffer.number];
        break;
      case BufferKind::Constant:
        place = {buffer.constant, buffer.constant->data()};
        break;
      case BufferKind::Output:
      case BufferKind::Arena:
        if (buffer.number != i) {  // several results in one buffer
          place = out_places[buffer.number];
        } else {
          place.storage = IntrusivePtr<Storage>(new Storage(buffer.bytes, layout_->device));
          place.begin = place.storage->data();
        }
        break;
    }
  }
  if (!layout_->device.is_cpu()) return run_on_device(inputs, out_places);
  const int threads = get_num_threads();
  if (threads == 1 || is_watched()) {
    return layout_->run(layout_->take(), in_places, out_places);
  }
  if (const Division* division = division_for(threads)) {
    return division->run(in_places, out_places);
  }
  forks_for(threads).run(in_places, out_places);
}

Tensor ReplayPlan::run(const Tensor& x) const {
  QUANTA_CHECK(layout_->program.outputs.size() == 1,
               "freeze: x: expected all inputs of a plan with {} results, got one tensor",
               layout_->program.outputs.size());
  Place in;
  Place out;
  run_between({&x, 1}, {&in, 1}, {&out, 1});
  return tensor_of(layout_->program.outputs[0], std::move(out.storage), out.begin);
}

std::vector<Tensor> ReplayPlan::run(std::span<const Tensor> inputs) const {
  std::vector<Place> in_places(inputs.size());
  std::vector<Place> out_places(layout_->program.outputs.size());
  run_between(inputs, in_places, out_places);
  std::vector<Tensor> results;
  results.reserve(out_places.size());
  for (std::size_t i = 0; i < out_places.size(); ++i) {
    results.push_back(tensor_of(layout_->program.outputs[i], std::move(out_places[i].storage),
                                out_places[i].begin));
  }
  return results;
}

std::string ReplayPlan::forks_to_string() const {
  std::vector<const PlanForks*> known;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& forks : forks_) known.push_back(forks.get());
  }
  std::string text;
  for (const PlanForks* forks : known) text += forks->to_string();
  return text;
}

std::string ReplayPlan::to_string() const {
  const Program& program = layout_->program;
  std::string text =
      fmt::format("{} steps (of {} recorded), {} bytes shared by results of {}\n", info_.steps,
                  info_.recorded_steps, info_.arena_bytes, info_.result_bytes);
  if (info_.rows > 0) {
    text += fmt::format("{} rows that all steps work on by themselves\n", info_.rows);
  }
  const std::vector<bool> alone = launched_alone();
  const auto count = std::ranges::count(alone, true);
  if (layout_->device.is_cuda()) {
    text += alone.empty() ? "launch by launch: no graph is captured yet\n"
                          : fmt::format("CUDA graphs: {} steps captured, {} launched one by one\n",
                                        info_.steps - static_cast<std::size_t>(count), count);
  }
  text += forks_to_string();
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const PlannedStep& step = program.steps[i];
    const Value& out = step.outputs[0];
    const Buffer& buffer = program.buffers[out.buffer];
    const std::string place = buffer.kind == BufferKind::Output
                                  ? "result"
                                  : fmt::format("at {}", buffer.offset + out.offset);
    text += fmt::format("{:<32} {}{} -> {} {} {}{}\n", step.path,
                        quanta::to_string(*step.operation), step.note, out.dtype, out.sizes, place,
                        i < alone.size() && alone[i] ? " (launched alone)" : "");
  }
  return text;
}

}  // namespace quanta::replay
