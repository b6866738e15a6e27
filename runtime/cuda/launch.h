#pragma once

// Private: how host code starts kernels.
//
// Kernels stand in .cu files, and each file is compiled for two backends: by nvcc for GPUs (where
// CUDA is built), and by the C++ compiler for the emulated device. What host code calls is declared
// once, in a header of plain structs and pointers:
//
//   struct FillParams { float* y; std::int64_t count; float value; };
//   QUANTA_CUDA_ENTRY(fill_floats, FillParams)
//
// and defined once, in the .cu file, within namespace quanta::cuda::QUANTA_SIMT_BACKEND:
//
//   void fill_floats(Device device, const FillParams& params) {
//     simt::launch<FillFloats>(device, simt::grid_for(params.count), params);
//   }
//
// cuda::fill_floats(x.device(), {...}) then starts it where x is.

#include "quanta/built_with.h"  // written by cmake/QuantaCuda.cmake
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/device.h"

#if QUANTA_BUILT_WITH_CUDA
#define QUANTA_CUDA_ENTRY(name, Params)                                                 \
  namespace emulated {                                                                  \
  void name(::quanta::Device device, const Params& params);                             \
  }                                                                                     \
  namespace real {                                                                      \
  void name(::quanta::Device device, const Params& params);                             \
  }                                                                                     \
  inline void name(::quanta::Device device, const Params& params) {                     \
    device.is_emulated() ? emulated::name(device, params) : real::name(device, params); \
  }
#else
#define QUANTA_CUDA_ENTRY(name, Params)                                     \
  namespace emulated {                                                      \
  void name(::quanta::Device device, const Params& params);                 \
  }                                                                         \
  inline void name(::quanta::Device device, const Params& params) {         \
    if (!device.is_emulated()) ::quanta::cuda::driver(device); /* throws */ \
    emulated::name(device, params);                                         \
  }
#endif

namespace quanta::cuda {

/// Whether each operation waits for its kernels, so that a fault is reported by the operation that
/// made it: QUANTA_CUDA_SYNC=1 in the environment.
bool synchronizes_each_op() noexcept;

}  // namespace quanta::cuda
