#pragma once

// Private: numbers that files give as floats and that count something.

#include <cmath>

namespace quanta::detail {

/// Whether `value` is a whole number of at most 2^53 either way: a double holds it, and an integer.
inline bool is_whole_number(double value) {
  return std::fabs(value) <= 0x1p53 && value == std::trunc(value);
}

}  // namespace quanta::detail
