#pragma once

#include <cstddef>
#include <vector>

// Plain values: nothing here throws, and threads may share what none of them changes.

namespace quanta {

/// Smallest and largest values: one of each, or one for each entry of some statistics (a channel, a
/// block). Before any data it has no entries, or entries of +inf and -inf. A NaN stands in both
/// ends of an entry once there was one. A plain value.
struct ValueRange {
  std::vector<float> min;
  std::vector<float> max;

  /// `count` entries before any data.
  static ValueRange unobserved(std::size_t count);
  /// Takes in a range with as many entries. NaN wins, as in torch.
  void widen(const ValueRange& other);

  bool operator==(const ValueRange&) const = default;
};

}  // namespace quanta
