#pragma once

// Private: the steps of a recurrent layer on a CUDA device. With an int8 hidden weight the range of
// the hidden states is found where they are made, and the step that takes them chooses scale and
// zero point from it on the device: no step waits for the host.

#include <bit>
#include <cstdint>

#include "quanta/ops/cuda/gate_weight.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/host_device.h"

namespace quanta::cuda {

/// Integers in the order of the floats, 0 for 0; NaN lies beyond the infinities. Its own inverse.
QUANTA_HOST_DEVICE inline std::int32_t ordered_bits(std::int32_t bits) {
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
QUANTA_HOST_DEVICE inline std::int32_t ordered_bits(float x) {
  return ordered_bits(std::bit_cast<std::int32_t>(x));
}

/// The smallest and the largest of some floats and 0, as ordered_bits.
struct StateRange {
  std::int32_t min = 0;
  std::int32_t max = 0;
};

/// The hidden states [rows, depth] that a step starts from. Rows from `before_rows` on are those of
/// sequences that join.
struct StepStates {
  const float* before = nullptr;
  const float* start = nullptr;
  std::int64_t before_rows = 0;
  std::int64_t rows = 0;
  int depth = 0;
  int chunks = 0;
  const StateRange* range = nullptr;
  bool reduce_range = false;
};

struct AddRangeParams {
  const float* states = nullptr;
  std::int64_t count = 0;
  StateRange* range = nullptr;
};
QUANTA_CUDA_ENTRY(add_state_range, AddRangeParams)

/// Codes of the states, as GateStep reads them: [tile][chunk][row of the tile][64], zeros where rows
/// and depth end.
struct QuantizeStatesParams {
  static constexpr int kTile = 16;  // rows
  StepStates states;
  std::int64_t tiles = 0;
  std::uint8_t* codes = nullptr;
};
QUANTA_CUDA_ENTRY(quantize_states, QuantizeStatesParams)

/// What a step makes of its sums.
enum class StepKind : std::uint8_t { RnnTanh, RnnRelu, Lstm, Gru, Projection };

struct GateStepParams {
  // Up to so many rows and chunks each block quantizes the states for itself, and no kernel runs
  // before.
  static constexpr int kOwnRows = QuantizeStatesParams::kTile;
  static constexpr int kOwnChunks = 16;

  StepKind kind = StepKind::Lstm;
  StepStates states;
  const std::uint8_t* codes = nullptr;  // null: each block quantizes
  GateWeight weight;
  const float* input_gates = nullptr;  // [rows, gates * units]; a projection has none
  float* cell = nullptr;               // [rows, units], Lstm: becomes the new one
  float* out = nullptr;                // [rows, units]
  std::int64_t next_rows = 0;          // that the next step has of these
  StateRange* next_range = nullptr;    // of those rows; null: nobody asks
  float* last = nullptr;               // gets the other rows; null: nothing does
};
QUANTA_CUDA_ENTRY(gate_step, GateStepParams)

/// The states of a step from both kinds of gates, where another kernel made the hidden ones.
struct FinishGatesParams {
  StepKind kind = StepKind::Lstm;
  std::int64_t rows = 0;
  std::int64_t units = 0;
  const float* input_gates = nullptr;   // [rows, gates * units]
  const float* hidden_gates = nullptr;  // the same
  const float* before = nullptr;        // [before_rows, units], Gru: the states that it starts from
  const float* start = nullptr;         // those of the rows from before_rows on
  std::int64_t before_rows = 0;
  float* cell = nullptr;  // [rows, units], Lstm: becomes the new one
  float* out = nullptr;   // [rows, units]
};
QUANTA_CUDA_ENTRY(finish_gates, FinishGatesParams)

}  // namespace quanta::cuda
