#include "quanta/runtime/detail/file_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/file_bytes.h"

namespace quanta::detail {
namespace {

thread_local constinit Handover* handover = nullptr;

std::span<std::byte> bytes_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.data_ptr()), x.nbytes()};
}

/// `x`, contiguous, with its elements at `data`.
Tensor moved_to(const std::shared_ptr<std::byte>& data, const Tensor& x) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->storage = IntrusivePtr<Storage>(new Storage(
      data.get(), x.nbytes(), x.device(), [owner = data](void*) mutable { owner.reset(); }));
  impl->data = data.get();
  impl->sizes = x.sizes();
  impl->strides = contiguous_strides(x.sizes());
  impl->numel = x.numel();
  impl->dtype = x.dtype();
  impl->device = x.device();
  impl->quantizer = x.impl()->quantizer;
  return Tensor(std::move(impl));
}

bool lies_before(const IntrusivePtr<Storage>& a, const IntrusivePtr<Storage>& b) {
  return std::less<>()(a.get(), b.get());
}

}  // namespace

Handover::Handover(const StateDict& state) : outer_(handover) {
  for (const auto& [name, tensor] : state) left_.push_back(tensor.storage());
  std::sort(left_.begin(), left_.end(), lies_before);
  handover = this;
}

Handover::~Handover() { handover = outer_; }

bool Handover::take(const IntrusivePtr<Storage>& storage) noexcept {
  const auto [begin, end] = std::equal_range(left_.begin(), left_.end(), storage, lies_before);
  // Tensors that share memory stay apart.
  if (end - begin != 1) return false;
  left_.erase(begin);
  return true;
}

Tensor unshared(const Tensor& x) {
  if (x.is_contiguous() && x.numel() > 0 && !x.requires_grad() && x.version() == 0) {
    const bool is_all = x.nbytes() == x.storage()->bytes();
    if (handover != nullptr && is_all && handover->take(x.storage())) return x.detach();
    if (const std::shared_ptr<FileBytes> file = FileBytes::holding(bytes_of(x))) {
      if (const std::shared_ptr<std::byte> data = file->lend_twin(bytes_of(x))) {
        return moved_to(data, x);
      }
    }
  }
  return x.clone(MemoryFormat::Contiguous);
}

void release_file_memory(const Tensor& x) {
  if (x.version() != 0) return;
  const std::span<std::byte> bytes = bytes_of(x);
  if (FileBytes::holding(bytes) == nullptr) return;
  // Whole pages only: what lies beside may have been written to.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto begin = round_up(address, page);
  const auto end = (address + bytes.size()) / page * page;
  if (begin < end) ::madvise(bytes.data() + (begin - address), end - begin, MADV_DONTNEED);
}

}  // namespace quanta::detail
