#pragma once

// Float sums of products on a CUDA device, held to what Float64 gives on the CPU by the bound of
// ops/cuda/library.h.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quanta/ops/elementwise.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"
#include "support/test_device.h"

namespace quanta::test {

inline const Device kDevice = test::test_device();

inline Tensor doubles(const Tensor& x) { return x.defined() ? x.to(DType::Float64) : x; }
inline Tensor on_device(const Tensor& x) { return x.defined() ? x.to(kDevice) : x; }
inline Tensor magnitudes(const Tensor& x) { return x.defined() ? doubles(x).abs() : x; }

// Half the distance from a number to the next one of a dtype of 16 bits; 0 for Float32.
inline double half_ulp(DType dtype, double value) {
  if (dtype == DType::Float32) return 0.0;
  const int bits = dtype == DType::Float16 ? 11 : 8;
  const int smallest = dtype == DType::Float16 ? -14 : -126;
  return std::ldexp(0.5, std::max(std::ilogb(value), smallest) - bits + 1);
}

/// Whether a GPU's library rounds before it adds a bias, too.
inline bool rounds_before_bias(DType dtype) {
  return dtype != DType::Float32 && !kDevice.is_emulated();
}

// |got - exact| <= (terms + 2) * 2^-24 * (sum of |a * b|), and what rounding to 16 bits adds.
// `rounds_twice`: what comes before a bias is rounded, too.
inline void check_within(const Tensor& got, const Tensor& exact, const Tensor& sums,
                         std::int64_t terms, DType dtype = DType::Float32,
                         bool rounds_twice = false) {
  CHECK(got.device() == kDevice);
  CHECK(got.dtype() == dtype);
  REQUIRE(got.sizes() == exact.sizes());
  const Tensor values = doubles(got.cpu()).contiguous();
  const Tensor wanted = exact.contiguous();
  const Tensor bounds = sums.contiguous();
  const double unit = static_cast<double>(terms + 2) * std::ldexp(1.0, -24);
  std::int64_t beyond = 0;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double difference = std::abs(values.data<double>()[i] - wanted.data<double>()[i]);
    const double sum = bounds.data<double>()[i];
    double bound = unit * sum;
    bound += half_ulp(dtype, std::abs(wanted.data<double>()[i]) + bound);
    if (rounds_twice) bound += half_ulp(dtype, sum);
    if (!(difference <= bound)) ++beyond;
  }
  CHECK(beyond == 0);
}

// call(tensors) on the device in the dtype of its arguments, and its gradients, against Float64's.
// `terms`: of a sum of the result, and of each gradient. `has_bias`: the result has one.
template <typename Call>
void check_call(const Call& call, const std::vector<Tensor>& arguments,
                const std::vector<std::int64_t>& terms, bool has_bias = false) {
  const DType dtype = arguments.front().dtype();
  const auto differentiated = [&](const auto& prepare, const auto& of_result) {
    std::vector<Tensor> tensors;
    for (const Tensor& x : arguments) {
      tensors.push_back(prepare(x).detach());
      tensors.back().set_requires_grad();
    }
    const Tensor y = call(tensors);
    y.backward(of_result(y));
    std::vector<Tensor> results{y.detach()};
    for (const Tensor& x : tensors) results.push_back(x.grad());
    return results;
  };
  Generator generator(5);
  Tensor of_sizes;
  const auto exact = differentiated(doubles, [&](const Tensor& y) {
    of_sizes = randn(y.sizes(), generator).to(dtype);
    return doubles(of_sizes);
  });
  const auto sums = differentiated(magnitudes, [&](const Tensor&) { return magnitudes(of_sizes); });
  const auto got = differentiated(on_device, [&](const Tensor&) { return on_device(of_sizes); });
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    check_within(got[i], exact[i], sums[i], terms[i], dtype,
                 has_bias && i == 0 && rounds_before_bias(dtype));
  }
}

}  // namespace quanta::test
