#pragma once

// Private: blocks of memory that were let go of, by size, to be handed out again. One for the CPU's
// memory and one for each device's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
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
  /// Whether blocks that were not needed for long go back by themselves. Not where taking and giving
  /// back waits for all that runs.
  virtual bool wants_idle_blocks() const noexcept { return true; }
  /// A block is kept that nobody uses; what it holds may get lost.
  virtual void rest(void* data, std::size_t bytes) noexcept {
    static_cast<void>(data);
    static_cast<void>(bytes);
  }
  /// "for 12 bytes" becomes the text of the error; see BlockCache::allocate.
  virtual std::string_view memory_name() const noexcept = 0;
};

/// Free lists of size classes, eight for each power of two, so that at most an eighth of a block is
/// wasted. Blocks that were not needed for some thousands of calls go back to a source that wants
/// them: sizes that vary leave nothing behind. Safe from many threads.
class BlockCache {
 public:
  static constexpr std::size_t kAlignment = 64;
  /// Exact: blocks have the bytes that were asked for, so that a checker sees where they end.
  enum class Sizes : bool { Classes, Exact };

  /// Keeps at most so many bytes that nobody uses.
  BlockCache(BlockSource& source, std::size_t most_cached_bytes, Sizes sizes = Sizes::Classes)
      : source_(&source), sizes_(sizes), most_cached_bytes_(most_cached_bytes) {}

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
  /// What is above the new limit goes back at once. Returns the limit before.
  std::size_t set_most_cached_bytes(std::size_t bytes);
  std::size_t most_cached_bytes();

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
  struct FreeList {
    std::vector<void*> blocks;  ///< the last one is handed out first
    std::size_t idle = 0;       ///< so many at the front were not needed in this period
  };
  SizeClass block_class(std::size_t bytes) const;
  /// Null when the lists have no such block.
  void* take_cached(const SizeClass& wanted);
  void give_back_first(std::size_t index, std::size_t count) noexcept;  // with the lock held
  /// Blocks on their way to the source, which get there without the lock.
  struct Leaving {
    void* data;
    std::size_t bytes;
  };
  /// Takes what fits of the blocks that were idle for a period; ends it when none are left. With the
  /// lock held; gives how many there are.
  std::size_t take_idle(std::span<Leaving> leaving) noexcept;

  BlockSource* source_;
  Sizes sizes_;
  std::size_t most_cached_bytes_;
  std::mutex mutex_;
  AllocatorStats stats_;
  std::size_t calls_ = 0;  ///< of deallocate in this period
  std::array<FreeList, kClassesPerOctave*(kOctaves + 2)> free_;
};

}  // namespace quanta::detail
