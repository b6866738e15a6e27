#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::test {

/// The largest |a - b|; infinite where only one of the two is NaN.
inline double largest_difference(const Tensor& lhs, const Tensor& rhs) {
  REQUIRE(lhs.sizes() == rhs.sizes());
  const std::vector<float> a = lhs.to_float_vector();
  const std::vector<float> b = rhs.to_float_vector();
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return HUGE_VAL;
    if (std::isnan(a[i]) || a[i] == b[i]) continue;
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

}  // namespace quanta::test
