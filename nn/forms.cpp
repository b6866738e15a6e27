// The rows of the float kinds, where the workflow treats them in a way of their own or a file can
// change them.

#include "quanta/nn/detail/forms.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"

namespace quanta::nn::detail {
namespace {

// A convolution or linear layer. A batch norm that was folded into it may have left a bias.
template <typename Layer>
ModuleForm layer_row(std::string name, FloatKind kind = {}) {
  ModuleForm row = float_form<Layer>(std::move(name), std::move(kind));
  row.restore = [](const Module& occupant, const SavedForm& saved) -> std::shared_ptr<Module> {
    const auto& layer = static_cast<const Layer&>(occupant);
    if (layer.bias.defined() || saved.find("bias") == nullptr) return nullptr;
    return with_saved_bias(layer, saved, "bias");
  };
  return row;
}

// What fuse_modules leaves in the places of the modules that it joined to the first one.
ModuleForm identity_row() {
  ModuleForm row = float_form<Identity>("Identity");
  row.restore = [](const Module& occupant, const SavedForm&) -> std::shared_ptr<Module> {
    if (typeid(occupant) == typeid(Identity)) return nullptr;
    return make_module<Identity>();
  };
  return row;
}

}  // namespace

void add_float_forms(ModuleForms& forms) {
  const std::vector<DType> by_default = {DType::QInt8, DType::Float16};
  forms.add(identity_row());
  forms.add(float_form<QuantStub>("nn.QuantStub"));
  forms.add(float_form<DeQuantStub>("nn.DeQuantStub", {.observe = Observe::Nothing}));
  forms.add(float_form<FloatFunctional>("nn.FloatFunctional", {.observe = Observe::Calls}));
  forms.add(layer_row<Conv1d>("nn.Conv1d"));
  forms.add(layer_row<Conv2d>("nn.Conv2d"));
  forms.add(layer_row<Conv3d>("nn.Conv3d"));
  forms.add(layer_row<ConvTranspose1d>("nn.ConvTranspose1d", {.per_tensor_weight = true}));
  forms.add(layer_row<ConvTranspose2d>("nn.ConvTranspose2d", {.per_tensor_weight = true}));
  forms.add(layer_row<ConvTranspose3d>("nn.ConvTranspose3d", {.per_tensor_weight = true}));
  forms.add(layer_row<Linear>("nn.Linear", {.dynamic_dtypes = by_default}));
  forms.add(layer_row<NonDynamicallyQuantizableLinear>("nn.NonDynamicallyQuantizableLinear"));
  forms.add(
      float_form<MultiheadAttention>("nn.MultiheadAttention", {.dynamic_dtypes = by_default}));
  forms.add(float_form<LSTM>("nn.LSTM", {.dynamic_dtypes = by_default}));
  forms.add(float_form<GRU>("nn.GRU", {.dynamic_dtypes = by_default}));
  forms.add(float_form<LSTMCell>("nn.LSTMCell", {.dynamic_dtypes = by_default}));
  forms.add(float_form<GRUCell>("nn.GRUCell", {.dynamic_dtypes = by_default}));
  forms.add(float_form<RNNCell>("nn.RNNCell", {.dynamic_dtypes = by_default}));
  forms.add(float_form<Embedding>("nn.Embedding",
                                  {.float_result = true, .dynamic_dtypes = {DType::QUInt8}}));
  forms.add(float_form<EmbeddingBag>(
      "nn.EmbeddingBag",
      {.float_result = true, .dynamic_dtypes = {DType::QUInt8, DType::QUInt4x2}}));
  forms.add(float_form<BatchNorm1d>(
      "nn.BatchNorm1d", {.advice = "BatchNorm1d has no quantized form: fuse it with the Conv1d or "
                                   "Linear before it (fuse_modules)"}));
  forms.add(float_form<Dropout>("nn.Dropout", {.observe = Observe::Nothing}));
  const ObserverFactory range_0to1 = default_fixed_qparams_range_0to1_fake_quant();
  const ObserverFactory range_neg1to1 = default_fixed_qparams_range_neg1to1_fake_quant();
  forms.add(float_form<Tanh>("nn.Tanh", {.fixed_fake_quantizer = range_neg1to1}));
  forms.add(float_form<Sigmoid>("nn.Sigmoid", {.fixed_fake_quantizer = range_0to1}));
  forms.add(float_form<Hardsigmoid>("nn.Hardsigmoid", {.fixed_fake_quantizer = range_0to1}));
  forms.add(float_form<Softmax>("nn.Softmax", {.fixed_fake_quantizer = range_0to1}));
}

}  // namespace quanta::nn::detail
