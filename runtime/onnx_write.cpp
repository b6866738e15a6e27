#include <algorithm>
#include <array>
#include <cstring>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/onnx_fields.h"
#include "quanta/runtime/detail/onnx_tensor.h"
#include "quanta/runtime/onnx_file.h"

namespace quanta {
namespace {

using detail::OnnxAttributeType;
using protozero::pbf_writer;
using Opsets = std::map<std::string, std::int64_t, std::less<>>;
namespace fields = detail;

constexpr std::size_t kMaxFileBytes = (std::size_t{1} << 31U) - 1;
// Smaller ones stay in the model: scales and shapes, which readers look at before they run.
constexpr std::size_t kMinExternalBytes = 1024;
// Readers map external data: a cache line suits every element type.
constexpr std::size_t kExternalAlignment = 64;

constexpr std::int64_t kFirstFunctionsIr = 8;
constexpr std::int64_t kFirstOverloadsIr = 10;
constexpr std::int64_t kFirstPlainInitializersIr = 4;

/// The oldest IR of the releases that know an opset of ai.onnx.
std::int64_t ir_for_opset(std::int64_t opset) {
  struct Row {
    std::int64_t last_opset;
    std::int64_t ir;
  };
  constexpr std::array kRows{Row{8, 3},   Row{9, 4},   Row{10, 5}, Row{11, 6},
                             Row{14, 7},  Row{18, 8},  Row{20, 9}, Row{22, 10},
                             Row{23, 11}, Row{24, 12}, Row{27, 13}};
  for (const Row& row : kRows) {
    if (opset <= row.last_opset) return row.ir;
  }
  return 14;
}

/// Where the bytes of large weights go.
struct ExternalData {
  std::string location;  // "" while all stay in the model
  std::size_t bytes = 0;
  std::vector<std::pair<std::size_t, Tensor>> tensors;  // by offset
};

/// The codes of a tensor as raw data: those of 4 and 2 bits packed, the first in the lowest bits.
std::string packed_codes(const Tensor& tensor, OnnxType type, const std::string& where) {
  const auto bits = static_cast<unsigned>(detail::onnx_bits(type));
  const bool is_signed = type == OnnxType::Int4 || type == OnnxType::Int2;
  const std::int64_t low = is_signed ? -(std::int64_t{1} << (bits - 1)) : 0;
  const std::int64_t high = low + (std::int64_t{1} << bits) - 1;
  const std::size_t per_byte = 8 / bits;
  const std::vector<std::int64_t> codes = tensor.to_int64_vector();
  std::string result((codes.size() + per_byte - 1) / per_byte, '\0');
  for (std::size_t i = 0; i < codes.size(); ++i) {
    QUANTA_CHECK(codes[i] >= low && codes[i] <= high, "{}: expected {}..{} for {}, got {}", where,
                 low, high, to_string(type), codes[i]);
    const unsigned code = static_cast<unsigned>(codes[i]) & ((1U << bits) - 1);
    const auto shift = static_cast<unsigned>(i % per_byte) * bits;
    char& byte = result[i / per_byte];
    byte = static_cast<char>(static_cast<unsigned char>(byte) | (code << shift));
  }
  return result;
}

bool is_packed(OnnxType type) { return detail::onnx_bits(type) < 8; }

OnnxType checked_type(const OnnxTensor& tensor, const std::string& where) {
  QUANTA_CHECK(tensor.value.defined(), "{}: expected a tensor, got an undefined one", where);
  const DType dtype = tensor.value.dtype();
  const OnnxType natural = onnx_type_of(dtype);
  if (tensor.type == OnnxType::Undefined || tensor.type == natural) return natural;
  if (tensor.type == OnnxType::Float4E2M1 && dtype == DType::UInt8) return tensor.type;
  const std::optional<DType> held = dtype_of(tensor.type);
  QUANTA_CHECK(held && *held == dtype_of(natural) && !is_sub_byte(dtype),
               "{}: expected a tensor that holds {}, got {}", where, to_string(tensor.type), dtype);
  return tensor.type;
}

class Writer {
 public:
  explicit Writer(std::string op) : op_(std::move(op)) {}

