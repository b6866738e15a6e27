#pragma once

// Private: the vector kernels of linear_dynamic.cpp beside gemv_int8.

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

/// Channels of a panel: element (n, k) of a Float16 weight [N, K] in panels is at
/// [n / 16][k][n % 16], with zeros where N ends.
inline constexpr std::int64_t kHalfPanel = 16;

/// out[r][n] = sum of x[r][k] * weight[n][k], plus bias[n], for the channels of panels
/// [begin, end).
struct HalfProduct {
  const float* x;
  std::int64_t rows;
  const std::uint16_t* panels;
  const float* floats;  ///< the panels as Float32, which many rows read instead; may be null
  std::int64_t out_features, in_features;
  const float* bias;  ///< null: 0
  bool relu;
};
void multiply_halves(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out);

}  // namespace quanta::cpu
