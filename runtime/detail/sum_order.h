#pragma once

// Private: an order in which many numbers are summed as doubles. It depends on their number alone,
// so that threads and devices give the same sum. Terms are taken in blocks: in each of them term i
// adds to lane i % lanes, and lanes are joined as a tree: l and l + lanes / 2, then l and
// l + lanes / 4, and so on. The sums of blocks are summed as one block.

#include <cstdint>

namespace quanta::detail {

inline constexpr std::int64_t kBlockTerms = 16384;
inline constexpr int kBlockLanes = 256;
/// Of rows, which are a block each, however long they are.
inline constexpr int kRowLanes = 32;

}  // namespace quanta::detail
