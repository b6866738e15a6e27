#pragma once

// Private: what the ops that move, order and compare elements share.

#include <cstdint>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

inline void check_defined(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
}

/// Throws unless `x` is plain or quantized per tensor, with whole-byte elements.
inline void check_uniform(std::string_view op, std::string_view argument, const Tensor& x) {
  check_defined(op, argument, x);
  QUANTA_SUPPORTED(!is_sub_byte(x.dtype()), "{}: {}: expected a whole-byte dtype, got {}", op,
                   argument, x.dtype());
  QUANTA_SUPPORTED(!x.is_quantized() || !is_per_channel(x.impl()->quantizer.scheme),
                   "{}: {}: expected one scale and zero point (PerTensorAffine), got {}", op,
                   argument, x.impl()->quantizer.scheme);
}

/// Calls visitor(T{}) with the unsigned integer that is as wide as an element.
template <typename Visitor>
void visit_bits(DType dtype, Visitor&& visitor) {
  switch (item_size(dtype)) {
    case 1:
      return visitor(std::uint8_t{});
    case 2:
      return visitor(std::uint16_t{});
    case 4:
      return visitor(std::uint32_t{});
    default:
      return visitor(std::uint64_t{});
  }
}

/// `yes` where the flag holds, else `no`, without a branch that random masks would mispredict.
template <typename T>
T select_bits(bool flag, T yes, T no) {
  const auto mask = static_cast<T>(T{} - static_cast<T>(flag));
  return static_cast<T>((yes & mask) | (no & static_cast<T>(~mask)));
}

/// Calls visitor(T{}) with the type of elements (or codes) that C++ can order. Bool counts as 0, 1.
template <typename Visitor>
void visit_ordered(std::string_view op, DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::Float32:
      return visitor(float{});
    case DType::Float64:
      return visitor(double{});
    case DType::UInt8:
    case DType::QUInt8:
    case DType::Bool:
      return visitor(std::uint8_t{});
    case DType::Int8:
    case DType::QInt8:
      return visitor(std::int8_t{});
    case DType::Int16:
      return visitor(std::int16_t{});
    case DType::UInt16:
      return visitor(std::uint16_t{});
    case DType::Int32:
    case DType::QInt32:
      return visitor(std::int32_t{});
    case DType::Int64:
      return visitor(std::int64_t{});
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
      break;
  }
  throw UnsupportedError(with_module_path(fmt::format(
      "{}: x: expected Float32, Float64, an integer dtype, QUInt8, QInt8 or QInt32 on the CPU, "
      "got {}",
      op, dtype)));
}

/// Throws unless visit_ordered() takes the dtype.
inline void check_ordered(std::string_view op, DType dtype) {
  visit_ordered(op, dtype, [](auto) {});
}

/// Whether a tensor of `sizes` can be expanded to `target`.
inline bool broadcasts_to(const Dims& sizes, const Dims& target) {
  if (sizes.size() > target.size()) return false;
  const std::size_t added = target.size() - sizes.size();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && sizes[d] != target[d + added]) return false;
  }
  return true;
}

/// NaN counts as the largest number, as in torch's max, sort and topk.
template <typename T>
bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a < b || (b != b && a == a);
  } else {
    return a < b;
  }
}

inline void check_indices(std::string_view op, std::string_view argument, const Tensor& index) {
  check_defined(op, argument, index);
  QUANTA_CHECK(index.dtype() == DType::Int64 || index.dtype() == DType::Int32,
               "{}: {}: expected Int64 or Int32, got {}", op, argument, index.dtype());
}

/// `index` as contiguous Int64.
inline Tensor int64_indices(std::string_view op, std::string_view argument, const Tensor& index) {
  check_indices(op, argument, index);
  return index.to(DType::Int64).contiguous();
}

}  // namespace quanta::detail
