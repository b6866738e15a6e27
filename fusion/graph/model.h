#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/graph.h"
#include "quanta/fusion/graph/run.h"
#include "quanta/nn/module.h"
#include "quanta/runtime/onnx_file.h"

/// Networks that come as ONNX files. Functions throw FileError for what is wrong in a file,
/// UnsupportedError for operators that Quanta does not have, ArgumentError for wrong arguments.
/// A model that nobody changes may be called from many threads at once.
namespace quanta::graph {

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

struct LoadOptions {
  /// Inputs that are the same in every run, by name ({"sr", Tensor::scalar(16000, Int64)}): what
  /// depends on them alone is calculated once, and they are inputs no more.
  NamedTensors constants{};
  /// The file as it is written, QuantizeLinear and DequantizeLinear in float arithmetic: the truth
  /// that the int8 form is compared with.
  bool literal = false;
  /// What constants that the file asks to be calculated may take (a file of a few bytes may ask for
  /// terabytes); 0: half of the machine's memory.
  std::size_t max_bytes = 0;
  OnnxLimits limits{};
  /// Of load_onnx: whether weights are copied or point into the file.
  FileAccess access = FileAccess::Copy;
};

/// A graph as a module: nodes with weights are child modules, by the nodes' names, so that printing,
/// state_dict, hooks, QConfigs, the profiler and the swapping functions work on it as on a network
/// that was written as a class. Copies share constants.
class Model : public nn::Module {
 public:
  /// Nodes whose `module` names a child find it in `children`. Throws ArgumentError where one is
  /// missing.
  explicit Model(Graph graph, std::vector<NamedChild> children = {});

  /// For a graph with one input and one output; throws ArgumentError for another.
  Tensor forward(const Tensor& x) const override;
  /// All outputs by name. Throws ArgumentError for inputs that are missing, unknown or of another
  /// dtype; declared sizes are hints, others are tried.
  NamedTensors run(const NamedTensors& inputs) const;
  /// By position: as many as input_names().
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;

  /// Throws ArgumentError unless these are tensors of the dtypes that the graph declares.
  void check_inputs(std::span<const Tensor> inputs) const;
  /// By position what run takes by name; throws as run.
  std::vector<Tensor> in_order(const NamedTensors& inputs) const;
  NamedTensors name_results(std::span<const Tensor> results) const;
  /// The child module of each node of the graph, null where it has none.
  std::vector<const nn::Module*> node_modules() const;

  std::vector<std::string> input_names() const;
  std::vector<std::string> output_names() const;

  const Graph& graph() const noexcept { return *graph_; }
  /// All outputs by position; `watch` sees each value as it is made.
  std::vector<Tensor> run(std::span<const Tensor> inputs, const Watch& watch) const;
  /// From the file: producer, opsets, metadata.
  const OnnxModel& file() const noexcept { return *file_; }
  void set_file(std::shared_ptr<const OnnxModel> file) { file_ = std::move(file); }

  std::string type_name() const override { return "GraphModule"; }

 private:
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const OnnxModel> file_;  ///< without graph and functions
  /// For each node the position of its module among the children, or -1.
  std::shared_ptr<const std::vector<std::ptrdiff_t>> children_of_nodes_;
};

/// Reads a network. All operators that Quanta does not have are listed in one UnsupportedError, by
/// domain, name and version, before anything runs.
Model load_onnx(const std::filesystem::path& path, const LoadOptions& options = {});
/// The same of a model that was read already. Weights share its memory where they can: what is
/// written to them is written to `model` as well.
Model from_onnx(const OnnxModel& model, const LoadOptions& options = {});

/// The graph of a model as it stands in the file: functions inlined, nothing folded, no modules.
Graph import_graph(const OnnxModel& model);

}  // namespace quanta::graph
