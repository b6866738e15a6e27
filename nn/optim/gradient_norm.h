#pragma once

// Private: the common norm of gradients.

#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::optim {

/// The norm of order `norm_type` > 0 of all gradients that there are (infinity: the largest
/// magnitude). Those on devices wait for them, once a device.
double gradient_norm(const std::vector<Tensor>& parameters, double norm_type);

}  // namespace quanta::optim
