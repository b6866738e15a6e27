#include "quanta/runtime/detail/replay_steps.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "quanta/runtime/quant_math.h"

namespace quanta::replay::detail {
namespace {

std::int64_t bytes_of(const Value& value) { return static_cast<std::int64_t>(value.bytes()); }

class ProgramBuilder {
 public:
  ProgramBuilder(const Recording& recording, std::span<const Tensor> inputs,
                 std::span<const Tensor> outputs)
      : recording_(recording) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      buffers_[add(inputs[i].storage(), BufferKind::Input)].number = i;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (recording.is_constant(outputs[i])) continue;
      const std::size_t known = buffers_.size();
      const std::size_t at = add(outputs[i].storage(), BufferKind::Output);
      if (at == known) buffers_[at].number = i;
    }
  }

  Value value(const Tensor& x) {
    const std::byte* begin = x.storage()->data();
    return {find_buffer(x), static_cast<std::size_t>(x.device_ptr() - begin),
            x.sizes(),      x.strides(),
            x.dtype(),      x.impl()->quantizer};
  }

  PlannedStep planned(const Step& step) {
    PlannedStep result;
    result.operation = step.operation;
    result.path = step.path;
    std::vector<const Tensor*> arguments;
    for (const Tensor& x : step.inputs) {
      arguments.push_back(&x);
      result.is_given.push_back(x.defined());
      if (x.defined()) result.inputs.push_back(value(x));
    }
    for (const Tensor& x : step.outputs) result.outputs.push_back(value(x));
    const Arguments in(arguments.data(), arguments.size());
    const OpWork work = step.operation->work(in, step.outputs);
    result.multiply_adds = work.multiply_adds;
    result.weight_bytes = work.bytes;
    for (const Value& value : result.inputs) result.weight_bytes -= bytes_of(value);
    for (const Value& value : result.outputs) result.weight_bytes -= bytes_of(value);
    result.weight_bytes = std::max<std::int64_t>(result.weight_bytes, 0);
    const PlanUse use = step.operation->plan_use(in, step.outputs);
    result.in_place = use.in_place;
    result.repeatable = use.repeatable;
    result.role = use.role;
    result.table = use.table;
    result.sum = use.sum;
    return result;
  }

  std::vector<Buffer> take_buffers() { return std::move(buffers_); }

 private:
  std::size_t add(const IntrusivePtr<Storage>& storage, BufferKind kind) {
    const auto [at, is_new] = numbers_.emplace(storage.get(), buffers_.size());
    if (!is_new) return at->second;
    Buffer buffer;
    buffer.kind = kind;
    buffer.bytes = storage->bytes();
    if (kind == BufferKind::Constant) buffer.constant = storage;
    buffers_.push_back(std::move(buffer));
    return at->second;
  }

  std::size_t find_buffer(const Tensor& x) {
    return add(x.storage(), recording_.is_constant(x) ? BufferKind::Constant : BufferKind::Arena);
  }

  const Recording& recording_;
  std::unordered_map<const Storage*, std::size_t> numbers_;
  std::vector<Buffer> buffers_;
};

bool reads(const PlannedStep& step, std::size_t buffer) {
  return std::any_of(step.inputs.begin(), step.inputs.end(),
                     [&](const Value& value) { return value.buffer == buffer; });
}

bool writes(const PlannedStep& step, std::size_t buffer) {
  return std::any_of(step.outputs.begin(), step.outputs.end(),
                     [&](const Value& value) { return value.buffer == buffer; });
}

std::size_t count_readers(const Program& program, std::size_t buffer) {
  auto count = static_cast<std::size_t>(
      std::count_if(program.outputs.begin(), program.outputs.end(),
                    [&](const Value& value) { return value.buffer == buffer; }));
  for (const PlannedStep& step : program.steps) count += reads(step, buffer) ? 1 : 0;
  return count;
}

std::size_t count_writers(const Program& program, std::size_t buffer) {
  return static_cast<std::size_t>(
      std::count_if(program.steps.begin(), program.steps.end(),
                    [&](const PlannedStep& step) { return writes(step, buffer); }));
}

// The only step that writes these elements, and nothing else of their buffer; none for several.
std::optional<std::size_t> find_writer(const Program& program, const Value& value) {
  if (count_writers(program, value.buffer) != 1) return std::nullopt;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const PlannedStep& step = program.steps[i];
    if (!writes(step, value.buffer)) continue;
    if (step.outputs.size() == 1 && step.outputs[0].same_place(value)) return i;
    return std::nullopt;
  }
  return std::nullopt;
}