  ExternalData external;

  void write_model(const OnnxModel& model, std::string& bytes) {
    pbf_writer writer(bytes);
    writer.add_int64(fields::onnx_model::kIrVersion, ir_version(model));
    add_text(writer, fields::onnx_model::kProducerName, model.producer_name);
    add_text(writer, fields::onnx_model::kProducerVersion, model.producer_version);
    {
      pbf_writer graph(writer, fields::onnx_model::kGraph);
      write_graph(graph, model.graph);
    }
    write_opsets(writer, fields::onnx_model::kOpsetImport, model.opsets);
    for (const auto& [key, value] : model.metadata) {
      pbf_writer entry(writer, fields::onnx_model::kMetadata);
      entry.add_bytes(fields::onnx_pair::kKey, key);
      entry.add_bytes(fields::onnx_pair::kValue, value);
    }
    for (const OnnxFunction& function : model.functions) {
      pbf_writer part(writer, fields::onnx_model::kFunctions);
      write_function(part, function);
    }
  }

  /// `is_weight`: it may go to the external file.
  void write_tensor(pbf_writer& writer, const OnnxTensor& tensor, bool is_weight) {
    const std::string where = fmt::format("{}: tensor '{}'", op_, tensor.name);
    const OnnxType type = checked_type(tensor, where);
    for (const std::int64_t size : tensor.value.sizes()) {
      writer.add_int64(fields::onnx_tensor::kDims, size);
    }
    writer.add_int32(fields::onnx_tensor::kDataType, static_cast<std::int32_t>(type));
    add_text(writer, fields::onnx_tensor::kName, tensor.name);
    if (is_packed(type) && !is_sub_byte(tensor.value.dtype())) {
      writer.add_bytes(fields::onnx_tensor::kRawData, packed_codes(tensor.value, type, where));
      return;
    }
    if (is_weight && !external.location.empty() && tensor.value.nbytes() >= kMinExternalBytes) {
      write_external(writer, tensor.value);
      return;
    }
    const Tensor value = tensor.value.contiguous();
    check_size(value.nbytes());
    written_ += value.nbytes();
    writer.add_bytes(fields::onnx_tensor::kRawData, static_cast<const char*>(value.data_ptr()),
                     value.nbytes());
  }

 private:
  /// Before protozero is asked, whose lengths have 32 bits.
  void check_size(std::size_t more) const {
    if (more > kMaxFileBytes - std::min(written_, kMaxFileBytes)) {
      throw FileError(
          fmt::format("{}: expected less than 2 GiB without external data, got more", op_));
    }
  }

  static void add_text(pbf_writer& writer, std::int32_t field, const std::string& text) {
    if (!text.empty()) writer.add_bytes(static_cast<protozero::pbf_tag_type>(field), text);
  }

  static std::int64_t ir_version(const OnnxModel& model) {
    const auto opset = model.opsets.find("");
    std::int64_t result = model.ir_version > 0 ? model.ir_version : kFirstFunctionsIr;
    if (opset != model.opsets.end()) result = std::max(result, ir_for_opset(opset->second));
    if (!model.functions.empty()) result = std::max(result, kFirstFunctionsIr);
    for (const OnnxFunction& function : model.functions) {
      if (!function.overload.empty()) result = std::max(result, kFirstOverloadsIr);
    }
    std::unordered_set<std::string_view> inputs;
    for (const OnnxValue& input : model.graph.inputs) inputs.insert(input.name);
    for (const OnnxTensor& tensor : model.graph.initializers) {
      if (!inputs.contains(tensor.name)) result = std::max(result, kFirstPlainInitializersIr);
    }
    return result;
  }

