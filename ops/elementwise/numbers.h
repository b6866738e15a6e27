#pragma once

// Private: the dtypes of this family's operations, and their loops.

#include <array>
#include <cstdint>
#include <string_view>

#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/ops/elementwise/functions.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::elementwise {

constexpr std::string_view names_of(Numbers numbers) {
  switch (numbers) {
    case Numbers::FloatsAndIntegers:
      return "Float32, Float64 or an integer dtype";
    case Numbers::Integers:
      return "an integer dtype";
    case Numbers::IntegersAndBool:
      return "an integer dtype or Bool";
    case Numbers::All:
      break;
  }
  return "Float32, Float64, an integer dtype or Bool";
}

constexpr bool takes(Numbers numbers, DType dtype) {
  switch (dtype) {
    case DType::UInt8:
    case DType::Int8:
    case DType::Int16:
    case DType::UInt16:
    case DType::Int32:
    case DType::Int64:
      return true;
    case DType::Float32:
    case DType::Float64:
      return numbers == Numbers::FloatsAndIntegers || numbers == Numbers::All;
    case DType::Bool:
      return numbers == Numbers::IntegersAndBool || numbers == Numbers::All;
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::QUInt8:
    case DType::QInt8:
    case DType::QInt32:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
      break;
  }
  return false;
}

inline void check_numbers(std::string_view op, std::string_view argument, const Tensor& x,
                          Numbers numbers) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  const bool is_narrow = numbers == Numbers::FloatsAndIntegers && detail::is_float_of_cuda(x);
  QUANTA_SUPPORTED(takes(numbers, x.dtype()) || is_narrow, "{}: {}: expected {} on the CPU, got {}",
                   op, argument, names_of(numbers), x.dtype());
}

/// What a CUDA device takes of floats and integers.
inline constexpr std::array kCudaNumbers{DType::Float32, DType::Float64, DType::UInt8, DType::Int8,
                                         DType::Int16,   DType::UInt16,  DType::Int32, DType::Int64,
                                         DType::Float16, DType::BFloat16};

/// Calls visitor(T{}) with the type of elements that takes(Numbers::All) lets through. Bool counts
/// as the bytes 0 and 1.
template <typename Visitor>
void visit_numbers(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::Float32:
      return visitor(float{});
    case DType::Float64:
      return visitor(double{});
    case DType::Int8:
      return visitor(std::int8_t{});
    case DType::Int16:
      return visitor(std::int16_t{});
    case DType::UInt16:
      return visitor(std::uint16_t{});
    case DType::Int32:
      return visitor(std::int32_t{});
    case DType::Int64:
      return visitor(std::int64_t{});
    default:
      return visitor(std::uint8_t{});
  }
}

}  // namespace quanta::elementwise
