#include "quanta/fusion/accuracy/detail/cholesky.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quanta/runtime/parallel.h"

namespace quanta::accuracy {
namespace {

// a = R R^T with R upper triangular, in place above the diagonal; from the last column to the first.
bool upper_factor(std::span<double> a, std::size_t n) {
  for (std::size_t j = n; j-- > 0;) {
    const double* at_j = a.data() + j * n;
    double square = at_j[j];
    for (std::size_t k = j + 1; k < n; ++k) square -= at_j[k] * at_j[k];
    if (!(square > 0.0) || !std::isfinite(square)) return false;
    const double diagonal = std::sqrt(square);
    a[j * n + j] = diagonal;
    parallel_for(static_cast<std::int64_t>(j), 64, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        double* at_i = a.data() + i * n;
        double value = at_i[j];
        for (std::size_t k = j + 1; k < n; ++k) value -= at_i[k] * at_j[k];
        at_i[j] = value / diagonal;
      }
    });
  }
  return true;
}

// Of an upper triangular matrix, in place; row i needs the finished rows below it.
void invert_upper(std::span<double> a, std::size_t n) {
  std::vector<double> factors(n);
  for (std::size_t i = n; i-- > 0;) {
    double* at_i = a.data() + i * n;
    const double inverse = 1.0 / at_i[i];
    for (std::size_t k = i + 1; k < n; ++k) factors[k] = -at_i[k] * inverse;
    std::fill_n(at_i, n, 0.0);
    at_i[i] = inverse;
    for (std::size_t k = i + 1; k < n; ++k) {
      const double factor = factors[k];
      const double* at_k = a.data() + k * n;
      for (std::size_t j = k; j < n; ++j) at_i[j] += factor * at_k[j];
    }
  }
}

}  // namespace

bool upper_factor_of_inverse(std::span<double> a, std::size_t n) {
  // a^-1 = (R R^T)^-1 = (R^-1)^T R^-1, and the inverse of an upper triangular matrix is one.
  if (!upper_factor(a, n)) return false;
  invert_upper(a, n);
  return true;
}

}  // namespace quanta::accuracy
