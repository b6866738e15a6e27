#pragma once

// Results of functions that a device's own mathematical library calculates.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "quanta/runtime/tensor.h"
#include "support/compare.h"
#include "support/test_device.h"

namespace quanta::test {

/// Of a float among all: neighbours are 1 apart, and both zeros are 0.
inline std::int64_t place_among_floats(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  return bits < 0 ? -static_cast<std::int64_t>(bits & 0x7FFFFFFF) : bits;
}

/// Checks that `got` is within so many units in the last place of what the CPU's library gave. The
/// emulated device has the same library: there both are equal.
inline void check_units(const Tensor& got, const Tensor& want, int units) {
  if (test_device().is_emulated() || units == 0) return check_same(got, want.to_float_vector());
  const std::vector<float> left = got.to_float_vector();
  const std::vector<float> right = want.to_float_vector();
  REQUIRE(left.size() == right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(left[i]) && std::isnan(right[i])) continue;
    const bool near =
        !std::isnan(left[i]) && !std::isnan(right[i]) &&
        std::llabs(place_among_floats(left[i]) - place_among_floats(right[i])) <= units;
    if (near) continue;
    FAIL_CHECK("at " << i << ": got " << left[i] << ", expected " << right[i]);
    return;
  }
}

}  // namespace quanta::test
