// Arithmetic, element by element, with numpy's broadcasting.

#include <algorithm>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/math_support.h"
#include "quanta/nn/float_functional.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {

std::pair<Tensor, Tensor> operands(const NodeCall& call) {
  const Tensor& lhs = call.input(0, "A");
  Tensor rhs = call.input(1, "B");
  if (call.opset() >= 7) return {lhs, rhs};
  if (!call.flag("broadcast", false)) {
    if (lhs.sizes() != rhs.sizes()) {
      call.fail(
          fmt::format("input 1 (B): expected sizes {} as A has, got {}", lhs.sizes(), rhs.sizes()));
    }
    return {lhs, rhs};
  }
  const std::int64_t first = call.integer("axis", lhs.dim() - rhs.dim());
  const std::int64_t axis = first < 0 ? first + lhs.dim() : first;
  const std::int64_t behind = lhs.dim() - axis - rhs.dim();
  if (axis < 0 || behind < 0) {
    call.fail(fmt::format("attribute axis: expected 0..{}, got {}", lhs.dim() - rhs.dim(), axis));
  }
  for (std::int64_t i = 0; i < behind; ++i) rhs = rhs.unsqueeze(-1);
  return {lhs, rhs};
}

Outputs evaluate_plain(Evaluate evaluate, const NodeCall& call) {
  const auto is_narrow = [](const Tensor& x) {
    return x.defined() && (x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16);
  };
  const auto narrow = std::find_if(call.inputs().begin(), call.inputs().end(), is_narrow);
  if (narrow == call.inputs().end()) return evaluate(call);
  const DType dtype = narrow->dtype();
  std::vector<Tensor> wide(call.inputs().begin(), call.inputs().end());
  for (Tensor& x : wide) {
    if (is_narrow(x)) x = x.to(DType::Float32);
  }
  Outputs results = evaluate(NodeCall(call.node(), wide, {}));
  for (Tensor& y : results) {
    if (y.defined() && y.dtype() == DType::Float32) y = y.to(dtype);
  }
  return results;
}

namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

template <Unary kFunction>
Outputs unary(const NodeCall& call) {
  return {kFunction(call.input(0, "X"))};
}

template <Unary kFunction>
Outputs unary_of_floats(const NodeCall& call) {
  return {as_floats(call.input(0, "X"), kFunction)};
}

template <Binary kFunction>
Outputs binary(const NodeCall& call) {
  const auto [lhs, rhs] = operands(call);
  return {kFunction(lhs, rhs)};
}

Tensor divide(const Tensor& lhs, const Tensor& rhs) {
  return is_float(lhs) ? div(lhs, rhs) : div_trunc(lhs, rhs);
}

// The result has the base's dtype whatever the exponent's is.
Tensor power(const Tensor& base, const Tensor& exponent) {
  if (base.dtype() == exponent.dtype()) return pow(base, exponent);
  DType common = DType::Int64;
  if (is_float(base) || is_float(exponent)) {
    const bool small = base.dtype() == DType::Float32 && exponent.dtype() != DType::Float64;
    common = small ? DType::Float32 : DType::Float64;
  }
  return cast(pow(cast(base, common), cast(exponent, common)), base.dtype());
}

Outputs modulo(const NodeCall& call) {
  const Tensor& lhs = call.input(0, "A");
  const Tensor& rhs = call.input(1, "B");
  if (call.flag("fmod", false)) return {fmod(lhs, rhs)};
  if (is_float(lhs)) call.fail("attribute fmod: expected 1 for floats, got 0");
  return {remainder(lhs, rhs)};
}

// Any number of operands, one after the other.
template <Binary kFunction>
Outputs variadic(const NodeCall& call) {
  Tensor result = call.input(0, "data_0");
  for (std::size_t i = 1; i < call.input_count(); ++i) {
    result = kFunction(result, call.input(i, "data"));
  }
  return {result};
}

Outputs mean_of_inputs(const NodeCall& call) {
  const Tensor sum = variadic<add>(call)[0];
  const auto count = static_cast<double>(call.input_count());
  return {div(sum, Tensor::scalar(count, sum.dtype()))};
}

Outputs shift(const NodeCall& call) {
  const std::string direction = call.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    call.fail(fmt::format("attribute direction: expected LEFT or RIGHT, got '{}'", direction));
  }
  const Tensor& x = call.input(0, "X");
  const Tensor& by = call.input(1, "Y");
  return {direction == "LEFT" ? bitwise_left_shift(x, by) : bitwise_right_shift(x, by)};
}

