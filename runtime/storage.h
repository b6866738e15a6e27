#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "quanta/runtime/device.h"
#include "quanta/runtime/intrusive_ptr.h"

/// The memory of tensors. Owners are counted atomically, so that threads may share a storage; its
/// bytes are for one thread while it writes to them.
namespace quanta {

/// A block of bytes that tensors share: from the caching allocator, or the user's own memory.
class Storage : public RefCounted {
 public:
  /// `bytes` bytes, aligned to 64, contents undefined. Throws BackendError when memory is out.
  Storage(std::size_t bytes, Device device);
  /// Takes memory of the user's; `deleter` (may be empty) runs when the last tensor lets go.
  Storage(void* data, std::size_t bytes, Device device, std::function<void(void*)> deleter);
  /// The same for memory that must not be written to.
  Storage(const void* data, std::size_t bytes, Device device,
          std::function<void(const void*)> deleter);
  ~Storage();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  /// Counts the writes through Tensor::mutable_data and the in-place methods; shared by all views.
  std::uint32_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  /// Called before each write. Throws ArgumentError for read-only memory.
  void bump_version() const {
    if (read_only_) [[unlikely]]
      throw_read_only();
    version_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Whether it is the user's constant memory, which no tensor writes to.
  bool is_read_only() const noexcept { return read_only_; }

 private:
  [[noreturn]] static void throw_read_only();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  bool owned_by_allocator_ = false;
  bool read_only_ = false;
  mutable std::atomic<std::uint32_t> version_{0};
  std::function<void(void*)> deleter_;
};

}  // namespace quanta
