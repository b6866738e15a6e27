#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/run.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

bool is_narrow(const Tensor& x) {
  return x.defined() && (x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16);
}

/// Calls the row in Float32 where it has no kernels for 16-bit floats.
Outputs evaluate_widened(const OpRow& row, const Node& node, std::span<const Tensor> inputs,
                         std::span<const OnnxType> types) {
  const auto narrow = std::find_if(inputs.begin(), inputs.end(), is_narrow);
  if (!row.widens || narrow == inputs.end()) return row.evaluate(NodeCall(node, inputs, types));
  const DType dtype = narrow->dtype();
  std::vector<Tensor> wide(inputs.begin(), inputs.end());
  for (Tensor& x : wide) {
    if (is_narrow(x)) x = x.to(DType::Float32);
  }
  Outputs results = row.evaluate(NodeCall(node, wide, types));
  for (Tensor& y : results) {
    if (y.defined() && y.dtype() == DType::Float32) y = y.to(dtype);
  }
  return results;
}

Outputs call_node(const Node& node, const nn::Module* module, std::span<const Tensor> inputs,
                  std::span<const OnnxType> types) {
  if (module != nullptr) {
    if (node.row != nullptr && node.row->call_module != nullptr) {
      return node.row->call_module(*module, NodeCall(node, inputs, types));
    }
    return {(*module)(NodeCall(node, inputs, types).input(0, "X"))};
  }
  if (node.operation != nullptr) {
    const Results results = run_all(*node.operation, inputs);
    return {results.begin(), results.end()};
  }
  if (node.row == nullptr) {
    throw UnsupportedError(
        fmt::format("{} '{}': Quanta does not have this operator", node.op, node.name));
  }
  return evaluate_widened(*node.row, node, inputs, types);
}

std::string shown_sizes(std::span<const Tensor> inputs) {
  std::vector<std::string> texts;
  for (const Tensor& x : inputs) {
    texts.push_back(x.defined() ? fmt::format("{} [{}]", x.dtype(), fmt::join(x.sizes(), ", "))
                                : std::string("none"));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

Outputs run_node(const Node& node, const nn::Module* module, std::span<const Tensor> inputs,
                 std::span<const OnnxType> types) {
  const auto where = [&] {
    return fmt::format(" (in node '{}', {} of {})", node.name, node.op, shown_sizes(inputs));
  };
  try {
    Outputs results = call_node(node, module, inputs, types);
    if (results.size() < node.outputs.size()) results.resize(node.outputs.size());
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNone && !results[i].defined()) {
        throw UnsupportedError(fmt::format("{}: result {} is not calculated", node.op, i));
      }
    }
    return results;
  } catch (const ArgumentError& error) {
    throw ArgumentError(error.what() + where());
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(error.what() + where());
  } catch (const BackendError& error) {
    throw BackendError(error.what() + where());
  }
}

std::vector<Tensor> run_graph(const Graph& graph, std::span<const Tensor> inputs,
                              std::span<const nn::Module* const> modules, const Watch& watch) {
  if (inputs.size() != graph.inputs.size()) {
    throw ArgumentError(fmt::format("graph '{}': inputs: expected {}, got {}", graph.name,
                                    graph.inputs.size(), inputs.size()));
  }
  std::vector<Tensor> values(graph.values.size());
  std::vector<std::int32_t> uses(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.inputs) {
      if (id != kNone) ++uses[index_of(id)];
    }
  }
  for (const ValueId id : graph.outputs) ++uses[index_of(id)];
  for (std::size_t i = 0; i < graph.values.size(); ++i) values[i] = graph.values[i].constant;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values[index_of(graph.inputs[i])] = inputs[i];
    if (watch && inputs[i].defined()) watch(graph.inputs[i], inputs[i]);
  }
  std::vector<Tensor> given;
  std::vector<OnnxType> types;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    given.clear();
    types.clear();
    for (const ValueId id : node.inputs) {
      given.push_back(id == kNone ? Tensor() : values[index_of(id)]);
      types.push_back(id == kNone ? OnnxType::Undefined : graph.values[index_of(id)].type);
      if (id != kNone && --uses[index_of(id)] == 0) values[index_of(id)] = Tensor();
    }
    Outputs results = run_node(node, n < modules.size() ? modules[n] : nullptr, given, types);
    given.clear();
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == kNone) continue;
      if (watch) watch(id, results[i]);
      if (uses[index_of(id)] > 0) values[index_of(id)] = std::move(results[i]);
    }
  }
  std::vector<Tensor> results;
  for (const ValueId id : graph.outputs) results.push_back(values[index_of(id)]);
  return results;
}

}  // namespace quanta::graph
