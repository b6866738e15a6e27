#pragma once

// Private: biases for kernels that can only add them.

#include <cstdint>
#include <optional>
#include <vector>

#include "quanta/ops/cpu/gemm/requantize_rows.h"

namespace quanta::cpu {

/// Biases b that give the codes of `params` in a plain sum: for every integer sum of at most `reach`
/// in magnitude, requantize with bias b[n] and factor 1 is requantize with params.bias[n] and
/// params.bias_factor. Nothing where there is none close by for some channel: rare, for a bias far
/// beyond the codes.
std::optional<std::vector<float>> biases_to_add(const RequantizeParams& params,
                                                std::int64_t channels, double reach);

}  // namespace quanta::cpu
