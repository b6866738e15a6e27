#pragma once

// Private: what the rows of element-wise operators and reductions share.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/ops/elementwise.h"

namespace quanta::graph {

inline bool is_float(const Tensor& x) {
  return x.dtype() == DType::Float32 || x.dtype() == DType::Float64;
}

/// function(x) for floats; integers go through Float64 and back.
template <typename Function>
Tensor as_floats(const Tensor& x, Function&& function) {
  if (is_float(x)) return function(x);
  return cast(function(cast(x, DType::Float64)), x.dtype());
}

/// Both operands as they broadcast. Before opset 7 the second one does so only where the attribute
/// `broadcast` says so, from dimension `axis` of the first one.
std::pair<Tensor, Tensor> operands(const NodeCall& call);

/// OpRow::evaluate.
using Evaluate = Outputs (*)(const NodeCall& call);

/// Whether a float module takes it: Float32, or codes once the module is converted.
inline bool is_for_module(const Tensor& x) {
  return x.is_quantized() || x.dtype() == DType::Float32;
}

/// Without a module, with 16-bit floats widened: for call_module where is_for_module() says no.
Outputs evaluate_plain(Evaluate evaluate, const NodeCall& call);

/// call_module of an operator of one input.
template <Evaluate kEvaluate>
Outputs call_unary_module(const nn::Module& module, const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  if (is_for_module(x)) return {module(x)};
  return evaluate_plain(kEvaluate, call);
}

}  // namespace quanta::graph
