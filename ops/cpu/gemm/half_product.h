#pragma once

// Private: products of rows of floats with a Float16 weight in panels.

#include <cstdint>

namespace quanta::cpu {

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
