#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "quanta/ops/detail/code_steps.h"
#include "quanta/runtime/quant_math.h"

// The floats where the code of a function changes.

namespace quanta {
namespace {

std::int32_t reached(const detail::CodeSteps& steps, float value) {
  std::int32_t count = 0;
  while (count < 255 && value >= steps[static_cast<std::size_t>(count)]) ++count;
  return count;
}

}  // namespace

TEST_CASE("code steps: tanh has the same codes at and around each step") {
  for (const float scale : {1.0F / 128, 0.01F, 0.0003F, 0.3F}) {
    for (const std::int32_t zero_point : {0, 128, 255}) {
      const auto code = [&](float value) {
        return math::quantize(std::tanh(value), math::inverse_scale(scale), zero_point, 0, 255);
      };
      const detail::CodeSteps steps = detail::code_steps(code);
      for (const float step : steps) {
        if (std::isnan(step)) continue;
        float below = step;
        float above = step;
        for (int i = 0; i < 40; ++i) {
          CHECK(reached(steps, below) == code(below));
          CHECK(reached(steps, above) == code(above));
          below = std::nextafter(below, -std::numeric_limits<float>::infinity());
          above = std::nextafter(above, std::numeric_limits<float>::infinity());
        }
      }
    }
  }
}

TEST_CASE("code steps: codes that are never left out and codes that never come") {
  const auto three = [](float value) { return value < -1.0F ? 2 : value < 5.0F ? 4 : 7; };
  const detail::CodeSteps steps = detail::code_steps(three);
  CHECK(steps[1] == -std::numeric_limits<float>::infinity());
  CHECK(steps[2] == -1.0F);
  CHECK(steps[3] == -1.0F);
  CHECK(steps[6] == 5.0F);
  CHECK(std::isnan(steps[7]));
  CHECK(reached(steps, std::nextafter(-1.0F, -2.0F)) == 2);
  CHECK(reached(steps, std::numeric_limits<float>::infinity()) == 7);
}

}  // namespace quanta
