#include "quanta/ops/arithmetic_quantized.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::codes_of;
using test::in_layout;
using test::Layout;

constexpr double kScale = 0.07;
constexpr std::int64_t kZeroPoint = 21;

QTensor again(const Tensor& floats, DType dtype) {
  return quantize_per_tensor(floats, kScale, kZeroPoint, dtype);
}

using CodeFunction = std::function<QTensor(const QTensor&, const QTensor&, double, std::int64_t)>;
using FloatFunction = std::function<Tensor(const Tensor&, const Tensor&)>;

const std::vector<std::pair<CodeFunction, FloatFunction>>& exact_functions() {
  static const std::vector<std::pair<CodeFunction, FloatFunction>> functions = {
      {&quantized::div, [](const Tensor& a, const Tensor& b) { return div(a, b); }},
      {&quantized::minimum, &minimum},
      {&quantized::maximum, &maximum}};
  return functions;
}

TEST_CASE("quantized div and extrema: the codes of the float function with any broadcast") {
  Generator generator(5);
  const std::vector<std::pair<Dims, Dims>> shapes = {{{2, 3, 5, 4}, {2, 3, 5, 4}},
                                                     {{2, 3, 5, 4}, {3, 1, 1}},
                                                     {{3, 1, 1}, {2, 3, 5, 4}},
                                                     {{2, 1, 5, 4}, {3, 1, 4}},
                                                     {{17}, {1}},
                                                     {{}, {7}},
                                                     {{0, 3}, {3}}};
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const auto& [left, right] : shapes) {
      const QTensor a = test::random_codes(left, dtype, 0.05, 17, generator);
      const QTensor b = test::random_codes(right, dtype, 0.02, 3, generator);
      for (const auto& [of_codes, of_floats] : exact_functions()) {
        const QTensor got = of_codes(a, b, kScale, kZeroPoint);
        CHECK(got.equal(again(of_floats(dequantize(a), dequantize(b)), dtype)));
      }
    }
  }
}

TEST_CASE("quantized div and extrema: strides and memory orders change nothing") {
  Generator generator(6);
  for (const Layout layout : test::kLayouts) {
    const auto codes = [&](double scale) {
      return QTensor(in_layout(layout, 5, 3, 7, [&](const Dims& sizes) {
        return test::random_codes(sizes, DType::QUInt8, scale, 40, generator);
      }));
    };
    const QTensor a = codes(0.05);
    const QTensor b = codes(0.03);
    for (const auto& [of_codes, of_floats] : exact_functions()) {
      const QTensor got = of_codes(a, b, kScale, kZeroPoint);
      CHECK(got.equal(again(of_floats(dequantize(a), dequantize(b)), DType::QUInt8)));
      CHECK(got.suggested_format() == a.suggested_format());
    }
  }
}

TEST_CASE("quantized div: a divisor of zero gives the codes of infinity and NaN") {
  const QTensor a =
      quantize_per_tensor(Tensor::from_values({1.0F, -1.0F, 0.0F}), 0.1, 100, DType::QUInt8);
  const QTensor zero = quantize_per_tensor(Tensor::from_values({0.0F}), 0.1, 50, DType::QUInt8);
  CHECK(codes_of(quantized::div(a, zero, 0.1, 30)) == std::vector<std::int64_t>{255, 0, 255});
}

TEST_CASE("quantized sub: adds what the second operand's negative is") {
  Generator generator(7);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    const std::vector<std::pair<Dims, Dims>> shapes = {
        {{2, 3, 5, 9}, {2, 3, 5, 9}}, {{2, 3, 5, 9}, {3, 1, 1}}, {{9}, {2, 3, 5, 9}}, {{}, {7}}};
    for (const auto& [left, right] : shapes) {
      const QTensor a = test::random_codes(left, dtype, 0.05, 17, generator);
      const QTensor b = test::random_codes(right, dtype, 0.02, 3, generator);
      const auto got = codes_of(quantized::sub(a, b, kScale, kZeroPoint));
      const auto want = codes_of(again(sub(dequantize(a), dequantize(b)), dtype));
      REQUIRE(got.size() == want.size());
      std::size_t different = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        // A fused dequantize may land on the other side of a tie.
        REQUIRE(std::abs(got[i] - want[i]) <= 1);
        different += got[i] != want[i] ? 1 : 0;
      }
      CHECK(different <= 1 + got.size() / 50);
      // Turned round, the other way round.
      const auto turned = codes_of(quantized::sub(b, a, kScale, 0));
      const auto straight = codes_of(quantized::sub(a, b, kScale, 0));
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (dtype == DType::QUInt8) {
          CHECK((turned[i] == 0 || straight[i] == 0));
        } else if (std::abs(turned[i]) < 127) {
          CHECK(turned[i] == -straight[i]);
        }
      }
    }
  }
}

TEST_CASE("quantized neg: each code's negative and a table that depends on both parameters") {
  Generator generator(8);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    const QTensor x = test::random_codes({3, 5, 7}, dtype, 0.05, 17, generator);
    CHECK(quantized::neg(x, kScale, kZeroPoint).equal(again(neg(dequantize(x)), dtype)));
    CHECK(quantized::neg(x, kScale, 3)
              .equal(quantize_per_tensor(neg(dequantize(x)), kScale, 3, dtype)));
    const Tensor view = x.transpose(0, 2);
    CHECK(quantized::neg(QTensor(view), kScale, 3)
              .equal(quantized::neg(QTensor(view.contiguous()), kScale, 3)));
  }
}

TEST_CASE("quantized mean: a mean between the input's steps has a code of its own") {
  Generator generator(9);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    const QTensor x = test::random_codes({2, 3, 5, 4}, dtype, 0.05, 17, generator);
    for (const Dims& dims : {Dims{2, 3}, Dims{-1}, Dims{0, 2}, Dims{}}) {
      for (const bool keepdim : {false, true}) {
        const QTensor got = quantized::mean(x, dims, 0.003, kZeroPoint, {.keepdim = keepdim});
        CHECK(got.equal(quantize_per_tensor(mean(dequantize(x), dims, {.keepdim = keepdim}), 0.003,
                                            kZeroPoint, dtype)));
      }
    }
  }
  const QTensor two = quantize_per_tensor(Tensor::from_values({0.0F, 1.0F}), 1.0, 0, DType::QUInt8);
  CHECK(quantized::mean(two, {}, 0.5, 0).item() == 0.5);
  CHECK_THROWS_WITH_AS(quantized::mean(two, {1}, 0.5, 0), doctest::Contains("dim"), ArgumentError);
}

TEST_CASE("quantized sub div and extrema: what does not fit is refused by name") {
  Generator generator(10);
  const QTensor a = test::random_codes({4}, DType::QUInt8, 0.05, 17, generator);
  const QTensor b = test::random_codes({4}, DType::QInt8, 0.05, 17, generator);
  const QTensor c = test::random_codes({3}, DType::QUInt8, 0.05, 17, generator);
  CHECK_THROWS_WITH_AS(quantized::div(a, b, 0.1, 0),
                       doctest::Contains("quantized::div: rhs: expected QUInt8"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::sub(a, c, 0.1, 0), doctest::Contains("quantized::sub"),
                       ArgumentError);
  CHECK_THROWS_AS(quantized::minimum(a, a, 0.1, 300), ArgumentError);
  CHECK_THROWS_AS(quantized::maximum(a, a, 0.0, 3), ArgumentError);
  CHECK_THROWS_AS(quantized::neg(a, -1.0, 3), ArgumentError);
}

}  // namespace
}  // namespace quanta
