#pragma once

// Private: floats of 16 bits that only a CUDA device calculates with.

#include <array>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// What products and convolutions of floats take on a CUDA device.
inline constexpr std::array kCudaProductDtypes{DType::Float32, DType::Float16, DType::BFloat16};

constexpr bool is_float_of_16_bits(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16;
}

/// Whether `x`, which is defined, holds floats that a CUDA device calculates with and the CPU does
/// not.
inline bool is_float_of_cuda(const Tensor& x) {
  return is_float_of_16_bits(x.dtype()) && x.device().is_cuda();
}

}  // namespace quanta::detail
