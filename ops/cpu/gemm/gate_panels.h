#pragma once

// Private: the hidden weight of an LSTM or GRU layer, packed for the steps of the layer.

#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/gemm/quantized_weight.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// Hidden units that lie together: all gates of a block of units are computed at once.
inline constexpr std::int64_t kUnitBlock = 16;

/// A hidden weight [gates * hidden, depth] and what turns its sums into floats, block of units by
/// block. The code of (gate, unit, k) is at [unit / 16][k / 4][gate][unit % 16][k % 4], the terms
/// are at [unit / 16][gate][unit % 16], with zeros where units and k end. Behind the last block 64
/// more k can be read.
struct GatePanels {
  GatePanels(const QuantizedWeight& weight, std::int64_t gate_count);

  std::int64_t gates, hidden, depth;
  Tensor codes;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;         ///< of w - (zero point of w)
  std::vector<std::int32_t> zero_points;  ///< of w; empty when all are 0
  std::vector<float> bias;

  std::int64_t blocks() const noexcept { return (hidden + kUnitBlock - 1) / kUnitBlock; }
};

}  // namespace quanta::cpu
