#pragma once

// Private: which scale of a broadcast or block-wise quantizer belongs to which element.

#include <string_view>

#include "quanta/ops/cpu/affine_rows.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// For parameters of `shape` over a tensor of `sizes`. Without `block_size` (empty) the shape has
/// to be expandable to the sizes; with one, an entry for each dimension of the shape, the last
/// dimensions are cut into blocks (-1: as long as the shape asks for). The tensor lies in memory
/// without gaps in the order of `format`. Throws ArgumentError `op: argument: ...`.
cpu::AffineLayout affine_layout(std::string_view op, std::string_view argument, const Dims& sizes,
                                const Dims& shape, const Dims& block_size,
                                MemoryFormat format = MemoryFormat::Contiguous);

/// The entries of `block_size` with -1 replaced: the block lengths along the last dimensions of a
/// tensor of `sizes`. Checks as above.
Dims resolve_blocks(std::string_view op, std::string_view argument, const Dims& sizes,
                    const Dims& shape, const Dims& block_size);

}  // namespace quanta::detail