// Modules ------------------------------------------------------------------------------------

// Dtypes of what is no constant are not known yet: the module is passed over when they are not
// Float32.
std::shared_ptr<nn::Module> make_functional(const NodeCall& constants) {
  for (const Tensor& x : constants.inputs()) {
    if (x.defined() && x.dtype() != DType::Float32) return nullptr;
  }
  return nn::make_module<nn::FloatFunctional>();
}

using Method = Tensor (nn::FloatFunctional::*)(const Tensor&, const Tensor&) const;

template <Method kMethod, Evaluate kEvaluate>
Outputs call_functional(const nn::Module& module, const NodeCall& call) {
  const auto* functional = dynamic_cast<const nn::FloatFunctional*>(&module);
  const Tensor& lhs = call.input(0, "A");
  const Tensor& rhs = call.input(1, "B");
  if (functional == nullptr || !is_for_module(lhs) || !is_for_module(rhs)) {
    return evaluate_plain(kEvaluate, call);
  }
  const auto [left, right] = operands(call);
  return {(functional->*kMethod)(left, right)};
}

}  // namespace

void add_elementwise_ops(OpTable& table) {
  table.add({.name = "Add",
             .evaluate = binary<add>,
             .rule = CodeRule::Binary,
             .make_module = make_functional,
             .call_module = call_functional<&nn::FloatFunctional::add, binary<add>>});
  table.add({.name = "Mul",
             .evaluate = binary<mul>,
             .rule = CodeRule::Binary,
             .make_module = make_functional,
             .call_module = call_functional<&nn::FloatFunctional::mul, binary<mul>>});
  table.add({.name = "Sub", .evaluate = binary<sub>});
  table.add({.name = "Div", .evaluate = binary<divide>});
  table.add({.name = "Pow", .evaluate = binary<power>});
  table.add({.name = "Mod", .evaluate = modulo});
  table.add({.name = "Min", .evaluate = variadic<minimum>});
  table.add({.name = "Max", .evaluate = variadic<maximum>});
  table.add({.name = "Sum", .evaluate = variadic<add>});
  table.add({.name = "Mean", .evaluate = mean_of_inputs});

  table.add({.name = "Neg", .evaluate = unary<neg>});
  table.add({.name = "Abs", .evaluate = unary<abs>, .rule = CodeRule::Table});
  table.add({.name = "Sign", .evaluate = unary<sign>});
  table.add({.name = "Reciprocal", .evaluate = unary<reciprocal>});
  table.add({.name = "Sqrt", .evaluate = unary<sqrt>, .rule = CodeRule::Table});
  table.add({.name = "Exp", .evaluate = unary<exp>, .rule = CodeRule::Table});
  table.add({.name = "Log", .evaluate = unary<log>});
  table.add({.name = "Erf", .evaluate = unary_of_floats<erf>, .rule = CodeRule::Table});
  table.add({.name = "Floor", .evaluate = unary<floor>});
  table.add({.name = "Ceil", .evaluate = unary<ceil>});
  table.add({.name = "Round", .evaluate = unary<round>});
  table.add({.name = "Sin", .evaluate = unary<sin>});
  table.add({.name = "Cos", .evaluate = unary<cos>});
  table.add({.name = "Tan", .evaluate = unary<tan>});
  table.add({.name = "Asin", .evaluate = unary<asin>});
  table.add({.name = "Acos", .evaluate = unary<acos>});
  table.add({.name = "Atan", .evaluate = unary<atan>});
  table.add({.name = "Sinh", .evaluate = unary<sinh>});
  table.add({.name = "Cosh", .evaluate = unary<cosh>});
  table.add({.name = "Asinh", .evaluate = unary<asinh>});
  table.add({.name = "Acosh", .evaluate = unary<acosh>});
  table.add({.name = "Atanh", .evaluate = unary<atanh>});

  table.add({.name = "BitShift", .evaluate = shift});
  table.add({.name = "BitwiseAnd", .evaluate = binary<bitwise_and>});
  table.add({.name = "BitwiseOr", .evaluate = binary<bitwise_or>});
  table.add({.name = "BitwiseXor", .evaluate = binary<bitwise_xor>});
  table.add({.name = "BitwiseNot", .evaluate = unary<bitwise_not>});
}

}  // namespace quanta::graph
