#pragma once

#include <cmath>

#include "quanta/runtime/detail/exp_math.h"
#include "quanta/runtime/host_device.h"

/// The scalar arithmetic of recurrent gates: CUDA kernels calculate with it, and the CPU's vector
/// code (ops/rnn/cpu_gate_simd.h) is tested against it. Nothing here throws, and many threads may
/// call it at once.
namespace quanta::math {

/// A polynomial of x, the highest power's coefficient first; products and sums round once together.
template <typename... Rest>
QUANTA_HOST_DEVICE inline float fused_polynomial(float x, float highest, Rest... rest) {
  float sum = highest;
  ((sum = fmaf(sum, x, rest)), ...);
  return sum;
}

/// A function as a quotient: divisions take longest, and a product of two functions needs but one.
struct GateQuotient {
  float top;
  float bottom;
};
QUANTA_HOST_DEVICE inline float value_of(GateQuotient x) { return x.top / x.bottom; }
QUANTA_HOST_DEVICE inline float product_of(GateQuotient x, GateQuotient y) {
  return (x.top * y.top) / (x.bottom * y.bottom);
}

/// With exp of -|x| nothing overflows, and both tails keep their digits.
QUANTA_HOST_DEVICE inline GateQuotient gate_sigmoid(float x) {
  const float e = exp_of_minus_size(x);
  return {x < 0.0F ? e : 1.0F, 1.0F + e};
}

/// The rational function of Eigen's tanh. From the limit on it gives 1, and nothing above; NaN
/// stays.
QUANTA_HOST_DEVICE inline GateQuotient gate_tanh(float x) {
  constexpr float kMost = 8.05359364F;
  const float at_most = kMost < x ? kMost : x;
  const float limited = at_most < -kMost ? -kMost : at_most;
  const float square = limited * limited;
  const float top = fused_polynomial(square, 1.394553628e-8F, 2.102733560e-5F, 3.520756727e-3F,
                                     1.340216100e-1F, 1.0F);
  const float bottom = fused_polynomial(square, 8.015776984e-7F, 3.326951409e-4F, 2.597254514e-2F,
                                        4.673548340e-1F, 1.0F);
  return {limited * top, bottom};
}

struct LstmUnit {
  float cell;
  float hidden;
};
/// One unit's step of an LSTM, from the sums of its gates i, f, g and o:
///
///   c' = sigmoid(f) * c + sigmoid(i) * tanh(g);  h' = sigmoid(o) * tanh(c')
QUANTA_HOST_DEVICE inline LstmUnit lstm_unit(float input, float forget, float candidate,
                                             float output, float cell) {
  const float kept = value_of(gate_sigmoid(forget)) * cell;
  const float next = kept + product_of(gate_sigmoid(input), gate_tanh(candidate));
  return {next, product_of(gate_sigmoid(output), gate_tanh(next))};
}

/// One unit's h' of a GRU, from the sums of its gates r and z, and from both parts of n:
///
///   n = tanh(xn + sigmoid(r) * hn);  h' = (h - n) * sigmoid(z) + n
QUANTA_HOST_DEVICE inline float gru_unit(float reset, float update, float input, float hidden,
                                         float before) {
  const float gated = hidden * value_of(gate_sigmoid(reset));
  const float candidate = value_of(gate_tanh(input + gated));
  const float difference = (before - candidate) * value_of(gate_sigmoid(update));
  return difference + candidate;
}

}  // namespace quanta::math
