#pragma once

// Private: what adds the rows of each family of ONNX operators. One line a file.

#include "quanta/fusion/graph/op_table.h"

namespace quanta::graph {

void add_activation_ops(OpTable& table);
void add_attention_ops(OpTable& table);
void add_cast_ops(OpTable& table);
void add_compare_ops(OpTable& table);
void add_control_ops(OpTable& table);
void add_conv_ops(OpTable& table);
void add_create_ops(OpTable& table);
void add_elementwise_ops(OpTable& table);
void add_indexing_ops(OpTable& table);
void add_matmul_ops(OpTable& table);
void add_microsoft_attention_ops(OpTable& table);
void add_microsoft_fused_ops(OpTable& table);
void add_microsoft_ops(OpTable& table);
void add_norm_ops(OpTable& table);
void add_pool_ops(OpTable& table);
void add_qlinear_ops(OpTable& table);
void add_quantize_ops(OpTable& table);
void add_reduce_ops(OpTable& table);
void add_resize_ops(OpTable& table);
void add_rnn_ops(OpTable& table);
void add_sequence_ops(OpTable& table);
void add_shape_ops(OpTable& table);
void add_signal_ops(OpTable& table);
void add_vision_ops(OpTable& table);
void add_workflow_ops(OpTable& table);

}  // namespace quanta::graph
