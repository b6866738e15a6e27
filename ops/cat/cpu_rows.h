#pragma once

// Private: rows of several arrays side by side.

#include <cstdint>
#include <optional>
#include <span>

#include "quanta/ops/cpu/lookup.h"

namespace quanta::cpu {

/// Rows that lie one after the other and become a part of longer ones.
struct RowPart {
  const std::uint8_t* src;
  std::int64_t bytes;              ///< of a row
  std::int64_t offset;             ///< in the longer row
  std::optional<CodeTable> table;  ///< what becomes of each byte; without one it stays
};

/// Writes the parts of `rows` rows of `row_bytes` bytes each to dst, in several threads.
void join_rows(std::span<const RowPart> parts, std::int64_t rows, std::int64_t row_bytes,
               std::uint8_t* dst);

}  // namespace quanta::cpu
