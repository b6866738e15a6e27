#pragma once

#include <memory>
#include <string>

#include "quanta/nn/reference.h"
#include "quanta/nn/rnn_cell.h"

/// The recurrent cells of torch.ao.nn.quantized.reference: float cells that compute with both
/// weights as quantizing leaves them. Called as the float ones; in eval mode safe from many threads
/// at once.
namespace quanta::nn::reference {

/// How the two weights of a cell are quantized.
struct CellQParams {
  WeightQParams weight_ih{};
  WeightQParams weight_hh{};
};

/// What the cells share; Float is the float cell.
///
/// State: `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh` in Float32, and `weight_ih_scale`,
/// `weight_ih_zero_point`, `weight_ih_axis`, the same of `weight_hh`.
template <typename Float>
class ReferenceCell : public Float {
 public:
  const CellQParams& weight_qparams() const noexcept { return qparams_; }
  // The weights quantized. Throw ArgumentError if one does not suit its parameters, or holds NaN or
  // infinity.
  QTensor get_quantized_weight_ih() const { return qparams_.weight_ih.quantize(this->weight_ih); }
  QTensor get_quantized_weight_hh() const { return qparams_.weight_hh.quantize(this->weight_hh); }
  /// "QuantizedLSTMCell(Reference)", as torch prints.
  std::string type_name() const override;

 protected:
  /// Copies of the cell's parameters. Throws ArgumentError for parameters that do not suit a
  /// weight.
  ReferenceCell(const Float& source, const CellQParams& qparams);
  LstmState step(const Tensor& x, const Tensor& h, const Tensor& c) const override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  CellQParams qparams_;
};

extern template class ReferenceCell<nn::RNNCell>;
extern template class ReferenceCell<nn::LSTMCell>;
extern template class ReferenceCell<nn::GRUCell>;

/// from_float takes the float cell, with the given parameters or with those that the weight
/// observer of its qconfig finds for each weight. Throws ArgumentError for another module, and
/// without either.
class RNNCell : public ReferenceCell<nn::RNNCell> {
 public:
  RNNCell(const nn::RNNCell& source, const CellQParams& qparams) : ReferenceCell(source, qparams) {}
  static std::shared_ptr<RNNCell> from_float(const nn::RNNCell& source, const CellQParams& qparams);
  static std::shared_ptr<Module> from_float(const Module& module);
};

class LSTMCell : public ReferenceCell<nn::LSTMCell> {
 public:
  LSTMCell(const nn::LSTMCell& source, const CellQParams& qparams)
      : ReferenceCell(source, qparams) {}
  static std::shared_ptr<LSTMCell> from_float(const nn::LSTMCell& source,
                                              const CellQParams& qparams);
  static std::shared_ptr<Module> from_float(const Module& module);
};

class GRUCell : public ReferenceCell<nn::GRUCell> {
 public:
  GRUCell(const nn::GRUCell& source, const CellQParams& qparams) : ReferenceCell(source, qparams) {}
  static std::shared_ptr<GRUCell> from_float(const nn::GRUCell& source, const CellQParams& qparams);
  static std::shared_ptr<Module> from_float(const Module& module);
};

}  // namespace quanta::nn::reference
