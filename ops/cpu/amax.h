#pragma once

// Private: the loops of quantizers that are described by the largest magnitude (amax) of a tensor,
// channel or block.
//
// A run is a stretch of elements that lie next to each other; its amax is one for all of them
// (step 0) or one for each (step 1). The vector forms give the scalar functions' numbers
// (runtime/amax_math.h) bit for bit on every instruction set.

#include <cstdint>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/amax_math.h"

namespace quanta::cpu {

struct AmaxRun {
  const float* amax;
  std::int64_t step;  ///< 0 or 1
  std::int64_t count;
  Store store = Store::Cached;  ///< Streaming needs an aligned result
};

/// dst = math::fake_tensor_quant of every element.
void fake_tensor_quant_run(const float* src, const AmaxRun& run, const math::AmaxGrid& grid,
                           float* dst);
/// dst = the codes, as floats.
void tensor_quant_run(const float* src, const AmaxRun& run, const math::AmaxGrid& grid, float* dst);
/// dst = math::scaled_e4m3 of every element.
void scaled_e4m3_run(const float* src, const AmaxRun& run, float* dst);
/// dst = math::static_fp4 of every element; the run's amax are scales.
void static_fp4_run(const float* src, const AmaxRun& run, float* dst);
/// dst = grad where |src| <= amax, else 0.
void amax_mask_run(const float* src, const float* grad, const AmaxRun& run, float* dst);

}  // namespace quanta::cpu
