#pragma once

// Private: what recurrent layers and cells share.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/nn/rnn.h"

namespace quanta::nn::detail {

/// Throws ArgumentError for what is not floating point (or quantized, where that is taken) with
/// `features` at the end.
void check_recurrent_input(std::string_view op, const Tensor& x, std::int64_t features,
                           bool takes_quantized);

/// Throws ArgumentError `op: name: ...` unless the state has these sizes and suits x.
void check_recurrent_state(std::string_view op, std::string_view name, const Tensor& state,
                           const Dims& sizes, bool takes_quantized);

/// Whether both or none of h and c are there as `kind` wants; throws ArgumentError otherwise. True:
/// the caller gave a state.
bool has_state(std::string_view op, RecurrentKind kind, const LstmState& state);

/// The batch sizes of a packed sequence. Throws ArgumentError for numbers < 1 or that grow, and for
/// data of another number of rows than their sum.
std::vector<std::int64_t> checked_batch_sizes(std::string_view op, const PackedSequence& sequence);

/// One layer and direction, or a cell.
struct RecurrentCall {
  std::string_view op;  ///< in errors
  RecurrentKind kind;
  std::int64_t hidden_size;
  std::span<const std::int64_t> batch_sizes;
  StepOrder order;
  bool is_training;
};
/// All its steps from x [sum of batch sizes, features] with these weights, which are packed once in
/// eval mode. In train mode, where they change from call to call, and where a gradient is asked for
/// they are used as they are.
RecurrentResult run_recurrent(const RecurrentCall& call, const RecurrentWeights& weights,
                              RecurrentCache& cache, const Tensor& x, const LstmState& state);

}  // namespace quanta::nn::detail
