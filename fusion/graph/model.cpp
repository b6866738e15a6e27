#include "quanta/fusion/graph/model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_metadata.h"
#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// The file's graph is in graph_; what is left of it is small.
std::shared_ptr<const OnnxModel> without_graph(const OnnxModel& model) {
  OnnxModel rest;
  rest.ir_version = model.ir_version;
  rest.producer_name = model.producer_name;
  rest.producer_version = model.producer_version;
  rest.opsets = model.opsets;
  rest.metadata = model.metadata;
  rest.graph.name = model.graph.name;
  return std::make_shared<const OnnxModel>(std::move(rest));
}

void check_input(const Value& value, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "graph::Model: input '{}': expected a tensor, got none", value.name);
  if (value.type == OnnxType::Undefined) return;
  const std::optional<DType> wanted = dtype_of(value.type);
  QUANTA_CHECK(wanted && x.dtype() == *wanted, "graph::Model: input '{}': expected {}, got {}",
               value.name, wanted ? std::string(to_string(*wanted)) : to_string(value.type),
               x.dtype());
}

}  // namespace

Model::Model(Graph graph, std::vector<NamedChild> children)
    : graph_(std::make_shared<const Graph>(std::move(graph))),
      file_(std::make_shared<const OnnxModel>()) {
  std::map<std::string, std::ptrdiff_t> positions;
  for (NamedChild& child : children) {
    positions[child.name] = static_cast<std::ptrdiff_t>(positions.size());
    add_module(child.name, std::move(child.module));
  }
  std::vector<std::ptrdiff_t> of_nodes;
  for (const Node& node : graph_->nodes) {
    const auto found = positions.find(node.module);
    QUANTA_CHECK(node.module.empty() || found != positions.end(),
                 "graph::Model: node '{}': expected a child module '{}', got none", node.name,
                 node.module);
    of_nodes.push_back(node.module.empty() ? -1 : found->second);
  }
  children_of_nodes_ = std::make_shared<const std::vector<std::ptrdiff_t>>(std::move(of_nodes));
  eval();
}

void Model::check_inputs(std::span<const Tensor> inputs) const {
  QUANTA_CHECK(inputs.size() == graph_->inputs.size(),
               "graph::Model: inputs: expected {} ({}), got {}", graph_->inputs.size(),
               fmt::join(input_names(), ", "), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_input(graph_->values[static_cast<std::size_t>(graph_->inputs[i])], inputs[i]);
  }
}

std::vector<const nn::Module*> Model::node_modules() const {
  std::vector<const nn::Module*> modules(children_of_nodes_->size(), nullptr);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const std::ptrdiff_t child = (*children_of_nodes_)[i];
    if (child >= 0) modules[i] = child_at(static_cast<std::size_t>(child)).get();
  }
  return modules;
}

std::vector<Tensor> Model::run(std::span<const Tensor> inputs, const Watch& watch) const {
  check_inputs(inputs);
  const AllocationLimit limit(default_allocation_limit());
  return run_graph(*graph_, inputs, node_modules(), watch);
}

std::vector<Tensor> Model::run(std::span<const Tensor> inputs) const { return run(inputs, {}); }

std::vector<Tensor> Model::in_order(const NamedTensors& inputs) const {
  const std::vector<std::string> names = input_names();
  std::vector<Tensor> ordered;
  for (const std::string& name : names) {
    const auto found = inputs.find(name);
    QUANTA_CHECK(found != inputs.end(), "graph::Model: inputs: expected {}, '{}' is missing",
                 fmt::join(names, ", "), name);
    ordered.push_back(found->second);
  }
  for (const auto& [name, tensor] : inputs) {
    QUANTA_CHECK(std::find(names.begin(), names.end(), name) != names.end(),
                 "graph::Model: inputs: expected {}, got '{}'", fmt::join(names, ", "), name);
  }
  return ordered;
}

NamedTensors Model::name_results(std::span<const Tensor> results) const {
  const std::vector<std::string> names = output_names();
  NamedTensors named;
  for (std::size_t i = 0; i < names.size(); ++i) named[names[i]] = results[i];
  return named;
}

NamedTensors Model::run(const NamedTensors& inputs) const {
  return name_results(run(in_order(inputs)));
}

Tensor Model::forward(const Tensor& x) const {
  QUANTA_CHECK(graph_->inputs.size() == 1 && graph_->outputs.size() == 1,
               "graph::Model: forward: expected a graph with one input and one output, got {} ({}) "
               "and {} ({}): use run",
               graph_->inputs.size(), fmt::join(input_names(), ", "), graph_->outputs.size(),
               fmt::join(output_names(), ", "));
  return run(std::span<const Tensor>(&x, 1)).front();
}

std::vector<std::string> Model::input_names() const {
  std::vector<std::string> names;
  for (const ValueId id : graph_->inputs) {
    names.push_back(graph_->values[static_cast<std::size_t>(id)].name);
  }
  return names;
}

std::vector<std::string> Model::output_names() const {
  std::vector<std::string> names;
  for (const ValueId id : graph_->outputs) {
    names.push_back(graph_->values[static_cast<std::size_t>(id)].name);
  }
  return names;
}

Model from_onnx(const OnnxModel& model, const LoadOptions& options) {
  const AllocationLimit limit(options.max_bytes == 0 ? default_allocation_limit()
                                                     : options.max_bytes);
  Graph graph = import_graph(model);
  check_scales(graph);
  bind_constants(graph, options.constants);
  std::vector<nn::Module::NamedChild> children;
  if (!options.literal) {
    restore_biases(graph, model.metadata);
    restore_layers(graph, model.metadata, children);
  }
  fold_constants(graph, options.literal ? Fold::All : Fold::AllButCodes);
  drop_identity(graph);
  if (!options.literal) {
    widen_layers(graph);
    // A norm may stand behind a shift, and the reverse.
    while (fold_scales(graph) || fold_batch_norm(graph)) {
    }
    fuse_activations(graph);
    lower_quantized(graph, children, detail::has_torch_arithmetic(model.metadata));
  }
  for (nn::Module::NamedChild& child : make_modules(graph, children)) {
    children.push_back(std::move(child));
  }
  detail::Parts parts{std::move(graph), std::move(children), without_graph(model)};
  if (!options.literal) detail::fold_linear_scales(parts);
  return detail::put_together(std::move(parts));
}

Model load_onnx(const std::filesystem::path& path, const LoadOptions& options) {
  const OnnxModel file = read_onnx(path, options.limits, options.access);
  try {
    return from_onnx(file, options);
  } catch (const FileError& error) {
    throw FileError(fmt::format("{}: {}", path.string(), error.what()));
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace quanta::graph
