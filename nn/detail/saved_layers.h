#pragma once

// Private: how layers come back from files, for the rows of several rooms.

#include <memory>

#include "quanta/nn/conv.h"
#include "quanta/nn/detail/float_conv.h"
#include "quanta/nn/detail/forms.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"

namespace quanta::nn::detail {

/// Null unless codes are saved under that name that can stand for a weight of these sizes.
inline const Tensor* saved_codes(const SavedForm& saved, std::string_view name, const Dims& sizes) {
  const Tensor* codes = saved.find(name);
  const bool fits = codes != nullptr && codes->dtype() == DType::QInt8 && codes->sizes() == sizes;
  return fits ? codes : nullptr;
}

// The two below make the module of the saved codes: the float weight is not touched, and nothing is
// packed twice. They give null for what does not fit; it goes the long way, which tells what is
// wrong.

template <typename Float, typename Quantized>
std::shared_ptr<Module> restore_conv(const Module& occupant, const SavedForm& saved) {
  const auto* source = as_source<Float>(occupant);
  if (source == nullptr || saved.dtype() != DType::QUInt8) return nullptr;
  const Tensor* codes = saved_codes(saved, "weight", source->weight.sizes());
  if (codes == nullptr) return nullptr;
  const ConvNdOptions& options = source->options();
  const auto module = make_module<Quantized>(op_options(options), QTensor(*codes),
                                             saved.get("bias"), 1.0, 0, options.padding_mode);
  saved.taken("weight", module->weight());
  saved.taken("bias", module->bias());
  return module;
}

template <typename Quantized>
std::shared_ptr<Module> restore_linear(const Module& occupant, const SavedForm& saved) {
  const auto* source = dynamic_cast<const Linear*>(&occupant);
  if (source == nullptr || saved.dtype() != DType::QUInt8) return nullptr;
  const LinearNames names;
  const Tensor* codes = saved_codes(saved, names.weight, source->weight.sizes());
  if (codes == nullptr) return nullptr;
  const auto module = make_module<Quantized>(QTensor(*codes), saved.get(names.bias));
  saved.taken(names.weight, module->weight());
  saved.taken(names.bias, module->bias());
  return module;
}

/// What of a batch norm is not in its state.
inline void note_batch_norm(const BatchNormOptions& options, FormSettings& settings) {
  settings.numbers["eps"] = options.eps;
  // torch's None: the cumulative average.
  if (options.momentum) settings.numbers["momentum"] = *options.momentum;
}

inline BatchNormOptions saved_batch_norm(std::int64_t features, const FormSettings& settings) {
  BatchNormOptions options{.num_features = features, .eps = settings.number("eps")};
  options.momentum = std::nullopt;
  if (settings.numbers.contains("momentum")) options.momentum = settings.number("momentum");
  return options;
}

}  // namespace quanta::nn::detail
