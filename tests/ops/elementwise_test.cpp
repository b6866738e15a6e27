#include "quanta/ops/elementwise.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/half.h"

namespace quanta {
namespace {

using Integers = std::vector<std::int64_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Units in the last place between two floats of one sign.
std::int64_t distance(float a, float b) {
  if (a == b || (a != a && b != b)) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<std::int64_t>::max();
  const float step = std::nextafter(std::fabs(b), kInfinity) - std::fabs(b);
  return std::llround((static_cast<double>(a) - static_cast<double>(b)) /
                      static_cast<double>(step));
}

// The largest distance from `exact` over many arguments, and over those where things change.
std::int64_t worst(Tensor (*function)(const Tensor&), double (*exact)(double), float low,
                   float high) {
  std::vector<float> values{0.0F, -0.0F, low, high, kNan};
  constexpr int kCount = 20011;
  for (int i = 0; i <= kCount; ++i) {
    values.push_back(low + (high - low) * static_cast<float>(i) / kCount);
  }
  const Tensor x = Tensor::from_values(values, {static_cast<std::int64_t>(values.size())});
  const std::vector<float> got = function(x).to_float_vector();
  std::int64_t result = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0.0F && (low > 0.0F || high < 0.0F)) continue;
    const auto wanted = static_cast<float>(exact(static_cast<double>(values[i])));
    const std::int64_t off = std::abs(distance(got[i], wanted));
    if (off > result) {
      CAPTURE(values[i]);
      CAPTURE(got[i]);
      CAPTURE(wanted);
      CHECK(off <= 4);
      result = off;
    }
  }
  return result;
}

Tensor integers(const Integers& values, DType dtype) {
  return cast(Tensor::from_int64(values), dtype);
}

}  // namespace

TEST_CASE("exp, erf, sqrt and reciprocal: a few units in the last place from the exact value") {
  test::for_each_target([] {
    CHECK(worst(
              exp, [](double v) { return std::exp(v); }, -103.0F, 89.0F) <= 2);
    CHECK(worst(
              erf, [](double v) { return std::erf(v); }, -6.0F, 6.0F) <= 4);
    CHECK(worst(
              sqrt, [](double v) { return std::sqrt(v); }, 0.0F, 1e6F) == 0);
    CHECK(worst(
              reciprocal, [](double v) { return 1.0 / v; }, 0.01F, 700.0F) == 0);
  });
}

TEST_CASE("exp, erf, sqrt and reciprocal: the same on every instruction set") {
  Generator generator(3);
  const Tensor x = mul_scalar(randn({1001}, generator), 3.0);
  for (Tensor (*function)(const Tensor&) : {exp, erf, sqrt, reciprocal}) {
    std::vector<std::uint32_t> first;
    test::for_each_target([&] {
      const Tensor y = function(x);
      std::vector<std::uint32_t> bits;
      for (const float value : y.to_float_vector()) {
        bits.push_back(value != value ? 0U : std::bit_cast<std::uint32_t>(value));
      }
      if (first.empty()) first = bits;
      CHECK(bits == first);
    });
  }
}

TEST_CASE("exp, erf, log and sqrt: infinities and what has no value") {
  const Tensor x = Tensor::from_values({-kInfinity, kInfinity, -1.0F, 0.0F, 200.0F, -200.0F});
  const std::vector<float> e = exp(x).to_float_vector();
  CHECK(e[0] == 0.0F);
  CHECK(e[1] == kInfinity);
  CHECK(e[3] == 1.0F);
  CHECK(e[4] == kInfinity);
  CHECK(e[5] == 0.0F);
  CHECK(erf(x).to_float_vector()[0] == -1.0F);
  CHECK(erf(x).to_float_vector()[1] == 1.0F);
  CHECK(erf(x).to_float_vector()[4] == 1.0F);
  CHECK(std::isnan(log(x).to_float_vector()[2]));
  CHECK(log(x).to_float_vector()[3] == -kInfinity);
  CHECK(std::isnan(sqrt(x).to_float_vector()[2]));
}

