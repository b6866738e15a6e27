#pragma once

// Private, for .cu files only: elements whose dtype the kernel learns when it runs.

#include <type_traits>

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/plain_element.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

// Calls visit(element) with the struct of a plain dtype.
template <typename Visit>
SIMT_DEVICE void visit_element(DType dtype, const Visit& visit) {
  using namespace quanta::detail;
  switch (dtype) {
    case DType::Float32:
      return visit(NativeElement<float>{});
    case DType::Float64:
      return visit(NativeElement<double>{});
    case DType::Float16:
      return visit(Float16Element{});
    case DType::BFloat16:
      return visit(BFloat16Element{});
    case DType::Float8E4M3FN:
      return visit(Float8E4M3FNElement{});
    case DType::Float8E5M2:
      return visit(Float8E5M2Element{});
    case DType::UInt8:
      return visit(NativeElement<std::uint8_t>{});
    case DType::Int8:
      return visit(NativeElement<std::int8_t>{});
    case DType::Int16:
      return visit(NativeElement<std::int16_t>{});
    case DType::UInt16:
      return visit(NativeElement<std::uint16_t>{});
    case DType::Int32:
      return visit(NativeElement<std::int32_t>{});
    case DType::Int64:
      return visit(NativeElement<std::int64_t>{});
    case DType::Bool:
      return visit(NativeElement<bool>{});
    default:  // not plain: callers check
      return;
  }
}

template <typename Element>
SIMT_DEVICE double read_item(const void* from, std::int64_t at, Element) {
  return Element::to_double(static_cast<const typename Element::Storage*>(from)[at]);
}
template <typename Element>
SIMT_DEVICE void write_item(void* to, std::int64_t at, double value, Element) {
  static_cast<typename Element::Storage*>(to)[at] = Element::from_double(value);
}

/// An element of any plain dtype.
SIMT_DEVICE double number_at(DType dtype, const void* from, std::int64_t at) {
  double value = 0.0;
  visit_element(dtype, [&](auto element) { value = read_item(from, at, element); });
  return value;
}

// Calls visit(T{}) with the type of an integer dtype or Bool.
template <typename Visit>
SIMT_DEVICE void visit_integer(DType dtype, const Visit& visit) {
  visit_element(dtype, [&](auto element) {
    using Element = decltype(element);
    using Storage = typename Element::Storage;
    if constexpr (std::is_same_v<Element, quanta::detail::NativeElement<Storage>> &&
                  std::is_integral_v<Storage>) {
      visit(Storage{});
    }
  });
}

/// An element of an integer dtype or Bool.
SIMT_DEVICE std::int64_t integer_at(DType dtype, const void* from, std::int64_t at) {
  std::int64_t value = 0;
  visit_integer(dtype, [&](auto zero) {
    value = static_cast<std::int64_t>(static_cast<const decltype(zero)*>(from)[at]);
  });
  return value;
}

// Calls visit(T{}) with the type of elements (or codes) that C++ can order. Bool counts as 0, 1.
template <typename Visit>
SIMT_DEVICE void visit_ordered(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::Float32:
      return visit(float{});
    case DType::Float64:
      return visit(double{});
    case DType::UInt8:
    case DType::QUInt8:
    case DType::Bool:
      return visit(std::uint8_t{});
    case DType::Int8:
    case DType::QInt8:
      return visit(std::int8_t{});
    case DType::Int16:
      return visit(std::int16_t{});
    case DType::UInt16:
      return visit(std::uint16_t{});
    case DType::Int32:
    case DType::QInt32:
      return visit(std::int32_t{});
    default:
      return visit(std::int64_t{});
  }
}

}  // namespace quanta::cuda
