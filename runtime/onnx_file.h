#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/runtime/file_access.h"
#include "quanta/runtime/tensor.h"

/// ONNX files as plain structs: what stands in the file, checked, with the weights as views of its
/// bytes. Nothing here knows what an operator does; fusion/graph makes a network of it.
/// Reading throws FileError that names the file, the node or tensor and what is wrong with it. Many
/// threads may read and write at once; what is read is a plain value.
namespace quanta {

/// Element types by ONNX's numbers (TensorProto.DataType).
enum class OnnxType : std::int32_t {
  Undefined = 0,
  Float = 1,
  UInt8 = 2,
  Int8 = 3,
  UInt16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  UInt32 = 12,
  UInt64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  BFloat16 = 16,
  Float8E4M3FN = 17,
  Float8E4M3FNUZ = 18,
  Float8E5M2 = 19,
  Float8E5M2FNUZ = 20,
  UInt4 = 21,
  Int4 = 22,
  Float4E2M1 = 23,
  Float8E8M0 = 24,
  UInt2 = 25,
  Int2 = 26,
};

/// "FLOAT", "INT8": ONNX's name; "type 99" for a number that ONNX does not have.
std::string to_string(OnnxType type);

/// The dtype of tensors that hold this type. The 4-bit and 2-bit integers are held one value an
/// element, in Int8 or UInt8. Nothing for the types that Quanta does not have (strings, complex
/// numbers, unsigned integers of 32 and 64 bits, the FNUZ, E8M0 and 4-bit floats).
std::optional<DType> dtype_of(OnnxType type);

/// The type that a dtype is written as; quantized dtypes as the integers that hold their codes.
OnnxType onnx_type_of(DType dtype);

/// A tensor of a file. `value` is undefined where the type has no dtype: such a tensor is only an
/// error when something needs it. FLOAT4E2M1 is written from UInt8, one code an element.
struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::Undefined;
  Tensor value;
};

struct OnnxGraph;

/// A value of a kind that Quanta has no use for, kept as it stands in the file: sparse tensors and
/// types, one or a list.
struct OnnxOpaque {
  std::int32_t kind = 0;              ///< AttributeProto.AttributeType: 11 to 14
  std::vector<std::string> messages;  ///< one, or those of the list
};

/// An attribute's value. A list of graphs or tensors has its own alternative; lists of strings and
/// numbers too.
using OnnxAttribute =
    std::variant<std::int64_t, float, std::string, OnnxTensor, std::shared_ptr<const OnnxGraph>,
                 std::vector<std::int64_t>, std::vector<float>, std::vector<std::string>,
                 std::vector<OnnxTensor>, std::vector<std::shared_ptr<const OnnxGraph>>,
                 OnnxOpaque>;

using OnnxAttributes = std::map<std::string, OnnxAttribute, std::less<>>;

/// The attribute of a function's call whose value an attribute within it takes.
struct OnnxReference {
  std::string name;
  std::int32_t kind = 0;  ///< AttributeProto.AttributeType
};

struct OnnxNode {
  std::string name;
  std::string op_type;
  std::string domain;                ///< "" stands for ai.onnx
  std::string overload;              ///< which of the functions of one name
  std::vector<std::string> inputs;   ///< "" for one that is left out
  std::vector<std::string> outputs;  ///< "" for one that nobody wants
  OnnxAttributes attributes;
  /// Within a function: attributes (keys) that take the value of an attribute of the call, if that
  /// has it. Not in `attributes`.
  std::map<std::string, OnnxReference, std::less<>> references;
};

/// A dimension as declared: a number, or a name ("" for unknown).
struct OnnxDim {
  std::optional<std::int64_t> size;
  std::string name;
};

/// An input, output or inner value as declared.
struct OnnxValue {
  std::string name;
  OnnxType type = OnnxType::Undefined;  ///< Undefined: no tensor (a sequence, a map), or not said
  std::optional<std::vector<OnnxDim>> sizes;
};

struct OnnxGraph {
  std::string name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxValue> inputs;  ///< with those that are initializers too, as older files write
  std::vector<OnnxValue> outputs;
  std::vector<OnnxValue> values;  ///< value_info
};

/// A function of the file's own (ModelProto.functions): calls of it are nodes of this domain, name
/// and overload.
struct OnnxFunction {
  std::string name;
  std::string domain;
  std::string overload;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> attribute_names;  ///< without a default
  OnnxAttributes attributes;                 ///< with their defaults
  std::vector<OnnxNode> nodes;
  std::map<std::string, std::int64_t, std::less<>> opsets;
};

struct OnnxModel {
  std::int64_t ir_version = 0;
  std::string producer_name;
  std::string producer_version;
  /// By domain; "" is ai.onnx.
  std::map<std::string, std::int64_t, std::less<>> opsets;
  OnnxGraph graph;
  std::vector<OnnxFunction> functions;
  std::map<std::string, std::string> metadata;
};

/// What a file may ask for.
struct OnnxLimits {
  std::size_t max_nodes = 1'000'000;  ///< in all graphs of the file together
  int max_depth = 16;                 ///< of graphs within nodes
};

/// Reads a model. Weights point into the file's bytes, which are a copy by default, where their
/// addresses suit their dtype; with FileAccess::Map the file has to stay as it is (see there).
/// External data is held in the same way; it has to lie in the model's folder, in regular files
/// without links. Throws FileError for everything that is not
/// as onnx.proto and onnx's checker say: truncated fields, sizes that do not match their bytes,
/// unknown element types, values that are made twice, too many nodes, too deep graphs, files of
/// 2 GiB and more ("save with external data").
OnnxModel read_onnx(const std::filesystem::path& path, const OnnxLimits& limits = {},
                    FileAccess access = FileAccess::Copy);

/// The same from memory (copied); external data is refused.
OnnxModel parse_onnx(std::span<const std::byte> bytes, const std::string& name,
                     const OnnxLimits& limits = {});

/// Reads a TensorProto file (.pb), as ONNX's test data are. Throws FileError.
OnnxTensor read_onnx_tensor(const std::filesystem::path& path);

struct OnnxWriteOptions {
  /// Weights above this many bytes in all go to `<file>.data` beside the model.
  std::size_t external_data_above = std::size_t{1} << 30U;
};

/// Writes a model: IR 8 and up as its opset asks for, weights as raw data. Atomic, as
/// write_safetensors. Throws FileError, and ArgumentError for an undefined tensor.
void write_onnx(const OnnxModel& model, const std::filesystem::path& path,
                const OnnxWriteOptions& options = {});
/// The same with the path first, as earlier versions had it.
inline void write_onnx(const std::filesystem::path& path, const OnnxModel& model,
                       const OnnxWriteOptions& options = {}) {
  write_onnx(model, path, options);
}
/// Writes a TensorProto file. Throws FileError, and ArgumentError for an undefined tensor.
void write_onnx_tensor(const OnnxTensor& tensor, const std::filesystem::path& path);
/// The same with the path first, as earlier versions had it.
inline void write_onnx_tensor(const std::filesystem::path& path, const OnnxTensor& tensor) {
  write_onnx_tensor(tensor, path);
}

}  // namespace quanta
