#pragma once

// Private: the common norm of gradients.

#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::optim {

/// Of each of these (Float32 or Float64; Float32 on devices): the sum of its elements' sizes to the
/// power of norm_type > 0, or the largest size where that is infinite. NaN is kept.
std::vector<double> powers_of_norms(const std::vector<Tensor>& tensors, double norm_type);

/// The norm of order `norm_type` > 0 of all gradients that there are (infinity: the largest
/// magnitude). Those on devices wait for them, once a device.
double gradient_norm(const std::vector<Tensor>& parameters, double norm_type);

}  // namespace quanta::optim
