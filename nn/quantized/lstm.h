#pragma once

#include <memory>
#include <string>

#include "quanta/nn/quantizable/lstm.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// An LSTM on quantized tensors: a quantizable::LSTM whose parts are converted. QUInt8 in, QUInt8
/// out, states included; a missing state is zeros. State keys are those of quantizable::LSTM with
/// the quantized parts' below: `layers.0.layer_fw.cell.gates.scale` and so on.
class LSTM : public quantizable::LSTM {
 public:
  /// A copy of `converted`. Throws ArgumentError if one of its parts is not quantized.
  explicit LSTM(const quantizable::LSTM& converted);
  /// Takes a quantizable::LSTM whose parts are converted, as convert does it before the call.
  static std::shared_ptr<Module> from_observed(const Module& module);

  std::string type_name() const override { return "QuantizedLSTM"; }
};

}  // namespace quanta::nn::quantized
