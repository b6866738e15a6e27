#include "quanta/ops/cpu/gemm/added_bias.h"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <vector>

#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

constexpr std::int32_t kReach = 6000;

/// How many sums have another code when `bias` is added plainly.
int wrong_codes(const RequantizeParams& params, std::size_t n, float bias) {
  int count = 0;
  for (std::int32_t sum = -kReach; sum <= kReach; ++sum) {
    const auto code = [&](float b, float factor) {
      return math::requantize(sum, b, factor, params.multiplier[n], params.zero_point, params.min,
                              params.max);
    };
    if (code(params.bias[n], params.bias_factor) != code(bias, 1.0F)) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("biases_to_add: every sum within reach has the code of the fused sum") {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> unit(0.0F, 1.0F);
  int not_found = 0;
  int rounded_products_fail = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const float bias = (unit(generator) - 0.5F) * 20.0F;
    // With a multiplier of a half every second sum lies on a tie: what cannot be added is met there.
    const float multiplier = round % 4 == 0 ? 0.5F : 0.05F + 0.5F * unit(generator);
    const RequantizeParams params{
        &bias, &multiplier, 17, round % 3 == 0 ? 17 : 0, 255, 100.0F + 400.0F * unit(generator)};
    if (wrong_codes(params, 0, bias * params.bias_factor) != 0) ++rounded_products_fail;
    const auto found = biases_to_add(params, 1, kReach);
    if (!found.has_value()) {
      ++not_found;
      continue;
    }
    CHECK(wrong_codes(params, 0, found->front()) == 0);
  }
  CHECK(rounded_products_fail > 0);
  CHECK(not_found < 20);
  MESSAGE("rounded products that give wrong codes: ", rounded_products_fail,
          ", biases that cannot be added: ", not_found);
}

TEST_CASE("biases_to_add: a factor of 1 keeps the biases and what cannot be added is not given") {
  const std::vector<float> multiplier{0.01F};
  const std::vector<float> bias{1.3F};
  CHECK(biases_to_add({bias.data(), multiplier.data(), 3, 0, 255, 1.0F}, 1, kReach) == bias);
  CHECK(biases_to_add({nullptr, multiplier.data()}, 1, kReach) == std::vector<float>{0.0F});
  for (const float far :
       {1.0e6F, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    CAPTURE(far);
    const RequantizeParams params{&far, multiplier.data(), 3, 0, 255, 1234.5F};
    CHECK_FALSE(biases_to_add(params, 1, 2.0e9).has_value());
  }
}

}  // namespace quanta::cpu
