#pragma once

// Private: sums of packed embedding rows. The header of the layout: ops/embedding/rows.h.

#include <cstdint>

#include "quanta/ops/embedding/rows.h"

namespace quanta::cpu {

/// Adds the rows `rows[0..count)` of the packed table to `to`, in this order, each value in
/// float32:
///
///   to[c] += fma(scale * factor, code, bias * factor)
///
/// `factors` holds one factor for each row, or is null: 1. Indices are within the table.
void add_embedding_rows(const quanta::detail::EmbeddingRows& layout, const std::uint8_t* table,
                        const std::int64_t* rows, const float* factors, std::int64_t count,
                        float* to);

}  // namespace quanta::cpu
