#pragma once

// Private: blocks of memory that were let go of, by size, to be handed out again. One for the CPU's
// memory and one for each device's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "quanta/runtime/allocator.h"

namespace quanta::detail {

enum class BlockContents : bool { Undefined, Zero };

/// Where new blocks come from. The bookkeeping never touches a block itself.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// `bytes` are those of a size class. Null when memory is out.
  virtual void* take(std::size_t bytes, BlockContents contents) = 0;
  virtual void give_back(void* data, std::size_t bytes) noexcept = 0;
  /// "for 12 bytes" becomes the text of the error; see BlockCache::allocate.
  virtual std::string_view memory_name() const noexcept = 0;
};

/// Free lists of size classes, eight for each power of two, so that at most an eighth of a block is
/// wasted. Safe from many threads.
class BlockCache {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// Keeps at most so many bytes that nobody uses.
  BlockCache(BlockSource& source, std::size_t most_cached_bytes)
      : source_(&source), most_cached_bytes_(most_cached_bytes) {}

  /// A block of at least so many bytes. A cached one is not cleared, whatever `contents` says of a
  /// new one: `is_new` answers which it is. Gives the cache back and tries again when memory is
  /// out; throws BackendError when that does not help.
  struct Block {
    void* data;
    bool is_new;
  };
  Block allocate(std::size_t bytes, BlockContents contents);
  void deallocate(void* data, std::size_t bytes) noexcept;

  AllocatorStats stats();
  void reset_peak();
  void give_back_cached();

  /// The bytes of the block that holds so many.
  static std::size_t block_bytes(std::size_t bytes);

 private:
  static constexpr std::size_t kClassesPerOctave = 8;
  static constexpr std::size_t kOctaves = 48;
  struct SizeClass {
    std::size_t index;
    std::size_t bytes;
  };
  static SizeClass size_class(std::size_t bytes);
  static std::size_t class_bytes(std::size_t index);
  /// Null when the lists have no such block.
  void* take_cached(const SizeClass& wanted);

  BlockSource* source_;
  std::size_t most_cached_bytes_;
  std::mutex mutex_;
  AllocatorStats stats_;
  std::array<std::vector<void*>, kClassesPerOctave*(kOctaves + 2)> free_;
};

}  // namespace quanta::detail
