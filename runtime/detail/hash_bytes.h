#pragma once

// Private: 64 bits that tell one run of bytes from another. They find damage and stale copies; they
// are no defence against somebody who looks for two runs with the same hash.

#include <cstddef>
#include <cstdint>
#include <span>

namespace quanta::detail {

/// Depends on every byte, on their number and on `seed`. Large runs are read by several threads at
/// memory's speed; the result does not depend on how many. Part of files of save_model.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace quanta::detail