TEST_CASE("log, sin, cos and their like: what the standard library gives") {
  CHECK(worst(
            log, [](double v) { return std::log(v); }, 0.001F, 1e6F) == 0);
  CHECK(worst(
            sin, [](double v) { return std::sin(v); }, -30.0F, 30.0F) == 0);
  CHECK(worst(
            cos, [](double v) { return std::cos(v); }, -30.0F, 30.0F) == 0);
  CHECK(worst(
            tan, [](double v) { return std::tan(v); }, -1.5F, 1.5F) == 0);
  CHECK(worst(
            asin, [](double v) { return std::asin(v); }, -1.0F, 1.0F) == 0);
  CHECK(worst(
            acos, [](double v) { return std::acos(v); }, -1.0F, 1.0F) == 0);
  CHECK(worst(
            atan, [](double v) { return std::atan(v); }, -9.0F, 9.0F) == 0);
  CHECK(worst(
            sinh, [](double v) { return std::sinh(v); }, -9.0F, 9.0F) == 0);
  CHECK(worst(
            cosh, [](double v) { return std::cosh(v); }, -9.0F, 9.0F) == 0);
  CHECK(worst(
            asinh, [](double v) { return std::asinh(v); }, -9.0F, 9.0F) == 0);
  CHECK(worst(
            acosh, [](double v) { return std::acosh(v); }, 1.0F, 9.0F) == 0);
  CHECK(worst(
            atanh, [](double v) { return std::atanh(v); }, -0.99F, 0.99F) == 0);
}

TEST_CASE("floor, ceil and round: halves go to the even number") {
  const Tensor x = Tensor::from_values({0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 1.2F, -1.2F});
  CHECK(round(x).to_float_vector() == std::vector<float>{0, 2, 2, 0, -2, -2, 1, -1});
  CHECK(floor(x).to_float_vector() == std::vector<float>{0, 1, 2, -1, -2, -3, 1, -2});
  CHECK(ceil(x).to_float_vector() == std::vector<float>{1, 2, 3, 0, -1, -2, 2, -1});
}

TEST_CASE("neg, abs and sign: floats and integers") {
  const Tensor x = Tensor::from_values({-2.0F, 0.0F, 3.0F});
  CHECK(neg(x).to_float_vector() == std::vector<float>{2, 0, -3});
  CHECK(abs(x).to_float_vector() == std::vector<float>{2, 0, 3});
  CHECK(sign(x).to_float_vector() == std::vector<float>{-1, 0, 1});
  CHECK(std::isnan(sign(Tensor::from_values({kNan})).item()));
  const Tensor bytes = integers({-128, -1, 0, 127}, DType::Int8);
  CHECK(neg(bytes).to_int64_vector() == Integers{-128, 1, 0, -127});
  CHECK(abs(bytes).to_int64_vector() == Integers{-128, 1, 0, 127});
  CHECK(sign(bytes).to_int64_vector() == Integers{-1, -1, 0, 1});
  CHECK(abs(integers({200}, DType::UInt8)).to_int64_vector() == Integers{200});
}

TEST_CASE("isnan, isinf and logical_not: questions give truth values") {
  const Tensor x = Tensor::from_values({kNan, kInfinity, -kInfinity, 0.0F, 2.0F});
  CHECK(isnan(x).dtype() == DType::Bool);
  CHECK(isnan(x).to_int64_vector() == Integers{1, 0, 0, 0, 0});
  CHECK(isinf(x).to_int64_vector() == Integers{0, 1, 1, 0, 0});
  CHECK(isinf(x, InfinitySigns::Positive).to_int64_vector() == Integers{0, 1, 0, 0, 0});
  CHECK(isinf(x, InfinitySigns::Negative).to_int64_vector() == Integers{0, 0, 1, 0, 0});
  CHECK(isinf(x, InfinitySigns::None).to_int64_vector() == Integers{0, 0, 0, 0, 0});
  CHECK(logical_not(x).to_int64_vector() == Integers{0, 0, 0, 1, 0});
}

TEST_CASE("pow: floats and integers, broadcast, with negative exponents") {
  const Tensor x = Tensor::from_values({1.0F, 2.0F, 3.0F, -2.0F}, {2, 2});
  CHECK(pow(x, Tensor::scalar(2.0)).to_float_vector() == std::vector<float>{1, 4, 9, 4});
  CHECK(pow(x, Tensor::scalar(3.0)).to_float_vector() == std::vector<float>{1, 8, 27, -8});
  CHECK(pow(x, Tensor::from_values({0.0F, -1.0F})).to_float_vector() ==
        std::vector<float>{1, 0.5F, 1, -0.5F});
  CHECK(std::isnan(pow(x, Tensor::scalar(0.5)).to_float_vector()[3]));
  const Tensor whole = integers({2, -1, 1, 0, 3}, DType::Int32);
  CHECK(pow(whole, integers({-1, -3, -2, -1, 5}, DType::Int32)).to_int64_vector() ==
        Integers{0, -1, 1, 0, 243});
  CHECK(pow(integers({2}, DType::UInt8), integers({9}, DType::UInt8)).to_int64_vector() ==
        Integers{0});
}

