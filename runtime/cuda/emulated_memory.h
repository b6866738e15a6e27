#pragma once

// Private: the memory of the emulated device.

#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace quanta::cuda::emulation {

/// Blocks of pages that nobody can touch but while an Access lives. After each lies a page that
/// nobody ever can.
class Memory {
 public:
  static Memory& instance();

  /// Null when memory is out.
  void* allocate(std::size_t bytes);
  void free(void* block, std::size_t bytes) noexcept;
  /// Where `bytes` lie so that they end where the block ends, but for the 15 bytes or fewer that
  /// alignment takes; those are marked.
  void* hand_out(void* block, std::size_t bytes, std::size_t block_bytes);
  /// The block. Ends the process when somebody wrote over the mark: what did it is long gone.
  void* take_back(void* data, std::size_t bytes, std::size_t block_bytes) noexcept;

  /// The device at work: one thing at a time, from any thread.
  class Access {
   public:
    explicit Access(Memory& memory);
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    Memory* memory_;
  };

  static constexpr std::size_t kAlignment = 16;

 private:
  void protect(int protection) noexcept;
  static void protect(void* block, std::size_t bytes, int protection) noexcept;

  std::recursive_mutex mutex_;
  int depth_ = 0;
  /// Those that are handed out, and their bytes in whole pages. The others stay closed.
  std::unordered_map<void*, std::size_t> blocks_;
};

}  // namespace quanta::cuda::emulation
