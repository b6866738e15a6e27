#pragma once

// Private: functions of one or two numbers of any dtype on a CUDA device. They are the CPU's own
// (functions.h) and so the CPU's numbers, but for powers of floats: CUDA's pow in double, rounded to
// float at the end, differs about once in 10^8 numbers.

#include <cstdint>

#include "quanta/ops/cuda/operand_walk.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta {
class Tensor;
}

namespace quanta::cuda {

enum class NumberFunction : std::uint8_t {
  Neg,
  Abs,
  Sign,
  BitwiseNot,
  // Truth values.
  LogicalNot,
  IsNan,
  IsPositiveInfinity,
  IsNegativeInfinity,
  IsInfinity,
};

struct MapNumbersParams {
  NumberFunction function{};
  DType dtype{};
  std::int64_t count = 0;
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(map_numbers, MapNumbersParams)

enum class NumberPairFunction : std::uint8_t {
  Pow,
  Maximum,
  Minimum,
  Fmod,
  Remainder,
  DivTrunc,
  BitwiseAnd,
  BitwiseOr,
  BitwiseXor,
  LeftShift,
  RightShift,
};

struct CombineNumbersParams {
  NumberPairFunction function{};
  DType dtype{};
  OperandWalk<3> walk;  // of the result, lhs and rhs
  const void* lhs = nullptr;
  const void* rhs = nullptr;
  void* out = nullptr;
};
QUANTA_CUDA_ENTRY(combine_numbers, CombineNumbersParams)

/// out = function(x); both dense and of one memory order.
void map(NumberFunction function, const Tensor& x, const Tensor& out);
/// out = function(lhs, rhs), broadcast.
void combine(NumberPairFunction function, const Tensor& lhs, const Tensor& rhs, const Tensor& out);

}  // namespace quanta::cuda
