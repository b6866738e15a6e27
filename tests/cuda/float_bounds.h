#pragma once

// Float sums of products on a CUDA device, held to what Float64 gives on the CPU by the bound of
// ops/cuda/library.h.

#include <doctest/doctest.h>

#include <cmath>
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

// |got - exact| <= (terms + 2) * 2^-24 * (sum of |a * b|).
inline void check_within(const Tensor& got, const Tensor& exact, const Tensor& sums,
                         std::int64_t terms) {
  CHECK(got.device() == kDevice);
  CHECK(got.dtype() == DType::Float32);
  REQUIRE(got.sizes() == exact.sizes());
  const Tensor values = doubles(got.cpu()).contiguous();
  const Tensor wanted = exact.contiguous();
  const Tensor bounds = sums.contiguous();
  const double unit = static_cast<double>(terms + 2) * std::ldexp(1.0, -24);
  std::int64_t beyond = 0;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double difference = std::abs(values.data<double>()[i] - wanted.data<double>()[i]);
    if (!(difference <= unit * bounds.data<double>()[i])) ++beyond;
  }
  CHECK(beyond == 0);
}

// call(tensors) in Float32 on the device, and its gradients, against Float64's. `terms`: of a sum of
// the result, and of each gradient.
template <typename Call>
void check_call(const Call& call, const std::vector<Tensor>& arguments,
                const std::vector<std::int64_t>& terms) {
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
    of_sizes = randn(y.sizes(), generator);
    return doubles(of_sizes);
  });
  const auto sums = differentiated(magnitudes, [&](const Tensor&) { return magnitudes(of_sizes); });
  const auto got = differentiated(on_device, [&](const Tensor&) { return on_device(of_sizes); });
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    check_within(got[i], exact[i], sums[i], terms[i]);
  }
}

}  // namespace quanta::test
