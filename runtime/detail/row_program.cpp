#include "quanta/runtime/detail/row_program.h"

#include <algorithm>
#include <array>
#include <utility>

#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::replay::detail {
namespace {

std::size_t bytes_between_rows(const Value& value) {
  return storage_bytes(value.dtype, value.strides[0]);
}

/// As Tensor::is_contiguous.
bool is_dense(const Value& value, MemoryFormat format) {
  const std::size_t rank = value.sizes.size();
  if (format == MemoryFormat::ChannelsLast && (rank < 3 || rank > 5)) return false;
  return same_strides(value.sizes, value.strides, contiguous_strides(value.sizes, format));
}

/// Operations ask in which orders a tensor is dense, and some round differently by it.
bool same_orders(const Value& a, const Value& b) {
  return std::ranges::all_of(
      std::array{MemoryFormat::Contiguous, MemoryFormat::ChannelsLast},
      [&](MemoryFormat format) { return is_dense(a, format) == is_dense(b, format); });
}

/// Whether the rows of a value lie one behind the other, nothing of one in another, each in the order
/// that all of them are in. One dimension is a row of a layer, not rows.
bool has_rows(const Value& value, std::int64_t rows) {
  const bool shares_bytes = 2 * storage_bytes(value.dtype, 1) != storage_bytes(value.dtype, 2);
  if (value.sizes.size() < 2 || value.sizes[0] != rows || value.numel() == 0 ||
      value.strides[0] <= 0 || is_per_channel(value.quantizer.scheme) || shares_bytes) {
    return false;
  }
  Value row = value;
  row.sizes[0] = 1;
  return value.offset + row.spanned_bytes() <= bytes_between_rows(value) && same_orders(row, value);
}

class RowCheck {
 public:
  RowCheck(const Program& program, std::int64_t rows)
      : program_(program), rows_(rows), row_bytes_(program.buffers.size(), 0) {}

  bool accepts(const PlannedStep& step) {
    if (!step.operation->works_by_rows()) return false;
    // Sizes of different lengths are compared from their ends, so that dimension 0 is no row.
    std::size_t rank = 0;
    for (const Value& value : step.inputs) {
      if (is_constant(value)) {
        if (!value.sizes.empty() && value.sizes[0] == rows_) return false;  // it may be a batch
        continue;
      }
      if (rank != 0 && value.sizes.size() != rank) return false;
      rank = value.sizes.size();
      if (!accepts(value)) return false;
    }
    return rank != 0 && std::ranges::all_of(step.outputs, [&](const Value& value) {
             return !is_constant(value) && accepts(value);
           });
  }

  bool accepts_result(std::size_t i) {
    const Value& value = program_.outputs[i];
    const Buffer& buffer = program_.buffers[value.buffer];
    return buffer.kind == BufferKind::Output && buffer.number == i && accepts(value);
  }

  std::vector<std::size_t> take_row_bytes() { return std::move(row_bytes_); }

 private:
  bool is_constant(const Value& value) const {
    return program_.buffers[value.buffer].kind == BufferKind::Constant;
  }
  bool accepts(const Value& value) {
    if (!has_rows(value, rows_)) return false;
    std::size_t& known = row_bytes_[value.buffer];
    if (known == 0) known = bytes_between_rows(value);
    return known == bytes_between_rows(value);
  }

  const Program& program_;
  std::int64_t rows_;
  std::vector<std::size_t> row_bytes_;
};

/// Bytes from row to row of each buffer; none where a step does not work by rows.
std::vector<std::size_t> check(const Program& program, std::int64_t rows) {
  RowCheck rule(program, rows);
  for (const PlannedStep& step : program.steps) {
    if (!rule.accepts(step)) return {};
  }
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    if (!rule.accepts_result(i)) return {};
  }
  return rule.take_row_bytes();
}

std::int64_t independent_rows(const Program& program) {
  if (program.outputs.empty() || program.outputs[0].sizes.empty()) return 0;
  const std::int64_t rows = program.outputs[0].sizes[0];
  return rows > 1 && !check(program, rows).empty() ? rows : 0;
}

}  // namespace

RowWork row_work(const Program& program) {
  RowWork work{.rows = independent_rows(program)};
  for (const PlannedStep& step : program.steps) {
    work.multiply_adds += step.multiply_adds;
    work.weight_bytes += step.weight_bytes;
  }
  return work;
}

std::int64_t rows_at_a_time(const RowWork& work, int threads) {
  if (work.rows == 0) return 0;
  // So much, a tenth of a millisecond or more, that a thread which is interrupted meanwhile is waited
  // for in vain seldom, and that reading the weights once more is not what takes the time.
  constexpr std::int64_t kLeast = std::int64_t{1} << 26;
  constexpr std::int64_t kEachByte = 64;
  const auto is_enough = [&](std::int64_t count) {
    return work.multiply_adds / work.rows * count >=
           std::max(kLeast, kEachByte * work.weight_bytes);
  };
  std::int64_t best = 0;
  for (std::int64_t count = work.rows / threads; count > 0; --count) {
    if (work.rows % count != 0 || !is_enough(count)) continue;
    const std::int64_t parts = work.rows / count;
    // Threads are without work for a sixth of the time at most.
    const std::int64_t taken = ceil_div<std::int64_t>(parts, threads) * threads;
    if (5 * taken > 6 * parts) continue;
    if (best == 0) best = count;
    // Two parts or more for each, so that a thread that is interrupted can do fewer.
    if (parts >= 2 * threads) return count;
  }
  return best;
}

RowProgram with_rows(const Program& program, std::int64_t rows) {
  RowProgram result{program, check(program, program.outputs[0].sizes[0])};
  std::vector<Buffer>& buffers = result.program.buffers;
  const auto cut = [&](Value& value) {
    Buffer& buffer = buffers[value.buffer];
    if (buffer.kind == BufferKind::Constant) return;
    value.sizes[0] = rows;
    buffer.bytes = static_cast<std::size_t>(rows) * result.row_bytes[value.buffer];
  };
  for (PlannedStep& step : result.program.steps) {
    std::ranges::for_each(step.inputs, cut);
    std::ranges::for_each(step.outputs, cut);
  }
  std::ranges::for_each(result.program.outputs, cut);
  return result;
}

}  // namespace quanta::replay::detail
