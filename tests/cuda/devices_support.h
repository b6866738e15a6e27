#pragma once

// One calculation on the CPU and on the device that is named, forward and backward, compared to the
// last bit.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"
#include "support/test_device.h"

namespace quanta::test {

/// How far a function of CUDA's library may be from the C library's on a GPU, beside numbers of 1 or
/// more. The emulated device calls the C library.
inline double library_bound() { return test_device().is_emulated() ? 0.0 : 1e-5; }

/// Whether both have the same dtype, sizes and numbers; NaN is NaN, and signs of zeros count. With a
/// bound, numbers may differ by so much of the right one, or of 1 where that is smaller.
inline bool same_numbers(const Tensor& left, const Tensor& right, double bound = 0.0) {
  if (left.dtype() != right.dtype() || left.sizes() != right.sizes()) return false;
  const Tensor a = left.cpu().to(DType::Float64).contiguous();
  const Tensor b = right.cpu().to(DType::Float64).contiguous();
  const double* x = a.data<double>();
  const double* y = b.data<double>();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const bool same =
        x[i] == y[i] ? std::signbit(x[i]) == std::signbit(y[i]) : x[i] != x[i] && y[i] != y[i];
    if (same || std::abs(x[i] - y[i]) <= bound * std::max(1.0, std::abs(y[i]))) continue;
    MESSAGE("element " << i << ": got " << x[i] << ", expected " << y[i]);
    return false;
  }
  return true;
}

/// call(inputs), and the gradients of the inputs whose bit is set in `needed`, on both devices.
/// Gives the CPU's result.
template <typename Call>
Tensor check_devices(const std::vector<Tensor>& inputs, std::uint64_t needed, Call&& call,
                     double bound = 0.0) {
  const auto run_on = [&](Device device) {
    std::vector<Tensor> there;
    std::vector<Tensor> asked;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      there.push_back(inputs[i].defined() ? inputs[i].detach().to(device) : Tensor());
      if ((needed >> i & 1U) == 0) continue;
      there.back() = there.back().detach();
      there.back().set_requires_grad();
      asked.push_back(there.back());
    }
    std::vector<Tensor> results{call(there)};
    REQUIRE(results[0].device() == device);
    if (asked.empty()) return results;
    const Tensor upstream = sample_tensor(results[0].sizes(), results[0].dtype(), 5).to(device);
    const std::vector<Tensor> of{results[0]};
    const std::vector<Tensor> gradients{upstream};
    for (const Tensor& gradient : autograd::grad(of, asked, {.grad_outputs = gradients})) {
      CHECK(gradient.device() == device);
      results.push_back(gradient);
    }
    return results;
  };
  const std::vector<Tensor> expected = run_on(Device::cpu());
  const std::vector<Tensor> got = run_on(test::test_device());
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(same_numbers(got[i], expected[i], bound));
  }
  CHECK(got[0].strides() == expected[0].strides());
  return expected[0].detach();
}

}  // namespace quanta::test
