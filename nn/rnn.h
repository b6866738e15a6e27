#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/nn/packed_cache.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/rnn.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

// Sequences of different lengths ----------------------------------------------------------------

/// Sequences without padding: step by step, the longest sequence first, as torch's PackedSequence.
struct PackedSequence {
  Tensor data;         ///< [sum of lengths, ...]: all sequences' step 0, then step 1, ...
  Tensor batch_sizes;  ///< Int64 [steps]: how many sequences have each step; never grows
  /// Int64 [batch]: where each packed sequence stood, and the reverse. Undefined: they were sorted.
  Tensor sorted_indices{};
  Tensor unsorted_indices{};
};

struct PackOptions {
  bool batch_first = false;  ///< x is [batch, steps, ...], else [steps, batch, ...]
  /// The sequences stand from the longest to the shortest; otherwise they are sorted here.
  bool enforce_sorted = true;
};

/// Packs `x`. `lengths` is Int64 [batch], each 1..steps. Throws ArgumentError for lengths that do
/// not fit x, and for unsorted ones where sorting is enforced.
PackedSequence pack_padded_sequence(const Tensor& x, const Tensor& lengths,
                                    const PackOptions& options = {});

struct PaddedSequence {
  Tensor output;   ///< [steps, batch, ...] or [batch, steps, ...]
  Tensor lengths;  ///< Int64 [batch]
};

struct PadOptions {
  bool batch_first = false;
  double padding_value = 0.0;
  /// Steps of the result; throws ArgumentError if it is less than the longest sequence has.
  std::optional<std::int64_t> total_length{};
};

/// The reverse, in the order in which the sequences were given.
PaddedSequence pad_packed_sequence(const PackedSequence& sequence, const PadOptions& options = {});

/// Pads tensors [length_i, ...] to one [steps, batch, ...] (or batch first). Throws ArgumentError
/// for no tensor, for scalars and for tensors of other sizes behind the first.
Tensor pad_sequence(std::span<const Tensor> sequences, const PadOptions& options = {});
/// pad_sequence and pack_padded_sequence at once; each length at least 1.
PackedSequence pack_sequence(std::span<const Tensor> sequences, bool enforce_sorted = true);

// Layers ----------------------------------------------------------------------------------------

struct RecurrentOptions {
  std::int64_t input_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;    ///< x and output are [batch, steps, features]
  double dropout = 0.0;        ///< between layers, in train mode
  bool bidirectional = false;  ///< the output holds both directions' features, forward ones first
  std::int64_t proj_size = 0;  ///< LSTM only: > 0: h is projected to this size
};

/// Output of every step and the last hidden state h_n [layers * directions, batch, features].
struct RnnOutput {
  Tensor output;
  Tensor h_n;
};
struct PackedRnnOutput {
  PackedSequence output;
  Tensor h_n;
};

/// h [layers * directions, batch, proj_size or hidden_size], c [..., hidden_size].
struct LstmState {
  Tensor h{};
  Tensor c{};
};
struct LstmOutput {
  Tensor output;
  LstmState state;
};
struct PackedLstmOutput {
  PackedSequence output;
  LstmState state;
};

namespace detail {
struct PackedHidden {
  std::shared_ptr<const HiddenProduct> product;
  bool defined() const noexcept { return product != nullptr; }
};
/// The packed weights of one layer and direction, or of a cell.
struct RecurrentCache {
  PackedCache<PackedLinear> input;
  PackedCache<PackedHidden> hidden;
  PackedCache<PackedHidden> projection;
};
}  // namespace detail

/// The float weights of one layer and direction, or of a cell; those that it does not have are
/// undefined.
struct RecurrentWeights {
  Tensor weight_ih{}, weight_hh{}, bias_ih{}, bias_hh{}, weight_hr{};
};

/// What RNN, LSTM and GRU share. Parameters are torch's: `weight_ih_l0` [gates * hidden, input],
/// `weight_hh_l0` [gates * hidden, output_size()], `bias_ih_l0`, `bias_hh_l0` [gates * hidden],
/// `weight_hr_l0` [proj_size, hidden] (projections), `..._reverse`; uniform in
/// +-1/sqrt(hidden_size) when new. Later layers read output_size() * num_directions() features.
/// Gate rows: LSTM i, f, g, o; GRU r, z, n.
///
/// x is [steps, batch, input_size], [batch, steps, input_size] (batch_first) or one sequence
/// without the batch dimension, [steps, input_size], whose states have none either; a missing state
/// is zeros. Throws ArgumentError for an x or a state of other sizes. Like EmbeddingBag's, calls
/// with a state go to forward by name: they are observed as any other, but run no forward hooks:
///
///   auto [y, state] = lstm->forward(x, LstmState{h0, c0});
///   Tensor y = lstm(x);            // the output alone
///
/// The product of x with the input weights is one matrix product for all steps. Weights are packed
/// once in eval mode, and again after they were changed.
///
/// After convert or quantize_dynamic a module derived from this class stands in the slot, so that
/// such calls need no change.
class RecurrentLayer : public Module {
 public:
  using Options = RecurrentOptions;
  const RecurrentOptions& options() const noexcept { return options_; }
  std::int64_t num_directions() const noexcept { return options_.bidirectional ? 2 : 1; }
  /// Features of h: proj_size if there is a projection, else hidden_size.
  std::int64_t output_size() const noexcept {
    return options_.proj_size > 0 ? options_.proj_size : options_.hidden_size;
  }
  RecurrentKind kind() const noexcept { return kind_; }
  std::int64_t gates() const noexcept { return gate_count(kind_); }
  using Weights = RecurrentWeights;
  /// The parameters of a layer and direction (0: forward, 1: reverse).
  /// Throws UnsupportedError in a module that holds no float weights.
  virtual Weights weights(std::int64_t layer, std::int64_t direction = 0) const;
  /// The output of every step.
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  enum class FloatWeights : bool { None, Make };
  /// Throws ArgumentError for sizes < 1, a dropout outside 0..1, a proj_size not below hidden_size.
  RecurrentLayer(const RecurrentOptions& options, RecurrentKind kind, FloatWeights weights);
  static RecurrentOptions with_sizes(std::int64_t input_size, std::int64_t hidden_size,
                                     RecurrentOptions more);

