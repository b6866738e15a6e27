#pragma once

// Private: the sums of a layer as floats.

#include <cstdint>

#include "quanta/ops/cpu/gemm/int8_sums.h"
#include "quanta/ops/cpu/gemm/quantized_weight.h"

namespace quanta::cpu {

/// dst[row][n] = float(sum + compensation[n] + integer bias[n]) * (sx * sw[n]) + float bias[n],
/// both [rows, channels] and dense.
void layer_floats(const Int8Sums& sums, const QuantizedWeight& weight, float src_scale,
                  std::int64_t rows, std::int64_t channels, float* dst);

}  // namespace quanta::cpu
