#pragma once

// Private: sums, means and maxima of embedding rows on a CUDA device.

#include <cstdint>

#include "quanta/ops/embedding/rows.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// A dense array of Int64 or Int32.
struct Integers {
  const void* data = nullptr;
  bool is_long = true;
};

/// Bag b covers indices [offsets[b], offsets[b + 1]), and the last one goes on to the end unless a
/// last offset ends it; without offsets each bag has `bag_size` indices. What does not fit raises
/// `fault`: an index outside the table, offsets that fall, do not begin with 0 or go beyond the end.
struct BagRows {
  Integers indices;        // null: 0, 1, ...
  std::int64_t count = 0;  // of indices
  Integers offsets;        // null: none
  std::int64_t bag_size = 0;
  bool has_last_offset = false;
  std::int64_t bags = 0;
  std::int64_t rows = 0;      // of the table
  std::int64_t padding = -1;  // a row that no bag counts; -1: none
  std::int32_t* fault = nullptr;
};
/// Looks at all indices, also those behind the last bag.
QUANTA_CUDA_ENTRY(check_bag_rows, BagRows)

struct CodeBagParams {
  BagRows bags;
  detail::EmbeddingRows layout;
  const std::uint8_t* table = nullptr;
  const float* factors = nullptr;  // of each index; null: 1
  float* out = nullptr;            // [bags, columns]
};
QUANTA_CUDA_ENTRY(sum_code_bags, CodeBagParams)

enum class BagMode : std::uint8_t { Sum, Mean, Max };

struct FloatBagParams {
  BagRows bags;
  BagMode mode = BagMode::Sum;
  DType dtype{};  // Float32 or Float64
  const void* table = nullptr;
  std::int64_t columns = 0;
  const void* factors = nullptr;  // of each index, as the table; null: 1
  void* out = nullptr;            // [bags, columns]
};
QUANTA_CUDA_ENTRY(reduce_float_bags, FloatBagParams)

}  // namespace quanta::cuda
