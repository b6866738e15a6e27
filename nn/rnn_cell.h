#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/nn/rnn.h"

namespace quanta::nn {

struct CellOptions {
  std::int64_t input_size = 0;
  std::int64_t hidden_size = 0;
  bool bias = true;
};

/// One step of a recurrent layer. x is [batch, input_size] or [input_size], h likewise with
/// hidden_size; a missing h is zeros. Parameters: `weight_ih` [gates * hidden, input], `weight_hh`
/// [gates * hidden, hidden], `bias_ih`, `bias_hh`.
class RecurrentCell : public Module {
 public:
  Tensor weight_ih;
  Tensor weight_hh;
  Tensor bias_ih;
  Tensor bias_hh;
  const CellOptions& options() const noexcept { return options_; }
  std::int64_t gates() const noexcept { return gates_; }
  std::string extra_repr() const override;

 protected:
  enum class FloatWeights : bool { None, Make };
  RecurrentCell(const CellOptions& options, std::int64_t gates, FloatWeights weights);
  /// The new state of checked x [batch, input], h and c [batch, hidden] (c: LSTMCell only).
  virtual LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const = 0;
  LstmState run(const Tensor& x, const LstmState& state, bool has_cell) const;

 private:
  CellOptions options_;
  std::int64_t gates_;
};

class RNNCell : public RecurrentCell {
 public:
  explicit RNNCell(const CellOptions& options,
                   RnnNonlinearity nonlinearity = RnnNonlinearity::Tanh);
  /// The new h from a state of zeros.
  Tensor forward(const Tensor& x) const override { return forward(x, Tensor()); }
  Tensor forward(const Tensor& x, const Tensor& h) const;
  RnnNonlinearity nonlinearity() const noexcept { return nonlinearity_; }

 protected:
  RNNCell(const CellOptions& options, RnnNonlinearity nonlinearity, FloatWeights weights);
  LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const override;

 private:
  RnnNonlinearity nonlinearity_;
};

class LSTMCell : public RecurrentCell {
 public:
  explicit LSTMCell(const CellOptions& options);
  /// The new h from a state of zeros.
  Tensor forward(const Tensor& x) const override { return forward(x, LstmState{}).h; }
  LstmState forward(const Tensor& x, const LstmState& state) const;

 protected:
  LSTMCell(const CellOptions& options, FloatWeights weights);
  LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const override;
};

class GRUCell : public RecurrentCell {
 public:
  explicit GRUCell(const CellOptions& options);
  Tensor forward(const Tensor& x) const override { return forward(x, Tensor()); }
  Tensor forward(const Tensor& x, const Tensor& h) const;

 protected:
  GRUCell(const CellOptions& options, FloatWeights weights);
  LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const override;
};

}  // namespace quanta::nn
