#pragma once

// Private, for .cu files only: scale and zero point of codes whose range only the device knows.

#include <cstdint>
#include <limits>

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {

/// math::choose_qparams for codes 0..255. A range that is not finite has
/// the scale NaN, and so all that is made from it.
SIMT_DEVICE math::QParams choose_dynamic(float min, float max, bool reduce_range) {
  if (!(min - min == 0.0F && max - max == 0.0F)) {
    return {std::numeric_limits<double>::quiet_NaN(), 0};
  }
  math::ChooseOptions options;
  options.reduce_range = reduce_range;
  return math::choose_qparams(min, max, 0, 255, options);
}

}  // namespace quanta::cuda
