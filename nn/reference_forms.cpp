// The rows of the modules of nn::reference.

#include "quanta/nn/detail/forms.h"
#include "quanta/nn/reference.h"
#include "quanta/nn/reference_cell.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quantizer.h"

namespace quanta::nn::detail {
namespace {

namespace r = nn::reference;

// With the parameters that the qconfig's weight observer finds.
template <typename T, typename Float>
std::shared_ptr<Module> from_float(const Module& module) {
  const auto& source = dynamic_cast<const Float&>(module);
  const QConfig* qconfig = module.qconfig();
  QUANTA_CHECK(qconfig != nullptr && qconfig->weight,
               "reference.from_float: module: expected a {} with a qconfig for weights, got none",
               module.type_name());
  const std::shared_ptr<Observer> observer = qconfig->weight();
  observer->forward(source.weight);
  return T::from_float(source, r::WeightQParams::from_observer(*observer));
}

// Scheme and dtype are no tensors: settings.
void note_qparams(const std::string& name, const r::WeightQParams& qparams,
                  FormSettings& settings) {
  settings.words[name + "_qscheme"] = torch_name(qparams.qscheme);
  settings.words[name + "_dtype"] = torch_name(qparams.dtype);
}

r::WeightQParams saved_qparams(const std::string& name, const SavedForm& saved) {
  const std::string& dtype_name = saved.settings().word(name + "_dtype");
  const std::optional<DType> dtype = dtype_from_torch_name(dtype_name);
  QUANTA_CHECK(dtype.has_value(), "settings: {}_dtype: expected a dtype's name, got '{}'", name,
               dtype_name);
  const Tensor axis = saved.get(name + "_axis");
  return {.qscheme = qscheme_from_torch_name(saved.settings().word(name + "_qscheme")),
          .dtype = *dtype,
          .scale = saved.get(name + "_scale"),
          .zero_point = saved.get(name + "_zero_point"),
          .axis = axis.defined() && axis.numel() == 1 ? axis.to_int64_vector()[0] : 0};
}

// Without a look at the weight, which is loaded later.
template <typename T, typename Float, typename QParams>
std::shared_ptr<Module> restored(const Float& source, const QParams& qparams) {
  auto module = make_module<T>(source, qparams);
  module->train(source.is_training());
  return module;
}

template <typename T, typename Float>
ModuleForm row(std::string name) {
  ModuleForm result;
  result.name = std::move(name);
  result.form = Form::Reference;
  result.type = typeid(T);
  result.sources = {typeid(Float)};
  result.make = &from_float<T, Float>;
  result.settings = [](const Module& module) {
    FormSettings settings;
    note_qparams("weight", static_cast<const T&>(module).weight_qparams(), settings);
    return settings;
  };
  result.restore = [](const Module& occupant, const SavedForm& saved) -> std::shared_ptr<Module> {
    const auto* source = as_source<Float>(occupant);
    if (source == nullptr) return nullptr;
    return restored<T>(*with_saved_bias(*source, saved, "bias"), saved_qparams("weight", saved));
  };
  return result;
}

template <typename T, typename Float>
ModuleForm cell_row(std::string name) {
  ModuleForm result = form_of<T, Float>(Form::Reference, std::move(name));
  result.settings = [](const Module& module) {
    const r::CellQParams& qparams = static_cast<const T&>(module).weight_qparams();
    FormSettings settings;
    note_qparams("weight_ih", qparams.weight_ih, settings);
    note_qparams("weight_hh", qparams.weight_hh, settings);
    return settings;
  };
  result.restore = [](const Module& occupant, const SavedForm& saved) -> std::shared_ptr<Module> {
    const auto* source = as_source<Float>(occupant);
    if (source == nullptr) return nullptr;
    return restored<T>(*source, r::CellQParams{saved_qparams("weight_ih", saved),
                                               saved_qparams("weight_hh", saved)});
  };
  return result;
}

}  // namespace

void add_reference_forms(ModuleForms& forms) {
  forms.add(row<r::Linear, Linear>("reference.Linear"));
  forms.add(row<r::Conv1d, Conv1d>("reference.Conv1d"));
  forms.add(row<r::Conv2d, Conv2d>("reference.Conv2d"));
  forms.add(row<r::Conv3d, Conv3d>("reference.Conv3d"));
  forms.add(row<r::ConvTranspose1d, ConvTranspose1d>("reference.ConvTranspose1d"));
  forms.add(row<r::ConvTranspose2d, ConvTranspose2d>("reference.ConvTranspose2d"));
  forms.add(row<r::ConvTranspose3d, ConvTranspose3d>("reference.ConvTranspose3d"));
  forms.add(row<r::Embedding, Embedding>("reference.Embedding"));
  forms.add(row<r::EmbeddingBag, EmbeddingBag>("reference.EmbeddingBag"));
  forms.add(cell_row<r::RNNCell, RNNCell>("reference.RNNCell"));
  forms.add(cell_row<r::LSTMCell, LSTMCell>("reference.LSTMCell"));
  forms.add(cell_row<r::GRUCell, GRUCell>("reference.GRUCell"));
}

}  // namespace quanta::nn::detail
