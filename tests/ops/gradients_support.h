#pragma once

// Gradients are proved in Float64 with finite differences; what Float32 does faster is compared
// with that.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/gradcheck.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"

namespace quanta::test {

/// A Float64 leaf with numbers between `low` and `high`.
inline Tensor leaf(const Dims& sizes, std::uint64_t seed = 1, double low = -2.0,
                   double high = 2.0) {
  Generator generator(seed);
  Tensor x = Tensor::empty(sizes, DType::Float64);
  auto* values = x.mutable_data<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] = low + (high - low) * static_cast<double>(generator.uniform());
  }
  return x.set_requires_grad();
}

using Inputs = std::span<const Tensor>;
using Op = std::function<Tensor(Inputs)>;

/// Whether the gradients of `op` agree with finite differences.
inline void check_gradients(const Op& op, const std::vector<Tensor>& inputs) {
  CHECK(autograd::gradcheck(op, inputs));
}
/// The same for an op with one input.
inline void check_gradient(const std::function<Tensor(const Tensor&)>& op, const Tensor& x) {
  check_gradients([&](Inputs inputs) { return op(inputs[0]); }, {x});
}

enum class Order : bool { Contiguous, ChannelsLast };

/// Whether Float32 gives the result and the gradients that Float64 does, within `tolerance` of the
/// largest of them. Inputs with 3 to 5 dimensions are given in `order`.
inline void check_float32(const Op& op, const std::vector<Tensor>& inputs,
                          Order order = Order::Contiguous, double tolerance = 2e-6) {
  std::vector<Tensor> narrow;
  for (const Tensor& input : inputs) {
    Tensor x = input.detach();
    if (input.is_floating_point()) x = x.to(DType::Float32);
    const bool image = x.dim() >= 3 && x.dim() <= 5;
    x = x.clone(image && order == Order::ChannelsLast ? MemoryFormat::ChannelsLast
                                                      : MemoryFormat::Contiguous);
    if (input.requires_grad()) x.set_requires_grad();
    narrow.push_back(x);
    input.clear_grad();
  }
  const auto same = [&](const Tensor& got, const Tensor& expected) {
    REQUIRE(got.sizes() == expected.sizes());
    CHECK(got.dtype() == DType::Float32);
    const Tensor left = got.detach().to(DType::Float64).contiguous();
    const Tensor right = expected.detach().contiguous();
    double largest = 1.0;
    for (std::int64_t i = 0; i < right.numel(); ++i) {
      largest = std::max(largest, std::abs(right.data<double>()[i]));
    }
    double worst = 0.0;
    for (std::int64_t i = 0; i < right.numel(); ++i) {
      worst = std::max(worst, std::abs(left.data<double>()[i] - right.data<double>()[i]));
    }
    CHECK(worst <= tolerance * largest);
  };
  const Tensor wide_result = op(inputs);
  const Tensor result = op(narrow);
  same(result, wide_result);
  const Tensor gradient = leaf(wide_result.sizes(), 77).detach();
  wide_result.backward(gradient);
  result.backward(gradient.to(DType::Float32));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    REQUIRE(narrow[i].grad().defined());
    same(narrow[i].grad(), inputs[i].grad());
    inputs[i].clear_grad();
  }
}

}  // namespace quanta::test
