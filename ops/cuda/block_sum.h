#pragma once

// Private, for .cu files only: sums of doubles in the order of detail/sum_order.h.

#include <cstdint>

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/sum_order.h"

namespace quanta::cuda {

struct Add {
  SIMT_DEVICE double operator()(double left, double right) const { return left + right; }
};

/// What a block of threads does together.
struct SumBlock {
  static constexpr int kThreads = detail::kBlockLanes;
  static constexpr int kShared = kThreads * static_cast<int>(sizeof(double));

  /// A block of threads for each block of terms.
  static simt::Grid grid(std::int64_t terms) {
    return simt::grid_for(terms, 1, static_cast<int>(detail::kBlockTerms));
  }

  /// The sum of term(i) for first <= i < end, or what `join` makes of them instead. All threads
  /// call it and get it.
  template <typename Term, typename Join = Add>
  static SIMT_DEVICE double sum(std::int64_t first, std::int64_t end, unsigned char* shared,
                                const Term& term, const Join& join = {}) {
    double* const lanes = reinterpret_cast<double*>(shared);
    const int lane = simt::thread();
    double mine = 0.0;
    for (std::int64_t i = first + lane; i < end; i += kThreads) mine = join(mine, term(i));
    simt::sync();  // of a sum before, whose lanes are still read
    lanes[lane] = mine;
    simt::sync();
    for (int step = kThreads / 2; step > 0; step /= 2) {
      if (lane < step) lanes[lane] = join(lanes[lane], lanes[lane + step]);
      simt::sync();
    }
    return lanes[0];
  }
  /// Of this thread block's terms among `count`.
  template <typename Term, typename Join = Add>
  static SIMT_DEVICE double part(std::int64_t count, unsigned char* shared, const Term& term,
                                 const Join& join = {}) {
    const std::int64_t first = simt::block_x() * detail::kBlockTerms;
    const std::int64_t end = first + detail::kBlockTerms;
    return sum(first, end < count ? end : count, shared, term, join);
  }
};

}  // namespace quanta::cuda
