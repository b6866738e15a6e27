#pragma once

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

}  // namespace quanta::conform
