#pragma once

// Private: ONNX's resizing on a CUDA device. The host makes the tables of sources and weights, so
// that positions are the CPU's.

#include <string_view>

#include "quanta/ops/interpolate/resample_axis.h"

namespace quanta {
class Tensor;
}

namespace quanta::cuda {

/// x resized into `out`, both dense and in one order of memory, which is that of the axes. Gives the
/// name of the kernel.
std::string_view resample(const Tensor& x, const interpolation::Axes& axes,
                          const ResampleOptions& options, const Tensor& out);

}  // namespace quanta::cuda
