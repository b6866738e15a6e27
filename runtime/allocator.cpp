#include "quanta/runtime/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/large_pages.h"

namespace quanta {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxCachedBytes = std::size_t{1} << 30;
// Eight classes for each power of two, so that at most an eighth of a block is wasted.
constexpr std::size_t kClassesPerOctave = 8;
constexpr std::size_t kOctaves = 48;

struct SizeClass {
  std::size_t index;
  std::size_t bytes;
};

SizeClass size_class(std::size_t bytes) {
  const std::size_t units = bytes <= kAlignment ? 1 : ceil_div(bytes, kAlignment);
  if (units < kClassesPerOctave) return {units, units * kAlignment};
  const auto octave = static_cast<std::size_t>(std::bit_width(units)) - 4;  // units >= 8
  const std::size_t step = std::size_t{1} << octave;
  const std::size_t rounded = ceil_div(units, step);  // 8..16
  return {kClassesPerOctave * (octave + 1) + (rounded - kClassesPerOctave),
          rounded * step * kAlignment};
}

/// The bytes of a class's blocks; size_class() backwards.
std::size_t class_bytes(std::size_t index) {
  if (index < kClassesPerOctave) return index * kAlignment;
  const std::size_t octave = index / kClassesPerOctave - 1;
  return ((kClassesPerOctave + index % kClassesPerOctave) << octave) * kAlignment;
}

// Blocks from this size on are mappings of their own: unlike the heap's they are zeros without
// being written, and go back to the system when they are freed.
constexpr std::size_t kMinMappedBytes = std::size_t{1} << 20;

void* map_block(std::size_t bytes) {
  if (bytes >= detail::kLargePage) return detail::map_large_pages(bytes);
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

enum class Contents : bool { Undefined, Zero };

/// `bytes` are those of a size class. Null when memory is out.
void* new_block(std::size_t bytes, Contents contents) {
  if (bytes >= kMinMappedBytes) return map_block(bytes);
  void* data = std::aligned_alloc(kAlignment, bytes);
  if (data != nullptr && contents == Contents::Zero) std::memset(data, 0, bytes);
  return data;
}

void free_block(void* data, std::size_t bytes) noexcept {
  if (bytes >= kMinMappedBytes) {
    ::munmap(data, bytes);
  } else {
    std::free(data);
  }
}

class CachingAllocator {
 public:
  // Never destroyed: tensors with static lifetime may free after the end of main.
  static CachingAllocator& instance() {
    static auto* allocator = new CachingAllocator;
    return *allocator;
  }

  void* allocate(std::size_t bytes, Contents contents) {
    const SizeClass wanted = size_class(bytes);
    if (void* data = take_cached(wanted)) {
      if (contents == Contents::Zero) std::memset(data, 0, bytes);
      return data;
    }
    void* data = new_block(wanted.bytes, contents);
    if (data == nullptr) {
      empty_cache();
      data = new_block(wanted.bytes, contents);
    }
    if (data == nullptr) {
      const std::lock_guard lock(mutex_);
      stats_.in_use -= wanted.bytes;
      throw BackendError(fmt::format("allocate: no memory for {} bytes", bytes));
    }
    return data;
  }

  void deallocate(void* data, std::size_t bytes) noexcept {
    const SizeClass returned = size_class(bytes);
    {
      const std::lock_guard lock(mutex_);
      stats_.in_use -= returned.bytes;
      if (stats_.cached + returned.bytes <= kMaxCachedBytes) {
        try {
          free_[returned.index].push_back(data);
          stats_.cached += returned.bytes;
          return;
        } catch (const std::bad_alloc&) {  // no room to remember the block: give it back
        }
      }
    }
    free_block(data, returned.bytes);
  }

  AllocatorStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_in_use = stats_.in_use;
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    for (std::size_t index = 0; index < free_.size(); ++index) {
      for (void* data : free_[index]) free_block(data, class_bytes(index));
      free_[index].clear();
    }
    stats_.cached = 0;
  }

 private:
  /// Null when the lists have no such block.
  void* take_cached(const SizeClass& wanted) {
    const std::lock_guard lock(mutex_);
    stats_.in_use += wanted.bytes;
    stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
    std::vector<void*>& list = free_[wanted.index];
    if (list.empty()) {
      ++stats_.system_allocations;
      return nullptr;
    }
    void* data = list.back();
    list.pop_back();
    stats_.cached -= wanted.bytes;
    return data;
  }

  std::mutex mutex_;
  AllocatorStats stats_;
  std::array<std::vector<void*>, kClassesPerOctave*(kOctaves + 2)> free_;
};

thread_local constinit std::size_t allocation_limit = std::numeric_limits<std::size_t>::max();

void* checked_allocate(std::size_t bytes, Contents contents) {
  if (bytes > allocation_limit) [[unlikely]] {
    throw BackendError(fmt::format("allocate: {} bytes at once are asked for, the limit is {}",
                                   bytes, allocation_limit));
  }
  QUANTA_CHECK(bytes < (std::size_t{1} << 52), "allocate: bytes: expected less than 2^52, got {}",
               bytes);
  return CachingAllocator::instance().allocate(bytes, contents);
}

}  // namespace

void* allocate(std::size_t bytes) { return checked_allocate(bytes, Contents::Undefined); }
void* allocate_zeros(std::size_t bytes) { return checked_allocate(bytes, Contents::Zero); }

void deallocate(void* data, std::size_t bytes) noexcept {
  if (data != nullptr) CachingAllocator::instance().deallocate(data, bytes);
}

AllocatorStats allocator_stats() { return CachingAllocator::instance().stats(); }
void reset_allocator_peak() { CachingAllocator::instance().reset_peak(); }
void empty_cache() { CachingAllocator::instance().empty_cache(); }

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
