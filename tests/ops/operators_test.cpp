#include <cmath>
#include <sstream>
#include <vector>

#include <doctest/doctest.h>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/factory.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"

// Tensors written as C++ and torch programs write them: operators, members, streams.

using namespace quanta;
using Floats = std::vector<float>;

namespace {
Tensor sample() { return Tensor::from_values({1.0F, -2.0F, 4.0F}); }
}  // namespace

TEST_CASE("operators of a tensor and a number") {
  const Tensor x = sample();
  CHECK((x + 1.0).to_float_vector() == Floats{2.0F, -1.0F, 5.0F});
  CHECK((1.0 + x).to_float_vector() == Floats{2.0F, -1.0F, 5.0F});
  CHECK((x - 1.0).to_float_vector() == Floats{0.0F, -3.0F, 3.0F});
  CHECK((1.0 - x).to_float_vector() == Floats{0.0F, 3.0F, -3.0F});
  CHECK((x * 2.0).to_float_vector() == Floats{2.0F, -4.0F, 8.0F});
  CHECK((2 * x).to_float_vector() == Floats{2.0F, -4.0F, 8.0F});
  CHECK((x / 4.0).to_float_vector() == Floats{0.25F, -0.5F, 1.0F});
  CHECK((2.0 / x).to_float_vector() == Floats{2.0F, -1.0F, 0.5F});
  CHECK((-x).to_float_vector() == Floats{-1.0F, 2.0F, -4.0F});
  CHECK((3.0 / Tensor::scalar(7.0)).item() == doctest::Approx(3.0 / 7.0));

  const Tensor whole = Tensor::arange(3, DType::Int64);
  CHECK((5 - whole * 2).to_int64_vector() == std::vector<std::int64_t>{5, 3, 1});
  CHECK_THROWS_AS(whole + 0.5, ArgumentError);
  CHECK_THROWS_AS(0.5 - whole, ArgumentError);
  CHECK_THROWS_AS(whole / 2.0, UnsupportedError);
  CHECK_THROWS_AS(x * Tensor(), ArgumentError);
  CHECK_THROWS_AS(1.0 / Tensor(), ArgumentError);
  const QTensor codes = quantize_per_tensor(x, 0.1, 0, DType::QInt8);
  CHECK_THROWS_AS(codes * 2.0, UnsupportedError);
  CHECK_THROWS_AS(1.0 - codes, UnsupportedError);
}

TEST_CASE("operators of a tensor and a number have gradients") {
  const Tensor x = sample();
  x.set_requires_grad();
  (8.0 / x + x / 2.0 - (3.0 - x) * 5.0).sum().backward();
  // -8 / x^2 + 0.5 + 5
  CHECK(x.grad().to_float_vector() == Floats{-2.5F, 3.5F, 5.0F});
}

TEST_CASE("assigning operators change the elements for every handle") {
  const Tensor x = Tensor::zeros({2, 3});
  const Tensor other_handle = x;
  const Tensor view = x.select(0, 1);
  const std::uint32_t version = x.version();
  x += sample();
  CHECK(other_handle.is_same(x));
  CHECK(view.to_float_vector() == Floats{1.0F, -2.0F, 4.0F});
  CHECK(x.version() > version);
  x -= 1.0;
  x *= Tensor::full({2, 3}, 3.0);
  x /= 2.0;
  CHECK(view.to_float_vector() == Floats{0.0F, -4.5F, 4.5F});
  x[1] += 1.0;
  CHECK(view.to_float_vector() == Floats{1.0F, -3.5F, 5.5F});
  CHECK(x[0].to_float_vector() == Floats{0.0F, -4.5F, 4.5F});
  x += 1.0;
  x -= Tensor::scalar(1.0);
  x *= 2.0;
  x /= Tensor::scalar(2.0);
  CHECK(view.to_float_vector() == Floats{1.0F, -3.5F, 5.5F});
  const Tensor& itself = x;
  x -= itself;
  CHECK(x.to_float_vector() == Floats(6, 0.0F));
}

TEST_CASE("assigning operators refuse what they cannot change") {
  const Tensor row = sample();
  CHECK_THROWS_AS(row += Tensor::zeros({2, 3}), ArgumentError);
  CHECK_THROWS_AS(row += Tensor(), ArgumentError);
  CHECK_THROWS_AS(Tensor() += row, ArgumentError);
  CHECK_THROWS_AS(row.unsqueeze(0).expand({2, 3}) += 1.0, ArgumentError);
  CHECK_THROWS_AS(row += Tensor::arange(3, DType::Int64), ArgumentError);
  const QTensor codes = quantize_per_tensor(row, 0.1, 0, DType::QInt8);
  CHECK_THROWS_AS(codes += 1.0, UnsupportedError);
  CHECK(row.to_float_vector() == Floats{1.0F, -2.0F, 4.0F});

  const Tensor parameter = sample();
  parameter.set_requires_grad();
  CHECK_THROWS_AS(parameter -= 1.0, ArgumentError);
  {
    const autograd::NoGradGuard guard;
    parameter -= 1.0;
  }
  CHECK(parameter.to_float_vector() == Floats{0.0F, -3.0F, 3.0F});
  CHECK(parameter.requires_grad());
}

