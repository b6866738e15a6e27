#pragma once

// Private: memory in pages of 2 MB, where the system has them: an int8 network reads all of its
// weights in every run, and with pages of 4 KB spends a good part of that on looking up addresses.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {

inline constexpr std::size_t kLargePage = std::size_t{1} << 21;

/// Zeros, aligned to kLargePage; munmap(data, bytes) gives them back. Null when memory is out.
inline void* map_large_pages(std::size_t bytes) noexcept {
  const std::size_t wanted = bytes + kLargePage;
  void* data =
      ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) return nullptr;
  constexpr std::size_t kPage = 4096;
  auto* begin = static_cast<std::byte*>(data);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(data) % kLargePage;
  const std::size_t used = round_up(bytes, kPage);
  if (before > 0) ::munmap(begin, before);
  if (wanted > before + used) ::munmap(begin + before + used, wanted - before - used);
#ifdef MADV_HUGEPAGE
  // A wish: where it is not granted, small pages do.
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);
#endif
  return begin + before;
}

}  // namespace quanta::detail
