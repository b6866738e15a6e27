#pragma once

// Private: field numbers of the messages in onnx.proto that Quanta reads and writes.

#include <cstdint>

namespace quanta::detail {

namespace onnx_model {
enum : std::int32_t {
  kIrVersion = 1,
  kProducerName = 2,
  kProducerVersion = 3,
  kGraph = 7,
  kOpsetImport = 8,
  kMetadata = 14,
  kFunctions = 25,
};
}  // namespace onnx_model

namespace onnx_pair {  // StringStringEntryProto
enum : std::int32_t { kKey = 1, kValue = 2 };
}  // namespace onnx_pair

namespace onnx_opset {
enum : std::int32_t { kDomain = 1, kVersion = 2 };
}  // namespace onnx_opset

namespace onnx_graph {
enum : std::int32_t {
  kNode = 1,
  kName = 2,
  kInitializer = 5,
  kInput = 11,
  kOutput = 12,
  kValueInfo = 13,
  kSparseInitializer = 15,
};
}  // namespace onnx_graph

namespace onnx_node {
enum : std::int32_t {
  kInput = 1,
  kOutput = 2,
  kName = 3,
  kOpType = 4,
  kAttribute = 5,
  kDomain = 7,
  kOverload = 8,
};
}  // namespace onnx_node

namespace onnx_function {
enum : std::int32_t {
  kName = 1,
  kInput = 4,
  kOutput = 5,
  kAttribute = 6,
  kNode = 7,
  kOpsetImport = 9,
  kDomain = 10,
  kAttributeProto = 11,
  kOverload = 13,
};
}  // namespace onnx_function

namespace onnx_attribute {
enum : std::int32_t {
  kName = 1,
  kFloat = 2,
  kInt = 3,
  kString = 4,
  kTensor = 5,
  kGraph = 6,
  kFloats = 7,
  kInts = 8,
  kStrings = 9,
  kTensors = 10,
  kGraphs = 11,
  kTypeProto = 14,
  kTypeProtos = 15,
  kType = 20,
  kReference = 21,
  kSparseTensor = 22,
  kSparseTensors = 23,
};
}  // namespace onnx_attribute

/// AttributeProto.AttributeType.
enum class OnnxAttributeType : std::int32_t {
  Undefined = 0,
  Float = 1,
  Int = 2,
  String = 3,
  Tensor = 4,
  Graph = 5,
  Floats = 6,
  Ints = 7,
  Strings = 8,
  Tensors = 9,
  Graphs = 10,
  SparseTensor = 11,
  SparseTensors = 12,
  TypeProto = 13,
  TypeProtos = 14,
};

namespace onnx_tensor {
enum : std::int32_t {
  kDims = 1,
  kDataType = 2,
  kSegment = 3,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14,
};
}  // namespace onnx_tensor

namespace onnx_sparse {
enum : std::int32_t { kValues = 1 };
}  // namespace onnx_sparse

namespace onnx_value {
enum : std::int32_t { kName = 1, kType = 2 };
}  // namespace onnx_value

namespace onnx_type {
enum : std::int32_t { kTensor = 1 };
}  // namespace onnx_type

namespace onnx_tensor_type {
enum : std::int32_t { kElement = 1, kShape = 2 };
}  // namespace onnx_tensor_type

namespace onnx_shape {
enum : std::int32_t { kDim = 1, kSize = 1, kParameter = 2 };
}  // namespace onnx_shape

}  // namespace quanta::detail
