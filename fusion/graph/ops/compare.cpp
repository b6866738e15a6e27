// Comparisons, logic, and choosing by them.

#include "quanta/ops/compare.h"

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/math_support.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

using Binary = Tensor (*)(const Tensor&, const Tensor&);

template <Binary kFunction>
Outputs compare(const NodeCall& call) {
  const auto [lhs, rhs] = operands(call);
  if (lhs.dtype() != rhs.dtype()) {
    call.fail(fmt::format("input 1 (B): expected {} as A has, got {}", lhs.dtype(), rhs.dtype()));
  }
  return {kFunction(lhs, rhs)};
}

// Truth values only: the bits of integers are another operator's.
template <Binary kFunction>
Outputs logic(const NodeCall& call) {
  const auto [lhs, rhs] = operands(call);
  for (const Tensor& x : {lhs, rhs}) {
    if (x.dtype() != DType::Bool)
      call.fail(fmt::format("inputs: expected Bool, got {}", x.dtype()));
  }
  return {kFunction(lhs, rhs)};
}

Outputs not_of(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  if (x.dtype() != DType::Bool) {
    call.fail(fmt::format("input 0 (X): expected Bool, got {}", x.dtype()));
  }
  return {logical_not(x)};
}

// 8-bit floats have NaN and infinity as well.
Tensor floats_of(const Tensor& x) { return is_float(x) ? x : x.to(DType::Float32); }

Outputs is_nan(const NodeCall& call) { return {isnan(floats_of(call.input(0, "X")))}; }

Outputs is_inf(const NodeCall& call) {
  const bool negative = call.flag("detect_negative", true);
  const bool positive = call.flag("detect_positive", true);
  const InfinitySigns signs = negative && positive ? InfinitySigns::Both
                              : positive           ? InfinitySigns::Positive
                              : negative           ? InfinitySigns::Negative
                                                   : InfinitySigns::None;
  return {isinf(floats_of(call.input(0, "X")), signs)};
}

Outputs choose(const NodeCall& call) {
  return {where(call.input(0, "condition"), call.input(1, "X"), call.input(2, "Y"))};
}

}  // namespace

void add_compare_ops(OpTable& table) {
  table.add({.name = "Equal", .evaluate = compare<eq>});
  table.add({.name = "Greater", .evaluate = compare<gt>});
  table.add({.name = "GreaterOrEqual", .evaluate = compare<ge>});
  table.add({.name = "Less", .evaluate = compare<lt>});
  table.add({.name = "LessOrEqual", .evaluate = compare<le>});
  table.add({.name = "And", .evaluate = logic<bitwise_and>});
  table.add({.name = "Or", .evaluate = logic<bitwise_or>});
  table.add({.name = "Xor", .evaluate = logic<bitwise_xor>});
  table.add({.name = "Not", .evaluate = not_of});
  table.add({.name = "IsNaN", .evaluate = is_nan});
  table.add({.name = "IsInf", .evaluate = is_inf});
  table.add({.name = "Where", .evaluate = choose, .widens = false});
}

}  // namespace quanta::graph
