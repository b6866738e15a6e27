#pragma once

// Private: the steps of a plan while it is made, on numbered buffers instead of tensors.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quanta/runtime/device.h"
#include "quanta/runtime/recorder.h"

namespace quanta::replay::detail {

enum class BufferKind : std::uint8_t { Constant, Input, Output, Arena };

struct Buffer {
  BufferKind kind = BufferKind::Arena;
  std::size_t bytes = 0;
  IntrusivePtr<Storage> constant;  ///< of a Constant
  std::size_t offset = 0;          ///< in the arena
  std::size_t number = 0;          ///< of an Input: which; of an Output: which one it first is
};

/// A tensor whose elements lie in a buffer.
struct Value {
  std::size_t buffer = 0;
  std::size_t offset = 0;  ///< bytes from the buffer's begin
  Dims sizes;
  Dims strides;
  DType dtype = DType::Float32;
  Quantizer quantizer;

  std::int64_t numel() const noexcept { return product(sizes); }
  std::size_t bytes() const noexcept { return storage_bytes(dtype, numel()); }
  /// From the first to the last element, with the gaps between them.
  std::size_t spanned_bytes() const noexcept;
  /// Where and how the elements lie, not what they mean.
  bool same_place(const Value& other) const noexcept {
    return buffer == other.buffer && offset == other.offset && sizes == other.sizes &&
           strides == other.strides && dtype == other.dtype;
  }
};

/// Whether strides say the same of elements of these sizes: that of a single one says nothing.
bool same_strides(const Dims& sizes, const Dims& a, const Dims& b) noexcept;

struct PlannedStep {
  std::shared_ptr<const Operation> operation;
  std::string path;
  std::vector<Value> inputs;   ///< the arguments that are defined
  std::vector<bool> is_given;  ///< which arguments those are
  std::vector<Value> outputs;
  bool in_place = false;
  bool repeatable = true;
  PlanUse::Role role = PlanUse::Role::Other;
  std::shared_ptr<const ByteTable> table;   ///< as of PlanUse
  std::optional<PlanUse::CodeSum> sum;      ///< as of PlanUse
  std::shared_ptr<const ByteTable> joined;  ///< what with_table was called with
  std::optional<Value> range;               ///< where it says what numbers it has written
  std::string note;                         ///< what was joined with it: " + hardswish"
  std::int64_t multiply_adds = 0;           ///< as of OpWork
  std::int64_t weight_bytes = 0;            ///< that it reads beside its arguments
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<PlannedStep> steps;
  std::vector<Value> outputs;

  /// Whether the elements fill the buffer, from its begin to its end.
  bool is_whole(const Value& value) const noexcept {
    return value.offset == 0 && value.bytes() == buffers[value.buffer].bytes;
  }
};

/// Every use of one buffer becomes one of another, of the same layout.
void replace_buffer(Program& program, std::size_t from, std::size_t to);

Program make_program(const Recording& recording, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs);

/// Steps whose results are never used go; so do those that repeat another step.
void drop_unused(Program& program);
void share_equal_steps(Program& program);
/// Quantize after dequantize becomes nothing or a table of codes; tables are joined with the step
/// before them where that one can take them, and so are sums of codes with a step that makes one of
/// the two, and what else a step can do in its pass.
void join_steps(Program& program);
/// On the CPU: steps that look for the range of what they read get it from the step that writes it,
/// where that one can tell.
void hand_on_ranges(Program& program);
/// All of these, one after the other.
void simplify(Program& program, const Device& device);

}  // namespace quanta::replay::detail
