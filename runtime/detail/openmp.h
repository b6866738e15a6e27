#pragma once

// Private: OpenMP's threads beside our own.

namespace quanta::detail {

/// Says that a library runs OpenMP's threads now, if the calling thread has several: the loops that
/// follow use them too (see parallel.cpp).
void note_openmp() noexcept;
/// In a child of fork, where OpenMP has no threads and would wait for them.
void forget_openmp() noexcept;

}  // namespace quanta::detail
