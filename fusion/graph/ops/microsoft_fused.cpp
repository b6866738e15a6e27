#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/quantized_call.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"

// Operators of floats that ONNX Runtime's optimiser writes: several of ONNX in one.

namespace quanta::graph {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

Tensor run_one(const NodeCall& call, std::string_view op, std::vector<Tensor> inputs,
               OnnxAttributes attributes = {}) {
  return call_operator(call, op, inputs, std::move(attributes))[0];
}

/// The function that FusedConv and FusedGemm name; its parameters stand in `parameters`.
Tensor activated(const NodeCall& call, const Tensor& x, const std::vector<double>& parameters) {
  const std::string name = call.text("activation", "");
  const auto parameter = [&](std::size_t i, double otherwise) {
    return i < parameters.size() ? parameters[i] : otherwise;
  };
  if (name.empty()) return x;
  if (name == "Relu" || name == "Sigmoid" || name == "Tanh") return run_one(call, name, {x});
  if (name == "LeakyRelu") {
    return run_one(call, name, {x}, {{"alpha", static_cast<float>(parameter(0, 0.01))}});
  }
  if (name == "Clip") return clamp(x, parameter(0, -3.4e38), parameter(1, 3.4e38));
  if (name == "HardSigmoid") {
    return run_one(call, name, {x},
                   {{"alpha", static_cast<float>(parameter(0, 0.2))},
                    {"beta", static_cast<float>(parameter(1, 0.5))}});
  }
  call.unsupported("activation " + name);
}

Outputs evaluate_conv(const NodeCall& call) {
  Tensor y = run_one(call, "Conv", {call.input(0, "X"), call.input(1, "W"), call.optional(2)},
                     attributes_without(call, {"activation", "activation_params"}));
  if (call.has(3)) y = add(y, call.input(3, "Z"));
  return {activated(call, y, call.number_list("activation_params", {}))};
}

Outputs evaluate_gemm(const NodeCall& call) {
  const Tensor y = run_one(call, "Gemm", {call.input(0, "A"), call.input(1, "B"), call.optional(2)},
                           attributes_without(call, {"activation", "activation_alpha",
                                                     "activation_beta", "activation_gamma"}));
  std::vector<double> parameters;
  if (call.has_attribute("activation_alpha")) {
    parameters = {call.number("activation_alpha"), call.number("activation_beta", 0.5)};
  }
  return {activated(call, y, parameters)};
}

/// Dimension 0 goes behind those of the batch, then the last two change places; vectors are what
/// they are.
Tensor turned(const Tensor& x, bool batch, bool matrix) {
  if (x.dim() < 2) return x;
  Tensor result = x;
  for (std::int64_t d = 0; batch && d + 2 < x.dim(); ++d) result = result.transpose(d, d + 1);
  return matrix ? result.transpose(-1, -2) : result;
}

Outputs evaluate_matmul(const NodeCall& call) {
  const Tensor a =
      turned(call.input(0, "A"), call.flag("transBatchA", false), call.flag("transA", false));
  const Tensor b =
      turned(call.input(1, "B"), call.flag("transBatchB", false), call.flag("transB", false));
  return {mul_scalar(run_one(call, "MatMul", {a, b}), call.number("alpha", 1.0))};
}

Outputs evaluate_gelu(const NodeCall& call) {
  return {run_one(call, "Gelu", {call.input(0, "X")})};
}
Outputs evaluate_bias_gelu(const NodeCall& call) {
  return {run_one(call, "Gelu", {add(call.input(0, "A"), call.input(1, "B"))})};
}
Outputs evaluate_fast_gelu(const NodeCall& call) {
  Tensor x = call.input(0, "X");
  if (call.has(1)) x = add(x, call.input(1, "bias"));
  return {run_one(call, "Gelu", {x}, {{"approximate", std::string("tanh")}})};
}
Outputs evaluate_quick_gelu(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  return {mul(x, sigmoid(mul_scalar(x, call.number("alpha", 1.702))))};
}

/// x + skip + bias, and what is normalised of it.
Tensor skipped(const NodeCall& call, std::size_t bias) {
  Tensor sum = add(call.input(0, "input"), call.input(1, "skip"));
  if (call.has(bias)) sum = add(sum, call.input(bias, "bias"));
  return sum;
}

Outputs evaluate_skip_norm(const NodeCall& call) {
  const Tensor sum = skipped(call, 4);
  if (call.wants(1) || call.wants(2)) call.unsupported("results mean and inv_std_var");
  Outputs results(call.output_count());
  results[0] = run_one(
      call, "LayerNormalization", {sum, call.input(2, "gamma"), call.optional(3)},
      {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(call.number("epsilon", 1e-12))}});
  if (call.wants(3)) results[3] = sum;
  return results;
}

/// The scale alone, by the root of the mean of squares over the last dimension.
Tensor root_mean_square_norm(const NodeCall& call, const Tensor& x, const Tensor& scale,
                             double epsilon) {
  const Tensor axes = Tensor::from_int64(std::vector<std::int64_t>{-1});
  const Tensor mean = run_one(call, "ReduceMean", {mul(x, x), axes});
  return mul(div(x, run_one(call, "Sqrt", {add_scalar(mean, epsilon)})), scale);
}

Outputs evaluate_simplified_norm(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const std::int64_t axis = call.integer("axis", -1);
  if (axis != -1 && axis != x.dim() - 1) call.unsupported("an axis other than the last");
  if (call.wants(1)) call.unsupported("result inv_std_var");
  return {root_mean_square_norm(call, x, call.input(1, "scale"), call.number("epsilon", 1e-5))};
}

Outputs evaluate_skip_simplified_norm(const NodeCall& call) {
  const Tensor sum = skipped(call, 3);
  if (call.wants(1) || call.wants(2)) call.unsupported("results mean and inv_std_var");
  Outputs results(call.output_count());
  results[0] =
      root_mean_square_norm(call, sum, call.input(2, "gamma"), call.number("epsilon", 1e-12));
  if (call.wants(3)) results[3] = sum;
  return results;
}

/// ONNX Runtime writes LayerNormalization before ONNX has it.
Outputs evaluate_early_norm(const NodeCall& call) {
  if (call.wants(1) || call.wants(2)) call.unsupported("results Mean and InvStdDev");
  return {run_one(call, "LayerNormalization",
                  {call.input(0, "X"), call.input(1, "Scale"), call.optional(2)},
                  call.node().attributes)};
}

}  // namespace

void add_microsoft_fused_ops(OpTable& table) {
  const auto row = [&](std::string_view name, Outputs (*evaluate)(const NodeCall&)) {
    table.add({.name = name, .evaluate = evaluate, .domain = kDomain});
  };
  row("BiasGelu", evaluate_bias_gelu);
  row("FastGelu", evaluate_fast_gelu);
  row("FusedConv", evaluate_conv);
  row("FusedGemm", evaluate_gemm);
  row("FusedMatMul", evaluate_matmul);
  row("Gelu", evaluate_gelu);
  row("QuickGelu", evaluate_quick_gelu);
  row("SkipLayerNormalization", evaluate_skip_norm);
  row("SkipSimplifiedLayerNormalization", evaluate_skip_simplified_norm);
  table.add(
      {.name = "LayerNormalization", .evaluate = evaluate_early_norm, .since = 1, .last = 16});
  table.add({.name = "SimplifiedLayerNormalization", .evaluate = evaluate_simplified_norm});
}

}  // namespace quanta::graph
