#include "quanta/ops/compare.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;
using Codes = std::vector<std::int64_t>;

struct Comparison {
  Tensor (*tensors)(const Tensor&, const Tensor&);
  Tensor (*number)(const Tensor&, double);
  bool (*floats)(float, float);
};

const Comparison kComparisons[] = {
    {eq, eq, [](float a, float b) { return a == b; }},
    {ne, ne, [](float a, float b) { return a != b; }},
    {lt, lt, [](float a, float b) { return a < b; }},
    {le, le, [](float a, float b) { return a <= b; }},
    {gt, gt, [](float a, float b) { return a > b; }},
    {ge, ge, [](float a, float b) { return a >= b; }},
};

void check_against_floats(const Tensor& lhs, const Tensor& rhs) {
  const Dims sizes = broadcast_sizes(lhs.sizes(), rhs.sizes(), "test");
  const std::vector<float> left =
      (lhs.sizes() == sizes ? lhs : lhs.expand(sizes)).to_float_vector();
  const std::vector<float> right =
      (rhs.sizes() == sizes ? rhs : rhs.expand(sizes)).to_float_vector();
  for (const Comparison& comparison : kComparisons) {
    const Tensor result = comparison.tensors(lhs, rhs);
    REQUIRE(result.dtype() == DType::Bool);
    REQUIRE(result.sizes() == sizes);
    Codes expected;
    for (std::size_t i = 0; i < left.size(); ++i) {
      expected.push_back(comparison.floats(left[i], right[i]) ? 1 : 0);
    }
    REQUIRE(result.to_int64_vector() == expected);
  }
}

}  // namespace

TEST_CASE("comparisons: the examples of torch's documentation") {
  const Tensor a = Tensor::from_values({1, 2, 3, 4}, {2, 2});
  const Tensor b = Tensor::from_values({1, 1, 4, 4}, {2, 2});
  CHECK(eq(a, b).to_int64_vector() == Codes{1, 0, 0, 1});
  CHECK(ne(a, b).to_int64_vector() == Codes{0, 1, 1, 0});
  CHECK(lt(a, b).to_int64_vector() == Codes{0, 0, 1, 0});
  CHECK(le(a, b).to_int64_vector() == Codes{1, 0, 1, 1});
  CHECK(gt(a, b).to_int64_vector() == Codes{0, 1, 0, 0});
  CHECK(ge(a, b).to_int64_vector() == Codes{1, 1, 0, 1});
}

TEST_CASE("comparisons: quantized tensors stand for their dequantized values") {
  Generator generator(31);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Layout layout : kLayouts) {
      const Tensor x = in_layout(layout, 17, 3, 5, [&](const Dims& sizes) {
        return Tensor(random_codes(sizes, dtype, 0.05, 3, generator));
      });
      check_against_floats(x, random_codes({2, 17, 3, 5}, dtype, 0.1, 5, generator));
      check_against_floats(x, random_codes({17, 1, 5}, DType::QInt8, 0.05, -3, generator));
      check_against_floats(randn({3, 1}, generator), x);
      for (const Comparison& comparison : kComparisons) {
        Codes expected;
        for (const float value : x.to_float_vector()) {
          expected.push_back(comparison.floats(value, 0.15F) ? 1 : 0);
        }
        REQUIRE(comparison.number(x, 0.15).to_int64_vector() == expected);
      }
    }
  }
}

TEST_CASE("comparisons: per-channel tensors use the parameters of each channel") {
  Generator generator(32);
  const QTensor x = QTensor::from_int_repr(randint(-128, 128, {4, 3, 5}, DType::Int8, generator),
                                           Quantizer::per_channel({0.1, 0.2, 0.3}, {0, 1, -1}, 1));
  check_against_floats(x,
                       QTensor::from_int_repr(randint(-128, 128, {4, 3, 5}, DType::Int8, generator),
                                              Quantizer::per_tensor(0.1, 2)));
  check_against_floats(x, x);
  CHECK(gt(x, 0.0).to_int64_vector() ==
        gt(Tensor::from_values(x.to_float_vector(), x.sizes()), 0.0).to_int64_vector());
}

TEST_CASE("comparisons: plain dtypes are promoted as torch does") {
  const std::int64_t big[] = {9007199254740993, -1, 3};
  const Tensor x = Tensor::from_int64(big);
  CHECK(eq(x, x.clone()).to_int64_vector() == Codes{1, 1, 1});
  CHECK(gt(x, 2.5).to_int64_vector() == Codes{1, 0, 1});
  CHECK(lt(x, -0.5).to_int64_vector() == Codes{0, 1, 0});
  CHECK(eq(x, 3.0).to_int64_vector() == Codes{0, 0, 1});
  CHECK(eq(Tensor::full({1}, 200, DType::UInt8), Tensor::full({1}, -56, DType::Int8))
            .to_int64_vector() == Codes{0});
  CHECK(eq(Tensor::ones({2}, DType::Bool), 1.0).to_int64_vector() == Codes{1, 1});
  // 0.1 is rounded to the tensor's dtype first.
  CHECK(eq(Tensor::from_values({0.1F}), 0.1).to_int64_vector() == Codes{1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(ne(Tensor::from_values({nan}), nan).to_int64_vector() == Codes{1});
  CHECK(lt(Tensor::empty({0, 3}), Tensor::ones({3})).sizes() == Dims{0, 3});
}

TEST_CASE("where: takes from one or the other and keeps the parameters") {
  Generator generator(33);
  for (const Layout layout : kLayouts) {
    const Tensor x = in_layout(layout, 7, 3, 5, [&](const Dims& sizes) {
      return Tensor(random_codes(sizes, DType::QUInt8, 0.1, 3, generator));
    });
    const QTensor y = random_codes({7, 1, 1}, DType::QUInt8, 0.1, 3, generator);
    const Tensor condition = gt(randn({3, 5}, generator), 0.0);
    const QTensor result(where(condition, x, y));
    CHECK(result.q_zero_point() == 3);
    const Codes chosen = condition.expand({2, 7, 3, 5}).to_int64_vector();
    const Codes left = x.to_int64_vector();
    const Codes right = y.expand({2, 7, 3, 5}).to_int64_vector();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      REQUIRE(result.to_int64_vector()[i] == (chosen[i] != 0 ? left[i] : right[i]));
    }
  }
}

TEST_CASE("comparisons and where: what they cannot do is refused by name") {
  const Tensor x = Tensor::ones({2, 3});
  CHECK_THROWS_WITH_AS(eq(x, Tensor::ones({2})),
                       doctest::Contains("eq: sizes: expected shapes that broadcast"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lt(x, Tensor()),
                       doctest::Contains("lt: rhs: expected a tensor, got an undefined one"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(where(x, x, x), doctest::Contains("where: condition: expected Bool"),
                       ArgumentError);
  const Tensor yes = Tensor::ones({3}, DType::Bool);
  CHECK_THROWS_WITH_AS(where(yes, x, x.to(DType::Int32)),
                       doctest::Contains("where: y: expected Float32 as x has, got Int32"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(where(yes, QTensor::empty({3}, 0.1, 0, DType::QInt8),
                             QTensor::empty({3}, 0.2, 1, DType::QInt8)),
                       doctest::Contains("where: y: expected scale 0.1 and zero_point 0 as x has, "
                                         "got 0.2 and 1"),
                       ArgumentError);
}

}  // namespace quanta