  static void write_opsets(pbf_writer& writer, std::int32_t field, const Opsets& opsets) {
    for (const auto& [domain, version] : opsets) {
      pbf_writer part(writer, static_cast<protozero::pbf_tag_type>(field));
      part.add_bytes(fields::onnx_opset::kDomain, domain);
      part.add_int64(fields::onnx_opset::kVersion, version);
    }
  }

  void write_external(pbf_writer& writer, const Tensor& value) {
    external.bytes =
        (external.bytes + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment;
    const auto entry = [&](std::string_view key, const std::string& text) {
      pbf_writer part(writer, fields::onnx_tensor::kExternalData);
      part.add_bytes(fields::onnx_pair::kKey, key.data(), key.size());
      part.add_bytes(fields::onnx_pair::kValue, text);
    };
    entry("location", external.location);
    entry("offset", std::to_string(external.bytes));
    entry("length", std::to_string(value.nbytes()));
    writer.add_int32(fields::onnx_tensor::kDataLocation, 1);
    external.tensors.emplace_back(external.bytes, value);
    external.bytes += value.nbytes();
  }

  void write_value(pbf_writer& writer, const OnnxValue& value) {
    writer.add_bytes(fields::onnx_value::kName, value.name);
    if (value.type == OnnxType::Undefined && !value.sizes) return;
    pbf_writer type(writer, fields::onnx_value::kType);
    pbf_writer tensor(type, fields::onnx_type::kTensor);
    tensor.add_int32(fields::onnx_tensor_type::kElement, static_cast<std::int32_t>(value.type));
    if (!value.sizes) return;
    // By way of texts: protozero drops a nested message without fields, and then a scalar would have
    // no sizes, and an unknown dimension would be none.
    std::string sizes;
    pbf_writer shape(sizes);
    for (const OnnxDim& dim : *value.sizes) {
      std::string bytes;
      pbf_writer part(bytes);
      if (dim.size) {
        part.add_int64(fields::onnx_shape::kSize, *dim.size);
      } else {
        add_text(part, fields::onnx_shape::kParameter, dim.name);
      }
      shape.add_message(fields::onnx_shape::kDim, bytes);
    }
    tensor.add_message(fields::onnx_tensor_type::kShape, sizes);
  }

  void write_graph(pbf_writer& writer, const OnnxGraph& graph) {
    for (const OnnxNode& node : graph.nodes) {
      pbf_writer part(writer, fields::onnx_graph::kNode);
      write_node(part, node);
    }
    writer.add_bytes(fields::onnx_graph::kName, graph.name);
    for (const OnnxTensor& tensor : graph.initializers) {
      pbf_writer part(writer, fields::onnx_graph::kInitializer);
      write_tensor(part, tensor, /*is_weight=*/true);
    }
    const auto write_values = [&](std::int32_t field, const std::vector<OnnxValue>& values) {
      for (const OnnxValue& value : values) {
        pbf_writer part(writer, static_cast<protozero::pbf_tag_type>(field));
        write_value(part, value);
      }
    };
    write_values(fields::onnx_graph::kInput, graph.inputs);
    write_values(fields::onnx_graph::kOutput, graph.outputs);
    write_values(fields::onnx_graph::kValueInfo, graph.values);
  }

  void write_node(pbf_writer& writer, const OnnxNode& node) {
    for (const std::string& name : node.inputs) writer.add_bytes(fields::onnx_node::kInput, name);
    for (const std::string& name : node.outputs) writer.add_bytes(fields::onnx_node::kOutput, name);
    add_text(writer, fields::onnx_node::kName, node.name);
    writer.add_bytes(fields::onnx_node::kOpType, node.op_type);
    add_text(writer, fields::onnx_node::kDomain, node.domain);
    add_text(writer, fields::onnx_node::kOverload, node.overload);
    for (const auto& [name, value] : node.attributes) {
      pbf_writer part(writer, fields::onnx_node::kAttribute);
      write_attribute(part, name, value);
    }
    for (const auto& [name, reference] : node.references) {
      pbf_writer part(writer, fields::onnx_node::kAttribute);
      part.add_bytes(fields::onnx_attribute::kName, name);
      part.add_int32(fields::onnx_attribute::kType, reference.kind);
      part.add_bytes(fields::onnx_attribute::kReference, reference.name);
    }
  }

  void write_function(pbf_writer& writer, const OnnxFunction& function) {
    writer.add_bytes(fields::onnx_function::kName, function.name);
    for (const std::string& name : function.inputs) {
      writer.add_bytes(fields::onnx_function::kInput, name);
    }
    for (const std::string& name : function.outputs) {
      writer.add_bytes(fields::onnx_function::kOutput, name);
    }
    for (const std::string& name : function.attribute_names) {
      writer.add_bytes(fields::onnx_function::kAttribute, name);
    }
    for (const OnnxNode& node : function.nodes) {
      pbf_writer part(writer, fields::onnx_function::kNode);
      write_node(part, node);
    }
    write_opsets(writer, fields::onnx_function::kOpsetImport, function.opsets);
    writer.add_bytes(fields::onnx_function::kDomain, function.domain);
    for (const auto& [name, value] : function.attributes) {
      pbf_writer part(writer, fields::onnx_function::kAttributeProto);
      write_attribute(part, name, value);
    }
    add_text(writer, fields::onnx_function::kOverload, function.overload);
  }

  void write_attribute(pbf_writer& writer, const std::string& name, const OnnxAttribute& value) {
    writer.add_bytes(fields::onnx_attribute::kName, name);
    std::visit([&](const auto& held) { write_held(writer, held); }, value);
  }

  static void write_type(pbf_writer& writer, OnnxAttributeType type) {
    writer.add_int32(fields::onnx_attribute::kType, static_cast<std::int32_t>(type));
  }
  static void write_held(pbf_writer& writer, std::int64_t value) {
    writer.add_int64(fields::onnx_attribute::kInt, value);
    write_type(writer, OnnxAttributeType::Int);
  }
  static void write_held(pbf_writer& writer, float value) {
    writer.add_float(fields::onnx_attribute::kFloat, value);
    write_type(writer, OnnxAttributeType::Float);
  }
  static void write_held(pbf_writer& writer, const std::string& value) {
    writer.add_bytes(fields::onnx_attribute::kString, value);
    write_type(writer, OnnxAttributeType::String);
  }
  void write_held(pbf_writer& writer, const OnnxTensor& value) {
    {
      pbf_writer part(writer, fields::onnx_attribute::kTensor);
      write_tensor(part, value, /*is_weight=*/false);
    }
    write_type(writer, OnnxAttributeType::Tensor);
  }
  void write_held(pbf_writer& writer, const std::shared_ptr<const OnnxGraph>& value) {
    {
      pbf_writer part(writer, fields::onnx_attribute::kGraph);
      write_inner_graph(part, value);
    }
    write_type(writer, OnnxAttributeType::Graph);
  }
  static void write_held(pbf_writer& writer, const std::vector<std::int64_t>& values) {
    for (const std::int64_t value : values) writer.add_int64(fields::onnx_attribute::kInts, value);
    write_type(writer, OnnxAttributeType::Ints);
  }
  static void write_held(pbf_writer& writer, const std::vector<float>& values) {
    for (const float value : values) writer.add_float(fields::onnx_attribute::kFloats, value);
    write_type(writer, OnnxAttributeType::Floats);
  }
  static void write_held(pbf_writer& writer, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      writer.add_bytes(fields::onnx_attribute::kStrings, value);
    }
    write_type(writer, OnnxAttributeType::Strings);
  }
  void write_held(pbf_writer& writer, const std::vector<OnnxTensor>& values) {
    for (const OnnxTensor& value : values) {
      pbf_writer part(writer, fields::onnx_attribute::kTensors);
      write_tensor(part, value, /*is_weight=*/false);
    }
    write_type(writer, OnnxAttributeType::Tensors);
  }
  void write_held(pbf_writer& writer, const std::vector<std::shared_ptr<const OnnxGraph>>& values) {
    for (const auto& value : values) {
      pbf_writer part(writer, fields::onnx_attribute::kGraphs);
      write_inner_graph(part, value);
    }
    write_type(writer, OnnxAttributeType::Graphs);
  }
  static void write_held(pbf_writer& writer, const OnnxOpaque& value) {
    const auto type = static_cast<OnnxAttributeType>(value.kind);
    const auto field = [&]() -> protozero::pbf_tag_type {
      switch (type) {
        case OnnxAttributeType::SparseTensor:
          return fields::onnx_attribute::kSparseTensor;
        case OnnxAttributeType::SparseTensors:
          return fields::onnx_attribute::kSparseTensors;
        case OnnxAttributeType::TypeProto:
          return fields::onnx_attribute::kTypeProto;
        default:
          return fields::onnx_attribute::kTypeProtos;
      }
    }();
    for (const std::string& message : value.messages) writer.add_message(field, message);
    write_type(writer, type);
  }

