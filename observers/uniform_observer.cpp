#include "quanta/observers/uniform_observer.h"

#include <cmath>
#include <limits>
#include <vector>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

bool is_observable(DType dtype) {
  switch (dtype) {
    case DType::QInt8:
    case DType::QUInt8:
    case DType::QUInt4x2:
    case DType::QInt32:
    case DType::Int8:
    case DType::UInt8:
    case DType::Int16:
    case DType::UInt16:
    case DType::Int32:
    case DType::Float8E5M2:
    case DType::Float8E4M3FN:
      return true;
    case DType::QUInt2x4:
    case DType::Int64:
    case DType::Bool:
    case DType::Float32:
    case DType::Float64:
    case DType::Float16:
    case DType::BFloat16:
      return false;
  }
  return false;
}

}  // namespace

UniformObserver::UniformObserver(std::string_view op, const UniformSettings& settings) {
  QUANTA_CHECK(is_observable(settings.dtype),
               "{}: dtype: expected QInt8, QUInt8, QUInt4x2, QInt32, Int8, UInt8, Int16, UInt16, "
               "Int32, Float8E5M2 or Float8E4M3FN, got {}",
               op, settings.dtype);
  QUANTA_CHECK(settings.eps >= 0.0 && std::isfinite(settings.eps),
               "{}: eps: expected a finite number >= 0, got {}", op, settings.eps);
  dtype_ = settings.dtype;
  qscheme_ = settings.qscheme;
  is_dynamic_ = settings.is_dynamic;
  range_ = observer_range(op, settings.dtype, settings.reduce_range, settings.quant_min,
                          settings.quant_max);
  rule_ = {settings.qscheme, settings.dtype, range_, settings.quant_min.has_value(),
           static_cast<float>(settings.eps)};
}

QParamsRule UniformObserver::rule() const {
  const std::lock_guard lock(mutex_);
  return rule_;
}

ObservedQParams UniformObserver::qparams(std::span<const float> min, std::span<const float> max,
                                         const QParamsRule& rule) const {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool unobserved =
      min.empty() || (!is_per_channel(rule.qscheme) && min[0] == kInfinity && max[0] == -kInfinity);
  if (unobserved) return {Tensor::ones({1}), Tensor::zeros({1}, DType::Int64)};

  const auto channels = static_cast<std::int64_t>(min.size());
  const bool float_zero_points = rule.qscheme == QScheme::PerChannelAffineFloatQParams;
  ObservedQParams result{
      Tensor::empty({channels}),
      Tensor::empty({channels}, float_zero_points ? DType::Float32 : DType::Int64)};
  auto* scales = result.scale.mutable_data<float>();
  for (std::size_t c = 0; c < min.size(); ++c) {
    QUANTA_CHECK(!(min[c] > max[c]),
                 "{}: calculate_qparams: expected min_val <= max_val, got {} and {} (channel {})",
                 name(), min[c], max[c], c);
    const ObservedScale one = quanta::calculate_qparams(min[c], max[c], rule);
    QUANTA_CHECK(std::isfinite(one.scale) && std::isfinite(one.float_zero_point),
                 "{}: calculate_qparams: expected a range with a finite scale, got {}..{} (channel "
                 "{})",
                 name(), min[c], max[c], c);
    scales[c] = one.scale;
    if (float_zero_points) {
      result.zero_point.mutable_data<float>()[c] = one.float_zero_point;
    } else {
      result.zero_point.mutable_data<std::int64_t>()[c] = one.zero_point;
    }
  }
  return result;
}

}  // namespace quanta
