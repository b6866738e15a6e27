#pragma once

// Private: when a second thread pays.

#include <cstdint>

#include "quanta/runtime/parallel.h"

namespace quanta::cpu {

/// Threads for a kernel that does this many multiply-adds: starting a team costs about as much as
/// half a million of them take on one thread.
inline int threads_for(std::int64_t multiply_adds) {
  constexpr std::int64_t kOneThread = 500'000;
  return multiply_adds <= kOneThread ? 1 : get_num_threads();
}

}  // namespace quanta::cpu
