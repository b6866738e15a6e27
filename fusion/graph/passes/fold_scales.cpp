#include <algorithm>
#include <optional>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/arithmetic.h"

namespace quanta::graph {
namespace {

/// A convolution with constant float parameters.
struct ConvParts {
  Tensor weight;
  Tensor bias;  ///< undefined where it has none
  std::int64_t groups = 1;
  bool transposed = false;

  std::int64_t channels() const { return transposed ? weight.size(1) * groups : weight.size(0); }
};

std::optional<ConvParts> conv_parts(const Graph& graph, const Node& node) {
  const bool transposed = is_op(node, "ConvTranspose");
  if (!transposed && !is_op(node, "Conv")) return {};
  const auto floats = [&](std::size_t i) {
    const Tensor constant = constant_input(graph, node, i);
    return constant.defined() && constant.dtype() == DType::Float32 ? constant : Tensor();
  };
  ConvParts parts{.weight = floats(1), .bias = {}, .transposed = transposed};
  parts.groups = integer_attribute(node, "group", 1);
  const bool has_bias = input_of(node, 2) != kNone;
  if (has_bias) parts.bias = floats(2);
  if (!parts.weight.defined() || parts.weight.dim() < 3 || parts.groups < 1 ||
      parts.groups > parts.weight.size(0) || (has_bias && !parts.bias.defined())) {
    return {};
  }
  if (parts.bias.defined() && parts.bias.numel() != parts.channels()) return {};
  return parts;
}

/// Constants that are one number, or one for each channel of a result of `rank` dimensions, as
/// [channels]. Undefined for others.
Tensor of_channels(const Graph& graph, ValueId id, std::int64_t channels, std::int64_t rank) {
  if (id == kNone) return {};
  const Tensor& constant = graph.values[index_of(id)].constant;
  if (!constant.defined() || constant.dtype() != DType::Float32 || constant.dim() > rank) return {};
  if (constant.numel() == 1) return constant.reshape({1}).expand({channels}).contiguous();
  const std::int64_t axis = constant.dim() - (rank - 1);
  const bool fits = axis >= 0 && constant.size(axis) == channels && constant.numel() == channels;
  return fits ? constant.reshape({channels}) : Tensor();
}

/// The weight with each output channel times its factor.
Tensor scaled(const ConvParts& parts, const Tensor& factors) {
  Dims sizes{parts.weight.size(0), 1};
  if (!parts.transposed) {
    while (sizes.size() < parts.weight.sizes().size()) sizes.push_back(1);
    return mul(parts.weight, factors.reshape(sizes));
  }
  // [in, out / groups, ...]: the inputs of a group make its outputs.
  Dims split{parts.groups, parts.weight.size(0) / parts.groups};
  sizes = {parts.groups, 1, parts.weight.size(1)};
  for (std::int64_t d = 1; d < parts.weight.dim(); ++d) split.push_back(parts.weight.size(d));
  while (sizes.size() < split.size()) sizes.push_back(1);
  return mul(parts.weight.reshape(split), factors.reshape(sizes)).reshape(parts.weight.sizes());
}

/// What a node does to each channel: y = x * factor, or y = x + shift.
struct Step {
  Tensor factors, shifts;
};

std::optional<Step> step_of(const Graph& graph, const Node& node, ValueId x,
                            const ConvParts& parts) {
  if (node.inputs.size() != 2 || node.outputs.size() != 1) return {};
  const bool first = node.inputs[0] == x;
  const Tensor numbers =
      of_channels(graph, node.inputs[first ? 1 : 0], parts.channels(), parts.weight.dim());
  if (!numbers.defined()) return {};
  if (is_op(node, "Mul")) return Step{numbers, {}};
  if (is_op(node, "Add")) return Step{{}, numbers};
  if (!first) return {};
  if (is_op(node, "Div")) return Step{div(Tensor::ones(numbers.sizes()), numbers), {}};
  if (is_op(node, "Sub")) return Step{{}, mul(numbers, Tensor::scalar(-1.0))};
  return {};
}

void apply(Graph& graph, Node& conv, ConvParts parts, const Step& step) {
  const std::string base = graph.values[index_of(conv.inputs[1])].name;
  if (step.factors.defined()) {
    parts.weight = scaled(parts, step.factors);
    conv.inputs[1] =
        graph.add_constant(graph.unique_value_name(base + "_scaled"), parts.weight.contiguous());
    if (parts.bias.defined()) parts.bias = mul(parts.bias, step.factors);
  } else {
    parts.bias = parts.bias.defined() ? add(parts.bias, step.shifts) : step.shifts;
  }
  if (!parts.bias.defined()) return;
  conv.inputs.resize(3, kNone);
  conv.inputs[2] = graph.add_constant(graph.unique_value_name(base + "_shifted"), parts.bias);
}

}  // namespace

bool fold_scales(Graph& graph) {
  const Uses uses(graph);
  bool changed = false;
  for (Node& conv : graph.nodes) {
    if (conv.outputs.size() != 1 || conv.outputs[0] == kNone) continue;
    std::optional<ConvParts> parts = conv_parts(graph, conv);
    while (parts && uses.used_once(conv.outputs[0])) {
      Node& next = graph.nodes[index_of(uses.users(conv.outputs[0]).front())];
      const std::optional<Step> step = step_of(graph, next, conv.outputs[0], *parts);
      if (!step) break;
      apply(graph, conv, std::move(*parts), *step);
      conv.outputs[0] = next.outputs[0];
      next.outputs.clear();
      parts = conv_parts(graph, conv);
      changed = true;
    }
  }
  if (changed) {
    std::erase_if(graph.nodes, [](const Node& node) { return node.outputs.empty(); });
    erase_dead(graph);
  }
  return changed;
}

}  // namespace quanta::graph
