#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quanta/ops/rnn.h"
#include "quanta/runtime/tensor.h"

/// Recurrent layers with any gate functions, peepholes, clipping and sequences of different lengths:
/// what ONNX's RNN, GRU and LSTM have beyond ops/rnn.h, which is faster for the usual ones.
///
/// Many threads may call the functions at once while nobody writes to the arguments. What each
/// throws is said below.
namespace quanta {

/// What a gate's sum goes through: relu max(0, x); affine alpha x + beta; leaky_relu; thresholded_relu
/// x where x > alpha, else 0; scaled_tanh alpha tanh(beta x); hard_sigmoid clamp(alpha x + beta, 0,
/// 1); elu; softsign x / (1 + |x|); softplus log(1 + e^x).
enum class GateFunction : std::uint8_t {
  Sigmoid,
  Tanh,
  Relu,
  Affine,
  LeakyRelu,
  ThresholdedRelu,
  ScaledTanh,
  HardSigmoid,
  Elu,
  Softsign,
  Softplus,
};

/// With x the input gates (bias included) and R h + b the hidden gates, in ONNX's order:
///
///   Rnn            h' = f(x + R h + b)
///   Gru   z, r, h  n = g(xh + (r * h) Rh + bh), or with linear_before_reset g(xh + r * (h Rh + bh));
///                  h' = (1 - z) * n + z * h, where z and r go through f
///   Lstm  i, o, f, c  i, f = f(sum + p * c); c' = f * c + i * g(sum); o = f(sum + p * c');
///                  h' = o * h(c')
enum class GeneralCell : std::uint8_t { Rnn, Gru, Lstm };

struct GeneralRecurrentOptions {
  GeneralCell cell = GeneralCell::Lstm;
  StepOrder order = StepOrder::Forward;
  /// f; f, g; or f, g, h. Each with its alpha and beta (ignored where a function has none).
  std::vector<GateFunction> functions{GateFunction::Sigmoid, GateFunction::Tanh,
                                      GateFunction::Tanh};
  std::vector<double> alpha{0.0, 0.0, 0.0};
  std::vector<double> beta{0.0, 0.0, 0.0};
  /// What goes into f and g is clamped to +-clip; 0: it is not. The cell is not clamped, which ONNX's
  /// text leaves open: as in ONNX Runtime.
  double clip = 0.0;
  bool linear_before_reset = false;  ///< Gru only
  bool input_forget = false;         ///< Lstm only: the forget gate is 1 - i
};

/// The tensors of one direction; all of one dtype, Float32 or Float64, but the lengths.
struct GeneralRecurrentInputs {
  Tensor gates;       ///< [steps, batch, gates * hidden]
  Tensor weight;      ///< R: [gates * hidden, hidden]
  Tensor bias{};      ///< [gates * hidden], or undefined
  Tensor h_0;         ///< [batch, hidden]
  Tensor c_0{};       ///< [batch, hidden]; Lstm only
  Tensor peephole{};  ///< [3 * hidden] for i, o, f, or undefined; Lstm only
  /// How many steps each sequence has: Int32 or Int64 [batch], 0..steps; undefined: all. What lies
  /// behind gives zeros and leaves the state alone.
  Tensor lengths{};
};

/// Runs all steps of one direction: output [steps, batch, hidden], in the order of the input, and
/// the last states, Reverse: those at the first step. Throws ArgumentError for sizes, functions and
/// lengths that do not fit, UnsupportedError for other dtypes and for gradients, which it does not
/// have. On CUDA devices Float32 only; sums are those of NVIDIA's library, and the host waits for the
/// lengths, where there are any.
RecurrentResult general_recurrent(const GeneralRecurrentOptions& options,
                                  const GeneralRecurrentInputs& inputs);

}  // namespace quanta
