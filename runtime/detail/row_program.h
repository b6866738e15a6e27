#pragma once

// Private: a plan's steps for some of the rows (along dimension 0) that it was recorded with.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/runtime/detail/replay_steps.h"

namespace quanta::replay::detail {

/// What a program has to do for all rows.
struct RowWork {
  std::int64_t rows = 0;  ///< two or more that every step works on each by itself; else 0
  std::int64_t multiply_adds = 0;
  std::int64_t weight_bytes = 0;
};
RowWork row_work(const Program& program);

/// How many rows a thread best takes through all steps at a time, where so many threads share them;
/// 0: it is better that they share each step.
std::int64_t rows_at_a_time(const RowWork& work, int threads);

struct RowProgram {
  Program program;
  /// Of each buffer that is no constant: bytes from one row to the next.
  std::vector<std::size_t> row_bytes;
};
/// The steps for so many of the independent rows; its buffers have no places yet.
RowProgram with_rows(const Program& program, std::int64_t rows);

}  // namespace quanta::replay::detail
