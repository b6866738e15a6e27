#pragma once

// What a process holds.

#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "quanta/runtime/allocator.h"

namespace quanta::test {

/// Resident memory in 10^6 bytes, after caches and the heap gave back what nobody uses.
inline double resident_megabytes() {
  empty_cache();
  malloc_trim(0);
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return static_cast<double>(pages * sysconf(_SC_PAGESIZE)) / 1e6;
}

/// What the heap and the tensors hold, in 10^6 bytes: resident_megabytes() without code, stacks and
/// the holes between the heap's blocks. Blocks of tensors that lie in the heap count twice.
inline double in_use_megabytes() {
  empty_cache();
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<double>(heap.uordblks + heap.hblkhd + allocator_stats().in_use) / 1e6;
}

inline std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

}  // namespace quanta::test
