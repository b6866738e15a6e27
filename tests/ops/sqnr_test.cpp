#include "quanta/ops/sqnr.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {

TEST_CASE("sqnr: ten times the decimal logarithm of the signal over the noise") {
  const Tensor reference = Tensor::from_values({3.0F, 4.0F, 0.0F});
  const Tensor value = Tensor::from_values({3.0F, 4.5F, 0.0F});
  CHECK(sqnr(reference, value) == doctest::Approx(20.0));                      // 25 over 0.25
  const Tensor codes = quantize_per_tensor(reference, 2.0, 0, DType::QUInt8);  // 4, 4, 0
  CHECK(sqnr(reference, codes) == doctest::Approx(10.0 * std::log10(25.0)));
  CHECK(sqnr(reference, value.to(DType::Float64)) == doctest::Approx(20.0));
}

TEST_CASE("sqnr: pairs add up to one figure") {
  const Tensor a = Tensor::from_values({3.0F});
  const Tensor b = Tensor::from_values({4.0F});
  SqnrSum sum;
  CHECK(sum.decibels() == std::numeric_limits<double>::infinity());
  sum.add(a, a);
  sum.add(b, Tensor::from_values({4.5F}));
  CHECK(sum.decibels() == doctest::Approx(20.0));
}

TEST_CASE("sqnr: the ends of the scale") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor zero = Tensor::from_values({0.0F});
  const Tensor one = Tensor::from_values({1.0F});
  const Tensor endless = Tensor::from_values({infinity});
  CHECK(sqnr(one, one) == std::numeric_limits<double>::infinity());
  CHECK(sqnr(zero, one) == -std::numeric_limits<double>::infinity());
  CHECK(sqnr(endless, endless) == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(sqnr(endless, one)));
}

TEST_CASE("sqnr: tensors that do not go together are refused") {
  const Tensor one = Tensor::from_values({1.0F});
  const Tensor row = Tensor::from_values({1.0F}, {1, 1});
  CHECK_THROWS_WITH_AS(sqnr(one, row), doctest::Contains("value: expected the reference's sizes"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(sqnr({}, one), doctest::Contains("reference: expected a tensor"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(sqnr(one, {}), doctest::Contains("value: expected a tensor"), ArgumentError);
}

}  // namespace quanta
