#include "quanta/runtime/detail/block_cache.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {
namespace {

// Calls of deallocate after which blocks that nobody wanted meanwhile go back: a run of a network
// makes some dozens, so that what it needs is wanted many times.
constexpr std::size_t kPeriodCalls = std::size_t{1} << 14;
// How many of them a call gives back.
constexpr std::size_t kMostLeaving = 64;

}  // namespace

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

BlockCache::SizeClass BlockCache::block_class(std::size_t bytes) const {
  SizeClass result = size_class(bytes);
  if (sizes_ == Sizes::Exact) result.bytes = std::max<std::size_t>(bytes, 1);
  return result;
}

BlockCache::Block BlockCache::allocate(std::size_t bytes, BlockContents contents) {
  const SizeClass wanted = block_class(bytes);
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
  const SizeClass returned = block_class(bytes);
  std::array<Leaving, kMostLeaving> leaving;
  std::size_t leaving_count = 0;
  bool kept = false;
  {
    const std::lock_guard lock(mutex_);
    stats_.in_use -= returned.bytes;
    if (++calls_ >= kPeriodCalls && source_->wants_idle_blocks()) {
      leaving_count = take_idle(leaving);
    }
    if (sizes_ == Sizes::Classes && stats_.cached + returned.bytes <= most_cached_bytes_) {
      try {
        free_[returned.index].blocks.push_back(data);
        stats_.cached += returned.bytes;
        source_->rest(data, returned.bytes);
        kept = true;
      } catch (const std::bad_alloc&) {  // no room to remember the block: give it back
      }
    }
  }
  for (std::size_t i = 0; i < leaving_count; ++i) {
    source_->give_back(leaving[i].data, leaving[i].bytes);
  }
  if (!kept) source_->give_back(data, returned.bytes);
}

AllocatorStats BlockCache::stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void BlockCache::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_in_use = stats_.in_use;
}

void BlockCache::give_back_first(std::size_t index, std::size_t count) noexcept {
  FreeList& list = free_[index];
  const std::size_t bytes = class_bytes(index);
  const auto end = list.blocks.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto block = list.blocks.begin(); block != end; ++block) source_->give_back(*block, bytes);
  list.blocks.erase(list.blocks.begin(), end);
  list.idle -= std::min(list.idle, count);
  stats_.cached -= count * bytes;
}

std::size_t BlockCache::take_idle(std::span<Leaving> leaving) noexcept {
  std::size_t count = 0;
  for (std::size_t index = 0; index < free_.size(); ++index) {
    FreeList& list = free_[index];
    const std::size_t taken = std::min(list.idle, leaving.size() - count);
    const std::size_t bytes = class_bytes(index);
    const auto end = list.blocks.begin() + static_cast<std::ptrdiff_t>(taken);
    for (auto block = list.blocks.begin(); block != end; ++block) {
      leaving[count++] = {*block, bytes};
    }
    list.blocks.erase(list.blocks.begin(), end);
    list.idle -= taken;
    stats_.cached -= taken * bytes;
    // The next call takes more.
    if (list.idle != 0) return count;
  }
  calls_ = 0;
  for (FreeList& list : free_) list.idle = list.blocks.size();
  return count;
}

void BlockCache::give_back_cached() {
  const std::lock_guard lock(mutex_);
  for (std::size_t index = 0; index < free_.size(); ++index) {
    give_back_first(index, free_[index].blocks.size());
  }
}

std::size_t BlockCache::set_most_cached_bytes(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  // The largest first: few calls of the system, and the blocks that are soonest found again stay.
  for (std::size_t index = free_.size(); index-- > 1 && stats_.cached > bytes;) {
    const std::size_t above = ceil_div(stats_.cached - bytes, class_bytes(index));
    give_back_first(index, std::min(above, free_[index].blocks.size()));
  }
  return std::exchange(most_cached_bytes_, bytes);
}

std::size_t BlockCache::most_cached_bytes() {
  const std::lock_guard lock(mutex_);
  return most_cached_bytes_;
}

void* BlockCache::take_cached(const SizeClass& wanted) {
  const std::lock_guard lock(mutex_);
  stats_.in_use += wanted.bytes;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  FreeList& list = free_[wanted.index];
  if (list.blocks.empty()) {
    ++stats_.system_allocations;
    return nullptr;
  }
  void* data = list.blocks.back();
  list.blocks.pop_back();
  list.idle = std::min(list.idle, list.blocks.size());
  stats_.cached -= wanted.bytes;
  return data;
}

}  // namespace quanta::detail
