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

inline std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

}  // namespace quanta::test
