#pragma once

// Private: sums in the order of sum_order.h on the CPU.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/sum_order.h"
#include "quanta/runtime/parallel.h"

namespace quanta::detail {

/// The sum of term(i) for begin <= i < end: one block.
template <int kLanes, typename Term>
double sum_lanes(std::int64_t begin, std::int64_t end, const Term& term) {
  std::array<double, kLanes> lanes{};
  for (std::int64_t first = begin; first < end; first += kLanes) {
    const std::int64_t count = std::min<std::int64_t>(kLanes, end - first);
    for (std::int64_t l = 0; l < count; ++l) {
      lanes[static_cast<std::size_t>(l)] += static_cast<double>(term(first + l));
    }
  }
  for (std::size_t step = kLanes / 2; step > 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  }
  return lanes[0];
}

/// The sum of term(i) for 0 <= i < count, over threads.
template <typename Term>
double sum_terms(std::int64_t count, const Term& term) {
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(count, kBlockTerms)));
  parallel_for(static_cast<std::int64_t>(sums.size()), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) {
                   const std::int64_t first = block * kBlockTerms;
                   sums[static_cast<std::size_t>(block)] =
                       sum_lanes<kBlockLanes>(first, std::min(count, first + kBlockTerms), term);
                 }
               });
  return sum_lanes<kBlockLanes>(0, static_cast<std::int64_t>(sums.size()), [&](std::int64_t block) {
    return sums[static_cast<std::size_t>(block)];
  });
}

}  // namespace quanta::detail
