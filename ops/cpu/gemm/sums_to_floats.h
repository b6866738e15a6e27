#pragma once

// Private: integer sums of a linear layer to floats.

#include <cstdint>

namespace quanta::cpu {

/// Sums of x * w of one row of x, and what makes floats of them:
///   y = float(sum - zx * weight_sums[n] - src_sum * zw[n]) * (sx * scales[n]) + bias[n]
/// in integers that wrap, then float32 operations one by one.
struct SumsToFloats {
  float src_scale;
  std::int32_t src_zero_point;
  const float* scales;
  const std::int32_t* weight_sums;  ///< of w - zw
  const std::int32_t* zero_points;  ///< of w; null: the sums are of x * (w - zw)
  std::int32_t src_sum;             ///< of the row's codes, for zero_points
  const float* bias;                ///< null: 0
  bool relu;
};

/// Channels [begin, end), in place: `row` holds int32 sums before and floats after.
void sums_to_floats(const SumsToFloats& args, std::int64_t begin, std::int64_t end, float* row);

}  // namespace quanta::cpu
