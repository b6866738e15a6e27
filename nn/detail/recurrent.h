#pragma once

// Private: what recurrent layers and cells share.

#include <span>
#include <string>
#include <string_view>

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

/// The products of one layer and direction or of a cell: from the cache in eval mode.
struct RecurrentProducts {
  PackedLinear input;
  PackedHidden hidden, projection;
};
enum class KeepPacked : bool { No, Yes };
RecurrentProducts recurrent_products(std::string_view op, const RecurrentWeights& weights,
                                     RecurrentCache& cache, KeepPacked keep);

/// All steps of a layer from x [sum of batch sizes, features].
RecurrentResult run_recurrent(RecurrentKind kind, std::int64_t hidden_size,
                              const RecurrentProducts& products, const Tensor& x,
                              std::span<const std::int64_t> batch_sizes, StepOrder order,
                              const LstmState& state);

}  // namespace quanta::nn::detail
