#include "quanta/runtime/dtype.h"

#include <array>
#include <limits>
#include <string>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

struct DTypeName {
  DType dtype;
  std::string_view name;
  std::string_view torch;
};

constexpr std::array kNames{
    DTypeName{DType::Float32, "Float32", "float32"},
    DTypeName{DType::Float64, "Float64", "float64"},
    DTypeName{DType::Float16, "Float16", "float16"},
    DTypeName{DType::BFloat16, "BFloat16", "bfloat16"},
    DTypeName{DType::Float8E4M3FN, "Float8E4M3FN", "float8_e4m3fn"},
    DTypeName{DType::Float8E5M2, "Float8E5M2", "float8_e5m2"},
    DTypeName{DType::UInt8, "UInt8", "uint8"},
    DTypeName{DType::Int8, "Int8", "int8"},
    DTypeName{DType::Int16, "Int16", "int16"},
    DTypeName{DType::UInt16, "UInt16", "uint16"},
    DTypeName{DType::Int32, "Int32", "int32"},
    DTypeName{DType::Int64, "Int64", "int64"},
    DTypeName{DType::Bool, "Bool", "bool"},
    DTypeName{DType::QUInt8, "QUInt8", "quint8"},
    DTypeName{DType::QInt8, "QInt8", "qint8"},
    DTypeName{DType::QInt32, "QInt32", "qint32"},
    DTypeName{DType::QUInt4x2, "QUInt4x2", "quint4x2"},
    DTypeName{DType::QUInt2x4, "QUInt2x4", "quint2x4"},
};

}  // namespace

std::string_view to_string(DType dtype) {
  for (const DTypeName& entry : kNames) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "unknown dtype";
}

std::string_view torch_name(DType dtype) {
  for (const DTypeName& entry : kNames) {
    if (entry.dtype == dtype) return entry.torch;
  }
  return "unknown dtype";
}

std::optional<DType> dtype_from_torch_name(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (const DTypeName& entry : kNames) {
    if (entry.torch == name) return entry.dtype;
  }
  return std::nullopt;
}

IntRange quant_range(DType dtype) {
  switch (dtype) {
    case DType::QUInt8:
    case DType::UInt8:
      return {0, 255};
    case DType::QInt8:
    case DType::Int8:
      return {-128, 127};
    case DType::Int16:
      return {-32768, 32767};
    case DType::UInt16:
      return {0, 65535};
    case DType::QInt32:
    case DType::Int32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case DType::QUInt4x2:
      return {0, 15};
    case DType::QUInt2x4:
      return {0, 3};
    case DType::Float32:
    case DType::Float64:
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::Int64:
    case DType::Bool:
      break;
  }
  throw ArgumentError(fmt::format(
      "quant_range: dtype: expected an integer type of 32 bits or less, got {}", dtype));
}

DType int_repr_dtype(DType dtype) {
  switch (dtype) {
    case DType::QUInt8:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
      return DType::UInt8;
    case DType::QInt8:
      return DType::Int8;
    case DType::QInt32:
      return DType::Int32;
    default:
      throw ArgumentError(
          fmt::format("int_repr: dtype: expected a quantized dtype, got {}", dtype));
  }
}

DType quantized_dtype(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
      return DType::QUInt8;
    case DType::Int8:
      return DType::QInt8;
    case DType::Int32:
      return DType::QInt32;
    default:
      throw ArgumentError(
          fmt::format("from_int_repr: codes: expected UInt8, Int8 or Int32, got {}", dtype));
  }
}

}  // namespace quanta
