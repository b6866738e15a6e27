#pragma once

// Private: memory that a later call reads, asked for while this one calculates: a weight is read
// once a run, and waiting for it can take as long as its products.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cpu {

/// One thread's place in it.
class MemoryAhead {
 public:
  MemoryAhead() = default;
  /// To be asked for within `turns` calls of fetch().
  MemoryAhead(std::span<const std::byte> memory, std::int64_t turns) {
    // Half of a small L2 cache: what is asked for too early is gone again when it is wanted.
    constexpr std::size_t kMostBytes = std::size_t{512} * 1024;
    at_ = memory.data();
    end_ = at_ + std::min(memory.size(), kMostBytes);
    const auto lines = static_cast<std::int64_t>(end_ - at_) / kLine;
    lines_ = std::min<std::int64_t>(ceil_div(lines, std::max<std::int64_t>(turns, 1)), kMostLines);
  }
  void fetch() {
    for (std::int64_t i = 0; i < lines_ && at_ < end_; ++i, at_ += kLine) {
      __builtin_prefetch(at_, 0, 2);
    }
  }
  void operator()() { fetch(); }

  /// A line for each of the next `count` steps of a loop, without a condition in it: line i is at
  /// begin + i * stride.
  struct Lines {
    const std::byte* begin;
    std::int64_t stride;
  };
  Lines take(std::int64_t count) {
    if (end_ - at_ < count * kLine) return {at_, 0};
    const std::byte* begin = at_;
    at_ += count * kLine;
    return {begin, kLine};
  }

 private:
  static constexpr std::int64_t kLine = 64;
  /// In one turn: more would keep loads waiting.
  static constexpr std::int64_t kMostLines = 32;

  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
  std::int64_t lines_ = 0;
};

/// Parts of rows that are written next: stores go to memory one after the other, and each would wait
/// for its line of the cache.
class RowsAhead {
 public:
  /// The first `bytes` bytes of `rows` rows that lie `stride` bytes apart, to be asked for within
  /// `turns` calls of fetch().
  RowsAhead(const void* first, std::int64_t bytes, std::int64_t stride, std::int64_t rows,
            std::int64_t turns)
      : at_(static_cast<const std::byte*>(first)),
        bytes_(bytes),
        stride_(stride),
        left_(rows),
        of_turn_(ceil_div(rows, std::max<std::int64_t>(turns, 1))) {}

  void fetch() {
    const std::int64_t count = std::min(of_turn_, left_);
    for (std::int64_t row = 0; row < count; ++row, at_ += stride_) {
      const auto before = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at_) % kLine);
      for (std::int64_t at = -before; at < bytes_; at += kLine) __builtin_prefetch(at_ + at, 1, 3);
    }
    left_ -= count;
  }

 private:
  static constexpr std::int64_t kLine = 64;

  const std::byte* at_;
  std::int64_t bytes_, stride_, left_, of_turn_;
};

}  // namespace quanta::cpu
