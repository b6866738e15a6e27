#pragma once

#include <cmath>

#include "quanta/runtime/host_device.h"

// p-norms, once for CPU and CUDA kernels: what each number adds to the sum, and what the sum comes
// to. The pow of CUDA's library may be two units in the last place of a double from the C library's.
// Nothing throws, and many threads may call it at once.

namespace quanta::math {

QUANTA_HOST_DEVICE inline double power_term(double x, double p) {
  const double size = ::fabs(x);
  return p == 2.0 ? size * size : p == 1.0 ? size : ::pow(size, p);
}

QUANTA_HOST_DEVICE inline double power_root(double sum, double p) {
  return p == 2.0 ? ::sqrt(sum) : p == 1.0 ? sum : ::pow(sum, 1.0 / p);
}

/// What lp_normalize makes of a number.
QUANTA_HOST_DEVICE inline double part_of_norm(double x, double norm) {
  return norm == 0.0 ? 0.0 : x / norm;
}

/// What local_response_norm makes of a number; `factor` is alpha / size.
QUANTA_HOST_DEVICE inline double local_response(double x, double squares, double factor,
                                                double beta, double bias) {
  return x / ::pow(bias + factor * squares, beta);
}

}  // namespace quanta::math
