#pragma once

// Private: factors of small symmetric matrices in float64, rows one after the other.

#include <cstddef>
#include <span>

namespace quanta::accuracy {

/// Replaces the symmetric `a` [n, n] by the upper triangular U with U^T U = a^-1; zeros below the
/// diagonal. False, and `a` spoiled, where `a` is not positive definite in float64.
bool upper_factor_of_inverse(std::span<double> a, std::size_t n);

}  // namespace quanta::accuracy
