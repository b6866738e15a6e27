#pragma once

// Private: the gate functions of recurrent layers, one sequence's step at a time. The arithmetic is
// the same on every instruction set, so are the floats.

#include <cstdint>

namespace quanta::cpu {

/// `x` and `h` are the input and hidden gates [gates * hidden] of one sequence (ops/rnn.h has the
/// formulas). `state` is the cell of an LSTM, else the hidden state; it becomes the new one.
struct GateRow {
  const float* x;
  const float* h;
  float* state;
  std::int64_t hidden;
};

/// Writes the new hidden state to `out` [hidden].
void lstm_gates(const GateRow& row, float* out);
void gru_gates(const GateRow& row);
void rnn_tanh_gates(const GateRow& row);
void rnn_relu_gates(const GateRow& row);

/// dst[i] = f(src[i]), within kGateUlps units in the last place where the result is a normal
/// number. NaN gives NaN. `src` may be `dst`.
inline constexpr int kGateUlps = 3;
void sigmoid_row(const float* src, std::int64_t count, float* dst);
void tanh_row(const float* src, std::int64_t count, float* dst);

}  // namespace quanta::cpu