bool are_codes(const Value& value) {
  return value.dtype == DType::QUInt8 || value.dtype == DType::QInt8;
}

// quantize(dequantize(code)) for each code.
ByteTable requantize_table(const Value& from, const Value& to) {
  const IntRange range = quant_range(to.dtype);
  const auto scale = static_cast<float>(from.quantizer.scale);
  const float inverse = math::inverse_scale(static_cast<float>(to.quantizer.scale));
  ByteTable table{};
  for (std::int32_t bits = 0; bits < 256; ++bits) {
    const std::int32_t code = from.dtype == DType::QInt8 && bits > 127 ? bits - 256 : bits;
    const float real =
        math::dequantize(code, scale, static_cast<std::int32_t>(from.quantizer.zero_point));
    table[static_cast<std::size_t>(bits)] = static_cast<std::uint8_t>(
        math::quantize(real, inverse, static_cast<std::int32_t>(to.quantizer.zero_point),
                       static_cast<std::int32_t>(range.min), static_cast<std::int32_t>(range.max)));
  }
  return table;
}

bool changes_nothing(const ByteTable& table) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] != i) return false;
  }
  return true;
}

std::shared_ptr<const ByteTable> composed(const ByteTable& first, const ByteTable& second) {
  auto table = std::make_shared<ByteTable>();
  for (std::size_t i = 0; i < first.size(); ++i) (*table)[i] = second[first[i]];
  return table;
}

void erase_step(Program& program, std::size_t index) {
  program.steps.erase(program.steps.begin() + static_cast<std::ptrdiff_t>(index));
}

// A Quantize step that reads what a Dequantize step wrote works on the codes. True when changed.
bool join_quantize(Program& program, std::size_t index) {
  PlannedStep& step = program.steps[index];
  if (step.role != PlanUse::Role::Quantize || !are_codes(step.outputs[0])) return false;
  const auto producer = find_writer(program, step.inputs[0]);
  if (!producer || program.steps[*producer].role != PlanUse::Role::Dequantize) return false;
  const Value codes = program.steps[*producer].inputs[0];
  const Value& out = step.outputs[0];
  // The codes have to be still there, and in the same order.
  if (!are_codes(codes) || !program.is_whole(codes) || !program.is_whole(out) ||
      codes.strides != out.strides || count_writers(program, codes.buffer) > 1) {
    return false;
  }
  const ByteTable table = requantize_table(codes, out);
  if (changes_nothing(table) && program.buffers[out.buffer].kind == BufferKind::Arena) {
    const std::size_t from = out.buffer;
    erase_step(program, index);
    replace_buffer(program, from, codes.buffer);
    return true;
  }
  auto shared = std::make_shared<ByteTable>(table);
  std::shared_ptr<const Operation> lookup = step.operation->with_codes(shared);
  if (lookup == nullptr) return false;
  step.inputs = {codes};
  step.table = std::move(shared);
  step.operation = std::move(lookup);
  step.role = PlanUse::Role::Other;
  step.in_place = true;
  return true;
}

// A step that is a table goes into the step that writes what it reads. True when changed.
bool join_with_producer(Program& program, std::size_t index) {
  const PlannedStep& step = program.steps[index];
  if (step.table == nullptr) return false;
  const Value& in = step.inputs[0];
  const auto found = find_writer(program, in);
  if (!found || *found >= index || count_readers(program, in.buffer) != 1) return false;
  PlannedStep& producer = program.steps[*found];
  if (!program.is_whole(in) || !program.is_whole(step.outputs[0]) ||
      in.strides != step.outputs[0].strides) {
    return false;
  }
  const std::shared_ptr<const ByteTable>& before =
      producer.table != nullptr ? producer.table : producer.joined;
  const auto table = before != nullptr ? composed(*before, *step.table) : step.table;
  std::shared_ptr<const Operation> joined = producer.operation->with_table(table);
  if (joined == nullptr) return false;
  (producer.table != nullptr ? producer.table : producer.joined) = table;
  producer.operation = std::move(joined);
  producer.note += " + " + std::string(step.operation->name());
  producer.outputs[0] = step.outputs[0];
  erase_step(program, index);
  return true;
}

// Whether a step's arguments are there, unchanged, when later ones run.
bool keeps_inputs(const Program& program, const PlannedStep& step) {
  return std::all_of(step.inputs.begin(), step.inputs.end(),
                     [&](const Value& value) { return count_writers(program, value.buffer) <= 1; });
}

