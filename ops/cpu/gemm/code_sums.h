#pragma once

// Private: sums over the codes of a weight.

#include <cstdint>

namespace quanta::cpu {

struct CodeSums {
  std::int64_t positive = 0;  ///< of the codes above 0
  std::int64_t negative = 0;  ///< of those below
};

CodeSums code_sums(const std::int8_t* codes, std::int64_t count);

}  // namespace quanta::cpu
