#pragma once

// Private: the gate functions of recurrent layers, one sequence's step at a time. The arithmetic is
// the same on every instruction set, so are the floats.

#include <cstdint>

namespace quanta::cpu {

/// `x` and `h` are the input and hidden gates [gates * hidden] of one sequence (ops/rnn.h has the
/// formulas). `state` is the cell of an LSTM, else the hidden state; it becomes the new one. Unless
/// `kept` is null, what the gradient needs of the step goes there: rows [hidden] of
///
///   LSTM  i, f, g, o (after their functions), tanh(c'), c'
///   GRU   r, z, n (after their functions), hn
///   RNN   nothing
template <typename T>
struct GateRow {
  const T* x;
  const T* h;
  T* state;
  std::int64_t hidden;
  T* kept = nullptr;
};
inline constexpr std::int64_t kLstmKept = 6;
inline constexpr std::int64_t kGruKept = 4;

/// Writes the new hidden state to `out` [hidden]. The Float64 forms are plain loops, for proofs of
/// gradients.
void lstm_gates(const GateRow<float>& row, float* out);
void lstm_gates(const GateRow<double>& row, double* out);
void gru_gates(const GateRow<float>& row);
void gru_gates(const GateRow<double>& row);
void rnn_tanh_gates(const GateRow<float>& row);
void rnn_tanh_gates(const GateRow<double>& row);
void rnn_relu_gates(const GateRow<float>& row);
void rnn_relu_gates(const GateRow<double>& row);

/// The way back through one sequence's step. `kept` is the step's, `before` the state that it
/// started from (the cell of an LSTM, h of a GRU), `h` the hidden state that it made (RNN only).
/// `for_h` is the gradient of that; it becomes the part of the gradient of the h before that does
/// not go through the hidden gates (GRU only). `for_c` is the gradient of c' and becomes that of c
/// (LSTM only). Gradients of the gates go to `for_x` and, where they differ, to `for_hidden` (GRU
/// only).
template <typename T>
struct GateGradient {
  const T* kept;
  const T* before;
  const T* h;
  T* for_h;
  T* for_c;
  T* for_x;
  T* for_hidden;
  std::int64_t hidden;
};
void lstm_gradient(const GateGradient<float>& row);
void lstm_gradient(const GateGradient<double>& row);
void gru_gradient(const GateGradient<float>& row);
void gru_gradient(const GateGradient<double>& row);
void rnn_tanh_gradient(const GateGradient<float>& row);
void rnn_tanh_gradient(const GateGradient<double>& row);
void rnn_relu_gradient(const GateGradient<float>& row);
void rnn_relu_gradient(const GateGradient<double>& row);

/// dst[i] = f(src[i]), within kGateUlps units in the last place where the result is a normal
/// number. NaN gives NaN. `src` may be `dst`.
inline constexpr int kGateUlps = 5;
void sigmoid_row(const float* src, std::int64_t count, float* dst);
void tanh_row(const float* src, std::int64_t count, float* dst);

}  // namespace quanta::cpu
