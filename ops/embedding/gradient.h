#pragma once

// Private: rows taken out of float tables, on the tape.

#include <cstdint>
#include <optional>
#include <vector>

#include "quanta/ops/embedding.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// Records `y` = the rows of `table` at `rows`; the row padding_idx gets nothing.
Tensor record_embedding(const Tensor& table, const std::vector<std::int64_t>& rows,
                        std::optional<std::int64_t> padding_idx, Tensor y);

/// Bag b covers rows[ends[b]] to rows[ends[b + 1]]; those at padding_idx do not count.
struct BagLayout {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> ends;
  quantized::EmbeddingBagMode mode = quantized::EmbeddingBagMode::Mean;
  std::optional<std::int64_t> padding_idx{};
};
/// Records `y` [bags, columns]; `factors`, one for each row, may be undefined.
Tensor record_bags(const Tensor& table, const Tensor& factors, BagLayout layout, Tensor y);

}  // namespace quanta::gradients
