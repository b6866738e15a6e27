#include "quanta/ops/detail/byte_operands.h"

#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta::detail {

void check_bytes(std::string_view op, std::string_view argument, const Tensor& x) {
  require_tensor(op, argument, x, {DType::UInt8, DType::Int8});
}

void check_byte_zero_point(std::string_view op, std::string_view argument, const Tensor& zero_point,
                           DType dtype, std::int64_t channels) {
  if (!zero_point.defined()) return;
  QUANTA_CHECK(zero_point.dtype() == dtype, "{}: {}: expected {} as its operand has, got {}", op,
               argument, dtype, zero_point.dtype());
  QUANTA_CHECK(zero_point.numel() == 1 || zero_point.numel() == channels,
               "{}: {}: expected 1 or {} elements, got {}", op, argument, channels,
               zero_point.numel());
}

std::vector<std::int64_t> zero_points_of_bytes(const Tensor& zero_point, DType operand,
                                               bool to_signed) {
  std::vector<std::int64_t> result{0};
  if (zero_point.defined()) {
    const Tensor dense = zero_point.contiguous();
    result.resize(static_cast<std::size_t>(dense.numel()));
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = operand == DType::UInt8 ? static_cast<const std::uint8_t*>(dense.data_ptr())[i]
                                          : static_cast<const std::int8_t*>(dense.data_ptr())[i];
    }
  }
  const bool is_signed = operand == DType::Int8;
  for (std::int64_t& value : result) {
    if (is_signed && !to_signed) value += 128;
    if (!is_signed && to_signed) value -= 128;
  }
  return result;
}

}  // namespace quanta::detail
