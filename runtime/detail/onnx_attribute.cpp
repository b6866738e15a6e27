#include <optional>
#include <utility>
#include <vector>

#include "quanta/runtime/detail/onnx_fields.h"
#include "quanta/runtime/detail/onnx_reader.h"

namespace quanta::detail {
namespace {

using Kind = OnnxMessage::Kind;
using Type = OnnxAttributeType;

constexpr std::int64_t kLastType = static_cast<std::int64_t>(Type::TypeProtos);

/// The type whose value a field holds; Undefined for fields that are no values.
Type type_of_field(std::int32_t field) {
  switch (field) {
    case onnx_attribute::kFloat:
      return Type::Float;
    case onnx_attribute::kInt:
      return Type::Int;
    case onnx_attribute::kString:
      return Type::String;
    case onnx_attribute::kTensor:
      return Type::Tensor;
    case onnx_attribute::kGraph:
      return Type::Graph;
    case onnx_attribute::kFloats:
      return Type::Floats;
    case onnx_attribute::kInts:
      return Type::Ints;
    case onnx_attribute::kStrings:
      return Type::Strings;
    case onnx_attribute::kTensors:
      return Type::Tensors;
    case onnx_attribute::kGraphs:
      return Type::Graphs;
    case onnx_attribute::kSparseTensor:
      return Type::SparseTensor;
    case onnx_attribute::kSparseTensors:
      return Type::SparseTensors;
    case onnx_attribute::kTypeProto:
      return Type::TypeProto;
    case onnx_attribute::kTypeProtos:
      return Type::TypeProtos;
    default:
      return Type::Undefined;
  }
}

bool is_list(Type type) {
  return (type >= Type::Floats && type <= Type::Graphs) || type == Type::SparseTensors ||
         type == Type::TypeProtos;
}

/// The alternative of `value`, made when there is none yet.
template <typename T>
T& alternative(std::optional<OnnxAttribute>& value) {
  if (!value) value.emplace(std::in_place_type<T>);
  return std::get<T>(*value);
}

/// What an attribute of a type is whose value the file leaves out: writers of proto3 leave out
/// zeros, and a list may be empty.
std::optional<OnnxAttribute> default_value(Type type) {
  switch (type) {
    case Type::Float:
      return 0.0F;
    case Type::Int:
      return std::int64_t{0};
    case Type::String:
      return std::string();
    case Type::Floats:
      return std::vector<float>();
    case Type::Ints:
      return std::vector<std::int64_t>();
    case Type::Strings:
      return std::vector<std::string>();
    case Type::Tensors:
      return std::vector<OnnxTensor>();
    case Type::Graphs:
      return std::vector<std::shared_ptr<const OnnxGraph>>();
    case Type::SparseTensors:
    case Type::TypeProtos:
      return OnnxOpaque{static_cast<std::int32_t>(type), {}};
    case Type::Undefined:
    case Type::Tensor:
    case Type::Graph:
    case Type::SparseTensor:
    case Type::TypeProto:
      break;
  }
  return std::nullopt;
}

}  // namespace

OnnxReader::Attribute OnnxReader::read_attribute(OnnxMessage& message, Where where) {
  Attribute result;
  Type declared = Type::Undefined;
  Type found = Type::Undefined;
  while (message.next()) {
    const Type type = type_of_field(message.field());
    if (type != Type::Undefined) {
      if (found != Type::Undefined && (found != type || !is_list(type))) {
        message.fail("expected one value, got two");
      }
      found = type;
    }
    switch (message.field()) {
      case onnx_attribute::kName:
        result.name = message.text();
        break;
      case onnx_attribute::kReference:
        result.reference.name = message.text();
        break;
      case onnx_attribute::kType: {
        const std::int64_t number = message.integer();
        if (number < 0 || number > kLastType) {
          message.fail(fmt::format("type: expected 1..{}, got {}", kLastType, number));
        }
        declared = static_cast<Type>(number);
        break;
      }
      case onnx_attribute::kFloat:
        result.value = message.number();
        break;
      case onnx_attribute::kInt:
        result.value = message.integer();
        break;
      case onnx_attribute::kString:
        result.value = message.text();
        break;
      case onnx_attribute::kTensor: {
        OnnxMessage tensor = message.message(Kind::Tensor);
        result.value = read_tensor(tensor, *external_);
        break;
      }
      case onnx_attribute::kGraph: {
        OnnxMessage graph = message.message(Kind::Graph);
        result.value = read_inner_graph(graph, where);
        break;
      }
      case onnx_attribute::kFloats:
        message.numbers(alternative<std::vector<float>>(result.value));
        break;
      case onnx_attribute::kInts:
        message.integers(alternative<std::vector<std::int64_t>>(result.value));
        break;
      case onnx_attribute::kStrings:
        alternative<std::vector<std::string>>(result.value).push_back(message.text());
        break;
      case onnx_attribute::kTensors: {
        OnnxMessage tensor = message.message(Kind::Tensor);
        alternative<std::vector<OnnxTensor>>(result.value)
            .push_back(read_tensor(tensor, *external_));
        break;
      }
      case onnx_attribute::kGraphs: {
        OnnxMessage graph = message.message(Kind::Graph);
        alternative<std::vector<std::shared_ptr<const OnnxGraph>>>(result.value)
            .push_back(read_inner_graph(graph, where));
        break;
      }
      case onnx_attribute::kSparseTensor:
      case onnx_attribute::kSparseTensors:
      case onnx_attribute::kTypeProto:
      case onnx_attribute::kTypeProtos: {
        OnnxOpaque& opaque = alternative<OnnxOpaque>(result.value);
        opaque.kind = static_cast<std::int32_t>(type);
        opaque.messages.push_back(message.text());
        break;
      }
      default:
        message.skip();
    }
  }
  if (!result.reference.name.empty()) {
    result.reference.kind = static_cast<std::int32_t>(declared);
    if (!where.in_function) message.fail("ref_attr_name: expected it in functions only");
    if (result.value) message.fail("expected a value or ref_attr_name, got both");
    return result;
  }
  if (declared == Type::Undefined && found == Type::Undefined) {
    message.fail("expected a type and a value, got neither");
  }
  if (declared != Type::Undefined && found != Type::Undefined && declared != found) {
    message.fail(fmt::format("type: expected that of its value, {}, got {}",
                             static_cast<int>(found), static_cast<int>(declared)));
  }
  if (!result.value) result.value = default_value(declared);
  if (!result.value) {
    message.fail(fmt::format("expected a value of type {}, got none", static_cast<int>(declared)));
  }
  return result;
}

}  // namespace quanta::detail
