#pragma once

#include <optional>
#include <string>

#include "quanta/observers/modelopt/reduce.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/tensor_quant.h"
#include "suite.h"

namespace quanta::conform {

/// 8 or [4, 3].
inline NumBits num_bits_of(const Json& json) {
  if (!json.is_array()) return NumBits::integer(json.get<std::int64_t>());
  return NumBits::floating(json.at(0).get<std::int64_t>(), json.at(1).get<std::int64_t>());
}

inline GradientRule gradient_rule(const Case& test) {
  return test.flag("pass_through_bwd", true) ? GradientRule::PassThrough : GradientRule::Clip;
}

/// The integer keys of {"-1": 4, "-2": null, "type": ...}.
inline modelopt::BlockSizes block_sizes_of(const Json& json) {
  modelopt::BlockSizes blocks;
  for (const auto& [key, size] : json.items()) {
    if (key.find_first_not_of("-0123456789") != std::string::npos) continue;
    blocks.emplace_back(std::stoll(key),
                        size.is_null() ? std::nullopt : std::optional(size.get<std::int64_t>()));
  }
  return blocks;
}

}  // namespace quanta::conform
