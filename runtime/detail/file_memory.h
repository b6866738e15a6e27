#pragma once

// Private: tensors whose memory is a file's.

#include <vector>

#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// The values of `x`, contiguous, in memory that nobody else writes to: a copy, or, of a tensor of
/// a mapped file that was not written to, another mapping of it, which takes no memory before it is
/// read; or what is handed over.
Tensor unshared(const Tensor& x);

/// While it lives, unshared() on the calling thread gives the memory of the state's tensors itself,
/// of each one once: for a state that was just read and that nobody else has. One at a time.
class Handover {
 public:
  /// Throws std::bad_alloc.
  explicit Handover(const StateDict& state);
  ~Handover();
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  /// True once for memory that the state has.
  bool take(const IntrusivePtr<Storage>& storage) noexcept;

 private:
  Handover* outer_;
  std::vector<IntrusivePtr<Storage>> left_;  // by address
};

/// Gives the memory of a mapped file's tensor back: it is read from the file again when it is
/// needed. Does nothing for other memory, or when the tensor was written to since (all that write
/// have to use mutable_data, as those of unshared() have).
void release_file_memory(const Tensor& x);

}  // namespace quanta::detail
