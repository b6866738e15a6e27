#pragma once

// Private: sizes of tensors that stand in files.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "quanta/runtime/check.h"

namespace quanta::detail {

/// The elements of a tensor of these sizes. Throws FileError `<where>: ...` for a negative size and
/// from 2^55 elements, so that neither bytes, bits nor strides can overflow afterwards; a size of
/// 0 counts as 1 there, as it does in strides.
inline std::int64_t checked_file_numel(const Dims& sizes, std::string_view where) {
  constexpr std::int64_t kMax = std::int64_t{1} << 55;
  std::int64_t span = 1;
  std::int64_t numel = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      throw FileError(fmt::format("{}: shape: expected sizes >= 0, got {}", where, sizes));
    }
    if (span > kMax / std::max<std::int64_t>(size, 1)) {
      throw FileError(
          fmt::format("{}: shape: expected at most 2^55 elements, got {}", where, sizes));
    }
    span *= std::max<std::int64_t>(size, 1);
    numel *= size;
  }
  return numel;
}

}  // namespace quanta::detail