  /// One layer in one direction over sequences that are packed (all of one length: batch_sizes are
  /// equal): x [sum of lengths, features], h and c [batch, features] (c: LSTM only). Gives the
  /// outputs [sum of lengths, output_size()] in the order of x and the last states.
  struct StepsOutput {
    Tensor output, h, c;
  };
  virtual StepsOutput run_layer(std::int64_t layer, std::int64_t direction, const Tensor& x,
                                std::span<const std::int64_t> batch_sizes, const Tensor& h,
                                const Tensor& c) const;

  /// Whether x and the state may be quantized: in a module that stands in for the float one.
  virtual bool takes_quantized() const { return false; }
  /// The state where none is given, for this x.
  virtual Tensor zero_state(const Dims& sizes, const Tensor& x) const {
    return Tensor::zeros(sizes, x.dtype()).to(x.device());
  }

  /// All layers and directions: checks x and state, orders them, calls run_layer. c is undefined
  /// but for an LSTM.
  LstmOutput run(const Tensor& x, const LstmState& state) const;
  PackedLstmOutput run(const PackedSequence& x, const LstmState& state) const;
  /// Runs the layer as a call does, named in errors and observed: for forward with a state.
  LstmOutput call(const Tensor& x, const LstmState& state) const;
  PackedLstmOutput call(const PackedSequence& x, const LstmState& state) const;

 private:
  void make_weights();
  LstmOutput run_layers(Tensor x, std::span<const std::int64_t> batch_sizes,
                        const LstmState& state) const;

  RecurrentOptions options_;
  RecurrentKind kind_;
  mutable std::vector<detail::RecurrentCache> packed_;
};

enum class RnnNonlinearity : std::uint8_t { Tanh, Relu };

/// h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.
class RNN : public RecurrentLayer {
 public:
  explicit RNN(const RecurrentOptions& options,
               RnnNonlinearity nonlinearity = RnnNonlinearity::Tanh);
  /// RNN(4, 8), RNN(4, 8, {.num_layers = 2}). Throws ArgumentError if `more` has other sizes.
  explicit RNN(std::int64_t input_size, std::int64_t hidden_size, const RecurrentOptions& more = {})
      : RNN(with_sizes(input_size, hidden_size, more)) {}
  using RecurrentLayer::forward;
  RnnOutput forward(const Tensor& x, const Tensor& h_0) const;
  PackedRnnOutput forward(const PackedSequence& x, const Tensor& h_0 = {}) const;
  RnnNonlinearity nonlinearity() const noexcept {
    return kind() == RecurrentKind::RnnRelu ? RnnNonlinearity::Relu : RnnNonlinearity::Tanh;
  }
};

/// c' = f * c + i * g; h' = o * tanh(c'), projected by weight_hr if proj_size > 0.
class LSTM : public RecurrentLayer {
 public:
  explicit LSTM(const RecurrentOptions& options);
  /// LSTM(4, 8), LSTM(4, 8, {.num_layers = 2}). Throws ArgumentError if `more` has other sizes.
  explicit LSTM(std::int64_t input_size, std::int64_t hidden_size,
                const RecurrentOptions& more = {})
      : LSTM(with_sizes(input_size, hidden_size, more)) {}
  using RecurrentLayer::forward;
  LstmOutput forward(const Tensor& x, const LstmState& state) const;
  PackedLstmOutput forward(const PackedSequence& x, const LstmState& state = {}) const;

 protected:
  LSTM(const RecurrentOptions& options, FloatWeights weights);
};

/// n = tanh(in + r * (W_hn h + b_hn)); h' = (1 - z) * n + z * h.
class GRU : public RecurrentLayer {
 public:
  explicit GRU(const RecurrentOptions& options);
  /// GRU(4, 8), GRU(4, 8, {.num_layers = 2}). Throws ArgumentError if `more` has other sizes.
  explicit GRU(std::int64_t input_size, std::int64_t hidden_size, const RecurrentOptions& more = {})
      : GRU(with_sizes(input_size, hidden_size, more)) {}
  using RecurrentLayer::forward;
  RnnOutput forward(const Tensor& x, const Tensor& h_0) const;
  PackedRnnOutput forward(const PackedSequence& x, const Tensor& h_0 = {}) const;

 protected:
  GRU(const RecurrentOptions& options, FloatWeights weights);
};

}  // namespace quanta::nn