TEST_CASE("members do what the functions of these names do") {
  const Tensor x = Tensor::from_values({1.0F, -2.0F, 4.0F, 9.0F}, {2, 2});
  CHECK(x.sum().item() == 12.0);
  CHECK(x.sum(0).to_float_vector() == Floats{5.0F, 7.0F});
  CHECK(x.sum({0, 1}, true).sizes() == Dims{1, 1});
  CHECK(x.mean().item() == 3.0);
  CHECK(x.mean(1, true).sizes() == Dims{2, 1});
  CHECK(x.max().item() == 9.0);
  CHECK(x.min().item() == -2.0);
  CHECK(x.argmax().item() == 3.0);
  CHECK(x.argmax(1).to_int64_vector() == std::vector<std::int64_t>{0, 1});
  CHECK(x.abs().equal(abs(x)));
  CHECK(x.exp().equal(exp(x)));
  CHECK(x.abs().log().equal(log(abs(x))));
  CHECK(x.abs().sqrt().to_float_vector() ==
        Floats{1.0F, static_cast<float>(std::sqrt(2.0)), 2.0F, 3.0F});
  CHECK(x.pow(2.0).to_float_vector() == Floats{1.0F, 4.0F, 16.0F, 81.0F});
  CHECK(x.pow(Tensor::scalar(3.0)).to_float_vector() == Floats{1.0F, -8.0F, 64.0F, 729.0F});
  CHECK(x.relu().to_float_vector() == Floats{1.0F, 0.0F, 4.0F, 9.0F});
  CHECK(x.sigmoid().equal(sigmoid(x)));
  CHECK(x.tanh().equal(tanh(x)));
  CHECK(x.softmax(1).equal(softmax(x, 1)));
  CHECK(x.matmul(x).to_float_vector() == Floats{-7.0F, -20.0F, 40.0F, 73.0F});
  CHECK_THROWS_AS(pow(Tensor::arange(3, DType::Int64), 0.5), ArgumentError);
  CHECK_THROWS_AS(pow(Tensor(), 2.0), ArgumentError);
}

TEST_CASE("cat takes a list in braces") {
  const Tensor a = Tensor::ones({2, 1});
  const Tensor b = Tensor::zeros({2, 2});
  CHECK(cat({a, b}, 1).to_float_vector() == Floats{1.0F, 0.0F, 0.0F, 1.0F, 0.0F, 0.0F});
  CHECK(cat({a, a}).sizes() == Dims{4, 1});
  CHECK_THROWS_AS(cat({a, b}), ArgumentError);
}

TEST_CASE("streams print tensors and sizes") {
  std::ostringstream text;
  text << Tensor::arange(3) << ' ' << Tensor::zeros({2, 3}).sizes() << ' ' << Tensor();
  CHECK(text.str() == "tensor([0., 1., 2.]) [2, 3] tensor(undefined)");
}

TEST_CASE("tensors like another one, and linspace") {
  const Tensor x = Tensor::ones({2, 3}, DType::Float64);
  CHECK(zeros_like(x).equal(Tensor::zeros({2, 3}, DType::Float64)));
  CHECK(full_like(x, 7.0).equal(Tensor::full({2, 3}, 7.0, DType::Float64)));
  CHECK_THROWS_AS(full_like(Tensor(), 7.0), ArgumentError);
  const QTensor codes = quantize_per_tensor(Tensor::ones(3), 0.5, 1, DType::QUInt8);
  CHECK(full_like(codes, 2.0).to_int64_vector() == std::vector<std::int64_t>{5, 5, 5});

  CHECK(linspace(0.0, 1.0, 5).to_float_vector() == Floats{0.0F, 0.25F, 0.5F, 0.75F, 1.0F});
  CHECK(linspace(3.0, -3.0, 2).to_float_vector() == Floats{3.0F, -3.0F});
  CHECK(linspace(2.0, 9.0, 1).to_float_vector() == Floats{2.0F});
  CHECK(linspace(2.0, 9.0, 0).numel() == 0);
  CHECK(linspace(0.0, 0.1, 11, DType::Float64).data<double>()[10] == 0.1);
  CHECK_THROWS_AS(linspace(0.0, 1.0, -1), ArgumentError);
  CHECK_THROWS_AS(linspace(0.0, 1.0, 3, DType::Int32), ArgumentError);
}
