#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quanta/runtime/dtype.h"
#include "quanta/runtime/quantizer.h"

// What throws says so. Plain values, and functions that many threads may call at once.

namespace quanta {

/// Turns an observed range into scale and zero point. A plain value, as the results are.
struct QParamsRule {
  QScheme qscheme = QScheme::PerTensorAffine;
  DType dtype = DType::QUInt8;
  IntRange range{0, 255};     ///< after reduce_range or the custom bounds
  bool custom_range = false;  ///< the bounds were given: decides the middle of unsigned codes
  float eps = 1.1920928955078125e-07F;
  bool operator==(const QParamsRule&) const = default;
};

/// One scale and zero point as observers give them.
struct ObservedScale {
  float scale = 1.0F;
  std::int64_t zero_point = 0;
  float float_zero_point = 0.0F;  ///< PerChannelAffineFloatQParams only, which leaves zero_point 0
};

/// Scale and zero point for values in [min, max], every step in float32 as in torch's observers
/// (dynamic quantization chooses otherwise: see choose_qparams). With n = min(min, 0) and
/// p = max(max, 0):
///
///   affine:         scale = max((p - n) / (qmax - qmin), eps)
///                   zero_point = clamp(qmin - round_half_even(n / scale), qmin, qmax)
///   symmetric:      scale = max(max(-n, p) / ((qmax - qmin) / 2), eps); zero_point = 0, and for
///                   unsigned types the middle (128, 32768, floor((qmin + qmax) / 2) if custom)
///   float qparams:  scale = (max - min) / (qmax - qmin), 1 where that is <= eps
///                   float_zero_point = -min / scale
///
/// An infinite or NaN end gives a scale that is infinite or NaN; quantizing with it is refused.
/// Does not throw.
ObservedScale calculate_qparams(float min, float max, const QParamsRule& rule);

/// The codes an observer may use: those of `dtype` (halved by `reduce_range` for 8-bit types), or
/// the custom bounds (each halved, rounding down). Throws ArgumentError `op: quant_min: ...` when
/// only one bound is given, or when they do not satisfy min <= 0 <= max, min < max and the width
/// of a signed dtype; UnsupportedError for a dtype without a range of its own.
IntRange observer_range(std::string_view op, DType dtype, bool reduce_range,
                        std::optional<std::int64_t> quant_min,
                        std::optional<std::int64_t> quant_max);

}  // namespace quanta
