#pragma once

#include <array>
#include <cstdint>

#include "quanta/ops/cpu/elementwise_kernels.h"

// Private: every function of one 8-bit code is a table of 256 answers. Tables are indexed by the
// code's bits, so that signed and unsigned codes take the same path.

namespace quanta::cpu {

using CodeTable = std::array<std::uint8_t, 256>;

/// dst[i] = table[src[i]]. `src` may be `dst`.
void lookup(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count, const CodeTable& table,
            Store store);
/// lookup in several threads, stored as suits the size.
void parallel_lookup(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count,
                     const CodeTable& table);

}  // namespace quanta::cpu
