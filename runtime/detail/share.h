#pragma once

// Private: how shards divide things among themselves.

#include <cstdint>

namespace quanta::detail {

inline constexpr std::int64_t kMostShards = std::int64_t{1} << 31U;

/// Where shard `index` of `count` begins in 0 .. size: shards differ by at most one. No product of
/// these overflows.
constexpr std::int64_t share_begin(std::int64_t size, std::int64_t index, std::int64_t count) {
  return size / count * index + size % count * index / count;
}

}  // namespace quanta::detail
