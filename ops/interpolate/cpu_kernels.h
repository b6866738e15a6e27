#pragma once

// Private: copies and blends of input positions along the spatial dimensions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/runtime/dtype.h"

namespace quanta::cpu {

/// Dense input and output of up to three spatial dimensions (unused leading ones are 1).
struct ResampleGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::array<std::int64_t, 3> input{1, 1, 1};
  std::array<std::int64_t, 3> output{1, 1, 1};
  bool channels_last = false;
};

/// For each output position of each dimension the input position that it copies.
using GatherTables = std::array<std::vector<std::int64_t>, 3>;
void gather_spatial(const ResampleGeometry& geometry, const GatherTables& tables,
                    std::size_t item_size, const void* src, void* dst);

/// weight_low * x[low] + weight_high * x[high].
struct LinearTap {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float weight_low = 1.0F;
  float weight_high = 0.0F;
};
using LinearTables = std::array<std::vector<LinearTap>, 3>;

/// Blends along the last `spatial` dimensions in float32, width first. Codes (QUInt8, QInt8) are
/// blended as they are: rne(blend - zero_point) + zero_point.
void blend_spatial(const ResampleGeometry& geometry, const LinearTables& tables,
                   std::size_t spatial, DType dtype, std::int32_t zero_point, const void* src,
                   void* dst);

}  // namespace quanta::cpu
