#pragma once

// Tensors that tests are about.

#include <cstdint>
#include <initializer_list>

#include "quanta/runtime/tensor.h"

namespace quanta::test {

/// Standard normal numbers.
Tensor random_tensor(const Dims& sizes, std::uint64_t seed = 1);
/// Uniform numbers from `low` to `high`.
Tensor uniform_tensor(const Dims& sizes, std::uint64_t seed, float low = -2.0F, float high = 2.0F);
/// 0, 1, 2, ... in Float32.
Tensor iota(const Dims& sizes);
/// Int64, in one dimension.
Tensor indices(std::initializer_list<std::int64_t> values);
/// [batch, channels, side, ...], with `spatial` sides.
Dims image_sizes(std::int64_t batch, std::int64_t channels, std::int64_t spatial,
                 std::int64_t side);
/// `tensor`, which requires a gradient from now on.
Tensor leaf(const Tensor& tensor);
/// All numbers of the tensors in one dimension; undefined tensors are left out.
Tensor flat(std::initializer_list<Tensor> tensors);

}  // namespace quanta::test
