#pragma once

// Private: quantized modules that are made of an observed module's converted parts.

#include <string_view>

#include "quanta/nn/module.h"

namespace quanta::nn::detail {

/// Throws ArgumentError `op: ...` naming the first part below that convert should have replaced;
/// removes what was copied along from the observed module: hooks, QConfig, observer.
void finish_converted(std::string_view op, Module& module);

}  // namespace quanta::nn::detail
