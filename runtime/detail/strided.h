#pragma once

// Private: walks two strided arrays of the same sizes together.

#include <algorithm>
#include <array>
#include <cstdint>

#include "quanta/runtime/dims.h"
#include "quanta/runtime/parallel.h"

namespace quanta::detail {

/// Sizes and two sets of strides (in elements) with neighbouring dimensions merged where both
/// allow it, the dimension with the smallest first stride innermost (last).
struct StridedPair {
  Dims sizes;
  Dims first;
  Dims second;

  StridedPair(const Dims& all_sizes, const Dims& first_strides, const Dims& second_strides) {
    Dims order;
    for (std::size_t d = 0; d < all_sizes.size(); ++d) {
      if (all_sizes[d] != 1) order.push_back(static_cast<std::int64_t>(d));
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return first_strides[static_cast<std::size_t>(a)] >
             first_strides[static_cast<std::size_t>(b)];
    });
    for (const std::int64_t index : order) {
      const auto d = static_cast<std::size_t>(index);
      const std::size_t n = sizes.size();
      if (n > 0 && first[n - 1] == first_strides[d] * all_sizes[d] &&
          second[n - 1] == second_strides[d] * all_sizes[d]) {
        sizes[n - 1] *= all_sizes[d];
        first[n - 1] = first_strides[d];
        second[n - 1] = second_strides[d];
      } else {
        sizes.push_back(all_sizes[d]);
        first.push_back(first_strides[d]);
        second.push_back(second_strides[d]);
      }
    }
    if (sizes.empty()) {
      sizes.push_back(1);
      first.push_back(0);
      second.push_back(0);
    }
  }

  /// body(first_offset, second_offset, count): one run along the innermost dimension, whose
  /// strides are first.back() and second.back(). Runs are spread over threads.
  template <typename Body>
  void for_each_run(Body&& body) const {
    const std::int64_t inner = sizes.back();
    std::int64_t outer = 1;
    for (std::size_t d = 0; d + 1 < sizes.size(); ++d) outer *= sizes[d];
    if (inner == 0 || outer == 0) return;
    const std::int64_t grain = std::max<std::int64_t>(1, 32768 / inner);
    parallel_for(outer, grain, [&](std::int64_t begin, std::int64_t end) {
      std::array<std::int64_t, Dims::kMaxDims> index{};
      std::int64_t first_offset = 0;
      std::int64_t second_offset = 0;
      std::int64_t rest = begin;
      for (std::size_t d = sizes.size() - 1; d-- > 0;) {
        index[d] = rest % sizes[d];
        rest /= sizes[d];
        first_offset += index[d] * first[d];
        second_offset += index[d] * second[d];
      }
      for (std::int64_t run = begin; run < end; ++run) {
        body(first_offset, second_offset, inner);
        for (std::size_t d = sizes.size() - 1; d-- > 0;) {
          first_offset += first[d];
          second_offset += second[d];
          if (++index[d] < sizes[d]) break;
          first_offset -= first[d] * sizes[d];
          second_offset -= second[d] * sizes[d];
          index[d] = 0;
        }
      }
    });
  }
};

}  // namespace quanta::detail
