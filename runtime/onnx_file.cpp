#include "quanta/runtime/onnx_file.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_set>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/onnx_fields.h"
#include "quanta/runtime/detail/onnx_message.h"
#include "quanta/runtime/detail/onnx_reader.h"
#include "quanta/runtime/detail/onnx_tensor.h"
#include "quanta/runtime/detail/reading.h"

// Format: https://onnx.ai/onnx/repo-docs/IR.html

namespace quanta {
namespace detail {
namespace {

using Kind = OnnxMessage::Kind;
using Opsets = std::map<std::string, std::int64_t, std::less<>>;

// Lengths in protobuf's messages end there.
constexpr std::size_t kMaxFileBytes = (std::size_t{1} << 31U) - 1;

std::string domain_of(std::string_view text) {
  return text == "ai.onnx" ? std::string() : std::string(text);
}

void read_opset(OnnxMessage& message, Opsets& opsets) {
  std::string domain;
  std::int64_t version = 0;
  while (message.next()) {
    switch (message.field()) {
      case onnx_opset::kDomain:
        domain = domain_of(message.bytes());
        break;
      case onnx_opset::kVersion:
        version = message.integer();
        break;
      default:
        message.skip();
    }
  }
  if (version < 1) {
    message.fail(
        fmt::format("opset_import: version: expected 1 or more for '{}', got {}", domain, version));
  }
  const auto [entry, is_new] = opsets.emplace(domain, version);
  if (!is_new && entry->second != version) {
    message.fail(fmt::format("opset_import: expected one version of '{}', got {} and {}", domain,
                             entry->second, version));
  }
}

std::pair<std::string, std::string> read_entry(OnnxMessage& message) {
  std::pair<std::string, std::string> result;
  while (message.next()) {
    switch (message.field()) {
      case onnx_pair::kKey:
        result.first = message.text();
        break;
      case onnx_pair::kValue:
        result.second = message.text();
        break;
      default:
        message.skip();
    }
  }
  return result;
}

OnnxDim read_dim(OnnxMessage& message) {
  OnnxDim result;
  while (message.next()) {
    switch (message.field()) {
      case onnx_shape::kSize: {
        // Some writers say -1 for unknown.
        const std::int64_t size = message.integer();
        result = {};
        if (size >= 0) result.size = size;
        break;
      }
      case onnx_shape::kParameter:
        result = {{}, message.text()};
        break;
      default:
        message.skip();
    }
  }
  return result;
}

void read_tensor_type(OnnxMessage& message, OnnxValue& value) {
  while (message.next()) {
    switch (message.field()) {
      case onnx_tensor_type::kElement: {
        const std::int64_t type = message.integer();
        value.type = static_cast<OnnxType>(static_cast<std::int32_t>(type));
        break;
      }
      case onnx_tensor_type::kShape: {
        OnnxMessage shape = message.message(Kind::Part);
        value.sizes.emplace();
        while (shape.next()) {
          if (shape.field() == onnx_shape::kDim) {
            OnnxMessage dim = shape.message(Kind::Part);
            value.sizes->push_back(read_dim(dim));
          } else {
            shape.skip();
          }
        }
        break;
      }
      default:
        message.skip();
    }
  }
}

OnnxValue read_value(OnnxMessage& message) {
  OnnxValue result;
  while (message.next()) {
    switch (message.field()) {
      case onnx_value::kName:
        result.name = message.text();
        break;
      case onnx_value::kType: {
        OnnxMessage type = message.message(Kind::Part);
        while (type.next()) {
          if (type.field() == onnx_type::kTensor) {
            OnnxMessage tensor = type.message(Kind::Part);
            read_tensor_type(tensor, result);
          } else {
            type.skip();
          }
        }
        break;
      }
      default:
        message.skip();
    }
  }
  return result;
}

/// Each name at most once; views of names that stay where they are.
class Names {
 public:
  /// Whether `name` is new. "" stands for nothing and always is.
  bool add(std::string_view name) { return name.empty() || names_.insert(name).second; }
  bool has(std::string_view name) const { return names_.contains(name); }

