#pragma once

#include <cstddef>
#include <cstdint>

#include "quanta/runtime/device.h"

/// The CPU's memory: blocks that tensors have let go of are handed out again.
///
/// All functions may be called by many threads at once. allocate throws BackendError when the
/// system has no memory left; the others throw nothing.
namespace quanta {

/// What the CPU's caching allocator holds, in bytes.
struct AllocatorStats {
  std::size_t in_use = 0;       ///< handed out
  std::size_t cached = 0;       ///< kept for reuse
  std::size_t peak_in_use = 0;  ///< highest `in_use` since the start or reset_allocator_peak()
  std::uint64_t system_allocations = 0;  ///< times the system was asked for memory
};

/// Aligned memory (64 bytes) from size-class free lists. Blocks go back to the lists, up to
/// cache_limit() bytes in total, and are handed out again without a system call. Those that nobody
/// wants again go back to the system in time, and a system that runs short of memory may take the
/// pages of kept blocks of 32 MiB and more.
void* allocate(std::size_t bytes);
/// The same filled with zeros. A large new block takes no memory before it is written to.
void* allocate_zeros(std::size_t bytes);
/// Gives a block of allocate() back; `bytes` is what was asked for.
void deallocate(void* data, std::size_t bytes) noexcept;

AllocatorStats allocator_stats();
void reset_allocator_peak();
/// Returns all cached blocks to the system.
void empty_cache();
/// The most that the cache keeps of blocks that nobody uses, in bytes: 1 GiB unless set; with 0
/// every block goes back at once. What is above a new limit goes back before the call returns,
/// which is the limit before.
std::size_t set_cache_limit(std::size_t bytes);
std::size_t cache_limit();
/// The same for the memory of a device; all zeros, and nothing to do, for one that nobody has used.
AllocatorStats allocator_stats(Device device);
void empty_cache(Device device);

/// While it lives, allocate() on this thread throws BackendError for a block of more bytes: a file
/// of a few bytes may ask for a tensor of terabytes. The stricter of two that nest holds.
class AllocationLimit {
 public:
  explicit AllocationLimit(std::size_t bytes) noexcept;
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

 private:
  std::size_t before_;
};

/// Half of the machine's memory.
std::size_t default_allocation_limit() noexcept;

}  // namespace quanta
