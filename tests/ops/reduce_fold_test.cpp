// amax, amin, prod, argmin, cumsum and cumprod.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor integers(const Integers& values, const Dims& sizes, DType dtype) {
  return Tensor::from_int64(values).to(dtype).reshape(sizes);
}

}  // namespace

TEST_CASE("amax and amin: over several dimensions of any layout") {
  Generator generator(41);
  for (const test::Layout layout : test::kLayouts) {
    const Tensor x = test::in_layout(layout, 17, 3, 5,
                                     [&](const Dims& sizes) { return randn(sizes, generator); });
    const Tensor largest = amax(x, {1, -1});
    const Tensor smallest = amin(x, {1, -1}, {.keepdim = true});
    REQUIRE(largest.sizes() == Dims{2, 3});
    REQUIRE(smallest.sizes() == Dims{2, 1, 3, 1});
    for (std::int64_t n = 0; n < 2; ++n) {
      for (std::int64_t h = 0; h < 3; ++h) {
        const Tensor part = x.select(2, h).select(0, n);
        CHECK(largest.select(0, n).select(0, h).item() == max(part).item());
        CHECK(smallest.select(0, n).select(1, h).item() == min(part).item());
      }
    }
  }
}

TEST_CASE("amax, amin and prod: NaN wins and nothing gives what changes nothing") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_values({1.0F, nan, -2.0F, 4.0F}, {2, 2});
  CHECK(std::isnan(amax(x, {1}).to_float_vector()[0]));
  CHECK(std::isnan(amin(x, {1}).to_float_vector()[0]));
  CHECK(amax(x, {1}).to_float_vector()[1] == 4.0F);
  const Tensor nothing = Tensor::empty({2, 0});
  CHECK(amax(nothing, {1}).to_float_vector() == Floats{-kInfinity, -kInfinity});
  CHECK(amin(nothing, {1}).to_float_vector() == Floats{kInfinity, kInfinity});
  CHECK(prod(nothing, {1}).to_float_vector() == Floats{1, 1});
  const Tensor bytes = Tensor::empty({0}, DType::Int8);
  CHECK(amax(bytes).to_int64_vector() == Integers{-128});
  CHECK(amin(bytes).to_int64_vector() == Integers{127});
  const Tensor truths = Tensor::empty({0}, DType::Bool);
  CHECK(amax(truths).to_int64_vector() == Integers{0});
  CHECK(amin(truths).to_int64_vector() == Integers{1});
}

TEST_CASE("prod: floats in double and integers in 64 bits") {
  const Tensor x = Tensor::from_values({1e30F, 1e30F, 1e-30F, 2.0F}, {2, 2});
  CHECK(prod(x, {0}).to_float_vector() == Floats{1e30F * 1e-30F, 2e30F});
  CHECK(prod(x).to_float_vector()[0] == doctest::Approx(2e30));
  const Tensor whole = integers({100, 100, 3, -1}, {2, 2}, DType::Int8);
  CHECK(prod(whole, {1}).dtype() == DType::Int64);
  CHECK(prod(whole, {1}, {.keepdim = true}).to_int64_vector() == Integers{10000, -3});
}

TEST_CASE("argmin: the first of the smallest") {
  const Tensor x = Tensor::from_values({3, 1, 1, 5, 0, 7}, {2, 3});
  CHECK(argmin(x).to_int64_vector() == Integers{4});
  CHECK(argmin(x, 1).to_int64_vector() == Integers{1, 1});
  CHECK(argmin(x, 0, {.keepdim = true}).to_int64_vector() == Integers{0, 1, 0});
}

TEST_CASE("cumsum and cumprod: exclusive and reversed") {
  const Tensor x = Tensor::from_values({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(cumsum(x, 1).to_float_vector() == Floats{1, 3, 6, 4, 9, 15});
  CHECK(cumsum(x, -1, {.exclusive = true}).to_float_vector() == Floats{0, 1, 3, 0, 4, 9});
  CHECK(cumsum(x, 1, {.reverse = true}).to_float_vector() == Floats{6, 5, 3, 15, 11, 6});
  CHECK(cumsum(x, 1, {.exclusive = true, .reverse = true}).to_float_vector() ==
        Floats{5, 3, 0, 11, 6, 0});
  CHECK(cumsum(x, 0).to_float_vector() == Floats{1, 2, 3, 5, 7, 9});
  CHECK(cumprod(x, 1).to_float_vector() == Floats{1, 2, 6, 4, 20, 120});
  CHECK(cumprod(x, 1, {.exclusive = true}).to_float_vector() == Floats{1, 1, 2, 1, 4, 20});
  CHECK(cumsum(integers({100, 100}, {2}, DType::Int8), 0).to_int64_vector() == Integers{100, -56});
  CHECK(cumsum(Tensor::empty({0, 2}), 0).sizes() == Dims{0, 2});
  CHECK(cumsum(x.t(), 0).to_float_vector() == Floats{1, 4, 3, 9, 6, 15});
  CHECK_THROWS_WITH_AS(cumsum(x, 2), doctest::Contains("cumsum: dim"), ArgumentError);
}

}  // namespace quanta
