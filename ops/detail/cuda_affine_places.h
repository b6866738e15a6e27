#pragma once

// Private: layouts of parameters for CUDA kernels.

#include "quanta/ops/cpu/affine_rows.h"
#include "quanta/ops/cuda/affine_places.h"

namespace quanta::detail {

cuda::AffinePlaces affine_places(const cpu::AffineLayout& layout);

}  // namespace quanta::detail
