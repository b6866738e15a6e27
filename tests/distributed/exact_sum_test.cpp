#include "quanta/fusion/distributed/exact_sum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "quanta/runtime/random.h"

using namespace quanta;
using distributed::ExactSum;

namespace {

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// Any finite double.
double random_double(Generator& generator) {
  while (true) {
    const auto value = std::bit_cast<double>(generator.next());
    if (std::isfinite(value)) return value;
  }
}

}  // namespace

TEST_CASE("ExactSum: one number is that number") {
  Generator generator(1);
  for (int i = 0; i < 20000; ++i) {
    const double value = random_double(generator);
    CHECK(same(sum_of({value}).value(), value == 0.0 ? 0.0 : value));
  }
  for (const double value : {0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308}) {
    CHECK(same(sum_of({value}).value(), value));
    CHECK(same(sum_of({-value}).value(), value == 0.0 ? 0.0 : -value));
  }
}

TEST_CASE("ExactSum: two numbers round as the addition of doubles does") {
  Generator generator(2);
  for (int i = 0; i < 20000; ++i) {
    const double a = random_double(generator);
    // Near enough that both count.
    const double b = std::ldexp(
        static_cast<double>(generator.uniform()) - 0.5,
        std::clamp(std::ilogb(a) + static_cast<int>(generator.integer(-60, 60)), -1074, 1020));
    const double expected = a + b;
    CHECK(same(sum_of({a, b}).value(), expected == 0.0 ? 0.0 : expected));
  }
  // Halves go to the even neighbour, and what is far below decides.
  const double tiny = 5e-324;
  CHECK(sum_of({1.0, 0x1p-53}).value() == 1.0);
  CHECK(sum_of({1.0, 0x1p-53, tiny}).value() == 1.0 + 0x1p-52);
  CHECK(sum_of({1.0 + 0x1p-52, 0x1p-53}).value() == 1.0 + 0x1p-51);
  CHECK(sum_of({1.0 + 0x1p-52, 0x1p-53, -tiny}).value() == 1.0 + 0x1p-52);
  CHECK(sum_of({1.7976931348623157e308, 1.7976931348623157e308}).value() == HUGE_VAL);
  CHECK(sum_of({1.7976931348623157e308, 1.7976931348623157e308, -1.7976931348623157e308}).value() ==
        1.7976931348623157e308);
}

TEST_CASE("ExactSum: order and division do not matter, and nothing is lost") {
  Generator generator(3);
  std::vector<double> values;
  for (int i = 0; i < 3000; ++i) {
    const double value = random_double(generator) * 1e-10;
    values.push_back(value);
    values.push_back(-value);
  }
  values.push_back(0.1);
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(
          values[i - 1],
          values[static_cast<std::size_t>(generator.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
    std::vector<ExactSum> parts(5);
    for (const double value : values) {
      parts[static_cast<std::size_t>(generator.integer(0, 4))].add(value);
    }
    ExactSum merged;
    ExactSum added;
    for (ExactSum& part : parts) {
      merged.merge(part);
      const std::span<std::int64_t> from = part.parts();
      const std::span<std::int64_t> to = added.parts();
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    }
    CHECK(same(merged.value(), 0.1));
    CHECK(same(added.value(), 0.1));
    merged.add(0.1);
    CHECK(same(merged.value(), 0.2));
  }
}

TEST_CASE("ExactSum: numbers that are none") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(sum_of({1.0, nan}).value()));
  CHECK(sum_of({1.0, HUGE_VAL}).value() == HUGE_VAL);
  CHECK(sum_of({-HUGE_VAL, 1.0}).value() == -HUGE_VAL);
  CHECK(std::isnan(sum_of({-HUGE_VAL, HUGE_VAL}).value()));
  ExactSum sum = sum_of({HUGE_VAL});
  sum.merge(sum_of({nan}));
  CHECK(std::isnan(sum.value()));
}
