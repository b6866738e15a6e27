#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inspect.h"
#include "onnx_inputs.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/onnx_file.h"

namespace quanta::cli {
namespace {

using Counts = std::map<std::string, std::size_t>;

/// What stands in a file's graphs, those within nodes and the bodies of functions included.
struct Contents {
  Counts ops;
  std::size_t nodes = 0;
  std::size_t inner_graphs = 0;
  std::size_t parameters = 0;
  std::size_t parameter_bytes = 0;
  Counts parameter_types;  ///< tensors of each type
  std::size_t per_channel = 0;

  void add(const OnnxGraph& graph) {
    for (const OnnxTensor& tensor : graph.initializers) add(tensor);
    add(graph.nodes);
    for (const OnnxNode& node : graph.nodes) {
      if (node.op_type == "DequantizeLinear") per_channel += is_per_channel(node, graph) ? 1 : 0;
    }
  }
  void add(const std::vector<OnnxNode>& list) {
    nodes += list.size();
    for (const OnnxNode& node : list) {
      ++ops[node.domain.empty() ? node.op_type : node.domain + "." + node.op_type];
      for (const auto& [name, value] : node.attributes) {
        if (const auto* inner = std::get_if<std::shared_ptr<const OnnxGraph>>(&value)) {
          ++inner_graphs;
          add(**inner);
        } else if (const auto* tensor = std::get_if<OnnxTensor>(&value)) {
          add(*tensor);
        }
      }
    }
  }

 private:
  void add(const OnnxTensor& tensor) {
    ++parameter_types[to_string(tensor.type)];
    if (!tensor.value.defined()) return;
    parameters += static_cast<std::size_t>(tensor.value.numel());
    parameter_bytes += tensor.value.nbytes();
  }
  static bool is_per_channel(const OnnxNode& node, const OnnxGraph& graph) {
    return node.inputs.size() > 1 &&
           std::any_of(graph.initializers.begin(), graph.initializers.end(),
                       [&](const OnnxTensor& tensor) {
                         return tensor.name == node.inputs[1] && tensor.value.defined() &&
                                tensor.value.numel() > 1;
                       });
  }
};

std::size_t count_of(const Counts& counts, const char* name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

/// In columns, the most frequent first.
void print_counts(const Counts& counts) {
  std::vector<std::pair<std::string, std::size_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr std::size_t kColumns = 3;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const bool ends = i % kColumns == kColumns - 1 || i + 1 == sorted.size();
    fmt::print("  {:>5}  {:<{}}{}", sorted[i].second, sorted[i].first, ends ? 0 : 26,
               ends ? "\n" : "");
  }
}

void print_values(const char* title, const std::vector<OnnxValue>& values) {
  fmt::print("{}:\n", title);
  for (const OnnxValue& value : values) {
    fmt::print("  {:<32} {}\n", value.name, declared_text(value));
  }
}

/// How the file says that it is quantized: a line for each way.
void print_quantization(const Contents& contents) {
  const auto& ops = contents.ops;
  const std::size_t quantize = count_of(ops, "QuantizeLinear");
  const std::size_t dequantize = count_of(ops, "DequantizeLinear");
  std::vector<std::string> ways;
  if (quantize + dequantize > 0) {
    ways.push_back(
        fmt::format("QDQ: {} QuantizeLinear, {} DequantizeLinear ({} of them of weights "
                    "with a scale for each channel or block)",
                    quantize, dequantize, contents.per_channel));
  }
  std::size_t qoperators = 0;
  std::size_t dynamic = 0;
  std::size_t weight_only = 0;
  for (const auto& [op, count] : ops) {
    const std::string name = op.substr(op.rfind('.') + 1);
    if (name.starts_with("QLinear") || name == "QGemm") qoperators += count;
    if (name.starts_with("Dynamic") || name.ends_with("Integer")) dynamic += count;
    if (name == "MatMulNBits") weight_only += count;
  }
  if (qoperators > 0) ways.push_back(fmt::format("QOperator: {} QLinear nodes", qoperators));
  if (dynamic > 0)
    ways.push_back(fmt::format("dynamic: {} nodes that quantize as they run", dynamic));
  if (weight_only > 0) ways.push_back(fmt::format("weight-only: {} MatMulNBits", weight_only));
  if (ways.empty()) ways.emplace_back("not at all");
  fmt::print("quantized: {}\n", fmt::join(ways, "; "));
}

void print_file(const OnnxModel& file) {
  std::vector<std::string> opsets;
  for (const auto& [domain, version] : file.opsets) {
    opsets.push_back(fmt::format("{} {}", domain.empty() ? "opset" : domain, version));
  }
  fmt::print("{}, IR {}, by {}\n", fmt::join(opsets, ", "), file.ir_version,
             file.producer_name.empty()
                 ? "nobody who says so"
                 : fmt::format("{} {}", file.producer_name, file.producer_version));
  for (const auto& [key, value] : file.metadata) {
    std::string text = value.size() > 60 ? value.substr(0, 57) + "..." : value;
    std::replace(text.begin(), text.end(), '\n', ' ');
    fmt::print("# {}: {}\n", key, text);
  }
}

/// What each node is run by, once the graph is made ready.
void print_model(const graph::Model& net) {
  std::map<std::string, std::string> types;
  for (const auto& child : net.named_children()) types[child.name] = child.module->type_name();
  Counts runs;
  for (const graph::Node& node : net.graph().nodes) {
    if (!node.module.empty()) {
      ++runs[types[node.module]];
    } else {
      ++runs[node.operation != nullptr ? std::string(node.operation->name()) : node.op];
    }
  }
  fmt::print("runs as ({} nodes after folding, {} layers):\n", net.graph().nodes.size(),
             net.named_children().size());
  print_counts(runs);
  bool first = true;
  for (const graph::Node& node : net.graph().nodes) {
    if (node.float_reason.empty()) continue;
    if (first) fmt::print("in float although there are codes around:\n");
    first = false;
    fmt::print("  {:<32} {:<16} {}\n", node.name, node.op, node.float_reason);
  }
}

void print_sizes(const graph::Model& net, const std::vector<OnnxValue>& inputs,
                 const SizesByName& sizes) {
  std::vector<Tensor> zeros;
  for (const std::string& name : net.input_names()) {
    const auto input = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const OnnxValue& value) { return value.name == name; });
    zeros.push_back(zero_input(*input, sizes));
  }
  std::map<graph::ValueId, std::string> seen;
  static_cast<void>(net.run(zeros, [&](graph::ValueId id, const Tensor& value) {
    if (value.defined()) {
      seen[id] = fmt::format("{} {}", torch_name(value.dtype()), to_string(value.sizes()));
    }
  }));
  fmt::print("results, from inputs of zeros:\n");
  for (const graph::Node& node : net.graph().nodes) {
    std::vector<std::string> results;
    for (const graph::ValueId id : node.outputs) {
      if (const auto found = seen.find(id); found != seen.end()) results.push_back(found->second);
    }
    fmt::print("  {:<20} {:<40} {}\n", node.op, node.name, fmt::join(results, "; "));
  }
}

}  // namespace

