#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// Element types. Functions of plain values, which many threads may call at once; what throws says
/// so.
namespace quanta {

/// Element types, named as torch names them. The quantized ones (Q...) store integers and carry
/// quantization parameters beside them.
enum class DType : std::uint8_t {
  Float32,
  Float64,
  Float16,
  BFloat16,
  Float8E4M3FN,
  Float8E5M2,
  UInt8,
  Int8,
  Int16,
  UInt16,
  Int32,
  Int64,
  Bool,
  QUInt8,
  QInt8,
  QInt32,
  QUInt4x2,  ///< two values a byte, the even index in the low four bits
  QUInt2x4,  ///< four values a byte, the lowest index in the low two bits
};

/// "Float32", "QUInt8", ...: the enumerator's name, used in messages.
std::string_view to_string(DType dtype);

/// "float32", "quint8", "float8_e4m3fn", ...: torch's name.
std::string_view torch_name(DType dtype);

/// The dtype with this torch name (a leading "torch." is allowed), or nothing.
std::optional<DType> dtype_from_torch_name(std::string_view name);

/// Bits of one element: 8 for QUInt8, 4 for QUInt4x2, 2 for QUInt2x4.
constexpr int item_bits(DType dtype) noexcept {
  switch (dtype) {
    case DType::Float64:
    case DType::Int64:
      return 64;
    case DType::Float32:
    case DType::Int32:
    case DType::QInt32:
      return 32;
    case DType::Float16:
    case DType::BFloat16:
    case DType::Int16:
    case DType::UInt16:
      return 16;
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::UInt8:
    case DType::Int8:
    case DType::Bool:
    case DType::QUInt8:
    case DType::QInt8:
      return 8;
    case DType::QUInt4x2:
      return 4;
    case DType::QUInt2x4:
      return 2;
  }
  return 0;
}

/// Whole bytes of one element; 1 for the sub-byte kinds, whose tensors are always contiguous.
constexpr std::size_t item_size(DType dtype) noexcept {
  return item_bits(dtype) < 8 ? 1 : static_cast<std::size_t>(item_bits(dtype) / 8);
}

/// Bytes that `numel` contiguous elements take (sub-byte kinds are packed).
constexpr std::size_t storage_bytes(DType dtype, std::int64_t numel) noexcept {
  return (static_cast<std::size_t>(numel) * static_cast<std::size_t>(item_bits(dtype)) + 7) / 8;
}

constexpr bool is_sub_byte(DType dtype) noexcept { return item_bits(dtype) < 8; }

constexpr bool is_quantized(DType dtype) noexcept {
  return dtype == DType::QUInt8 || dtype == DType::QInt8 || dtype == DType::QInt32 ||
         dtype == DType::QUInt4x2 || dtype == DType::QUInt2x4;
}

constexpr bool is_floating_point(DType dtype) noexcept {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 ||
         dtype == DType::BFloat16 || dtype == DType::Float8E4M3FN || dtype == DType::Float8E5M2;
}

/// The integers a dtype can hold; also the range of an observer.
struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
  bool operator==(const IntRange&) const = default;
};

/// 0..255 for QUInt8 and UInt8, -128..127 for QInt8 and Int8, 0..15 for QUInt4x2, ...
/// Throws ArgumentError for floating point types, Bool and Int64.
IntRange quant_range(DType dtype);

/// The plain integer type that holds the codes of a quantized dtype: UInt8 for QUInt8, QUInt4x2
/// and QUInt2x4, Int8 for QInt8, Int32 for QInt32. Throws ArgumentError for other types.
DType int_repr_dtype(DType dtype);

/// The other way round: UInt8 -> QUInt8, Int8 -> QInt8, Int32 -> QInt32; else ArgumentError.
DType quantized_dtype(DType dtype);

}  // namespace quanta
