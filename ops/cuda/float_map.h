#pragma once

// Private: functions of one float on a CUDA device. Numbers of 16 bits are widened and rounded once.
//
// Exp, Erf, Gelu and GeluTanh (runtime/detail/exp_math.h, gelu_math.h), and all that is made of
// sums, products, quotients, roots and comparisons are the CPU's to the last bit. The others call
// CUDA's library where the CPU calls its own:
// - from Log to Atanh in double, rounded to float at the end: the same but where a double lies within
//   some units of the middle between two floats, about once in 10^8 numbers;
// - from Sigmoid to LogSigmoid in float: CUDA's exp and tanh are within 2 units in the last place of
//   the exact value, its expm1 and log1p within 1, so that the results are within kMostUnits of the
//   CPU's, where log1p and expm1 keep their digits.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta {
class Tensor;
}

namespace quanta::cuda {

enum class FloatFunction : std::uint8_t {
  Exp,
  Erf,
  Gelu,
  GeluTanh,
  Sqrt,
  Reciprocal,
  Floor,
  Ceil,
  Round,
  Neg,
  Abs,
  Sign,
  HardSigmoid,
  HardSwish,
  LeakyReLU,   // slope
  Threshold,   // limit, value
  HardShrink,  // lambd
  Softsign,
  Log,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Sinh,
  Cosh,
  Asinh,
  Acosh,
  Atanh,
  Sigmoid,
  Tanh,
  Silu,
  Elu,       // alpha, scale, input scale
  Softplus,  // beta, threshold
  Mish,
  LogSigmoid,
};
inline constexpr int kFloatFunctions = static_cast<int>(FloatFunction::LogSigmoid) + 1;

/// Units in the last place by which a function of CUDA's library may differ from the CPU's.
inline constexpr int kMostUnits = 8;

/// A function with its numbers.
struct FloatCall {
  FloatFunction function{};
  float numbers[3] = {};
};

struct MapFloatsParams {
  FloatCall call;
  DType dtype{};  // Float32, Float16 or BFloat16
  std::int64_t count = 0;
  const void* x = nullptr;
  void* y = nullptr;     // may be x
  bool aligned = false;  // both to 16 bytes
};
QUANTA_CUDA_ENTRY(map_floats, MapFloatsParams)

/// out = function(x). Both dense, of one dtype and memory order.
void map(const FloatCall& call, const Tensor& x, const Tensor& out);

}  // namespace quanta::cuda
