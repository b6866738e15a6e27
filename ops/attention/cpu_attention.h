#pragma once

// Private: float attention of many heads without a copy of any of them.

#include <cstdint>

namespace quanta::cpu {

/// Elements between neighbours; 0 where one is used for all.
struct AttentionStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
};

/// Operands as [batch, heads, rows, features]; features are dense.
struct AttentionShape {
  std::int64_t batch, heads, queries, keys, features, value_features;
  AttentionStrides query_strides, key_strides, value_strides, out_strides, mask_strides;
  float scale;
  bool causal;
};

struct AttentionProblem : AttentionShape {
  const float* query;
  const float* key;
  const float* value;
  float* out;
  const float* mask;  ///< [.., .., queries, keys], keys dense, added to the products; or null
};

/// Queries that are worked on together: 16, 32 or 64. In causal attention they all look at the keys
/// that the last of them takes part in.
std::int64_t attention_block_queries(std::int64_t keys);

/// out = softmax(scale * query key^T + mask) value for each head; a row without any key gives
/// zeros. No size is 0. Each query's floats are the same on every instruction set and for any number
/// of threads (cpu_kernels.h).
void attention(const AttentionProblem& problem);

}  // namespace quanta::cpu
