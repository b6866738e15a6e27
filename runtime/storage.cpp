#include "quanta/runtime/storage.h"

#include <utility>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/recorder.h"

namespace quanta {
namespace {

void give_back(std::byte* data, std::size_t bytes, Device device) noexcept {
  device.is_cpu() ? deallocate(data, bytes) : cuda::deallocate(device, data, bytes);
}

std::function<void(void*)> without_const(std::function<void(const void*)> deleter) {
  if (!deleter) return {};
  return [deleter = std::move(deleter)](void* memory) { deleter(memory); };
}

}  // namespace

Storage::Storage(std::size_t bytes, Device device)
    : bytes_(bytes), device_(device), owned_by_allocator_(true) {
  data_ =
      static_cast<std::byte*>(device.is_cpu() ? allocate(bytes) : cuda::allocate(device, bytes));
  if (replay::detail::noting != nullptr) [[unlikely]] {
    try {
      replay::note_storage(this);
    } catch (...) {
      give_back(data_, bytes_, device_);  // there is no destructor without an object
      throw;
    }
  }
}

Storage::Storage(void* data, std::size_t bytes, Device device, std::function<void(void*)> deleter)
    : data_(static_cast<std::byte*>(data)),
      bytes_(bytes),
      device_(device),
      deleter_(std::move(deleter)) {
  if (replay::detail::noting != nullptr) [[unlikely]]
    replay::note_storage(this);
}

Storage::Storage(const void* data, std::size_t bytes, Device device,
                 std::function<void(const void*)> deleter)
    : Storage(const_cast<void*>(data), bytes, device, without_const(std::move(deleter))) {
  read_only_ = true;
}

void Storage::throw_read_only() {
  throw ArgumentError(
      "Tensor: x: expected a tensor whose elements may be written, got one over read-only memory "
      "(from_blob of a pointer to const): write to its clone()");
}

Storage::~Storage() {
  if (owned_by_allocator_) {
    give_back(data_, bytes_, device_);
  } else if (deleter_) {
    deleter_(data_);
  }
}

}  // namespace quanta
