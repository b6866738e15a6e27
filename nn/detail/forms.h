#pragma once

// Private: the rooms' parts of the table of module forms. Each stands beside the sources of its
// room.

#include <cstdint>
#include <memory>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "quanta/nn/module_forms.h"

namespace quanta::nn::detail {

void add_float_forms(ModuleForms& forms);
void add_fused_forms(ModuleForms& forms);
void add_quantizable_forms(ModuleForms& forms);
void add_qat_forms(ModuleForms& forms);
void add_quantized_forms(ModuleForms& forms);
void add_dynamic_forms(ModuleForms& forms);
void add_weight_only_forms(ModuleForms& forms);
void add_reference_forms(ModuleForms& forms);

/// What stands in a float network if it is of the class that a form comes back from, or null.
template <typename Float>
const Float* as_source(const Module& occupant) {
  return typeid(occupant) == typeid(Float) ? static_cast<const Float*>(&occupant) : nullptr;
}

/// Channels of what a convolution or linear layer gives.
template <typename Layer>
std::int64_t result_channels(const Layer& layer) {
  if constexpr (requires { layer.options().out_channels; }) {
    return layer.options().out_channels;
  } else {
    return layer.options().out_features;
  }
}

/// A copy of the float layer, with a bias if the file has one under `name` that the layer lacks:
/// folding a batch norm gives a bias to a layer that was built without.
template <typename Layer>
std::shared_ptr<Layer> with_saved_bias(const Layer& layer, const SavedForm& saved,
                                       std::string_view name) {
  auto copy = std::static_pointer_cast<Layer>(layer.clone());
  if constexpr (requires { copy->options().bias; }) {
    const bool is_given = saved.find(name) != nullptr;
    if (is_given && !copy->bias.defined()) copy->bias = Tensor::zeros({result_channels(*copy)});
  }
  return copy;
}

}  // namespace quanta::nn::detail
