#pragma once

// Private: tensors whose memory is a file's.

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// The values of `x`, contiguous, in memory that nobody else writes to: a copy, or, of a tensor of
/// a mapped file that was not written to, another mapping of it, which takes no memory before it is
/// read.
Tensor unshared(const Tensor& x);

/// Gives the memory of a mapped file's tensor back: it is read from the file again when it is
/// needed. Does nothing for other memory, or when the tensor was written to since (all that write
/// have to use mutable_data, as those of unshared() have).
void release_file_memory(const Tensor& x);

}  // namespace quanta::detail
