#pragma once

// Private: the tape's part of recurrent layers.

#include "quanta/ops/rnn.h"

namespace quanta::gradients {

/// Records that `result` comes from the other arguments of recurrent_steps. `kept` is what the
/// gates left for the gradient (cpu::GateRow), step by step as the input gates.
void record_recurrent_steps(const RecurrentResult& result, const Tensor& kept,
                            const RecurrentSteps& steps, const StepWeights& weights,
                            const Tensor& input_gates, const Tensor& h_0, const Tensor& c_0);

}  // namespace quanta::gradients
