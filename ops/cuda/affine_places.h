#pragma once

// Private: which parameter of a quantizer, or entry of statistics, belongs to which element of a
// dense tensor on a CUDA device.

#include <cstdint>

namespace quanta::cuda {

/// As cpu::AffineLayout has it. Dimensions along which the parameter stays have a stride of 0.
struct AffinePlaces {
  static constexpr int kMostDims = 10;
  int rank = 0;
  std::int64_t count = 0;
  std::int64_t parameters = 1;
  std::int64_t sizes[kMostDims] = {};
  std::int64_t strides[kMostDims] = {};  // of parameters
  std::int64_t steps[kMostDims] = {};    // of elements: memory has no gaps
};

}  // namespace quanta::cuda
