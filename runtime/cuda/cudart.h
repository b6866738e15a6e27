#pragma once

// Private: what cudart.cpp has for code that itself calls CUDA; in builds with CUDA only.

#include <cuda_runtime_api.h>

#include "quanta/runtime/device.h"

namespace quanta::cuda {

/// The device's only stream; the device is the calling thread's from now on. Throws BackendError for
/// one that is not there.
cudaStream_t stream_of(Device device);
/// Throws BackendError when the launch before it failed.
void check_launch(Device device, const char* kernel);

}  // namespace quanta::cuda
