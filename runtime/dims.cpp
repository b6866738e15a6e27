#include "quanta/runtime/dims.h"

#include <limits>

#include "quanta/runtime/check.h"

namespace quanta {

void Dims::throw_too_many(std::size_t count) {
  throw ArgumentError(
      fmt::format("Dims: expected at most {} dimensions, got {}", kMaxDims, count));
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

std::int64_t checked_numel(const Dims& sizes) {
  std::int64_t result = 1;
  bool has_zero = false;
  for (const std::int64_t size : sizes) {
    QUANTA_CHECK(size >= 0, "Tensor: sizes: expected numbers >= 0, got {}", sizes);
    has_zero = has_zero || size == 0;
  }
  if (has_zero) return 0;
  for (const std::int64_t size : sizes) {
    // An eighth of the range, so that the bytes of 64-bit elements fit as well.
    QUANTA_CHECK(result <= std::numeric_limits<std::int64_t>::max() / 8 / size,
                 "Tensor: sizes: expected at most 2^60 elements, got {}", sizes);
    result *= size;
  }
  return result;
}

}  // namespace quanta