int inspect_onnx(const InspectOptions& options) {
  const OnnxModel file = read_onnx(options.path);
  print_file(file);
  const graph::NamedTensors constants = read_constants(options.constants, file);
  const std::vector<OnnxValue> inputs = free_inputs(file, constants);
  print_values("inputs", inputs);
  print_values("outputs", file.graph.outputs);

  Contents contents;
  contents.add(file.graph);
  for (const OnnxFunction& function : file.functions) contents.add(function.nodes);
  fmt::print("operators ({} nodes, {} graphs within nodes, {} functions):\n", contents.nodes,
             contents.inner_graphs, file.functions.size());
  print_counts(contents.ops);
  std::vector<std::string> types;
  for (const auto& [type, count] : contents.parameter_types) {
    types.push_back(fmt::format("{} {}", count, type));
  }
  fmt::print("parameters: {} in {} bytes ({} tensors)\n", contents.parameters,
             contents.parameter_bytes,
             types.empty() ? "no" : fmt::format("{}", fmt::join(types, ", ")));
  print_quantization(contents);

  const SizesByName sizes = read_sizes(options.sizes, inputs);
  std::optional<graph::Model> net;
  try {
    net.emplace(graph::from_onnx(file, {.constants = constants}));
  } catch (const UnsupportedError& error) {
    fmt::print("cannot run: {}\n", error.what());
    return 1;
  }
  print_model(*net);
  if (!options.sizes.empty()) print_sizes(*net, inputs, sizes);
  return 0;
}

}  // namespace quanta::cli
