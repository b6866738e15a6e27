#pragma once

// Private: what pooling, interpolation, padding and normalization share.

#include <cstdint>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// An uninitialised tensor with the dtype and parameters of `x`.
inline Tensor empty_with_parameters_of(const Tensor& x, const Dims& sizes, MemoryFormat format) {
  if (!x.is_quantized()) return Tensor::empty(sizes, x.dtype(), format);
  return QTensor::empty(sizes, x.dtype(), x.impl()->quantizer, format);
}

/// One number per spatial dimension: `values` as they are, or its only number for all.
inline Dims per_dimension(std::string_view op, std::string_view argument, const Dims& values,
                          std::size_t count) {
  QUANTA_CHECK(values.size() == count || values.size() == 1,
               "{}: {}: expected 1 or {} numbers, got {}", op, argument, count, values);
  return values.size() == count ? values : Dims::filled(count, values[0]);
}

/// Throws unless `x` is defined and float32 or per-tensor quantized with 8 bits (or 32 with
/// `allow_qint32`).
inline void check_float_or_quantized(std::string_view op, const Tensor& x, bool allow_qint32) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_SUPPORTED(x.dtype() == DType::Float32 || x.dtype() == DType::QUInt8 ||
                       x.dtype() == DType::QInt8 || (allow_qint32 && x.dtype() == DType::QInt32),
                   "{}: x: expected Float32, QUInt8{} on the CPU, got {}", op,
                   allow_qint32 ? ", QInt8 or QInt32" : " or QInt8", x.dtype());
  QUANTA_SUPPORTED(!x.is_quantized() || !is_per_channel(x.impl()->quantizer.scheme),
                   "{}: x: expected a tensor quantized per tensor, got {}", op,
                   x.impl()->quantizer.scheme);
}

/// Throws unless `x` is per-tensor QUInt8 or QInt8.
inline void check_quantized_8bit(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_SUPPORTED(x.dtype() == DType::QUInt8 || x.dtype() == DType::QInt8,
                   "{}: x: expected QUInt8 or QInt8 on the CPU, got {}", op, x.dtype());
  const QScheme scheme = x.impl()->quantizer.scheme;
  QUANTA_SUPPORTED(!is_per_channel(scheme), "{}: x: expected a tensor quantized per tensor, got {}",
                   op, scheme);
}

}  // namespace quanta::detail
