// The rows of the modules that quantize_dynamic puts in.

#include <optional>
#include <utility>
#include <vector>

#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/attention_form.h"
#include "quanta/nn/detail/forms.h"
#include "quanta/nn/detail/saved_layers.h"
#include "quanta/nn/dynamic/attention.h"
#include "quanta/nn/dynamic/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"

namespace quanta::nn::detail {
namespace {

namespace qd = nn::quantized::dynamic;
namespace niqd = nn::intrinsic::quantized::dynamic;

template <typename T, typename... Sources>
ModuleForm row(std::string name) {
  return form_of<T, Sources...>(Form::Dynamic, std::move(name));
}

template <typename T, typename... Sources>
ModuleForm linear_row(std::string name) {
  ModuleForm result = row<T, Sources...>(std::move(name));
  result.restore = &restore_linear<T>;
  return result;
}

// torch warns of its own: results lie on the input's grid. Mappings of the user's own put one in.
template <typename T, typename Float>
ModuleForm conv_row(std::string name) {
  ModuleForm result = row<T, Float>(std::move(name));
  result.by_default = false;
  return result;
}

// The weight and bias at `name` in a file, packed; nothing unless they are codes.
std::optional<qd::GateWeight> saved_gates(const SavedForm& saved, const std::string& name) {
  const Tensor* weight = saved.find(name + "/0");
  if (weight == nullptr || weight->dtype() != DType::QInt8) return std::nullopt;
  return qd::GateWeight(*weight, saved.get(name + "/1"));
}

void note_taken(const SavedForm& saved, const std::string& name, const qd::GateWeight& gates) {
  saved.taken(name + "/0", gates.weight());
  saved.taken(name + "/1", gates.bias());
}

// Made of the saved codes, so that the float weights are neither touched nor packed.
template <typename T, typename Float>
std::shared_ptr<Module> restore_recurrent(const Module& occupant, const SavedForm& saved) {
  const auto* source = as_source<Float>(occupant);
  if (source == nullptr) return nullptr;
  const auto count =
      static_cast<std::size_t>(source->options().num_layers * source->num_directions());
  std::vector<qd::GateWeights> weights;
  for (std::size_t number = 0; number < count; ++number) {
    const std::string name = qd::gate_weights_name(number);
    std::optional<qd::GateWeight> ih = saved_gates(saved, name + "/0");
    std::optional<qd::GateWeight> hh = saved_gates(saved, name + "/1");
    if (!ih || !hh) return nullptr;
    weights.push_back({std::move(*ih), std::move(*hh)});
  }
  for (std::size_t number = 0; number < count; ++number) {
    const std::string name = qd::gate_weights_name(number);
    note_taken(saved, name + "/0", weights[number].ih);
    note_taken(saved, name + "/1", weights[number].hh);
  }
  return make_module<T>(source->options(), std::move(weights));
}

template <typename T, typename Float>
ModuleForm recurrent_row(std::string name) {
  ModuleForm result = row<T, Float>(std::move(name));
  result.restore = &restore_recurrent<T, Float>;
  return result;
}

}  // namespace

void add_dynamic_forms(ModuleForms& forms) {
  forms.add(linear_row<qd::Linear, Linear, NonDynamicallyQuantizableLinear, qat::dynamic::Linear>(
      "DynamicLinear"));
  forms.add(linear_row<niqd::LinearReLU, intrinsic::LinearReLU>("DynamicLinearReLU"));
  forms.add(recurrent_row<qd::LSTM, LSTM>("DynamicLSTM"));
  forms.add(recurrent_row<qd::GRU, GRU>("DynamicGRU"));
  auto attention = row<qd::MultiheadAttention, MultiheadAttention>("DynamicMultiheadAttention");
  keep_attention_dtype(attention);
  forms.add(std::move(attention));
  forms.add(row<qd::LSTMCell, LSTMCell>("DynamicLSTMCell"));
  forms.add(row<qd::GRUCell, GRUCell>("DynamicGRUCell"));
  forms.add(row<qd::RNNCell, RNNCell>("DynamicRNNCell"));
  forms.add(conv_row<qd::Conv1d, Conv1d>("DynamicConv1d"));
  forms.add(conv_row<qd::Conv2d, Conv2d>("DynamicConv2d"));
  forms.add(conv_row<qd::Conv3d, Conv3d>("DynamicConv3d"));
  forms.add(conv_row<qd::ConvTranspose1d, ConvTranspose1d>("DynamicConvTranspose1d"));
  forms.add(conv_row<qd::ConvTranspose2d, ConvTranspose2d>("DynamicConvTranspose2d"));
  forms.add(conv_row<qd::ConvTranspose3d, ConvTranspose3d>("DynamicConvTranspose3d"));
}

}  // namespace quanta::nn::detail
