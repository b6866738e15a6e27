#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/quantized_call.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/integer.h"
#include "quanta/ops/quantize_linear.h"

// Products of codes: exact sums in Int32, then one float multiplier.

namespace quanta::graph {
namespace {

/// Codes of sums, under the scale and zero point of inputs `i` and i + 1: round(sum * multiplier)
/// and the zero point.
Tensor requantized(const NodeCall& call, const Tensor& sums, const Tensor& scale, std::size_t i) {
  const Tensor multiplier = div(scale, call.input(i, "y_scale").to(DType::Float32).reshape({}));
  const Tensor zero_point = call.optional(i + 1);
  const DType dtype = zero_point.defined() ? zero_point.dtype() : DType::UInt8;
  return quantize_linear(mul(sums.to(DType::Float32), multiplier), Tensor::ones({}),
                         zero_point.defined() ? zero_point.reshape({}) : zero_point,
                         {.dtype = dtype});
}

Outputs evaluate_conv(const NodeCall& call) {
  const Tensor& x = call.input(0, "x");
  const Tensor& weight = call.input(3, "w");
  Tensor sums = conv_integer(x, weight, call.optional(2), call.optional(5),
                             conv_integer_options(call, x, weight));
  if (call.has(8)) sums = add(sums, along(call.input(8, "B"), 1, x.dim()));
  const Tensor scale = mul(call.input(1, "x_scale").to(DType::Float32).reshape({}),
                           along(call.input(4, "w_scale").to(DType::Float32), 1, x.dim()));
  return {requantized(call, sums, scale, 6)};
}

Outputs evaluate_matmul(const NodeCall& call) {
  const Tensor& a = call.input(0, "a");
  const Tensor& b = call.input(3, "b");
  const Tensor sums = matmul_integer(a, b, call.optional(2), call.optional(5));
  const std::int64_t rank = sums.dim();
  const Tensor scale = mul(along(call.input(1, "a_scale").to(DType::Float32), rank - 2, rank),
                           along(call.input(4, "b_scale").to(DType::Float32), rank - 1, rank));
  return {requantized(call, sums, scale, 6)};
}

Outputs evaluate_matmul_integer(const NodeCall& call) {
  return {
      matmul_integer(call.input(0, "A"), call.input(1, "B"), call.optional(2), call.optional(3))};
}

Outputs evaluate_conv_integer(const NodeCall& call) {
  const Tensor& x = call.input(0, "x");
  const Tensor& weight = call.input(1, "w");
  return {conv_integer(x, weight, call.optional(2), call.optional(3),
                       conv_integer_options(call, x, weight))};
}

}  // namespace

void add_qlinear_ops(OpTable& table) {
  table.add({.name = "ConvInteger", .evaluate = evaluate_conv_integer, .since = 10});
  table.add({.name = "MatMulInteger", .evaluate = evaluate_matmul_integer, .since = 10});
  table.add(
      {.name = "QLinearConv", .evaluate = evaluate_conv, .rule = CodeRule::Layer, .since = 10});
  table.add(
      {.name = "QLinearMatMul", .evaluate = evaluate_matmul, .rule = CodeRule::Layer, .since = 10});
}

}  // namespace quanta::graph
