#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include "quanta/fusion/mapping.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/module.h"

// What changes a model (names that end in an underscore) is for one thread at a time for each
// model, while nobody calls it; what takes a const model may run in many threads at once.

namespace quanta {

/// What to do with a module whose observer has seen no data.
enum class Uncalibrated : bool {
  Refuse,
  Allow,  ///< scale 1, zero point 0: for a model whose state_dict is loaded next
};

struct ConvertOptions {
  ModuleMapping mapping = default_static_quant_module_mappings();
  Uncalibrated uncalibrated = Uncalibrated::Refuse;
  CustomModuleMapping custom = default_custom_module_mapping();
};

/// The replacement of one observed module, with its hooks; the module itself when it has no
/// QConfig or its type is not in the mapping.
std::shared_ptr<nn::Module> swap_module(const std::shared_ptr<nn::Module>& module,
                                        const ModuleMapping& mapping);

/// In place: replaces every observed child by its quantized form and removes observers and
/// QConfigs. Weights are quantized on the CPU; a module on a device is copied there for it, and its
/// replacement put on the device. The root itself is not replaced (wrap a bare layer in
/// QuantWrapper).
/// Throws ArgumentError that lists every module path with what is wrong (no data seen, model not
/// prepared, a type that cannot be quantized as configured); then nothing was changed.
void convert_(nn::Module& model, const ConvertOptions& options = {});

/// convert_ on a copy of the same type; `prepared` stays as it is.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T convert(const T& prepared,
                                                    const ConvertOptions& options = {}) {
  T copy = nn::deep_copy(prepared);
  convert_(copy, options);
  return copy;
}

}  // namespace quanta
