#pragma once

// Private: when a second thread pays.

#include <algorithm>
#include <cstdint>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {

/// The most u8 x s8 multiply-adds (a float one counts as four) that one thread does alone: waking a
/// team costs two microseconds when its threads still spin and far more when they sleep; one thread
/// with VNNI does as many in 4 us (Intel Xeon) or 6 (Zen 4), and in 7 to 14 if sums are short. Besides,
/// what other threads have just written comes from their caches.
inline constexpr std::int64_t kOneThreadProducts = 1'000'000;

/// Threads for a kernel that does this many.
inline int threads_for(std::int64_t multiply_adds) {
  return multiply_adds <= kOneThreadProducts ? 1 : get_num_threads();
}

/// Threads for `rows` rows times an int8 weight of so many elements. Fewer rows than four wait for
/// the weight, which comes from the caches at 70 to 110 GB/s a core: they take as long as four, and a
/// thread is worth waking for 256 KB of it.
inline int threads_for_product(std::int64_t rows, std::int64_t weights) {
  constexpr std::int64_t kWaiting = 4;
  constexpr std::int64_t kBytesOfThread = std::int64_t{256} * 1024;
  if (rows >= kWaiting) return threads_for(rows * weights);
  const std::int64_t most = std::max<std::int64_t>(weights / kBytesOfThread, 1);
  return static_cast<int>(std::min<std::int64_t>(threads_for(kWaiting * weights), most));
}

/// The fewest output channels that a second thread is given.
inline constexpr std::int64_t kLeastChannels = 64;

/// Output channels that a thread takes at least in a product of so many multiply-adds.
inline std::int64_t channel_grain(std::int64_t multiply_adds, std::int64_t channels) {
  return threads_for(multiply_adds) == 1 ? channels : kLeastChannels;
}

/// The same for threads_for_product.
inline std::int64_t product_channel_grain(std::int64_t rows, std::int64_t depth,
                                          std::int64_t channels) {
  const int threads = threads_for_product(rows, depth * channels);
  return threads == 1 ? channels
                      : std::max<std::int64_t>(ceil_div(channels, threads), kLeastChannels);
}

}  // namespace quanta::cpu
