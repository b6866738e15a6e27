#pragma once

// Calls on the CUDA device that is named, compared with those on the CPU.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "quanta/runtime/tensor.h"
#include "support/test_device.h"

namespace quanta::test {

inline Tensor on_device(const Tensor& x) { return x.to(test::test_device()); }

/// Checks that `got`, which is on the device, has the dtype, sizes, strides, parameters and bits of
/// `expected`; one NaN is as good as another.
inline void check_same_on_device(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.device() == test::test_device());
  REQUIRE(got.dtype() == expected.dtype());
  REQUIRE(got.sizes() == expected.sizes());
  CHECK(got.strides() == expected.strides());
  if (got.is_quantized()) CHECK(got.impl()->quantizer == expected.impl()->quantizer);
  const Tensor copy = got.cpu();
  if (!got.is_floating_point()) {
    const std::vector<std::int64_t> left = copy.to_int64_vector();
    const std::vector<std::int64_t> right = expected.to_int64_vector();
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] == right[i]) continue;
      FAIL_CHECK("at " << i << ": got " << left[i] << ", expected " << right[i]);
      return;
    }
    return;
  }
  const Tensor wide = copy.to(DType::Float64).contiguous();
  const Tensor other = expected.to(DType::Float64).contiguous();
  const double* const left = wide.data<double>();
  const double* const right = other.data<double>();
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    const bool both_nan = std::isnan(left[i]) && std::isnan(right[i]);
    const bool same =
        std::bit_cast<std::uint64_t>(left[i]) == std::bit_cast<std::uint64_t>(right[i]);
    if (both_nan || same) continue;
    FAIL_CHECK("at " << i << ": got " << left[i] << ", expected " << right[i]);
    return;
  }
}

/// Checks call(tensors...) on the device against the CPU.
template <typename Call, typename... Tensors>
void check_on_device(const Call& call, const Tensors&... tensors) {
  check_same_on_device(call(on_device(tensors)...), call(tensors...));
}

}  // namespace quanta::test
