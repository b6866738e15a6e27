#pragma once

// Private: the end of the fused ops that torch computes in float (engine onednn): the sum in
// real units, another term, a function, then quantize.

#include <cstdint>

#include "quanta/ops/cpu/gemm/int8_sums.h"
#include "quanta/ops/cpu/gemm/quantized_weight.h"

namespace quanta::cpu {

enum class FloatStep : std::uint8_t { None, ReLU, LeakyReLU, Tanh };

struct FloatFunction {
  FloatStep step = FloatStep::None;
  float negative_slope = 0.0F;
};

/// Codes of the result's sizes and order.
struct QuantizedAddend {
  const std::uint8_t* codes;
  float scale;
  std::int32_t zero_point;
};

/// dst = quantize(f(acc * t + bias + dequantize(addend))), each step rounded to float32. `addend`
/// may be null.
void sums_to_codes(const Int8Sums& sums, const QuantizedWeight& weight, const CallQParams& qparams,
                   const FloatFunction& function, const QuantizedAddend* addend, std::int64_t rows,
                   std::int64_t channels, std::uint8_t* dst);

}  // namespace quanta::cpu
