#include "quanta/observers/qparams.h"

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/range_qparams.h"

namespace quanta {
namespace {

std::int64_t floor_half(std::int64_t value) { return value >= 0 ? value / 2 : -((1 - value) / 2); }

std::int64_t symmetric_zero_point(const QParamsRule& rule) {
  switch (rule.dtype) {
    case DType::QUInt8:
    case DType::UInt8:
      return rule.custom_range ? floor_half(rule.range.min + rule.range.max) : 128;
    case DType::UInt16:
      return 32768;
    case DType::QInt8:
    case DType::Int8:
    case DType::Int16:
    case DType::QInt32:
    case DType::Int32:
    case DType::Int64:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
    case DType::Bool:
    case DType::Float32:
    case DType::Float64:
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
      return 0;
  }
  return 0;
}

}  // namespace

ObservedScale calculate_qparams(float min, float max, const QParamsRule& rule) {
  const float negative_end = min > 0.0F ? 0.0F : min;
  const float positive_end = max < 0.0F ? 0.0F : max;
  ObservedScale result;
  switch (rule.qscheme) {
    case QScheme::PerTensorSymmetric:
    case QScheme::PerChannelSymmetric:
      result.scale = detail::symmetric_scale(negative_end, positive_end, rule.range, rule.eps);
      result.zero_point = symmetric_zero_point(rule);
      return result;
    case QScheme::PerChannelAffineFloatQParams:
      result.scale = (max - min) / static_cast<float>(rule.range.max - rule.range.min);
      if (!(result.scale > rule.eps)) result.scale = 1.0F;
      result.float_zero_point = -min / result.scale;
      return result;
    case QScheme::PerTensorAffine:
    case QScheme::PerChannelAffine:
      result.scale = detail::affine_scale(negative_end, positive_end, rule.range, rule.eps);
      result.zero_point = detail::affine_zero_point(negative_end, result.scale, rule.range);
      return result;
  }
  return result;
}

IntRange observer_range(std::string_view op, DType dtype, bool reduce_range,
                        std::optional<std::int64_t> quant_min,
                        std::optional<std::int64_t> quant_max) {
  QUANTA_CHECK(quant_min.has_value() == quant_max.has_value(),
               "{}: quant_min, quant_max: expected both or neither, got only {}", op,
               quant_min ? "quant_min" : "quant_max");
  const bool eight_bits = dtype == DType::QInt8 || dtype == DType::Int8 || dtype == DType::QUInt8 ||
                          dtype == DType::UInt8;
  if (!quant_min) {
    QUANTA_SUPPORTED(!is_floating_point(dtype),
                     "{}: dtype: expected quant_min and quant_max to be given for {}", op, dtype);
    const IntRange range = quant_range(dtype);
    if (!reduce_range || !eight_bits) return range;
    return {floor_half(range.min), floor_half(range.max)};
  }

  const IntRange range{*quant_min, *quant_max};
  constexpr std::int64_t kWidest = std::int64_t{1} << 32;
  QUANTA_CHECK(range.min <= 0 && range.max >= 0 && range.min < range.max && range.min > -kWidest &&
                   range.max < kWidest,
               "{}: quant_min, quant_max: expected quant_min <= 0 <= quant_max, one of them not 0, "
               "got {}..{}",
               op, range.min, range.max);
  const std::int64_t length = range.max - range.min + 1;
  if (dtype == DType::QInt8 || dtype == DType::Int8) {
    QUANTA_CHECK(length <= 256,
                 "{}: quant_min, quant_max: expected at most 256 codes for {}, got {}..{}", op,
                 dtype, range.min, range.max);
  }
  if (dtype == DType::QInt32 || dtype == DType::Int32) {
    QUANTA_CHECK(length <= kWidest,
                 "{}: quant_min, quant_max: expected at most 2^32 codes for {}, got {}..{}", op,
                 dtype, range.min, range.max);
  }
  if (!reduce_range) return range;
  return {floor_half(range.min), floor_half(range.max)};
}

}  // namespace quanta
