#pragma once

// Private: reductions of a block [outer, count, inner], of which the middle goes, on a CUDA device.
// Integers, codes, extremes and the sums, means and products of floats are the CPU's: numbers are
// added up in the CPU's order, in eight running sums of a row or one for each column.

#include <cstdint>

#include "quanta/runtime/device.h"
#include "quanta/runtime/dtype.h"

namespace quanta {
class Tensor;
}

namespace quanta::reduction {
struct ReduceLayout;
}

namespace quanta::cuda {

enum class Extreme : std::uint8_t { Largest, Smallest };
/// Which of equal elements is taken: zeros of both signs are equal.
enum class Equals : std::uint8_t { First, Last };

/// The extremes of x, whose layout is given, and their positions; one of the two may be null. NaN
/// wins. What has no elements gives the dtype's last extreme.
void find_extremes(const Tensor& x, const reduction::ReduceLayout& layout, Extreme extreme,
                   Equals equals, void* values, std::int64_t* indices);

/// Sums of floats (in double) or of integers (which wrap around) into `out`.
void sum(const Tensor& x, const reduction::ReduceLayout& layout, const Tensor& out);
/// Means of floats or codes.
void mean(const Tensor& x, const reduction::ReduceLayout& layout, const Tensor& out);

enum class Spread : std::uint8_t { Deviation, Variance };
/// Deviations of floats or codes, or variances of floats.
void spread(const Tensor& x, const reduction::ReduceLayout& layout, Spread kind, double correction,
            const Tensor& out);

/// Products in double, or of integers, which wrap around.
void product(const Tensor& x, const reduction::ReduceLayout& layout, const Tensor& out);

}  // namespace quanta::cuda