  void write_inner_graph(pbf_writer& writer, const std::shared_ptr<const OnnxGraph>& graph) {
    QUANTA_CHECK(graph != nullptr, "{}: attribute: expected a graph, got null", op_);
    write_graph(writer, *graph);
  }

  std::string op_;
  std::size_t written_ = 0;
};

std::size_t weight_bytes(const OnnxGraph& graph) {
  std::size_t result = 0;
  for (const OnnxTensor& tensor : graph.initializers) {
    if (tensor.value.defined()) result += tensor.value.nbytes();
  }
  for (const OnnxNode& node : graph.nodes) {
    for (const auto& [name, value] : node.attributes) {
      if (const auto* inner = std::get_if<std::shared_ptr<const OnnxGraph>>(&value)) {
        if (*inner != nullptr) result += weight_bytes(**inner);
      }
    }
  }
  return result;
}

using Sink = std::function<void(std::span<const std::byte>)>;

void write_external_file(const std::filesystem::path& path, const ExternalData& external) {
  write_file_atomically(path, [&](const Sink& sink) {
    constexpr std::array<std::byte, kExternalAlignment> kZeros{};
    std::size_t position = 0;
    for (const auto& [offset, tensor] : external.tensors) {
      sink(std::span(kZeros).first(offset - position));
      const Tensor value = tensor.contiguous();
      sink({static_cast<const std::byte*>(value.data_ptr()), value.nbytes()});
      position = offset + value.nbytes();
    }
  });
}

void check_file_size(const std::string& bytes, const std::string& op,
                     const std::filesystem::path& path) {
  if (bytes.size() > kMaxFileBytes) {
    throw FileError(
        fmt::format("{}: {}: expected less than 2 GiB without external data, got {} bytes", op,
                    path.string(), bytes.size()));
  }
}

}  // namespace

void write_onnx(const OnnxModel& model, const std::filesystem::path& path,
                const OnnxWriteOptions& options) {
  Writer writer("write_onnx");
  if (weight_bytes(model.graph) > options.external_data_above) {
    writer.external.location = path.filename().string() + ".data";
  }
  std::string bytes;
  writer.write_model(model, bytes);
  check_file_size(bytes, "write_onnx", path);
  write_file_atomically(path, [&](const Sink& sink) {
    sink(std::as_bytes(std::span(bytes)));
    if (writer.external.tensors.empty()) return;
    // The model's own bytes are written by then: of the two files one is not replaced without the
    // other unless the last step fails.
    std::filesystem::path data = path;
    data += ".data";
    write_external_file(data, writer.external);
  });
}

void write_onnx_tensor(const OnnxTensor& tensor, const std::filesystem::path& path) {
  std::string bytes;
  pbf_writer message(bytes);
  Writer("write_onnx_tensor").write_tensor(message, tensor, /*is_weight=*/false);
  check_file_size(bytes, "write_onnx_tensor", path);
  write_file_atomically(path, [&](const Sink& sink) { sink(std::as_bytes(std::span(bytes))); });
}

}  // namespace quanta
