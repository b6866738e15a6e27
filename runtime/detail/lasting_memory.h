#pragma once

// Private: memory for what is made once and read for long, such as packed weights.

#include <cstddef>
#include <memory>

namespace quanta::detail {

/// Uninitialised memory, aligned to 64 bytes, that lies beside what was asked for before and after:
/// many weights share few large pages. It goes back to the system with the last of its neighbours.
/// Throws BackendError when memory is out. Safe from many threads.
std::shared_ptr<std::byte> lasting_memory(std::size_t bytes);

/// The same of zeros, which take no memory before they are written to: for what another value takes
/// the place of, as a rule.
std::shared_ptr<std::byte> lasting_zeros(std::size_t bytes);

}  // namespace quanta::detail
