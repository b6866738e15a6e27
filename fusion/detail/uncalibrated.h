#pragma once

#include <memory>

#include "quanta/fusion/mapping.h"

namespace quanta {

/// What `from_float` makes of a float module that never saw data: scale 1, zero point 0, weights
/// quantized as they are by `weight_observer`. For models whose state is loaded next. `dtype` is
/// that of the activation.
std::shared_ptr<nn::Module> from_uncalibrated(const std::shared_ptr<nn::Module>& module,
                                              const FromFloat& from_float, DType dtype,
                                              const ObserverFactory& weight_observer);

}  // namespace quanta
