// Gemm, MatMul, Einsum and Det.

#include "quanta/ops/matmul.h"

#include <cmath>
#include <limits>
#include <memory>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/skip_init.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

// `factor` is a float attribute.
Tensor scaled(const NodeCall& call, const Tensor& x, std::string_view name, double factor) {
  if (factor == 1.0) return x;
  if (x.is_floating_point()) return mul_scalar(x, factor);
  if (factor != std::floor(factor) || std::abs(factor) > std::numeric_limits<std::int32_t>::max()) {
    call.unsupported(
        fmt::format("attribute {}: expected an integer for {}, got {}", name, x.dtype(), factor));
  }
  return mul(x, Tensor::scalar(factor, x.dtype()));
}

Outputs evaluate_gemm(const NodeCall& call) {
  const auto matrix = [&](std::size_t i, std::string_view name, std::string_view transposed) {
    const Tensor& x = call.input(i, name);
    if (x.dim() != 2) {
      call.fail(
          fmt::format("input {} ({}): expected 2 dimensions, got sizes {}", i, name, x.sizes()));
    }
    return call.flag(transposed, false) ? x.t() : x;
  };
  const Tensor lhs = matrix(0, "A", "transA");
  const Tensor rhs = matrix(1, "B", "transB");
  Tensor result = scaled(call, matmul(lhs, rhs), "alpha", call.number("alpha", 1.0));
  if (call.has(2)) {
    // Before opset 7 it broadcasts only if an attribute says so, in the same way.
    const Tensor bias = scaled(call, call.optional(2), "beta", call.number("beta", 1.0));
    const Dims sizes = result.sizes();
    result = add(result, bias);
    if (result.sizes() != sizes) {
      call.fail(fmt::format("input 2 (C): expected sizes that broadcast to {}, got {}", sizes,
                            bias.sizes()));
    }
  }
  return {result};
}

bool is_float_matrix(const Tensor& x) {
  return x.defined() && x.dtype() == DType::Float32 && x.dim() == 2 && x.numel() > 0;
}

/// `weight` is [out, in].
std::shared_ptr<nn::Module> linear_layer(const Tensor& weight, const Tensor& bias) {
  const nn::SkipInit no_random_weights;
  auto layer = nn::make_module<nn::Linear>(
      nn::LinearOptions{weight.size(1), weight.size(0), bias.defined()});
  layer->weight = weight;
  layer->bias = bias;
  layer->eval();
  return layer;
}

std::shared_ptr<nn::Module> make_gemm(const NodeCall& constants) {
  Tensor weight = constants.optional(1);
  if (!is_float_matrix(weight) || constants.flag("transA", false)) return nullptr;
  // Factors go into the constants, which then are copies.
  const double alpha = constants.number("alpha", 1.0);
  if (!constants.flag("transB", false)) weight = weight.t().contiguous();
  if (alpha != 1.0) weight = mul_scalar(weight, alpha);
  const bool has_bias = constants.node().inputs.size() > 2 && constants.node().inputs[2] != kNone;
  if (!has_bias) return linear_layer(weight, {});
  Tensor bias = constants.optional(2);
  const std::int64_t columns = weight.size(0);
  const bool is_row =
      bias.defined() && bias.dtype() == DType::Float32 && bias.dim() <= 2 &&
      (bias.numel() == 1 || (bias.numel() == columns && bias.sizes().back() == columns));
  if (!is_row) return nullptr;
  bias = bias.numel() == columns ? bias.reshape({columns})
                                 : bias.reshape({1}).expand({columns}).contiguous();
  const double beta = constants.number("beta", 1.0);
  return linear_layer(weight, beta == 1.0 ? bias : mul_scalar(bias, beta));
}

std::shared_ptr<nn::Module> make_matmul(const NodeCall& constants) {
  const Tensor weight = constants.optional(1);
  if (!is_float_matrix(weight)) return nullptr;
  return linear_layer(weight.t().contiguous(), {});
}

Outputs evaluate_matmul(const NodeCall& call) {
  return {matmul(call.input(0, "A"), call.input(1, "B"))};
}

Outputs evaluate_det(const NodeCall& call) { return {det(call.input(0, "X"))}; }

Outputs evaluate_einsum(const NodeCall& call) {
  return {einsum(call.text("equation", ""), call.inputs())};
}

}  // namespace

void add_matmul_ops(OpTable& table) {
  table.add({.name = "Gemm",
             .evaluate = evaluate_gemm,
             .rule = CodeRule::Layer,
             .make_module = make_gemm});
  table.add({.name = "MatMul",
             .evaluate = evaluate_matmul,
             .rule = CodeRule::Layer,
             .make_module = make_matmul});
  table.add({.name = "Det", .evaluate = evaluate_det});
  table.add({.name = "Einsum", .evaluate = evaluate_einsum});
}

}  // namespace quanta::graph
