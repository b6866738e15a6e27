#pragma once

// Private: the gradient of matrix products.

#include <vector>

#include "quanta/runtime/autograd.h"

namespace quanta::matrix_product {

/// For matmul's rules for vectors and broadcasting. Asks the context for each argument whose
/// partner needs a gradient.
std::vector<Tensor> product_gradient(const autograd::BackwardContext& context);

}  // namespace quanta::matrix_product
