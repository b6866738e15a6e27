#pragma once

// Private: the way back to the rows of float tables.

#include <cstdint>
#include <optional>
#include <vector>

#include "quanta/ops/embedding.h"
#include "quanta/ops/embedding/cuda_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::embeddings {

/// The gradient of a table of these sizes whose rows were taken; the row padding_idx gets none.
Tensor embedding_gradient(const Tensor& gradient, const Tensor& indices, const Dims& sizes,
                          std::optional<std::int64_t> padding_idx);

/// Bag b covers rows[ends[b]] to rows[ends[b + 1]]; those at padding_idx do not count.
struct BagLayout {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> ends;
  quantized::EmbeddingBagMode mode = quantized::EmbeddingBagMode::Mean;
  std::optional<std::int64_t> padding_idx{};
};
/// Of the table and, if they are wanted, of the factors, one for each row, which may be undefined.
std::vector<Tensor> bag_gradients(const Tensor& gradient, const Tensor& table,
                                  const Tensor& factors, const BagLayout& layout,
                                  bool wants_factors);
/// The same on a CUDA device, for bags that have been checked there: the CPU's sums in the CPU's
/// order.
std::vector<Tensor> bag_gradients_on_device(const Tensor& gradient, const Tensor& table,
                                            const Tensor& factors, const cuda::BagRows& bags,
                                            cuda::BagMode mode, bool wants_factors);

}  // namespace quanta::embeddings
