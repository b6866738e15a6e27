#pragma once

// Private: arithmetic on sizes that a caller gave.

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "quanta/runtime/check.h"

namespace quanta::detail {

/// The product of sizes (>= 0) that `op` was given or counts, `what` being its name. Throws
/// ArgumentError for more than 2^57, which no tensor has elements.
inline std::int64_t checked_product(std::string_view op, std::string_view what,
                                    std::initializer_list<std::int64_t> sizes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 57U;
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) {
    QUANTA_CHECK(!__builtin_mul_overflow(result, size, &result) && result <= kMost,
                 "{}: {}: expected at most 2^57, got the product of {}", op, what,
                 fmt::join(sizes, ", "));
  }
  return result;
}

}  // namespace quanta::detail
