#include "quanta/runtime/detail/file_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/file_bytes.h"

namespace quanta::detail {
namespace {

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

}  // namespace

Tensor unshared(const Tensor& x) {
  if (x.is_contiguous() && x.numel() > 0 && !x.requires_grad() && x.version() == 0) {
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
