#pragma once

#include <cmath>

// Private: the activation functions of one float32 number, shared by the float ops and the tables
// of the quantized ones. Written with torch's order of operations.

namespace quanta::cpu {

inline float hard_gate(float x) {
  const float shifted = x + 3.0F;
  const float at_least = shifted < 0.0F ? 0.0F : shifted;
  return at_least > 6.0F ? 6.0F : at_least;
}
inline float hardsigmoid(float x) { return hard_gate(x) / 6.0F; }
inline float hardswish(float x) { return x * hard_gate(x) / 6.0F; }
inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
inline float silu(float x) { return x / (1.0F + std::exp(-x)); }
inline float leaky_relu(float x, float slope) { return x > 0.0F ? x : x * slope; }
inline float threshold(float x, float limit, float value) { return x <= limit ? value : x; }
inline float elu(float x, float alpha, float scale, float input_scale) {
  return x >= 0.0F ? x * scale : std::expm1(x * input_scale) * alpha * scale;
}
inline float gelu(float x) {
  constexpr float kSqrtHalf = 0.70710678118654752440F;
  return x * 0.5F * (1.0F + std::erf(x * kSqrtHalf));
}
inline float gelu_tanh(float x) {
  constexpr float kSqrtTwoOverPi = 0.79788456080286535588F;
  const float inner = kSqrtTwoOverPi * (x + 0.044715F * (x * x * x));
  return 0.5F * x * (1.0F + std::tanh(inner));
}

}  // namespace quanta::cpu