TEST_CASE("maximum and minimum: NaN wins on both sides") {
  const Tensor a = Tensor::from_values({1.0F, kNan, 3.0F});
  const Tensor b = Tensor::from_values({2.0F, 0.0F, kNan});
  for (Tensor (*function)(const Tensor&, const Tensor&) : {maximum, minimum}) {
    const std::vector<float> got = function(a, b).to_float_vector();
    CHECK(got[0] == (function == maximum ? 2.0F : 1.0F));
    CHECK(std::isnan(got[1]));
    CHECK(std::isnan(got[2]));
  }
  CHECK(maximum(integers({-3, 5}, DType::Int16), integers({0}, DType::Int16)).to_int64_vector() ==
        Integers{0, 5});
}

TEST_CASE("fmod, remainder and div_trunc: signs, and divisors of zero") {
  const Tensor a = integers({-7, 7, -7, 7, 5}, DType::Int32);
  const Tensor b = integers({3, -3, -3, 3, 0}, DType::Int32);
  CHECK(fmod(a, b).to_int64_vector() == Integers{-1, 1, -1, 1, 0});
  CHECK(remainder(a, b).to_int64_vector() == Integers{2, -2, -1, 1, 0});
  CHECK(div_trunc(a, b).to_int64_vector() == Integers{-2, -2, 2, 2, 0});
  const Integers lowest{std::numeric_limits<std::int64_t>::min()};
  const Tensor low = Tensor::from_int64(lowest);
  const Integers minus{-1};
  CHECK(div_trunc(low, Tensor::from_int64(minus)).to_int64_vector() == lowest);
  CHECK(fmod(low, Tensor::from_int64(minus)).to_int64_vector() == Integers{0});
  const Tensor x = Tensor::from_values({-4.3F, 7.2F, 5.0F});
  const Tensor y = Tensor::from_values({2.1F, -3.4F, 8.0F});
  const std::vector<float> c = fmod(x, y).to_float_vector();
  const std::vector<float> python = remainder(x, y).to_float_vector();
  CHECK(c[0] == std::fmod(-4.3F, 2.1F));
  CHECK(c[1] == std::fmod(7.2F, -3.4F));
  CHECK(python[0] == std::fmod(-4.3F, 2.1F) + 2.1F);
  CHECK(python[1] == std::fmod(7.2F, -3.4F) - 3.4F);
  CHECK(python[2] == 5.0F);
}

TEST_CASE("bitwise operations: bits of integers and truth values") {
  const Tensor a = integers({0b1100, -1}, DType::Int8);
  const Tensor b = integers({0b1010, 5}, DType::Int8);
  CHECK(bitwise_and(a, b).to_int64_vector() == Integers{0b1000, 5});
  CHECK(bitwise_or(a, b).to_int64_vector() == Integers{0b1110, -1});
  CHECK(bitwise_xor(a, b).to_int64_vector() == Integers{0b0110, -6});
  CHECK(bitwise_not(a).to_int64_vector() == Integers{-13, 0});
  const Tensor yes = integers({1, 0}, DType::Bool);
  CHECK(bitwise_not(yes).to_int64_vector() == Integers{0, 1});
  CHECK(bitwise_xor(yes, integers({1}, DType::Bool)).to_int64_vector() == Integers{0, 1});
  const Tensor value = integers({3, 3, 200, 200}, DType::UInt8);
  const Tensor by = integers({1, 8, 1, 40}, DType::UInt8);
  CHECK(bitwise_left_shift(value, by).to_int64_vector() == Integers{6, 0, 144, 0});
  CHECK(bitwise_right_shift(value, by).to_int64_vector() == Integers{1, 0, 100, 0});
}

TEST_CASE("cast: integers keep their low bits and are exact") {
  const Integers values{200, -1, 9007199254740993, 256};
  const Tensor x = Tensor::from_int64(values);
  CHECK(cast(x, DType::Int8).to_int64_vector() == Integers{-56, -1, 1, 0});
  CHECK(cast(x, DType::UInt16).to_int64_vector() == Integers{200, 65535, 1, 256});
  CHECK(cast(x, DType::Bool).to_int64_vector() == Integers{1, 1, 1, 1});
  CHECK(cast(cast(x, DType::Int32), DType::Int64).to_int64_vector() == Integers{200, -1, 1, 256});
  CHECK(cast(x, DType::Int8, {.bits = 4}).to_int64_vector() == Integers{-8, -1, 1, 0});
  CHECK(cast(x, DType::UInt8, {.bits = 4}).to_int64_vector() == Integers{8, 15, 1, 0});
  CHECK(cast(x, DType::UInt8, {.bits = 2}).to_int64_vector() == Integers{0, 3, 1, 0});
}

