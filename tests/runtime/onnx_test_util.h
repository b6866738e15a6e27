#pragma once

// ONNX files that no writer would write, message by message.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>
#include <vector>

#include "quanta/runtime/detail/onnx_fields.h"
#include "quanta/runtime/onnx_file.h"
#include "support/files.h"
#include "support/paths.h"

namespace quanta::test {

using Write = std::function<void(protozero::pbf_writer& writer)>;

inline std::string message(const Write& write) {
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  write(writer);
  return bytes;
}

/// A TensorProto of these sizes; `values` adds its values.
inline std::string tensor_message(
    OnnxType type, const std::vector<std::int64_t>& dims, const Write& values = [](auto&) {}) {
  return message([&](auto& writer) {
    for (const std::int64_t size : dims) writer.add_int64(detail::onnx_tensor::kDims, size);
    writer.add_int32(detail::onnx_tensor::kDataType, static_cast<std::int32_t>(type));
    writer.add_string(detail::onnx_tensor::kName, "t");
    values(writer);
  });
}

inline Write raw(std::string bytes) {
  return [bytes = std::move(bytes)](auto& writer) {
    writer.add_bytes(detail::onnx_tensor::kRawData, bytes);
  };
}

/// A ModelProto with this GraphProto.
inline std::string model_message(
    const std::string& graph, const Write& more = [](auto&) {}) {
  return message([&](auto& writer) {
    writer.add_int64(detail::onnx_model::kIrVersion, 8);
    writer.add_message(detail::onnx_model::kGraph, graph);
    writer.add_message(detail::onnx_model::kOpsetImport, message([](auto& opset) {
                         opset.add_int64(detail::onnx_opset::kVersion, 13);
                       }));
    more(writer);
  });
}

inline std::string model_with_tensor(const std::string& tensor) {
  return model_message(
      message([&](auto& graph) { graph.add_message(detail::onnx_graph::kInitializer, tensor); }));
}

/// A NodeProto "n" of this operator.
inline std::string node_message(const std::string& op, const std::vector<std::string>& inputs,
                                const std::vector<std::string>& outputs,
                                const std::vector<std::string>& attributes = {}) {
  return message([&](auto& writer) {
    for (const std::string& name : inputs) writer.add_string(detail::onnx_node::kInput, name);
    for (const std::string& name : outputs) writer.add_string(detail::onnx_node::kOutput, name);
    writer.add_string(detail::onnx_node::kName, "n");
    writer.add_string(detail::onnx_node::kOpType, op);
    for (const std::string& attribute : attributes)
      writer.add_message(detail::onnx_node::kAttribute, attribute);
  });
}

inline std::string attribute_message(const std::string& name, const Write& rest) {
  return message([&](auto& writer) {
    writer.add_string(detail::onnx_attribute::kName, name);
    rest(writer);
  });
}

inline std::string graph_of_nodes(const std::vector<std::string>& nodes) {
  return message([&](auto& graph) {
    for (const std::string& node : nodes) graph.add_message(detail::onnx_graph::kNode, node);
  });
}

/// A model of one node with this AttributeProto.
inline std::string model_with_attribute(const std::string& attribute) {
  return model_message(graph_of_nodes({node_message("Op", {"x"}, {"y"}, {attribute})}));
}

inline OnnxModel parse_model(const std::string& bytes, const OnnxLimits& limits = {}) {
  return parse_onnx(as_bytes(bytes), "test", limits);
}

inline std::filesystem::path onnx_seeds() { return source_folder() / "tests/fuzz/seeds_onnx"; }

}  // namespace quanta::test
