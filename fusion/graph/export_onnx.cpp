#include "quanta/fusion/graph/export_onnx.h"

#include <algorithm>
#include <utility>

#include "quanta/fusion/graph/detail/added_nodes.h"
#include "quanta/fusion/graph/detail/onnx_metadata.h"
#include "quanta/fusion/graph/detail/onnx_versions.h"
#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// Where neither a file nor a node says it.
constexpr std::int64_t kUsualOpset = 17;

/// The opset of the operators that are there.
std::int64_t own_opset(const Model& model) {
  if (const auto found = detail::find_opset(model.file())) return *found;
  std::int64_t opset = 0;
  for (const Node& node : model.graph().nodes) {
    if (node.domain.empty()) opset = std::max(opset, node.opset);
  }
  return opset == 0 ? kUsualOpset : opset;
}

struct Written {
  detail::ExportState state;
  OnnxGraph graph;
};

Written write_graph(const Model& model, const ExportOptions& options, std::int64_t opset) {
  Written written;
  written.state.options = options;
  written.state.opset = opset;
  detail::GraphWriter writer(model.graph(), written.state, true);
  written.graph = writer.run(model.node_modules(), {}, model.graph().inputs.size());
  return written;
}

}  // namespace

OnnxModel to_onnx(const Model& model, const ExportOptions& options) {
  const std::int64_t own = own_opset(model);
  std::int64_t opset = options.opset.value_or(own);
  QUANTA_CHECK(opset >= 6 && opset <= detail::kNewestOpset,
               "to_onnx: opset: expected 6 to {}, got {}", detail::kNewestOpset, opset);
  const std::optional<DType>& precision = options.trt_high_precision_dtype;
  QUANTA_CHECK(!precision || *precision == DType::Float32 || *precision == DType::Float16 ||
                   *precision == DType::BFloat16,
               "to_onnx: trt_high_precision_dtype: expected Float32, Float16 or BFloat16, got {}",
               *precision);
  Written written = write_graph(model, options, opset);
  if (written.state.needed > opset) {
    if (options.opset) {
      throw UnsupportedError(fmt::format("to_onnx: opset: expected at least {} ({}), got {}",
                                         written.state.needed, written.state.needed_for, opset));
    }
    opset = written.state.needed;
    written = write_graph(model, options, opset);
  }
  if (!written.state.refused.empty()) {
    throw UnsupportedError(fmt::format("to_onnx: nodes that ONNX has no form for:\n  {}",
                                       fmt::join(written.state.refused, "\n  ")));
  }
  OnnxModel file;
  file.producer_name = "quanta";
  file.metadata = model.file().metadata;
  detail::erase_notes(file.metadata);
  file.metadata.insert(written.state.notes.begin(), written.state.notes.end());
  if (written.state.torch_arithmetic && !written.state.onnx_arithmetic) {
    file.metadata[detail::kArithmeticKey] = detail::kTorchArithmetic;
  }
  file.opsets[""] = opset;
  for (const auto& [domain, version] : written.state.domains) file.opsets[domain] = version;
  file.graph = std::move(written.graph);
  if (options.format == OnnxFormat::QOperator) detail::make_qoperators(file);
  if (options.target == OnnxTarget::TensorRT) detail::check_tensorrt(file);
  return file;
}

void save_onnx(const Model& model, const std::filesystem::path& path,
               const ExportOptions& options) {
  write_onnx(to_onnx(model, options), path, {.external_data_above = options.external_data_above});
}

OnnxModel to_onnx(const nn::Module& model, std::span<const Tensor> example,
                  const ExportOptions& options) {
  if (const auto* graph = dynamic_cast<const Model*>(&model)) return to_onnx(*graph, options);
  return to_onnx(trace(model, example, options.trace), options);
}

void save_onnx(const nn::Module& model, std::span<const Tensor> example,
               const std::filesystem::path& path, const ExportOptions& options) {
  write_onnx(to_onnx(model, example, options), path,
             {.external_data_above = options.external_data_above});
}

}  // namespace quanta::graph
