#pragma once

// Private: the way back through the steps of a recurrent layer.

#include <cstdint>
#include <span>

#include "quanta/ops/rnn.h"

namespace quanta::recurrent {

/// A call of recurrent_steps, and the gradients of what it gave.
struct RecurrentBackward {
  RecurrentKind kind;
  std::int64_t hidden_size;
  std::span<const std::int64_t> batch_sizes;
  StepOrder order;
  Tensor output;
  Tensor kept;  ///< what the gates left (cpu::GateRow), step by step as the input gates
  Tensor h_0;
  Tensor c_0;  ///< Lstm only
  Tensor weight_hh;
  Tensor weight_hr;  ///< may be undefined
  Tensor for_output;
  Tensor for_h;
  Tensor for_c;  ///< Lstm only
  bool needs_weight_hh = false;
  bool needs_bias_hh = false;
  bool needs_weight_hr = false;
};
/// Those of weights and bias only if they are needed.
struct RecurrentGradients {
  Tensor gates, h_0, c_0, weight_hh, bias_hh, weight_hr;
};
RecurrentGradients recurrent_gradients(const RecurrentBackward& call);

}  // namespace quanta::recurrent
