#pragma once

// Private: what the steps of general recurrent layers make of their products on a CUDA device. The
// CPU's numbers for the same products, but for functions of CUDA's own library on a GPU.

#include <cstdint>

#include "quanta/ops/rnn/general_functions.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// The gates z and r of a GRU whose reset comes before the product, Float32.
struct ResetGatesParams {
  std::int64_t rows = 1;
  std::int64_t units = 1;
  recurrent::GateCall<float> function;
  const float* input_gates = nullptr;   // [rows, 3 * units]
  const float* hidden_gates = nullptr;  // [rows, 2 * units]
  const float* state = nullptr;         // [rows, units]
  float* update = nullptr;              // [rows, units]: z
  float* reset = nullptr;               // [rows, units]: r * h
};
QUANTA_CUDA_ENTRY(make_reset_gates, ResetGatesParams)

enum class GeneralStep : std::uint8_t { Rnn, GruResetBefore, GruResetBehind, Lstm };

struct GeneralStepParams {
  GeneralStep step{};
  bool input_forget = false;
  std::int64_t time = 0;
  std::int64_t rows = 1;
  std::int64_t units = 1;
  recurrent::GateCall<float> functions[3];
  const float* input_gates = nullptr;   // [rows, gates * units]
  const float* hidden_gates = nullptr;  // the same; with the reset before: that of the last gate
  const float* update = nullptr;        // of ResetGatesParams
  const float* peephole = nullptr;      // [3 * units], or null
  const void* lengths = nullptr;        // [rows]: Int64 or Int32, or null
  bool is_long = true;
  float* state = nullptr;   // [rows, units]: becomes the new one
  float* cell = nullptr;    // [rows, units], Lstm: becomes the new one
  float* output = nullptr;  // [rows, units]: 0 behind the end of a sequence
};
QUANTA_CUDA_ENTRY(finish_general_step, GeneralStepParams)

}  // namespace quanta::cuda