// Whether each element of the results lies where those of the arguments do.
bool is_elementwise(const Program& program, const PlannedStep& step) {
  const Value& out = step.outputs[0];
  return step.outputs.size() == 1 && program.is_whole(out) &&
         std::all_of(step.inputs.begin(), step.inputs.end(), [&](const Value& in) {
           return program.is_whole(in) && in.strides == out.strides && in.sizes == out.sizes;
         });
}

// The last step that writes an argument of step `index`, for no one else, with a form of `operation`
// that does both.
struct Joined {
  std::size_t producer;
  std::size_t argument;  // of the step
  std::shared_ptr<const Operation> operation;
};
template <typename Form>
std::optional<Joined> find_joined(const Program& program, std::size_t index, const Form& form) {
  const PlannedStep& step = program.steps[index];
  std::optional<Joined> best;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const Value& in = step.inputs[i];
    const auto found = find_writer(program, in);
    // The later one if there are two: nothing has to be kept for longer.
    if (!found || *found >= index || (best && *found < best->producer)) continue;
    const PlannedStep& producer = program.steps[*found];
    if (producer.table != nullptr || producer.joined != nullptr ||
        count_readers(program, in.buffer) != 1 || !keeps_inputs(program, producer)) {
      continue;
    }
    std::shared_ptr<const Operation> operation = form(producer, i);
    if (operation != nullptr) best = Joined{*found, i, std::move(operation)};
  }
  return best;
}

// Both run where the step did.
void join_with(Program& program, std::size_t index, const Joined& found) {
  const PlannedStep& step = program.steps[index];
  PlannedStep joined = program.steps[found.producer];
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (i == found.argument) continue;
    joined.inputs.push_back(step.inputs[i]);
    joined.is_given.push_back(true);
  }
  joined.outputs = step.outputs;
  joined.operation = found.operation;
  joined.note += " + " + std::string(step.operation->name());
  joined.in_place = false;
  program.steps[index] = std::move(joined);
  erase_step(program, found.producer);
}

// A sum of codes goes into the step that writes one of them. True when changed.
bool join_sum(Program& program, std::size_t index) {
  const PlannedStep& step = program.steps[index];
  if (!step.sum || step.inputs.size() != 2 || step.inputs[0].buffer == step.inputs[1].buffer ||
      !is_elementwise(program, step)) {
    return false;
  }
  const auto with_sum = [&](const PlannedStep& producer,
                            std::size_t i) -> std::shared_ptr<const Operation> {
    // What is read with other parameters than it was written with stays as it is.
    if (!(step.inputs[i].quantizer == producer.outputs[0].quantizer)) return nullptr;
    return producer.operation->with_sum(*step.sum, step.outputs[0].quantizer);
  };
  const auto found = find_joined(program, index, with_sum);
  if (!found) return false;
  join_with(program, index, *found);
  return true;
}

// What a step does to each element goes into the step that writes it. True when changed.
bool join_next(Program& program, std::size_t index) {
  const PlannedStep& step = program.steps[index];
  if (!is_elementwise(program, step) || are_codes(step.outputs[0])) return false;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (step.inputs[i].buffer == step.inputs[j].buffer) return false;
    }
  }
  if (step.is_given.size() != step.inputs.size()) return false;
  const auto found = find_joined(program, index, [&](const PlannedStep& producer, std::size_t i) {
    return producer.operation->with_next(*step.operation, i);
  });
  if (!found) return false;
  join_with(program, index, *found);
  return true;
}

}  // namespace

std::size_t Value::spanned_bytes() const noexcept {
  if (numel() == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return storage_bytes(dtype, last + 1);
}

bool same_strides(const Dims& sizes, const Dims& a, const Dims& b) noexcept {
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && a[d] != b[d]) return false;
  }
  return true;
}

void replace_buffer(Program& program, std::size_t from, std::size_t to) {
  const auto replace = [&](Value& value) {
    if (value.buffer == from) value.buffer = to;
  };
  for (PlannedStep& step : program.steps) {
    std::for_each(step.inputs.begin(), step.inputs.end(), replace);
    std::for_each(step.outputs.begin(), step.outputs.end(), replace);
  }
  std::for_each(program.outputs.begin(), program.outputs.end(), replace);
}

