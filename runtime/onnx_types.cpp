#include <array>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/onnx_tensor.h"
#include "quanta/runtime/onnx_file.h"

namespace quanta {
namespace {

struct TypeRow {
  std::string_view name;
  int bits = 0;  // of an element in raw data
  std::optional<DType> dtype{};
};

// By number.
constexpr std::array kTypes{
    TypeRow{"UNDEFINED"},
    TypeRow{"FLOAT", 32, DType::Float32},
    TypeRow{"UINT8", 8, DType::UInt8},
    TypeRow{"INT8", 8, DType::Int8},
    TypeRow{"UINT16", 16, DType::UInt16},
    TypeRow{"INT16", 16, DType::Int16},
    TypeRow{"INT32", 32, DType::Int32},
    TypeRow{"INT64", 64, DType::Int64},
    TypeRow{"STRING"},
    TypeRow{"BOOL", 8, DType::Bool},
    TypeRow{"FLOAT16", 16, DType::Float16},
    TypeRow{"DOUBLE", 64, DType::Float64},
    TypeRow{"UINT32", 32},
    TypeRow{"UINT64", 64},
    TypeRow{"COMPLEX64", 64},
    TypeRow{"COMPLEX128", 128},
    TypeRow{"BFLOAT16", 16, DType::BFloat16},
    TypeRow{"FLOAT8E4M3FN", 8, DType::Float8E4M3FN},
    TypeRow{"FLOAT8E4M3FNUZ", 8},
    TypeRow{"FLOAT8E5M2", 8, DType::Float8E5M2},
    TypeRow{"FLOAT8E5M2FNUZ", 8},
    TypeRow{"UINT4", 4, DType::UInt8},
    TypeRow{"INT4", 4, DType::Int8},
    TypeRow{"FLOAT4E2M1", 4},
    TypeRow{"FLOAT8E8M0", 8},
    TypeRow{"UINT2", 2, DType::UInt8},
    TypeRow{"INT2", 2, DType::Int8},
};

const TypeRow* find_row(OnnxType type) {
  const auto number = static_cast<std::int32_t>(type);
  if (number < 0 || number >= static_cast<std::int32_t>(kTypes.size())) return nullptr;
  return &kTypes[static_cast<std::size_t>(number)];
}

}  // namespace

std::string to_string(OnnxType type) {
  const TypeRow* row = find_row(type);
  if (row == nullptr) return fmt::format("type {}", static_cast<std::int32_t>(type));
  return std::string(row->name);
}

std::optional<DType> dtype_of(OnnxType type) {
  const TypeRow* row = find_row(type);
  return row == nullptr ? std::nullopt : row->dtype;
}

OnnxType onnx_type_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return OnnxType::Float;
    case DType::Float64:
      return OnnxType::Double;
    case DType::Float16:
      return OnnxType::Float16;
    case DType::BFloat16:
      return OnnxType::BFloat16;
    case DType::Float8E4M3FN:
      return OnnxType::Float8E4M3FN;
    case DType::Float8E5M2:
      return OnnxType::Float8E5M2;
    case DType::UInt8:
    case DType::QUInt8:
      return OnnxType::UInt8;
    case DType::Int8:
    case DType::QInt8:
      return OnnxType::Int8;
    case DType::Int16:
      return OnnxType::Int16;
    case DType::UInt16:
      return OnnxType::UInt16;
    case DType::Int32:
    case DType::QInt32:
      return OnnxType::Int32;
    case DType::Int64:
      return OnnxType::Int64;
    case DType::Bool:
      return OnnxType::Bool;
    case DType::QUInt4x2:
      return OnnxType::UInt4;
    case DType::QUInt2x4:
      return OnnxType::UInt2;
  }
  return OnnxType::Undefined;
}

int detail::onnx_bits(OnnxType type) {
  const TypeRow* row = find_row(type);
  return row == nullptr ? 0 : row->bits;
}

}  // namespace quanta
