#pragma once

// Private: the elements of a tensor on a CUDA device, as kernels are given them. Null for a tensor
// that is left out.

#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

inline void* data_of(const Tensor& x) { return x.defined() ? x.device_ptr() : nullptr; }

/// Of a tensor of Float32, and of Float64.
inline float* floats_of(const Tensor& x) { return static_cast<float*>(data_of(x)); }
inline double* doubles_of(const Tensor& x) { return static_cast<double*>(data_of(x)); }

}  // namespace quanta::cuda
