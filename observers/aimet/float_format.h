#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quanta/runtime/float_format.h"
#include "quanta/runtime/tensor.h"

// What each function throws is said below. Many threads may call these functions at once while
// nobody writes to the arguments.

namespace quanta::aimet {

/// A floating format as AIMET describes it: bits of exponent and mantissa, whether it leaves out
/// infinities (`finite`) and the negative zero (`unsigned_zero`). A plain value. Which codes are
/// numbers, with e the exponent's field:
///
///   neither           bias 2^(E-1) - 1, the top e holds infinity and NaN, as in IEEE 754
///   finite            the same bias; of 8 bits and more the code of all ones is NaN ("fn")
///   and unsigned_zero bias 2^(E-1), the code of -0 is NaN ("fnuz")
///   unsigned_zero     bias 2^(E-1), the code of -0 is NaN, the top e holds infinity
struct FloatSpec {
  std::int64_t exponent_bits = 0;
  std::int64_t mantissa_bits = 0;
  bool finite = false;
  bool unsigned_zero = false;

  /// float16, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz or
  /// float4_e2m1fn (a leading "torch." is allowed). Throws ArgumentError for another name.
  static FloatSpec from_name(std::string_view name);
  /// The format that onnx_name() calls so. Throws ArgumentError for another name.
  static FloatSpec from_onnx_name(std::string_view name);

  std::int64_t bitwidth() const noexcept { return exponent_bits + mantissa_bits + 1; }
  /// Whether it is one of the formats that from_name knows.
  bool is_builtin() const noexcept;
  /// Whether it is builtin and a dtype of torch, which float4_e2m1fn is not: AIMET rounds these by
  /// conversion.
  bool has_conversion() const noexcept;
  /// "float16", "bfloat16", else `float<bits>_e<E>m<M>` with "fn" and "uz".
  std::string name() const;
  /// The name as ONNX writes it: "float8e4m3fn", "float4e2m1".
  std::string onnx_name() const;
  /// The largest number. Throws ArgumentError for bits outside 1..8 and 0..23, and where it is
  /// larger than float32's (8 bits of exponent, finite).
  double max() const;
  /// The same as AIMET's release gives it: ArgumentError for formats that are neither builtin nor
  /// IEEE-like (finite or unsigned_zero), whose maximum it does not know.
  double released_max() const;
  /// (2 - 2^-M) times the largest power of two: max() or more, where codes next to it are no
  /// numbers. Throws as max().
  double full_max() const;
  /// The grid of the format for kernels: of builtin formats and those with finite or unsigned_zero
  /// their own; of others the one that fake_cast_to_ieee_float rounds to, which has no special
  /// codes and hence one exponent more at its lower end. Nothing for formats of more than 16 bits
  /// and for exponents below float32's.
  std::optional<math::FloatFormat> grid() const;

  bool operator==(const FloatSpec&) const = default;
};

/// Rounds to a grid of floating numbers with E and M bits whose largest is `maxval` (one positive
/// element, or broadcast to x), by arithmetic:
///
///   bias = 2^E - log2(maxval) + log2(2 - 2^-M) - 1
///   c    = clamp(x, -maxval, maxval)
///   s    = 2^(max(floor(log2|c| + bias), 1) - M - bias)
///   y    = round_half_even(c / s) * s
///
/// For a maxval that is no power of two times 2 - 2^-M, bias is no integer and the grid is scaled.
/// Infinities stay unless `finite`; NaN stays. Float32; calculated in float32, with a number as
/// maxval the bias in float64. Its gradient is 0. Throws ArgumentError: maxval not > 0 or not
/// broadcastable, bits outside 1..8 and 0..23.
Tensor fake_cast_to_ieee_float(const Tensor& x, const Tensor& maxval, std::int64_t exponent_bits,
                               std::int64_t mantissa_bits, bool finite = false);
Tensor fake_cast_to_ieee_float(const Tensor& x, double maxval, std::int64_t exponent_bits,
                               std::int64_t mantissa_bits, bool finite = false);

}  // namespace quanta::aimet
