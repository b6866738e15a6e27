#pragma once

// Private: all steps of an LSTM or GRU layer whose hidden product has an int8 weight. The products
// of a step, its gates and the range of the new hidden state are one pass over the weight; threads
// keep their hidden units, and with them their part of the weight, from step to step.

#include <cstdint>
#include <span>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/gemm/gate_panels.h"
#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/cpu/shared_range.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/rnn/loop.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// Sequences of a step; for more, products of matrices are faster.
inline constexpr std::int64_t kMaxStepRows = 16;

static_assert(RangeLanes::kLanes == kUnitBlock);

/// One step.
struct GateStep {
  const GatePanels* weight;
  RecurrentKind kind;
  CodeBits code_bits;
  std::int64_t rows;
  /// Codes of the states before, rows `stride` apart, filled up with zeros to kPanelDepth.
  const std::uint8_t* codes;
  std::int64_t stride;
  float scale;  ///< of the codes
  std::int32_t zero_point;
  const std::int32_t* code_sums;  ///< of each row's codes; read where the weight has zero points
  const float* input_gates;       ///< [rows, gates * hidden]
  const float* const* before;     ///< h of each row before the step; GRU only
  float* h;                       ///< [rows, hidden]
  float* cell;                    ///< [rows, hidden], LSTM only: becomes the new one
  /// Of each row: the new states are added, unit by unit of a block.
  RangeLanes* ranges;
};
/// Computes the units of the blocks [begin, end).
void gate_step(const GateStep& step, std::int64_t begin, std::int64_t end);

/// A layer's steps.
struct GateLayer {
  const GatePanels* weight;
  RecurrentKind kind;  ///< Lstm or Gru
  quantized::ReduceRange reduce_range;
  std::span<const detail::RecurrentStep> steps;  ///< at most kMaxStepRows rows in each
  std::int64_t sequences;
  const float* input_gates;  ///< [rows of all steps, gates * hidden]
  float* output;             ///< [rows of all steps, hidden]
  float* h;                  ///< [sequences, hidden]: h_0, becomes h_n
  float* cell;               ///< [sequences, hidden], LSTM only
};
/// Throws ArgumentError when a hidden state is not finite.
void run_gate_layer(const GateLayer& layer);

}  // namespace quanta::cpu