Program make_program(const Recording& recording, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs) {
  for (const Tensor& output : outputs) recording.require_known("the network", "output", output);
  ProgramBuilder builder(recording, inputs, outputs);
  Program program;
  for (const Step& step : recording.steps()) program.steps.push_back(builder.planned(step));
  for (const Tensor& output : outputs) program.outputs.push_back(builder.value(output));
  program.buffers = builder.take_buffers();
  return program;
}

void drop_unused(Program& program) {
  std::vector<bool> is_needed(program.buffers.size(), false);
  for (const Value& output : program.outputs) is_needed[output.buffer] = true;
  std::vector<PlannedStep> kept;
  for (auto step = program.steps.rbegin(); step != program.steps.rend(); ++step) {
    const bool is_used = std::any_of(step->outputs.begin(), step->outputs.end(),
                                     [&](const Value& value) { return is_needed[value.buffer]; });
    if (!is_used) continue;
    for (const Value& value : step->outputs) {
      if (program.is_whole(value)) is_needed[value.buffer] = false;
    }
    for (const Value& value : step->inputs) is_needed[value.buffer] = true;
    kept.push_back(std::move(*step));
  }
  std::reverse(kept.begin(), kept.end());
  program.steps = std::move(kept);
}

void share_equal_steps(Program& program) {
  const auto is_simple = [&](const PlannedStep& step) {
    const auto once = [&](const Value& value) { return count_writers(program, value.buffer) <= 1; };
    return step.repeatable && std::all_of(step.inputs.begin(), step.inputs.end(), once) &&
           std::all_of(step.outputs.begin(), step.outputs.end(), [&](const Value& value) {
             return once(value) && program.is_whole(value) &&
                    program.buffers[value.buffer].kind == BufferKind::Arena;
           });
  };
  const auto are_equal = [](const PlannedStep& a, const PlannedStep& b) {
    return a.is_given == b.is_given && *a.operation == *b.operation &&
           a.outputs.size() == b.outputs.size() &&
           std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(),
                      [](const Value& x, const Value& y) {
                        return x.same_place(y) && x.quantizer == y.quantizer;
                      });
  };
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (!is_simple(program.steps[i])) continue;
    for (std::size_t j = i + 1; j < program.steps.size();) {
      if (!are_equal(program.steps[i], program.steps[j]) || !is_simple(program.steps[j])) {
        ++j;
        continue;
      }
      const std::vector<Value> repeated = program.steps[j].outputs;
      erase_step(program, j);
      for (std::size_t o = 0; o < repeated.size(); ++o) {
        replace_buffer(program, repeated[o].buffer, program.steps[i].outputs[o].buffer);
      }
    }
  }
}

void join_steps(Program& program) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (std::size_t i = 0; i < program.steps.size() && !changed; ++i) {
      changed = join_quantize(program, i) || join_with_producer(program, i) ||
                join_sum(program, i) || join_next(program, i);
    }
    if (changed) drop_unused(program);
  }
}

void hand_on_ranges(Program& program) {
  for (auto step = program.steps.begin(); step != program.steps.end(); ++step) {
    if (step->inputs.empty() || !step->is_given[0]) continue;
    const Value x = step->inputs[0];
    const auto writer = std::find_if(program.steps.begin(), step, [&](const PlannedStep& other) {
      return writes(other, x.buffer);
    });
    // The numbers are the same in whatever order.
    const bool is_all_of_it =
        writer != step && count_writers(program, x.buffer) == 1 && program.is_whole(x) &&
        x.dtype == DType::Float32 && program.is_whole(writer->outputs[0]) &&
        writer->outputs[0].buffer == x.buffer && writer->outputs[0].dtype == DType::Float32;
    if (!is_all_of_it) continue;
    std::shared_ptr<const Operation> reader = step->operation->with_range_given();
    if (reader == nullptr) continue;
    if (!writer->range) {
      std::shared_ptr<const Operation> teller = writer->operation->with_range();
      if (teller == nullptr) continue;
      Value range;
      range.buffer = program.buffers.size();
      range.sizes = {2};
      range.strides = {1};
      Buffer buffer;
      buffer.bytes = range.bytes();
      program.buffers.push_back(std::move(buffer));
      writer->operation = std::move(teller);
      writer->outputs.push_back(range);
      writer->range = range;
    }
    step->operation = std::move(reader);
    step->inputs.push_back(*writer->range);
    step->is_given.push_back(true);
  }
}

void simplify(Program& program, const Device& device) {
  drop_unused(program);
  share_equal_steps(program);
  join_steps(program);
  if (device.is_cpu()) hand_on_ranges(program);
}

}  // namespace quanta::replay::detail
