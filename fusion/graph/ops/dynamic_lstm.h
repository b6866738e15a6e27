#pragma once

// Private: com.microsoft's DynamicQuantizeLSTM.

#include "quanta/fusion/graph/op_table.h"

namespace quanta::graph {

/// Inputs X, W, R, B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale,
/// R_zero_point; W is [directions, inputs, 4 * hidden] and R [directions, hidden, 4 * hidden].
/// All of X gets one scale and zero point, the hidden states of a step another, by
/// DynamicQuantizeLinear's rule.
Outputs evaluate_dynamic_lstm(const NodeCall& call);

}  // namespace quanta::graph
