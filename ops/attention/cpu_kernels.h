#pragma once

// Private: the vector kernel of float attention (cpu_attention.cpp).

#include <cstddef>
#include <cstdint>

namespace quanta::cpu {

/// Some queries of one head, whose features are dense; rows lie `..._row` floats apart.
struct AttentionBlock {
  std::int64_t queries, keys, features, value_features;
  const float* query;
  const float* key;
  const float* value;
  const float* mask;  ///< [queries, keys], keys dense, added to the products; or null
  float* out;
  std::int64_t query_row, key_row, value_row, mask_row, out_row;
  float scale;
  /// Query i takes part in keys 0..visible + i alone; `keys` where all take part in all.
  std::int64_t visible;
};

/// Queries that share a vector's lanes at most; a multiple of 16.
inline constexpr std::int64_t kMostQueries = 64;
/// Keys whose weights and values stay in the L1 cache for the second product.
inline constexpr std::int64_t kAttentionKeys = 72;

/// So many queries would leave most lanes empty: keys lie in these instead, so many at a time.
inline constexpr int kFewQueries = 6;
inline constexpr std::int64_t kFewKeys = 64;

/// Floats that attend_block works on, aligned to 64 bytes.
std::size_t attention_floats(std::int64_t queries, std::int64_t keys, std::int64_t features,
                             std::int64_t value_features);

/// out = softmax(scale * query key^T + mask) value. Products are chains of fused multiply-adds in the
/// order of features and of keys, exponentials are within 1e-7 of their size (0 below e^-87), and
/// sums of them are taken in an order that depends on nothing but `keys`: each query's floats are the
/// same on every instruction set and beside any other queries. A query that takes part in no key
/// gives zeros; NaN and +infinity among its products make its result NaN. No size is 0, and there
/// are at most kMostQueries.
void attend_block(const AttentionBlock& block, float* buffer);

}  // namespace quanta::cpu
