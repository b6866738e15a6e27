#pragma once

// Private: the vector kernels of attention_cpu.cpp.

#include <cstdint>

namespace quanta::cpu {

/// row[i] = exp(x[i] - max of x) for x = row + mask, i in [0, count), count >= 1, within 1e-7 of
/// its size (0 below e^-87). `mask` may be null. Returns the sum, taken in an order that depends on
/// nothing but `count`; when every x is -infinity all are 0 and so is the sum. NaN and +infinity
/// make the sum NaN. The same floats on every instruction set.
float exp_row(float* row, std::int64_t count, const float* mask);

/// row[i] *= factor.
void scale_row(float* row, std::int64_t count, float factor);

}  // namespace quanta::cpu
