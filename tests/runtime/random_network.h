#pragma once

// Networks of random steps, for tests of plans.

#include <cstdint>

#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"

namespace quanta::test {

inline constexpr std::int64_t kRows = 6;
inline constexpr std::int64_t kColumns = 10;

/// Any strides: out = a * 0.5 + b * factor, element by element in the order of the indices.
void combine(const Tensor& a, const Tensor& b, float factor, const Tensor& out);
/// The same as a step, into a tensor of its own.
Tensor combined(const Tensor& a, const Tensor& b, float factor);

/// A number of [0, count), any as often as another.
std::int64_t below(Generator& generator, std::int64_t count);

/// A network of random steps for [kRows, kColumns]: each combines two earlier results, or parts of them
/// into parts of a new one, or changes an earlier one in place.
Tensor random_network(const Tensor& x, std::uint64_t seed);

}  // namespace quanta::test
