#include "quanta/ops/detail/code_steps.h"

#include <bit>
#include <cstddef>
#include <limits>

namespace quanta::detail {
namespace {

constexpr std::uint32_t kSign = 0x80000000U;

// Numbers in the order of the floats.
std::uint32_t rank_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
float float_of(std::uint32_t rank) {
  return std::bit_cast<float>((rank & kSign) != 0 ? rank & ~kSign : ~rank);
}

}  // namespace

CodeSteps code_steps(const std::function<std::int32_t(float)>& code) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::int32_t last = code(kInfinity);
  CodeSteps steps{};
  std::uint32_t low = rank_of(-kInfinity);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto wanted = static_cast<std::int32_t>(i) + 1;
    if (last < wanted) {
      steps[i] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    // No earlier one than that of the code before.
    std::uint32_t high = rank_of(kInfinity);
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (code(float_of(middle)) >= wanted) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    steps[i] = float_of(low);
  }
  return steps;
}

}  // namespace quanta::detail
