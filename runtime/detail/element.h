#pragma once

// Private: from a dtype to the struct that converts its elements.

#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/plain_element.h"

namespace quanta::detail {

/// Calls `visitor` with the element struct of a plain dtype.
template <typename Visitor>
void visit_plain(DType dtype, std::string_view op, Visitor&& visitor) {
  switch (dtype) {
    case DType::Float32:
      return visitor(NativeElement<float>{});
    case DType::Float64:
      return visitor(NativeElement<double>{});
    case DType::Float16:
      return visitor(Float16Element{});
    case DType::BFloat16:
      return visitor(BFloat16Element{});
    case DType::Float8E4M3FN:
      return visitor(Float8E4M3FNElement{});
    case DType::Float8E5M2:
      return visitor(Float8E5M2Element{});
    case DType::UInt8:
      return visitor(NativeElement<std::uint8_t>{});
    case DType::Int8:
      return visitor(NativeElement<std::int8_t>{});
    case DType::Int16:
      return visitor(NativeElement<std::int16_t>{});
    case DType::UInt16:
      return visitor(NativeElement<std::uint16_t>{});
    case DType::Int32:
      return visitor(NativeElement<std::int32_t>{});
    case DType::Int64:
      return visitor(NativeElement<std::int64_t>{});
    case DType::Bool:
      return visitor(NativeElement<bool>{});
    case DType::QUInt8:
    case DType::QInt8:
    case DType::QInt32:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
      break;
  }
  throw UnsupportedError(fmt::format("{}: dtype: expected a plain dtype, got {}", op, dtype));
}

}  // namespace quanta::detail
