#pragma once

#include <map>
#include <string>
#include <type_traits>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"

namespace quanta {

/// Gives every module below `model` its QConfig; see QConfigMapping for who wins.
void propagate_qconfig_(nn::Module& model, const QConfigMapping& mapping = {});

/// Attaches an activation observer to every module that will be quantized and has a QConfig:
/// leaves whose type the mapping knows, fused modules as one, FloatFunctionals. Not observed
/// (they pass their input's parameters on): ReLU, pooling, Sigmoid, Tanh, Flatten, Identity,
/// Dropout.
void add_observer_(nn::Module& model,
                   const ModuleMapping& mapping = default_static_quant_module_mappings());

/// In place: propagate_qconfig_, then custom modules that have a QConfig (LSTM, MultiheadAttention)
/// are replaced by their observed forms, hooks included, then add_observer_. Throws ArgumentError
/// when no module has a QConfig, a transposed convolution has a per-channel weight observer, or a
/// custom module is refused by its from_float; then nothing was changed.
void prepare_(nn::Module& model, const QConfigMapping& qconfigs = {},
              const ModuleMapping& mapping = default_static_quant_module_mappings(),
              const CustomModuleMapping& custom = default_custom_module_mapping());

/// A copy of `model` that observes its activations: run calibration data through it, then convert.
///   auto prepared = prepare(net, get_default_qconfig());
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
prepare(const T& model, const QConfigMapping& qconfigs = {},
        const ModuleMapping& mapping = default_static_quant_module_mappings(),
        const CustomModuleMapping& custom = default_custom_module_mapping()) {
  T copy = nn::deep_copy(model);
  prepare_(copy, qconfigs, mapping, custom);
  return copy;
}

/// Every observer below `model` by the path of its module, as torch's get_observer_dict.
std::map<std::string, std::shared_ptr<Observer>> get_observer_dict(const nn::Module& model);

}  // namespace quanta
