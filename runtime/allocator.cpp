#include "quanta/runtime/allocator.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "quanta/runtime/check.h"

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
  const std::size_t units = bytes <= kAlignment ? 1 : (bytes + kAlignment - 1) / kAlignment;
  if (units < kClassesPerOctave) return {units, units * kAlignment};
  const auto octave = static_cast<std::size_t>(std::bit_width(units)) - 4;  // units >= 8
  const std::size_t step = std::size_t{1} << octave;
  const std::size_t rounded = (units + step - 1) / step;  // 8..16
  return {kClassesPerOctave * (octave + 1) + (rounded - kClassesPerOctave),
          rounded * step * kAlignment};
}

class CachingAllocator {
 public:
  // Never destroyed: tensors with static lifetime may free after the end of main.
  static CachingAllocator& instance() {
    static auto* allocator = new CachingAllocator;
    return *allocator;
  }

  void* allocate(std::size_t bytes) {
    const SizeClass wanted = size_class(bytes);
    {
      const std::lock_guard lock(mutex_);
      stats_.in_use += wanted.bytes;
      stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
      std::vector<void*>& list = free_[wanted.index];
      if (!list.empty()) {
        void* data = list.back();
        list.pop_back();
        stats_.cached -= wanted.bytes;
        return data;
      }
      ++stats_.system_allocations;
    }
    void* data = std::aligned_alloc(kAlignment, wanted.bytes);
    if (data == nullptr) {
      empty_cache();
      data = std::aligned_alloc(kAlignment, wanted.bytes);
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
    std::free(data);
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
    for (std::vector<void*>& list : free_) {
      for (void* data : list) std::free(data);
      list.clear();
    }
    stats_.cached = 0;
  }

 private:
  std::mutex mutex_;
  AllocatorStats stats_;
  std::array<std::vector<void*>, kClassesPerOctave*(kOctaves + 2)> free_;
};

}  // namespace

void* allocate(std::size_t bytes) {
  QUANTA_CHECK(bytes < (std::size_t{1} << 52), "allocate: bytes: expected less than 2^52, got {}",
               bytes);
  return CachingAllocator::instance().allocate(bytes);
}

void deallocate(void* data, std::size_t bytes) noexcept {
  if (data != nullptr) CachingAllocator::instance().deallocate(data, bytes);
}

AllocatorStats allocator_stats() { return CachingAllocator::instance().stats(); }
void reset_allocator_peak() { CachingAllocator::instance().reset_peak(); }
void empty_cache() { CachingAllocator::instance().empty_cache(); }

}  // namespace quanta
