#pragma once

#include <algorithm>
#include <limits>
#include <string_view>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/tensor.h"

// Private: what the elementwise ops of quantized tensors ask of their operands, and the scalar
// functions that their parameters stand for.

namespace quanta::cpu {

/// Per tensor, QUInt8, QInt8 or QInt32.
inline void check_per_tensor(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a quantized tensor, got an undefined one", op,
               argument);
  QUANTA_CHECK(x.is_quantized(), "{}: {}: expected a quantized tensor, got {}", op, argument,
               x.dtype());
  const QScheme scheme = x.impl()->quantizer.scheme;
  QUANTA_CHECK(scheme == QScheme::PerTensorAffine,
               "{}: {}: expected one scale and zero point (PerTensorAffine), got {}", op, argument,
               scheme);
  QUANTA_SUPPORTED(!is_sub_byte(x.dtype()),
                   "{}: {}: expected QUInt8, QInt8 or QInt32 on the CPU, got {}", op, argument,
                   x.dtype());
}

inline IntRange code_range(DType dtype) {
  return dtype == DType::QUInt8  ? IntRange{0, 255}
         : dtype == DType::QInt8 ? IntRange{-128, 127}
                                 : IntRange{std::numeric_limits<std::int32_t>::min(),
                                            std::numeric_limits<std::int32_t>::max()};
}

/// A difference of int32 codes takes 33 bits, so the product of two may need more than 64: it
/// saturates, as the code made from it will.
inline std::int64_t saturating_product(std::int64_t lhs, std::int64_t rhs) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(lhs, rhs, &product)) return product;
  return (lhs < 0) == (rhs < 0) ? std::numeric_limits<std::int64_t>::max()
                                : std::numeric_limits<std::int64_t>::min();
}

/// A float to a code of any of the three dtypes; a relu raises `min` to the zero point.
struct ScalarQuantizer {
  ScalarQuantizer(double scale, std::int64_t zero_point, DType dtype)
      : inv_scale(math::inverse_scale(static_cast<float>(scale))),
        zero_point(static_cast<std::int32_t>(zero_point)),
        min(static_cast<std::int32_t>(code_range(dtype).min)),
        max(static_cast<std::int32_t>(code_range(dtype).max)),
        is_qint32(dtype == DType::QInt32) {}
  /// `x` is quantized per tensor.
  explicit ScalarQuantizer(const Tensor& x)
      : ScalarQuantizer(x.impl()->quantizer.scale, x.impl()->quantizer.zero_point, x.dtype()) {}

  std::int32_t operator()(float x) const {
    return is_qint32 ? std::max(min, math::quantize_qint32(x, inv_scale, zero_point))
                     : math::quantize(x, inv_scale, zero_point, min, max);
  }
  QuantizeArgs args() const { return {inv_scale, zero_point, min, max, max}; }

  float inv_scale;
  std::int32_t zero_point;
  std::int32_t min;
  std::int32_t max;
  bool is_qint32;
};

/// A code to a float, as torch's vector code does it.
struct ScalarDequantizer {
  ScalarDequantizer(double scale_in, std::int64_t zero_point)
      : scale(static_cast<float>(scale_in)), offset(math::dequantize_offset(scale, zero_point)) {}
  explicit ScalarDequantizer(const Tensor& x)
      : ScalarDequantizer(x.impl()->quantizer.scale, x.impl()->quantizer.zero_point) {}

  float operator()(std::int32_t code) const { return math::dequantize_fused(code, scale, offset); }

  float scale;
  float offset;
};

}  // namespace quanta::cpu
