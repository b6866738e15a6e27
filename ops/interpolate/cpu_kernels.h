#pragma once

// Private: blends of input positions along the spatial dimensions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/resample.h"
#include "quanta/runtime/detail/resample_math.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cpu {

using math::LinearTap;
using LinearTables = std::array<std::vector<LinearTap>, 3>;

/// Blends along the last `spatial` dimensions in float32, width first. Codes (QUInt8, QInt8) are
/// blended as they are: rne(blend - zero_point) + zero_point; those of two dimensions as
/// math::first_single_channel says where `is_fused`.
void blend_spatial(const ResampleGeometry& geometry, const LinearTables& tables,
                   std::size_t spatial, DType dtype, std::int32_t zero_point, bool is_fused,
                   const void* src, void* dst);

}  // namespace quanta::cpu
