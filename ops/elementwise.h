#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Functions of numbers, element by element: what networks are made of beside activations.
///
/// Strides may be any, shape and memory order are kept, and two operands are broadcast. Functions
/// throw UnsupportedError for quantized tensors (dequantize first) and for dtypes that they do not
/// list, ArgumentError for unequal dtypes and sizes that do not broadcast. Float32 results are
/// within a few units in the last place and the same on every instruction set. Many threads may
/// call them at once while nobody writes to the arguments.
namespace quanta {

// Float32 or Float64. Same as torch's functions of these names; NaN where a function has no value.
Tensor reciprocal(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
/// The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
/// To the nearest whole number, ties to the even one.
Tensor round(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);

// Float32, Float64 or integers, which wrap around: the smallest one has no positive counterpart.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
/// -1, 0 or 1; NaN stays.
Tensor sign(const Tensor& x);

/// Whether an element is NaN. Bool; Float32 or Float64.
Tensor isnan(const Tensor& x);
/// Which infinities isinf() finds.
enum class InfinitySigns : std::uint8_t { Both, Positive, Negative, None };
/// Whether an element is infinite. Bool; Float32 or Float64.
Tensor isinf(const Tensor& x, InfinitySigns signs = InfinitySigns::Both);
/// Whether an element is zero (false). Bool; any plain dtype that is a number.
Tensor logical_not(const Tensor& x);

// Float32, Float64 or integers, both of one dtype.

/// lhs to the power rhs. Integers wrap around; a negative exponent gives the whole part of the
/// quotient (0 for a base of 0, which has none).
Tensor pow(const Tensor& lhs, const Tensor& rhs);
/// The same with a number, which is taken as one of x's dtype: throws ArgumentError for one that is
/// not whole where x has integers.
Tensor pow(const Tensor& x, double exponent);
/// The larger and the smaller one; NaN wins.
Tensor maximum(const Tensor& lhs, const Tensor& rhs);
Tensor minimum(const Tensor& lhs, const Tensor& rhs);
/// What is left of lhs after division, with the sign of lhs: C's fmod and %. Integers: 0 for a
/// divisor of 0.
Tensor fmod(const Tensor& lhs, const Tensor& rhs);
/// The same with the sign of rhs: Python's %.
Tensor remainder(const Tensor& lhs, const Tensor& rhs);

/// The quotient without its fraction, as C divides. Integers; 0 for a divisor of 0.
Tensor div_trunc(const Tensor& lhs, const Tensor& rhs);

// Integers or Bool, both of one dtype.
Tensor bitwise_and(const Tensor& lhs, const Tensor& rhs);
Tensor bitwise_or(const Tensor& lhs, const Tensor& rhs);
Tensor bitwise_xor(const Tensor& lhs, const Tensor& rhs);
/// Every bit turned over; of Bool the other one.
Tensor bitwise_not(const Tensor& x);
// Integers. A shift by as many bits as the dtype has, or more, leaves 0 (-1 for negative numbers
// that go to the right), one by a negative number is taken as such.
Tensor bitwise_left_shift(const Tensor& lhs, const Tensor& rhs);
Tensor bitwise_right_shift(const Tensor& lhs, const Tensor& rhs);

/// How cast() treats what a dtype cannot hold.
struct CastOptions {
  /// Float8 results: the largest number in place of infinity (Float8E4M3FN: NaN) for what is too
  /// large, infinity included.
  bool saturate = false;
  /// Int8 and UInt8 results: only so many low bits of the whole number are kept, the others repeat
  /// the sign (UInt8: 0). 2, 4 or 8.
  std::int64_t bits = 8;
};

/// Another dtype, any plain one to any: floats to integers without their fraction (NaN gives 0,
/// what is too large the nearest integer), integers to smaller ones by their low bits, as C does;
/// anything but 0 is true. Integers are exact, unlike those of Tensor::to, which go through
/// doubles and saturate. Throws ArgumentError for `bits` that do not fit.
Tensor cast(const Tensor& x, DType dtype, const CastOptions& options = {});

}  // namespace quanta
