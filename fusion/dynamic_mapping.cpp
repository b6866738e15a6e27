#include "quanta/fusion/mapping.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"

namespace quanta {
namespace {

ModuleMapping make_mapping() {
  namespace q = nn::quantized;
  namespace qd = nn::quantized::dynamic;
  ModuleMapping mapping;
  mapping.add<nn::Linear>(&qd::Linear::from_float)
      .add<nn::qat::dynamic::Linear>(&qd::Linear::from_float)
      .add<nn::NonDynamicallyQuantizableLinear>(&qd::Linear::from_float)
      .add<nn::intrinsic::LinearReLU>(&nn::intrinsic::quantized::dynamic::LinearReLU::from_float)
      .add<nn::LSTM>(&qd::LSTM::from_float)
      .add<nn::GRU>(&qd::GRU::from_float)
      .add<nn::LSTMCell>(&qd::LSTMCell::from_float)
      .add<nn::GRUCell>(&qd::GRUCell::from_float)
      .add<nn::RNNCell>(&qd::RNNCell::from_float)
      .add<nn::Embedding>(&q::Embedding::from_float)
      .add<nn::EmbeddingBag>(&q::EmbeddingBag::from_float);
  return mapping;
}

}  // namespace

const ModuleMapping& default_dynamic_quant_module_mappings() {
  static const ModuleMapping mapping = make_mapping();
  return mapping;
}

}  // namespace quanta
