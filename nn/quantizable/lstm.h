#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quanta/nn/container.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Layers taken apart into modules whose results can all be observed: what prepare puts in the
/// place of float layers that convert could not replace as a whole. On float tensors they give what
/// the float layers give; once their parts are converted they run on quantized tensors.
namespace quanta::nn::quantizable {

/// Whether the four gates of a cell come from one product or from one each, with a scale of its
/// own for each gate.
enum class GateForm : bool { Joined, Split };

/// One LSTM step (h, c) -> (h', c') in parts; gates in the order i, f, g, o:
///
///   i, f, g, o = gates.add(igates(x), hgates(h)), through sigmoid, sigmoid, tanh, sigmoid
///   c' = fgate_cx_igate_cgate.add(fgate_cx.mul(f, c), igate_cgate.mul(i, g))
///   h' = ogate_cy.mul(o, tanh(c'))
///
/// Children: igates, hgates (Linear), gates, fgate_cx, igate_cgate, fgate_cx_igate_cgate, ogate_cy
/// (FloatFunctional), input_gate, forget_gate, cell_gate, output_gate; with GateForm::Split igates,
/// hgates and gates hold "input", "forget", "cell" and "output" each. weight_ih and the other
/// parameters of nn::LSTMCell are undefined.
///
/// A missing state is zeros; for quantized x with scale 1, zero point 0 and the dtype of x.
class LSTMCell : public nn::LSTMCell {
 public:
  explicit LSTMCell(const CellOptions& options, GateForm form = GateForm::Joined);
  /// Takes an nn::LSTMCell; copies its weights, QConfig and mode.
  static std::shared_ptr<LSTMCell> from_float(const Module& module,
                                              GateForm form = GateForm::Joined);
  /// Copies of the weights of a layer or cell; biases may be undefined, both or none.
  static std::shared_ptr<LSTMCell> from_params(const RecurrentWeights& weights,
                                               GateForm form = GateForm::Joined);

  GateForm form() const noexcept { return form_; }
  /// The float weights, joined. Throws UnsupportedError once the cell is converted.
  RecurrentWeights weights() const;

  /// igates(x) of one or more steps [rows, input_size]: one tensor, or one for each gate.
  struct InputGates {
    std::array<Tensor, 4> parts{};
    /// The gates of `count` rows from `first` on.
    InputGates rows(std::int64_t first, std::int64_t count) const;
  };
  InputGates input_gates(const Tensor& x) const;
  /// Whether all steps' input gates may be calculated at once: nothing watches them.
  bool is_unwatched() const;
  /// The new state from the input gates and the old state [batch, hidden_size].
  LstmState step(const InputGates& input, const Tensor& h, const Tensor& c) const;

 protected:
  LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const override;
  Tensor zero_state(const Dims& sizes, const Tensor& x) const override;
  bool takes_quantized() const override { return true; }

 private:
  class GateDict;
  void set_weights(const RecurrentWeights& weights);
  std::array<Tensor, 4> gate_sums(const InputGates& input, const Tensor& h) const;

  GateForm form_;
  // One set of these is in use: joined or split.
  Child<nn::Linear> igates_, hgates_;
  Child<nn::FloatFunctional> gates_;
  Child<ModuleDict> split_igates_, split_hgates_, split_gates_;
  Child<Module> input_gate_, forget_gate_, cell_gate_, output_gate_;
  Child<nn::FloatFunctional> fgate_cx_, igate_cgate_, fgate_cx_igate_cgate_, ogate_cy_;
};

/// nn::LSTM made of LSTMCells, called as the float one. State:
/// `layers.{k}.layer_fw.cell.igates.weight` and so on, `layer_bw` for the reverse direction.
///
/// Directions of quantized tensors are joined, and last states of several layers stacked, with the
/// parameters of the first, as in torch. `dropout` is ignored (torch's is as well); projections are
/// refused with UnsupportedError.
class LSTM : public nn::LSTM {
 public:
  explicit LSTM(const RecurrentOptions& options, GateForm form = GateForm::Joined);
  /// Takes an nn::LSTM; copies its weights, QConfig and mode.
  static std::shared_ptr<LSTM> from_float(const Module& module, GateForm form = GateForm::Joined);

  GateForm form() const noexcept { return form_; }
  const LSTMCell& cell(std::int64_t layer, std::int64_t direction = 0) const;
  Weights weights(std::int64_t layer, std::int64_t direction = 0) const override;
  std::string type_name() const override { return "QuantizableLSTM"; }

 protected:
  StepsOutput run_layer(std::int64_t layer, std::int64_t direction, const Tensor& x,
                        std::span<const std::int64_t> batch_sizes, const Tensor& h,
                        const Tensor& c) const override;
  Tensor zero_state(const Dims& sizes, const Tensor& x) const override;
  bool takes_quantized() const override { return true; }

 private:
  Module& layer_at(std::int64_t layer) const;

  GateForm form_;
  Child<ModuleList> layers_;
};

}  // namespace quanta::nn::quantizable
