#include "quanta/runtime/cuda/memory.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/graph.h"
#include "quanta/runtime/detail/block_cache.h"

namespace quanta::cuda {
namespace {

// A device's cache holds what it once got until somebody else needs it: asking the driver costs
// more than all bookkeeping.
constexpr std::size_t kMostCachedBytes = static_cast<std::size_t>(-1) / 2;

class DeviceBlocks final : public detail::BlockSource {
 public:
  explicit DeviceBlocks(Device device)
      : driver_(&driver(device)), name_(" on " + to_string(device)) {}
  void* take(std::size_t bytes, detail::BlockContents contents) override {
    void* data = driver_->allocate(bytes);
    if (data != nullptr && contents == detail::BlockContents::Zero) driver_->fill(data, 0, bytes);
    return data;
  }
  void give_back(void* data, std::size_t bytes) noexcept override { driver_->free(data, bytes); }
  // The driver waits for the device then.
  bool wants_idle_blocks() const noexcept override { return false; }
  std::string_view memory_name() const noexcept override { return name_; }

 private:
  Driver* driver_;
  std::string name_;
};

struct Memory {
  explicit Memory(Device device) : blocks(device), cache(blocks, kMostCachedBytes) {}
  DeviceBlocks blocks;
  detail::BlockCache cache;
};

constexpr std::size_t kMostDevices = 129;  // GPUs 0 to 127, and the emulated one
constinit std::array<std::atomic<Memory*>, kMostDevices> memories{};

std::size_t slot(Device device) noexcept { return static_cast<std::size_t>(device.index + 1); }

// Made when a device is first used, and never destroyed: tensors with static lifetime may free
// after the end of main.
Memory& memory(Device device) {
  std::atomic<Memory*>& place = memories[slot(device)];
  if (Memory* made = place.load(std::memory_order_acquire)) return *made;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (place.load() == nullptr) place.store(new Memory(device));
  return *place.load();
}

}  // namespace

void* allocate(Device device, std::size_t bytes) {
  GraphMemory* const graph = graph_memory;
  if (graph != nullptr && graph->device() == device) return graph->take(bytes);
  return allocate_block(device, bytes);
}

void deallocate(Device device, void* data, std::size_t bytes) noexcept {
  if (data == nullptr) return;
  GraphMemory* const graph = graph_memory;
  if (graph != nullptr && graph->device() == device) return graph->give_back(data, bytes);
  deallocate_block(device, data, bytes);
}

void* allocate_block(Device device, std::size_t bytes) {
  QUANTA_CHECK(bytes < (std::size_t{1} << 52), "allocate: bytes: expected less than 2^52, got {}",
               bytes);
  detail::BlockCache& cache = memory(device).cache;
  void* block = cache.allocate(bytes, detail::BlockContents::Undefined).data;
  return driver(device).hand_out(block, bytes, detail::BlockCache::block_bytes(bytes));
}

void deallocate_block(Device device, void* data, std::size_t bytes) noexcept {
  Memory& from = *memories[slot(device)].load(std::memory_order_acquire);
  void* block = driver(device).take_back(data, bytes, detail::BlockCache::block_bytes(bytes));
  from.cache.deallocate(block, bytes);
}

AllocatorStats memory_stats(Device device) {
  Memory* used = memories[slot(device)].load(std::memory_order_acquire);
  return used == nullptr ? AllocatorStats{} : used->cache.stats();
}

void give_back_cached(Device device) {
  Memory* used = memories[slot(device)].load(std::memory_order_acquire);
  if (used != nullptr) used->cache.give_back_cached();
}

Buffer::Buffer(Device device, std::size_t bytes)
    : device_(device), data_(allocate(device, bytes)), bytes_(bytes) {}

Buffer::Buffer(Device device, const void* from, std::size_t bytes) : Buffer(device, bytes) {
  if (bytes > 0) driver(device).copy_to_device(data_, from, bytes);
}

Buffer::~Buffer() { deallocate(device_, data_, bytes_); }

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace quanta::cuda
