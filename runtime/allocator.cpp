#include "quanta/runtime/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/block_cache.h"
#include "quanta/runtime/detail/large_pages.h"
#include "quanta/runtime/detail/sanitizers.h"

namespace quanta {
namespace {

using detail::BlockContents;

constexpr std::size_t kMaxCachedBytes = std::size_t{1} << 30;

// AddressSanitizer has to see where each block ends and when it is freed: from the heap, not kept.
constexpr bool kChecked = QUANTA_ADDRESS_SANITIZER != 0;

// Blocks from this size on are mappings of their own: unlike the heap's they are zeros without
// being written, and go back to the system when they are freed.
constexpr std::size_t kMinMappedBytes =
    kChecked ? std::numeric_limits<std::size_t>::max() : std::size_t{1} << 20;

// From this size on the system may take the pages of a kept block when it runs short of memory:
// the call that allows it is as nothing beside filling the block again.
constexpr std::size_t kMinReclaimedBytes = std::size_t{32} << 20;

void* map_block(std::size_t bytes) {
  if (bytes >= detail::kLargePage) return detail::map_large_pages(bytes);
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

class HeapBlocks final : public detail::BlockSource {
 public:
  void* take(std::size_t bytes, BlockContents contents) override {
    if (bytes >= kMinMappedBytes) return map_block(bytes);
    void* data = nullptr;
    if (::posix_memalign(&data, detail::BlockCache::kAlignment, bytes) != 0) return nullptr;
    if (contents == BlockContents::Zero) std::memset(data, 0, bytes);
    return data;
  }
  void give_back(void* data, std::size_t bytes) noexcept override {
    if (bytes >= kMinMappedBytes) {
      ::munmap(data, bytes);
    } else {
      std::free(data);
    }
  }
  void rest(void* data, std::size_t bytes) noexcept override {
#ifdef MADV_FREE
    if (bytes >= kMinReclaimedBytes) ::madvise(data, bytes, MADV_FREE);
#endif
  }
  std::string_view memory_name() const noexcept override { return ""; }
};

// Never destroyed: tensors with static lifetime may free after the end of main.
detail::BlockCache& heap_cache() {
  static auto* source = new HeapBlocks;
  using Sizes = detail::BlockCache::Sizes;
  static auto* cache =
      new detail::BlockCache(*source, kMaxCachedBytes, kChecked ? Sizes::Exact : Sizes::Classes);
  return *cache;
}

thread_local constinit std::size_t allocation_limit = std::numeric_limits<std::size_t>::max();

void* checked_allocate(std::size_t bytes, BlockContents contents) {
  if (bytes > allocation_limit) [[unlikely]] {
    throw BackendError(fmt::format("allocate: {} bytes at once are asked for, the limit is {}",
                                   bytes, allocation_limit));
  }
  QUANTA_CHECK(bytes < (std::size_t{1} << 52), "allocate: bytes: expected less than 2^52, got {}",
               bytes);
  const detail::BlockCache::Block block = heap_cache().allocate(bytes, contents);
  if (contents == BlockContents::Zero && !block.is_new) std::memset(block.data, 0, bytes);
  return block.data;
}

}  // namespace

void* allocate(std::size_t bytes) { return checked_allocate(bytes, BlockContents::Undefined); }
void* allocate_zeros(std::size_t bytes) { return checked_allocate(bytes, BlockContents::Zero); }

void deallocate(void* data, std::size_t bytes) noexcept {
  if (data != nullptr) heap_cache().deallocate(data, bytes);
}

AllocatorStats allocator_stats() { return heap_cache().stats(); }
void reset_allocator_peak() { heap_cache().reset_peak(); }
void empty_cache() { heap_cache().give_back_cached(); }
std::size_t set_cache_limit(std::size_t bytes) { return heap_cache().set_most_cached_bytes(bytes); }
std::size_t cache_limit() { return heap_cache().most_cached_bytes(); }

AllocatorStats allocator_stats(Device device) {
  return device.is_cpu() ? allocator_stats() : cuda::memory_stats(device);
}
void empty_cache(Device device) {
  device.is_cpu() ? empty_cache() : cuda::give_back_cached(device);
}

AllocationLimit::AllocationLimit(std::size_t bytes) noexcept : before_(allocation_limit) {
  allocation_limit = std::min(allocation_limit, bytes);
}
AllocationLimit::~AllocationLimit() { allocation_limit = before_; }

std::size_t default_allocation_limit() noexcept {
  // Asked once: it is a system call, and every run of a graph wants to know.
  static const std::size_t limit = [] {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return std::numeric_limits<std::size_t>::max();
    return static_cast<std::size_t>(pages) / 2 * static_cast<std::size_t>(page);
  }();
  return limit;
}

}  // namespace quanta