 private:
  std::unordered_set<std::string_view> names_;
};

void check_nodes(const std::vector<OnnxNode>& nodes, Names& made, const OnnxMessage& message) {
  for (const OnnxNode& node : nodes) {
    for (const std::string& name : node.outputs) {
      if (!made.add(name)) {
        message.fail(fmt::format("node '{}' ({}): output '{}' is made twice", node.name,
                                 node.op_type, name));
      }
    }
  }
}

void check_graph(const OnnxGraph& graph, const OnnxMessage& message) {
  Names made;
  for (const OnnxValue& input : graph.inputs) {
    if (input.name.empty()) message.fail("input: expected a name, got none");
    if (!made.add(input.name)) message.fail(fmt::format("input '{}' is there twice", input.name));
  }
  // Before IR 4 every initializer was an input too, whose default it gives.
  Names initializers;
  for (const OnnxTensor& tensor : graph.initializers) {
    if (tensor.name.empty()) message.fail("initializer: expected a name, got none");
    if (!initializers.add(tensor.name)) {
      message.fail(fmt::format("initializer '{}' is there twice", tensor.name));
    }
    made.add(tensor.name);
  }
  check_nodes(graph.nodes, made, message);
  for (const OnnxValue& output : graph.outputs) {
    if (output.name.empty()) message.fail("output: expected a name, got none");
  }
}

std::string sparse_name(OnnxMessage& message) {
  while (message.next()) {
    if (message.field() != onnx_sparse::kValues) {
      message.skip();
      continue;
    }
    OnnxMessage values = message.message(Kind::Tensor);
    while (values.next()) {
      if (values.field() == onnx_tensor::kName) return values.text();
      values.skip();
    }
  }
  return {};
}

}  // namespace

OnnxNode OnnxReader::read_node(OnnxMessage& message, Where where) {
  if (++nodes_ > limits_.max_nodes) {
    message.fail(fmt::format("expected at most {} nodes, got more", limits_.max_nodes));
  }
  OnnxNode node;
  while (message.next()) {
    switch (message.field()) {
      case onnx_node::kInput:
        node.inputs.push_back(message.text());
        break;
      case onnx_node::kOutput:
        node.outputs.push_back(message.text());
        break;
      case onnx_node::kName:
        node.name = message.text();
        break;
      case onnx_node::kOpType:
        node.op_type = message.text();
        break;
      case onnx_node::kDomain:
        node.domain = domain_of(message.bytes());
        break;
      case onnx_node::kOverload:
        node.overload = message.text();
        break;
      case onnx_node::kAttribute: {
        OnnxMessage part = message.message(Kind::Attribute);
        Attribute attribute = read_attribute(part, where);
        if (attribute.name.empty()) part.fail("expected a name, got none");
        if (node.attributes.contains(attribute.name) || node.references.contains(attribute.name)) {
          part.fail("is there twice");
        }
        if (attribute.value) {
          node.attributes.emplace(std::move(attribute.name), std::move(*attribute.value));
        } else {
          node.references.emplace(std::move(attribute.name), std::move(attribute.reference));
        }
        break;
      }
      default:
        message.skip();
    }
  }
  if (node.op_type.empty()) message.fail("op_type: expected an operator's name, got none");
  return node;
}

std::shared_ptr<const OnnxGraph> OnnxReader::read_inner_graph(OnnxMessage& message, Where where) {
  if (++where.depth > limits_.max_depth) {
    message.fail(
        fmt::format("expected graphs within nodes at most {} deep, got more", limits_.max_depth));
  }
  return std::make_shared<const OnnxGraph>(read_graph(message, where));
}

OnnxGraph OnnxReader::read_graph(OnnxMessage& message, Where where) {
  OnnxGraph graph;
  while (message.next()) {
    switch (message.field()) {
      case onnx_graph::kNode: {
        OnnxMessage node = message.message(Kind::Node);
        graph.nodes.push_back(read_node(node, where));
        break;
      }
      case onnx_graph::kName:
        graph.name = message.text();
        break;
      case onnx_graph::kInitializer: {
        OnnxMessage tensor = message.message(Kind::Tensor);
        graph.initializers.push_back(read_tensor(tensor, *external_));
        break;
      }
      case onnx_graph::kSparseInitializer: {
        OnnxMessage tensor = message.message(Kind::Part);
        const std::string name = sparse_name(tensor);
        message.fail(
            fmt::format("sparse_initializer '{}': sparse weights are not supported", name));
      }
      case onnx_graph::kInput: {
        OnnxMessage value = message.message(Kind::Value);
        graph.inputs.push_back(read_value(value));
        break;
      }
      case onnx_graph::kOutput: {
        OnnxMessage value = message.message(Kind::Value);
        graph.outputs.push_back(read_value(value));
        break;
      }
      case onnx_graph::kValueInfo: {
        OnnxMessage value = message.message(Kind::Value);
        graph.values.push_back(read_value(value));
        break;
      }
      default:
        message.skip();
    }
  }
  check_graph(graph, message);
  return graph;
}

OnnxFunction OnnxReader::read_function(OnnxMessage& message) {
  const Where where{.in_function = true};
  OnnxFunction function;
  while (message.next()) {
    switch (message.field()) {
      case onnx_function::kName:
        function.name = message.text();
        break;
      case onnx_function::kDomain:
        function.domain = domain_of(message.bytes());
        break;
      case onnx_function::kOverload:
        function.overload = message.text();
        break;
      case onnx_function::kInput:
        function.inputs.push_back(message.text());
        break;
      case onnx_function::kOutput:
        function.outputs.push_back(message.text());
        break;
      case onnx_function::kAttribute:
        function.attribute_names.push_back(message.text());
        break;
      case onnx_function::kAttributeProto: {
        OnnxMessage part = message.message(Kind::Attribute);
        Attribute attribute = read_attribute(part, {});
        if (attribute.name.empty()) part.fail("expected a name, got none");
        if (!function.attributes.emplace(attribute.name, std::move(*attribute.value)).second) {
          part.fail("is there twice");
        }
        break;
      }
      case onnx_function::kNode: {
        OnnxMessage node = message.message(Kind::Node);
        function.nodes.push_back(read_node(node, where));
        break;
      }
      case onnx_function::kOpsetImport: {
        OnnxMessage opset = message.message(Kind::Part);
        read_opset(opset, function.opsets);
        break;
      }
      default:
        message.skip();
    }
  }
  if (function.name.empty()) message.fail("name: expected one, got none");
  Names made;
  for (const std::string& name : function.inputs) {
    if (name.empty()) message.fail("input: expected a name, got none");
    if (!made.add(name)) message.fail(fmt::format("input '{}' is there twice", name));
  }
  check_nodes(function.nodes, made, message);
  Names attributes;
  for (const std::string& name : function.attribute_names) {
    if (name.empty() || !attributes.add(name) || function.attributes.contains(name)) {
      message.fail(fmt::format("attribute '{}' is there twice or has no name", name));
    }
  }
  return function;
}

OnnxModel OnnxReader::read_model(OnnxMessage& message) {
  OnnxModel model;
  bool has_graph = false;
  std::set<std::tuple<std::string, std::string, std::string>> functions;
  while (message.next()) {
    switch (message.field()) {
      case onnx_model::kIrVersion:
        model.ir_version = message.integer();
        break;
      case onnx_model::kProducerName:
        model.producer_name = message.text();
        break;
      case onnx_model::kProducerVersion:
        model.producer_version = message.text();
        break;
      case onnx_model::kOpsetImport: {
        OnnxMessage opset = message.message(Kind::Part);
        read_opset(opset, model.opsets);
        break;
      }
      case onnx_model::kGraph: {
        if (std::exchange(has_graph, true)) message.fail("graph: expected one, got another");
        OnnxMessage graph = message.message(Kind::Graph);
        model.graph = read_graph(graph, {});
        break;
      }
      case onnx_model::kMetadata: {
        OnnxMessage entry = message.message(Kind::Part);
        auto [key, value] = read_entry(entry);
        if (!model.metadata.emplace(key, std::move(value)).second) {
          message.fail(fmt::format("metadata_props: expected each key once, got '{}' twice", key));
        }
        break;
      }
      case onnx_model::kFunctions: {
        OnnxMessage part = message.message(Kind::Function);
        OnnxFunction function = read_function(part);
        if (!functions.emplace(function.domain, function.name, function.overload).second) {
          part.fail("is there twice");
        }
        model.functions.push_back(std::move(function));
        break;
      }
      default:
        message.skip();
    }
  }
  if (model.ir_version < 1) {
    message.fail(fmt::format("ir_version: expected 1 or more, got {}: this is no ONNX model",
                             model.ir_version));
  }
  if (!has_graph) message.fail("graph: expected one, got none");
  if (model.opsets.empty()) {
    if (model.ir_version >= 3) message.fail("opset_import: expected versions, got none");
    model.opsets.emplace("", 1);  // files from before there were versions
  }
  return model;
}

}  // namespace detail

namespace {

void check_length(std::size_t bytes, const std::string& where) {
  if (bytes > detail::kMaxFileBytes) {
    throw FileError(fmt::format(
        "{}: expected less than 2 GiB, got {} bytes: save with external data", where, bytes));
  }
}

}  // namespace

OnnxModel read_onnx(const std::filesystem::path& path, const OnnxLimits& limits,
                    FileAccess access) {
  const std::string where = fmt::format("read_onnx: {}", path.string());
  return detail::reading(where, [&] {
    const auto file = detail::FileBytes::open(path, "read_onnx", access);
    const detail::OnnxBytes bytes{file->bytes(), file, where};
    check_length(bytes.data.size(), where);
    detail::OnnxExternalData external(path.parent_path(), access);
    detail::OnnxMessage message(bytes);
    return detail::OnnxReader(limits, external).read_model(message);
  });
}

OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::string& name,
                     const OnnxLimits& limits) {
  // Without an owner nothing points into the bytes afterwards, and the reader does not write.
  auto* data = const_cast<std::byte*>(bytes.data());  // NOLINT(*-const-cast)
  const detail::OnnxBytes file{{data, bytes.size()}, nullptr, fmt::format("read_onnx: {}", name)};
  check_length(bytes.size(), file.where);
  return detail::reading(file.where, [&] {
    detail::OnnxExternalData external;
    detail::OnnxMessage message(file);
    return detail::OnnxReader(limits, external).read_model(message);
  });
}

OnnxTensor read_onnx_tensor(const std::filesystem::path& path) {
  const std::string where = fmt::format("read_onnx_tensor: {}", path.string());
  return detail::reading(where, [&] {
    const auto file = detail::FileBytes::open(path, "read_onnx_tensor");
    const detail::OnnxBytes bytes{file->bytes(), file, where};
    check_length(bytes.data.size(), where);
    detail::OnnxExternalData external(path.parent_path(), FileAccess::Copy);
    detail::OnnxMessage message(bytes);
    return detail::read_tensor(message, external);
  });
}

}  // namespace quanta
