#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/nn/rnn.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

struct CellOptions {
  std::int64_t input_size = 0;
  std::int64_t hidden_size = 0;
  bool bias = true;
};

/// One step of a recurrent layer. x is [batch, input_size] or [input_size], h likewise with
/// hidden_size; a missing h is zeros. Parameters: `weight_ih` [gates * hidden, input], `weight_hh`
/// [gates * hidden, hidden], `bias_ih`, `bias_hh`; uniform in +-1/sqrt(hidden_size) when new. Calls
/// with a state go to forward by name: they are observed as any other, but run no forward hooks.
/// Throws ArgumentError for an x or a state of other sizes.
class RecurrentCell : public Module {
 public:
  using Options = CellOptions;
  Tensor weight_ih;
  Tensor weight_hh;
  Tensor bias_ih;
  Tensor bias_hh;
  const CellOptions& options() const noexcept { return options_; }
  RecurrentKind kind() const noexcept { return kind_; }
  std::int64_t gates() const noexcept { return gate_count(kind_); }
  std::string extra_repr() const override;

 protected:
  enum class FloatWeights : bool { None, Make };
  RecurrentCell(const CellOptions& options, RecurrentKind kind, FloatWeights weights);
  /// The new state of checked x [batch, input], h and c [batch, hidden] (c: LSTMCell only).
  virtual LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const;
  /// See RecurrentLayer.
  virtual bool takes_quantized() const { return false; }
  virtual Tensor zero_state(const Dims& sizes, const Tensor& x) const {
    return Tensor::zeros(sizes, x.dtype()).to(x.device());
  }
  /// Checks x and state, adds the batch dimension where there is none, calls step.
  LstmState run(const Tensor& x, const LstmState& state) const;
  /// Runs the cell as a call does, named in errors, with h observed: for forward with a state.
  LstmState call(const Tensor& x, const LstmState& state) const;

 private:
  CellOptions options_;
  RecurrentKind kind_;
  mutable detail::RecurrentCache packed_;
};

class RNNCell : public RecurrentCell {
 public:
  explicit RNNCell(const CellOptions& options,
                   RnnNonlinearity nonlinearity = RnnNonlinearity::Tanh);
  /// The new h from a state of zeros.
  Tensor forward(const Tensor& x) const override { return run(x, {}).h; }
  Tensor forward(const Tensor& x, const Tensor& h) const;
  RnnNonlinearity nonlinearity() const noexcept {
    return kind() == RecurrentKind::RnnRelu ? RnnNonlinearity::Relu : RnnNonlinearity::Tanh;
  }

 protected:
  RNNCell(const CellOptions& options, RnnNonlinearity nonlinearity, FloatWeights weights);
};

class LSTMCell : public RecurrentCell {
 public:
  explicit LSTMCell(const CellOptions& options);
  /// The new h from a state of zeros.
  Tensor forward(const Tensor& x) const override { return run(x, {}).h; }
  LstmState forward(const Tensor& x, const LstmState& state) const;

 protected:
  LSTMCell(const CellOptions& options, FloatWeights weights);
};

class GRUCell : public RecurrentCell {
 public:
  explicit GRUCell(const CellOptions& options);
  Tensor forward(const Tensor& x) const override { return run(x, {}).h; }
  Tensor forward(const Tensor& x, const Tensor& h) const;

 protected:
  GRUCell(const CellOptions& options, FloatWeights weights);
};

}  // namespace quanta::nn
