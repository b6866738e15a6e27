#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace quanta::bench {

/// Seconds that one call of `run` takes: the median of as many as fit into `seconds`, after
/// warm-up.
template <typename Run>
double median_seconds(Run&& run, double seconds = 0.3) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 3; ++i) run();
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end || times.size() < 5) {
    const auto start = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

}  // namespace quanta::bench
