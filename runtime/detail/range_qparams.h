#pragma once

// Private: how observers and weight-only quantization turn a range into scale and zero point, each
// step in float32 as in torch's observers.

#include <cstdint>

#include "quanta/runtime/dtype.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::detail {

/// std::max would drop a NaN in the second place; torch keeps it.
inline float max_keep_nan(float x, float low) { return x < low ? low : x; }

/// max(max(-n, p) / ((qmax - qmin) / 2), eps) for n <= 0 <= p.
inline float symmetric_scale(float negative_end, float positive_end, IntRange range, float eps) {
  const float magnitude = max_keep_nan(positive_end, -negative_end);
  const auto half = static_cast<float>(static_cast<double>(range.max - range.min) / 2.0);
  return max_keep_nan(magnitude / half, eps);
}

/// max((p - n) / (qmax - qmin), eps) for n <= 0 <= p.
inline float affine_scale(float negative_end, float positive_end, IntRange range, float eps) {
  // The widest range, 2^32 - 1, rounds to 2^32 here as it does in torch.
  const auto levels = static_cast<float>(range.max - range.min);
  return max_keep_nan((positive_end - negative_end) / levels, eps);
}

/// clamp(qmin - round_half_even(n / scale), qmin, qmax).
inline std::int64_t affine_zero_point(float negative_end, float scale, IntRange range) {
  const float steps = math::round_half_even(negative_end / scale);
  // NaN comes from an infinite range, whose scale nobody can use anyway.
  if (!(steps < 0.0F)) return range.min;
  // Steps beyond the range (float32 rounding of a 32-bit one) end at its top.
  const auto width = static_cast<double>(range.max - range.min);
  if (-static_cast<double>(steps) >= width) return range.max;
  return range.min - static_cast<std::int64_t>(steps);
}

}  // namespace quanta::detail
