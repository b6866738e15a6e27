#pragma once

// Private: the hidden weight of an LSTM or GRU layer, packed for the steps of the layer.

#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/gemm/panels.h"
#include "quanta/ops/cpu/gemm/quantized_weight.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cpu {

/// Hidden units that lie together: all gates of a block of units are computed at once.
inline constexpr std::int64_t kUnitBlock = kPanelChannels;

/// A hidden weight [gates * hidden, depth] and what turns its sums into floats, block of units by
/// block: panel (unit / 16) * gates + gate has a gate's codes of 16 units, the panels of a block
/// take turns, and the terms are at [unit / 16][gate][unit % 16], with zeros where units end.
struct GatePanels {
  GatePanels(const QuantizedWeight& weight, std::int64_t gate_count);

  std::int64_t gates, hidden, depth;
  CodePanels codes;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;         ///< of w - (zero point of w)
  std::vector<std::int32_t> zero_points;  ///< of w; empty when all are 0
  std::vector<float> bias;

  std::int64_t blocks() const noexcept { return ceil_div(hidden, kUnitBlock); }
};

}  // namespace quanta::cpu
