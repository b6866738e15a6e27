#include "quanta/runtime/dims.h"

#include <limits>
#include <ostream>

#include "quanta/runtime/check.h"

namespace quanta {

void Dims::throw_too_many(std::size_t count) {
  throw ArgumentError(fmt::format("Dims: expected at most {} dimensions, got {}", kMaxDims, count));
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

std::int64_t checked_numel(const Dims& sizes) {
  // Without the zeros, so that strides over an empty tensor do not overflow either. A 64th of the
  // range: the bits of 64-bit elements fit as well.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 64;
  std::int64_t nonzero = 1;
  bool has_zero = false;
  for (const std::int64_t size : sizes) {
    QUANTA_CHECK(size >= 0, "Tensor: sizes: expected numbers >= 0, got {}", sizes);
    if (size == 0) {
      has_zero = true;
      continue;
    }
    // Not by a division, which takes as long as the rest of this loop.
    QUANTA_CHECK(!__builtin_mul_overflow(nonzero, size, &nonzero) && nonzero <= kMost,
                 "Tensor: sizes: expected at most 2^57 elements, got {}", sizes);
  }
  return has_zero ? 0 : nonzero;
}

std::ostream& operator<<(std::ostream& stream, const Dims& dims) {
  return stream << to_string(dims);
}

}  // namespace quanta
