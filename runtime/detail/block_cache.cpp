#include "quanta/runtime/detail/block_cache.h"

#include <algorithm>
#include <bit>
#include <new>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {

BlockCache::SizeClass BlockCache::size_class(std::size_t bytes) {
  const std::size_t units = bytes <= kAlignment ? 1 : ceil_div(bytes, kAlignment);
  if (units < kClassesPerOctave) return {units, units * kAlignment};
  const auto octave = static_cast<std::size_t>(std::bit_width(units)) - 4;  // units >= 8
  const std::size_t step = std::size_t{1} << octave;
  const std::size_t rounded = ceil_div(units, step);  // 8..16
  return {kClassesPerOctave * (octave + 1) + (rounded - kClassesPerOctave),
          rounded * step * kAlignment};
}

// The bytes of a class's blocks; size_class() backwards.
std::size_t BlockCache::class_bytes(std::size_t index) {
  if (index < kClassesPerOctave) return index * kAlignment;
  const std::size_t octave = index / kClassesPerOctave - 1;
  return ((kClassesPerOctave + index % kClassesPerOctave) << octave) * kAlignment;
}

std::size_t BlockCache::block_bytes(std::size_t bytes) { return size_class(bytes).bytes; }

BlockCache::Block BlockCache::allocate(std::size_t bytes, BlockContents contents) {
  const SizeClass wanted = size_class(bytes);
  if (void* data = take_cached(wanted)) return {data, false};
  void* data = source_->take(wanted.bytes, contents);
  if (data == nullptr) {
    give_back_cached();
    data = source_->take(wanted.bytes, contents);
  }
  if (data == nullptr) {
    const std::lock_guard lock(mutex_);
    stats_.in_use -= wanted.bytes;
    throw BackendError(fmt::format("allocate: no memory for {} bytes{}: {} are in use", bytes,
                                   source_->memory_name(), stats_.in_use));
  }
  return {data, true};
}

void BlockCache::deallocate(void* data, std::size_t bytes) noexcept {
  const SizeClass returned = size_class(bytes);
  {
    const std::lock_guard lock(mutex_);
    stats_.in_use -= returned.bytes;
    if (stats_.cached + returned.bytes <= most_cached_bytes_) {
      try {
        free_[returned.index].push_back(data);
        stats_.cached += returned.bytes;
        return;
      } catch (const std::bad_alloc&) {  // no room to remember the block: give it back
      }
    }
  }
  source_->give_back(data, returned.bytes);
}

AllocatorStats BlockCache::stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void BlockCache::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_in_use = stats_.in_use;
}

void BlockCache::give_back_cached() {
  const std::lock_guard lock(mutex_);
  for (std::size_t index = 0; index < free_.size(); ++index) {
    for (void* data : free_[index]) source_->give_back(data, class_bytes(index));
    free_[index].clear();
  }
  stats_.cached = 0;
}

void* BlockCache::take_cached(const SizeClass& wanted) {
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

}  // namespace quanta::detail
