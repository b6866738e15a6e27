#pragma once

// Private: the memory of CUDA devices.

#include <cstddef>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/device.h"

namespace quanta::cuda {

/// At least so many bytes on the device, aligned to 16, contents undefined. Throws BackendError
/// when memory is out; what was there stays usable. While the calling thread captures, blocks
/// come from and go to the graph (graph.h), which keeps them.
void* allocate(Device device, std::size_t bytes);
void deallocate(Device device, void* data, std::size_t bytes) noexcept;
/// The same for memory that is nobody's graph's.
void* allocate_block(Device device, std::size_t bytes);
void deallocate_block(Device device, void* data, std::size_t bytes) noexcept;

AllocatorStats memory_stats(Device device);
/// Gives what nobody uses back to the device.
void give_back_cached(Device device);

/// Bytes on a device that are freed with it; movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device device, std::size_t bytes);
  /// With a copy of the host's bytes.
  Buffer(Device device, const void* from, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::size_t bytes() const noexcept { return bytes_; }
  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }

 private:
  Device device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace quanta::cuda
