#pragma once

// Private: floats of 16 bits, which only a CUDA device calculates with. An operation on them gives
// what it gives for the same numbers in Float32, rounded once to their dtype.

#include <array>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// What operations on floats take on a CUDA device, and those on floats and codes.
inline constexpr std::array kCudaFloatDtypes{DType::Float32, DType::Float16, DType::BFloat16};
inline constexpr std::array kCudaFloatQ8Dtypes{DType::Float32, DType::QUInt8, DType::QInt8,
                                               DType::Float16, DType::BFloat16};

constexpr bool is_float_of_16_bits(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16;
}

/// Whether `x`, which is defined, holds floats that a CUDA device calculates with and the CPU does
/// not.
inline bool is_float_of_cuda(const Tensor& x) {
  return is_float_of_16_bits(x.dtype()) && x.device().is_cuda();
}

/// The same numbers in Float32 where `x` is defined and holds floats of 16 bits, else `x`.
inline Tensor widened(const Tensor& x) {
  return x.defined() && is_float_of_16_bits(x.dtype()) ? x.to(DType::Float32) : x;
}
/// Rounded to `dtype`, where it is one of 16 bits; undefined where `x` is.
inline Tensor narrowed(const Tensor& x, DType dtype) {
  return x.defined() && is_float_of_16_bits(dtype) ? x.to(dtype) : x;
}

}  // namespace quanta::detail
