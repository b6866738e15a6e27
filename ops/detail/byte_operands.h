#pragma once

// Private: plain 8-bit integers as the exact kernels take them: the left side without sign, the
// right one with it. Codes and zero points move by 128 together, which changes no product.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Throws unless `x` is UInt8 or Int8.
void check_bytes(std::string_view op, std::string_view argument, const Tensor& x);

/// Throws unless `zero_point` is undefined, or of this dtype with 1 or `channels` elements.
void check_byte_zero_point(std::string_view op, std::string_view argument, const Tensor& zero_point,
                           DType dtype, std::int64_t channels);

/// The numbers of a zero point (undefined: 0), moved by 128 when its operand is.
std::vector<std::int64_t> zero_points_of_bytes(const Tensor& zero_point, DType operand,
                                               bool to_signed);

/// The bytes of a contiguous or channels-last tensor in their order, those of the other sign turned.
template <typename To>
std::vector<To> turned_bytes(const Tensor& x, bool to_signed) {
  const std::uint8_t mask = (x.dtype() == DType::Int8) != to_signed ? 0x80 : 0x00;
  const auto* src = static_cast<const std::uint8_t*>(x.data_ptr());
  std::vector<To> result(static_cast<std::size_t>(x.numel()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<To>(static_cast<std::uint8_t>(src[i] ^ mask));
  }
  return result;
}

}  // namespace quanta::detail
