#pragma once

#include <memory>
#include <string>
#include <utility>

#include "quanta/nn/dynamic/gate_weight.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/rnn_cell.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Recurrent cells whose weights are QInt8 or Float16 and whose activations stay Float32. With
/// QInt8 weights both products of a call quantize their input anew.
namespace quanta::nn::quantized::dynamic {

/// What the cells share; Float is the float cell, whose own tensors stay undefined here. Cells
/// without bias work (torch refuses them).
///
/// State under torch's names: `_packed_weight_ih/0` (weight), `/1` (bias), `_packed_weight_hh/0`,
/// `/1`, and where codes use 8 bits `reduce_range` (Int64 0). A file decides between QInt8 and
/// Float16.
template <typename Float>
class DynamicCell : public Float, public DynamicModule {
 public:
  /// QInt8 or Float16 [gates * hidden, input] and [gates * hidden, hidden]; the biases Float32 or
  /// undefined.
  RecurrentWeights weights() const;
  DType weight_dtype() const { return weights_.hh.dtype(); }
  std::string type_name() const override;

 protected:
  /// Throws ArgumentError for other sizes than the options say. `more` goes to the float cell.
  template <typename... More>
  DynamicCell(const CellOptions& options, GateWeights weights, More... more)
      : Float(options, more..., Float::FloatWeights::None), weights_(std::move(weights)) {
    check_sizes();
  }
  LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  void check_sizes() const;

  GateWeights weights_;
};

extern template class DynamicCell<nn::RNNCell>;
extern template class DynamicCell<nn::LSTMCell>;
extern template class DynamicCell<nn::GRUCell>;

/// The from_float functions take the float cell with a qconfig that observes weights as QInt8 (per
/// tensor, or per channel along axis 0) or Float16, and throw ArgumentError for another one.
class RNNCell : public DynamicCell<nn::RNNCell> {
 public:
  RNNCell(const CellOptions& options, GateWeights weights,
          RnnNonlinearity nonlinearity = RnnNonlinearity::Tanh)
      : DynamicCell(options, std::move(weights), nonlinearity) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

class LSTMCell : public DynamicCell<nn::LSTMCell> {
 public:
  LSTMCell(const CellOptions& options, GateWeights weights)
      : DynamicCell(options, std::move(weights)) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

class GRUCell : public DynamicCell<nn::GRUCell> {
 public:
  GRUCell(const CellOptions& options, GateWeights weights)
      : DynamicCell(options, std::move(weights)) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

}  // namespace quanta::nn::quantized::dynamic
