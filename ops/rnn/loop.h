#pragma once

// Private: what the steps of a recurrent layer and their way back share.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quanta/ops/rnn.h"

namespace quanta::detail {

/// A step: which rows of the packed sequences it has, and those of the step that ran before it (no
/// rows: none did). Sequence i has row first + i.
struct RecurrentStep {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t before_first = 0;
  std::int64_t before_rows = 0;
};
/// In the order in which they run; steps without sequences are left out.
std::vector<RecurrentStep> steps_in_order(std::span<const std::int64_t> batch_sizes,
                                          StepOrder order);

/// All steps of a layer for HiddenProduct::run_layer; dense arrays.
struct LayerSteps {
  RecurrentKind kind;
  std::int64_t hidden_size;
  std::span<const RecurrentStep> steps;  ///< in the order in which they run
  std::int64_t sequences;
  const float* input_gates;  ///< [rows of all steps, gates * hidden_size]
  float* output;             ///< [rows of all steps, hidden_size]
  float* h;                  ///< [sequences, hidden_size]: h_0, becomes h_n
  float* cell;               ///< [sequences, hidden_size], Lstm only: c_0, becomes c_n
};

/// How many numbers a step keeps of each hidden unit for the gradient (cpu::GateRow).
std::int64_t kept_numbers(RecurrentKind kind);

/// At least so many sequences for a thread: 512 units take one to two microseconds.
inline std::int64_t sequences_per_thread(std::int64_t hidden_size) {
  return hidden_size < 2048 ? 2048 / hidden_size : 1;
}

/// h [rows, K] to [rows, N], both dense: W h + b.
template <typename T>
using HiddenFunction = std::function<void(const T* h, std::int64_t rows, T* out)>;
/// Of a contiguous weight [N, K] and a contiguous bias [N] or none, which are held, not copied.
template <typename T>
HiddenFunction<T> hidden_function(const Tensor& weight, const Tensor& bias);
template <>
HiddenFunction<float> hidden_function<float>(const Tensor& weight, const Tensor& bias);
template <>
HiddenFunction<double> hidden_function<double>(const Tensor& weight, const Tensor& bias);

/// h [rows, N] to [rows, K]: W^T h of a contiguous weight [N, K].
template <typename T>
HiddenFunction<T> hidden_function_back(const Tensor& weight);
template <>
HiddenFunction<float> hidden_function_back<float>(const Tensor& weight);
template <>
HiddenFunction<double> hidden_function_back<double>(const Tensor& weight);

}  // namespace quanta::detail
