#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "quanta/runtime/operation.h"
#include "quanta/runtime/tensor.h"

/// Quantization as ONNX defines it: Q divides by the scale, where torch multiplies by its
/// reciprocal, and codes are plain integer tensors beside their scales.
///
/// All throw ArgumentError for dtypes, sizes and parameters that do not fit. Many threads may call
/// them at once while nobody writes to the arguments.
namespace quanta {

/// Which elements share a scale, and what codes there are.
struct QuantizeLinearOptions {
  /// The dimension of a scale with more than one element; negative ones count from the end.
  std::int64_t axis = 1;
  /// Elements along `axis` that share a scale; 0: all with one index (a scale of one dimension).
  /// With blocks the scale has the rank of x.
  std::int64_t block_size = 0;
  /// Of the codes: UInt8, Int8, UInt16 or Int16.
  DType dtype = DType::UInt8;
  /// Fewer than the dtype has (4 or 2) for a narrower range in the same tensor; 0: all.
  std::int64_t bits = 0;
};

/// ONNX's QuantizeLinear of a Float32 tensor:
///
///   q = clamp(round_half_even(x / scale) + zero_point, qmin, qmax)
///
/// `scale` is Float32 and `zero_point` (undefined: 0) of the codes' dtype and the scale's sizes.
/// NaN gives qmin, as in ONNX Runtime.
Tensor quantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                       const QuantizeLinearOptions& options = {});
/// ONNX's DequantizeLinear: float(q - zero_point) * scale, for codes UInt8, Int8, UInt16, Int16 or
/// Int32. Of the options only axis and block_size count.
Tensor dequantize_linear(const Tensor& q, const Tensor& scale, const Tensor& zero_point,
                         const QuantizeLinearOptions& options = {});

/// What dynamic_quantize_linear gives.
struct DynamicCodes {
  Tensor codes;       ///< UInt8
  Tensor scale;       ///< Float32, without dimensions
  Tensor zero_point;  ///< UInt8, without dimensions
};
/// ONNX's DynamicQuantizeLinear of a Float32 tensor. With min and max over all of x and 0:
///
///   scale = (max - min) / 255 (1 where that is 0)    zero_point = clamp(round(-min / scale))
///
/// fbgemm, and so quantize_per_tensor_dynamic, chooses another zero point.
DynamicCodes dynamic_quantize_linear(const Tensor& x);

/// Codes of `bits` (2 or 4) that lie several in a byte, the first in the lowest bits, one an element:
/// UInt8 [..., n] to UInt8 [..., n * 8 / bits].
Tensor unpack_bits(const Tensor& bytes, std::int64_t bits);

/// What becomes of each code of QUInt8, as a number.
using FloatTable = std::array<float, 256>;

namespace quantized {

/// quantize_linear with one scale and zero point into codes that carry them. `dtype` is QUInt8 or
/// QInt8.
QTensor quantize_linear(const Tensor& x, double scale, std::int64_t zero_point, DType dtype);

/// Codes of UInt8 (as they are) or Int8 (plus 128, and so is their zero point) as QUInt8: both
/// stand for the same numbers. `zero_point` is that of the result.
QTensor from_codes(const Tensor& codes, double scale, std::int64_t zero_point);
/// The way back: UInt8, or Int8 with 128 less.
Tensor to_codes(const QTensor& x, DType dtype);

/// Any function of one code, from QUInt8 to QUInt8 with these parameters: table[code].
QTensor map_codes(const QTensor& x, const ByteTable& table, double scale, std::int64_t zero_point);
/// The same to Float32.
Tensor map_codes_to_float(const QTensor& x, const FloatTable& table);
// These as operations, for graphs.
std::shared_ptr<const Operation> map_codes_operation(std::shared_ptr<const ByteTable> table,
                                                     double scale, std::int64_t zero_point);
std::shared_ptr<const Operation> map_codes_to_float_operation(
    std::shared_ptr<const FloatTable> table);

}  // namespace quantized
}  // namespace quanta