TEST_CASE("cast: 16-bit floats are those that the formats round to") {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{infinity, -infinity, std::nanf(""), 65519.0F, 65520.0F, -0.0F, 6e-8F};
  for (int i = -20; i < 20; ++i) values.push_back(std::ldexp(1.2345F, i) * (i % 2 == 0 ? 1 : -1));
  const Tensor x = Tensor::from_values(values, {static_cast<std::int64_t>(values.size())});
  const Tensor half = cast(x, DType::Float16);
  const Tensor brain = cast(x, DType::BFloat16);
  const std::vector<float> halves = cast(half, DType::Float32).to_float_vector();
  const std::vector<float> brains = cast(brain, DType::Float32).to_float_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(values[i]);
    const float of_half = math::float16_to_float(math::float_to_float16(values[i]));
    const float of_brain = math::bfloat16_to_float(math::float_to_bfloat16(values[i]));
    CHECK(std::bit_cast<std::uint32_t>(halves[i]) == std::bit_cast<std::uint32_t>(of_half));
    CHECK(std::bit_cast<std::uint32_t>(brains[i]) == std::bit_cast<std::uint32_t>(of_brain));
  }
}

TEST_CASE("cast: floats lose their fraction and saturate where that is asked for") {
  const Tensor x = Tensor::from_values({1.9F, -1.9F, kNan, 1000.0F, -kInfinity});
  CHECK(cast(x, DType::Int8).to_int64_vector() == Integers{1, -1, 0, 127, -128});
  CHECK(cast(x, DType::UInt8, {.bits = 4}).to_int64_vector() == Integers{1, 15, 0, 8, 0});
  CHECK(cast(x, DType::Bool).to_int64_vector() == Integers{1, 1, 1, 1, 1});
  const auto through = [&](DType dtype, bool saturate) {
    return cast(cast(x, dtype, {.saturate = saturate}), DType::Float32).to_float_vector();
  };
  CHECK(through(DType::Float8E4M3FN, true)[3] == 448.0F);
  CHECK(through(DType::Float8E4M3FN, true)[4] == -448.0F);
  CHECK(std::isnan(through(DType::Float8E4M3FN, false)[3]));
  CHECK(through(DType::Float8E5M2, true)[4] == -57344.0F);
  CHECK(through(DType::Float8E5M2, false)[4] == -kInfinity);
  CHECK(through(DType::Float16, false)[0] == 1.900390625F);
  CHECK(cast(x, DType::Float64).dtype() == DType::Float64);
}

TEST_CASE("elementwise functions: strides, order and empty tensors") {
  Generator generator(5);
  for (const test::Layout layout : test::kLayouts) {
    const Tensor x = test::in_layout(layout, 7, 3, 5,
                                     [&](const Dims& sizes) { return randn(sizes, generator); });
    const std::vector<float> values = x.to_float_vector();
    const std::vector<float> results = exp(x).to_float_vector();
    const std::vector<float> larger = maximum(x, Tensor::from_values({0.25F})).to_float_vector();
    for (std::size_t i = 0; i < values.size(); ++i) {
      REQUIRE(std::abs(distance(results[i], std::exp(values[i]))) <= 2);
      REQUIRE(larger[i] == std::max(values[i], 0.25F));
    }
    CHECK(cast(x, DType::Int64).sizes() == x.sizes());
  }
  CHECK(exp(Tensor::empty({0, 3})).sizes() == Dims{0, 3});
  CHECK(pow(Tensor::empty({0, 3}), Tensor::ones({3})).sizes() == Dims{0, 3});
  CHECK(cast(Tensor::empty({0}), DType::Int8).dtype() == DType::Int8);
}

TEST_CASE("elementwise operations in place: large views may begin between cache lines") {
  constexpr std::int64_t kElements = std::int64_t{8} << 20;  // 32 MiB
  const Tensor memory = Tensor::full({kElements + 1}, -3.0);
  const Tensor view = memory.narrow(0, 1, kElements);
  view += Tensor::full({kElements}, 1.5);
  CHECK(view.equal(Tensor::full({kElements}, -1.5)));
  relu_(view);
  CHECK(view.equal(Tensor::zeros({kElements})));
}

TEST_CASE("elementwise functions: what they cannot do is refused by name") {
  const Tensor x = Tensor::ones({2, 3});
  CHECK_THROWS_WITH_AS(exp(x.to(DType::Int32)), doctest::Contains("exp: x: expected Float32"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(div_trunc(x, x),
                       doctest::Contains("div_trunc: lhs: expected an integer dtype"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(pow(x, x.to(DType::Float64)),
                       doctest::Contains("pow: rhs: expected Float32 as lhs has, got Float64"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(maximum(x, Tensor::ones({2})),
                       doctest::Contains("maximum: sizes: expected shapes that broadcast"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(cast(x, DType::QUInt8), doctest::Contains("cast: dtype: expected a plain"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(cast(x, DType::Int16, {.bits = 4}),
                       doctest::Contains("cast: bits: expected 8, or 2 or 4 for Int8"),
                       ArgumentError);
}

}  // namespace quanta
