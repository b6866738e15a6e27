#pragma once

#include <functional>
#include <span>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::autograd {

struct GradcheckOptions {
  double eps = 1e-6;  ///< step of the finite differences
  double atol = 1e-5;
  double rtol = 1e-3;
};

/// Compares the gradients that backward gives with central differences, input element by input
/// element, under a fixed weighting of the outputs: torch.autograd.gradcheck.
///
/// `function` maps the inputs to one Float64 tensor and gives the same result each time. The inputs
/// that require a gradient are checked; they have to be Float64 leaves. Returns true, or throws
/// ArgumentError that names the input, the element and both numbers. Changes the inputs' elements
/// while it runs, so no other thread may use them.
bool gradcheck(const std::function<Tensor(std::span<const Tensor>)>& function,
               const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace quanta::autograd
