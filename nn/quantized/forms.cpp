// The rows of the modules that convert puts in.

#include "quanta/nn/detail/forms.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/attention_form.h"
#include "quanta/nn/detail/saved_layers.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/quantizable/attention.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/attention.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/lstm.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/nn/quantized/pooling.h"
#include "quanta/nn/quantized/qfunctional.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/min_max_observer.h"

namespace quanta::nn::detail {
namespace {

namespace q = nn::quantized;

template <typename T, typename... Sources>
ModuleForm row(std::string name) {
  return form_of<T, Sources...>(Form::Quantized, std::move(name));
}

template <typename T, typename Float>
ModuleForm conv_row(std::string name) {
  ModuleForm result = row<T, Float>(std::move(name));
  result.restore = &restore_conv<Float, T>;
  return result;
}

// Whether the rows of the table have 8 or 4 bits follows from the state.
template <typename T, typename Float>
ModuleForm table_row(std::string name) {
  ModuleForm result = row<T, Float>(std::move(name));
  result.weight_observer = float_qparams_weight_only_qconfig().weight;
  return result;
}

// Mappings of the user's own put it in.
template <typename T, typename Float>
ModuleForm optional_row(std::string name) {
  ModuleForm result = row<T, Float>(std::move(name));
  result.by_default = false;
  return result;
}

// Made of an observed module's converted parts, which come back with it.
template <typename T, typename Observed>
ModuleForm custom_row(std::string name, std::string source_row = {}) {
  ModuleForm result;
  result.name = std::move(name);
  result.form = Form::Quantized;
  result.type = typeid(T);
  result.sources = {typeid(Observed)};
  result.make = &T::from_observed;
  result.parts = CustomParts::Convert;
  result.source_row = std::move(source_row);
  return result;
}

template <nn::quantizable::GateForm kForm>
bool has_gates(const Module& module) {
  return static_cast<const q::LSTM&>(module).form() == kForm;
}

ModuleForm quantize_row() {
  ModuleForm result = row<q::Quantize, QuantStub>("Quantize");
  result.settings = [](const Module& module) {
    FormSettings settings;
    settings.words["dtype"] = torch_name(static_cast<const q::Quantize&>(module).dtype());
    return settings;
  };
  return result;
}

ModuleForm linear_row() {
  ModuleForm result = row<q::Linear, Linear, NonDynamicallyQuantizableLinear>("Linear");
  result.restore = &restore_linear<q::Linear>;
  return result;
}

// Its weight is QUInt8, which is not what the default weight observer gives.
ModuleForm prelu_row() {
  ModuleForm result = row<q::PReLU, PReLU>("PReLU");
  result.weight_observer = MinMaxObserver::with_args({.dtype = DType::QUInt8});
  return result;
}

// Those that torch's static mapping lacks.
void add_own_activations(ModuleForms& forms) {
  forms.add(row<q::GELU, GELU>("GELU"));
  forms.add(row<q::SiLU, SiLU>("SiLU"));
  forms.add(row<q::Mish, Mish>("Mish"));
  forms.add(row<q::CELU, CELU>("CELU"));
  forms.add(row<q::SELU, SELU>("SELU"));
  forms.add(row<q::Softplus, Softplus>("Softplus"));
  forms.add(row<q::Softsign, Softsign>("Softsign"));
  forms.add(row<q::LogSigmoid, LogSigmoid>("LogSigmoid"));
  forms.add(row<q::Softmax, Softmax>("Softmax"));
  forms.add(row<q::LogSoftmax, LogSoftmax>("LogSoftmax"));
}

void add_lstm(ModuleForms& forms) {
  using nn::quantizable::GateForm;
  ModuleForm joined = custom_row<q::LSTM, nn::quantizable::LSTM>("LSTM", "quantizable.LSTM");
  joined.matches = &has_gates<GateForm::Joined>;
  forms.add(std::move(joined));
  ModuleForm split = custom_row<q::LSTM, nn::quantizable::LSTM>("LSTM of split gates",
                                                                "quantizable.LSTM of split gates");
  split.matches = &has_gates<GateForm::Split>;
  forms.add(std::move(split));
}

}  // namespace

void add_quantized_forms(ModuleForms& forms) {
  forms.add(quantize_row());
  forms.add(row<q::DeQuantize, DeQuantStub>("DeQuantize"));
  forms.add(row<q::QFunctional, FloatFunctional>("QFunctional"));
  forms.add(conv_row<q::Conv1d, Conv1d>("Conv1d"));
  forms.add(conv_row<q::Conv2d, Conv2d>("Conv2d"));
  forms.add(conv_row<q::Conv3d, Conv3d>("Conv3d"));
  forms.add(row<q::ConvTranspose1d, ConvTranspose1d>("ConvTranspose1d"));
  forms.add(row<q::ConvTranspose2d, ConvTranspose2d>("ConvTranspose2d"));
  forms.add(row<q::ConvTranspose3d, ConvTranspose3d>("ConvTranspose3d"));
  forms.add(linear_row());
  forms.add(row<q::BatchNorm2d, BatchNorm2d>("BatchNorm2d"));
  forms.add(row<q::BatchNorm3d, BatchNorm3d>("BatchNorm3d"));
  forms.add(row<q::LayerNorm, LayerNorm>("LayerNorm"));
  forms.add(row<q::GroupNorm, GroupNorm>("GroupNorm"));
  forms.add(row<q::InstanceNorm1d, InstanceNorm1d>("InstanceNorm1d"));
  forms.add(row<q::InstanceNorm2d, InstanceNorm2d>("InstanceNorm2d"));
  forms.add(row<q::InstanceNorm3d, InstanceNorm3d>("InstanceNorm3d"));
  forms.add(row<q::ReLU6, ReLU6>("ReLU6"));
  forms.add(row<q::Hardswish, Hardswish>("Hardswish"));
  forms.add(row<q::LeakyReLU, LeakyReLU>("LeakyReLU"));
  forms.add(row<q::ELU, ELU>("ELU"));
  forms.add(prelu_row());
  add_own_activations(forms);
  forms.add(row<q::Dropout, Dropout>("Dropout"));
  forms.add(optional_row<q::ReLU, ReLU>("ReLU"));
  forms.add(optional_row<q::Sigmoid, Sigmoid>("Sigmoid"));
  forms.add(optional_row<q::Tanh, Tanh>("Tanh"));
  forms.add(optional_row<q::MaxPool2d, MaxPool2d>("MaxPool2d"));
  forms.add(table_row<q::Embedding, Embedding>("Embedding"));
  forms.add(table_row<q::EmbeddingBag, EmbeddingBag>("EmbeddingBag"));
  add_lstm(forms);
  auto attention =
      custom_row<q::MultiheadAttention, nn::quantizable::MultiheadAttention>("MultiheadAttention");
  keep_attention_dtype(attention);
  forms.add(std::move(attention));
}

}  // namespace quanta::nn::detail
