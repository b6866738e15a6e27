#pragma once

// Private: comparisons and choices, element by element, on a CUDA device.

#include <cstdint>

#include "quanta/ops/cuda/operand_walk.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

enum class Relation : std::uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };

struct CompareParams {
  OperandWalk<3> walk;  // of the result, lhs, rhs
  Relation relation{};
  DType lhs_dtype{};  // plain
  DType rhs_dtype{};
  DType computed{};  // Float32, Float64 or Int64: what both become first
  const void* lhs = nullptr;
  const void* rhs = nullptr;  // null: the number
  double number = 0.0;
  bool* out = nullptr;
};
QUANTA_CUDA_ENTRY(compare_items, CompareParams)

struct ChooseParams {
  OperandWalk<4> walk;  // of the result, condition, x, y
  const bool* condition = nullptr;
  const void* x = nullptr;
  const void* y = nullptr;
  void* out = nullptr;
  int item_bytes = 1;  // 1, 2, 4 or 8
};
QUANTA_CUDA_ENTRY(choose_items, ChooseParams)

}  // namespace quanta::cuda
