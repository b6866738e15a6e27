#include "quanta/ops/cpu/gemm/quantized_weight.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "quanta/ops/cpu/gemm/code_sums.h"

namespace quanta::cpu {

QuantizedWeight::QuantizedWeight(QTensor weight, Tensor bias, std::int64_t channels)
    : weight_(std::move(weight)),
      forms_(detail::PackedForms::make(weight_)),
      bias_(std::move(bias)),
      channels_(channels) {
  if (weight_.is_per_channel()) {
    const ChannelQParams& qparams = *weight_.quantizer().channel;
    for (const double scale : qparams.scales) scales_.push_back(static_cast<float>(scale));
    zero_points_ = qparams.zero_points;
  } else {
    scales_.push_back(static_cast<float>(weight_.quantizer().scale));
    zero_points_.push_back(weight_.quantizer().zero_point);
  }
  has_zero_points_ = std::ranges::any_of(zero_points_, [](std::int64_t z) { return z != 0; });

  // 255 * 65793 < 2^24.
  constexpr std::int64_t kMaxOneSign = 65793;
  const std::int64_t length = weight_.numel() / channels_;
  const std::int8_t* row = codes();
  channel_sums_.reserve(static_cast<std::size_t>(channels_));
  for (std::int64_t n = 0; n < channels_; ++n, row += length) {
    const CodeSums sums = code_sums(row, length);
    channel_sums_.push_back(static_cast<std::int32_t>(sums.positive + sums.negative));
    if (sums.positive > kMaxOneSign || -sums.negative > kMaxOneSign) exact_in_float_ = false;
  }
}

const std::int8_t* QuantizedWeight::codes() const noexcept {
  return static_cast<const std::int8_t*>(weight_.data_ptr());
}

std::vector<float> QuantizedWeight::sum_scales(float src_scale) const {
  std::vector<float> result(static_cast<std::size_t>(channels_));
  for (std::size_t n = 0; n < result.size(); ++n) {
    result[n] = src_scale * (scales_.size() == 1 ? scales_[0] : scales_[n]);
  }
  return result;
}

std::vector<float> QuantizedWeight::multipliers(const CallQParams& qparams) const {
  std::vector<float> result = sum_scales(qparams.src_scale);
  for (float& value : result) value /= qparams.dst_scale;
  return result;
}

BiasTerms QuantizedWeight::bias_terms(float src_scale) const {
  BiasTerms result{std::vector<float>(static_cast<std::size_t>(channels_), 0.0F)};
  if (!has_bias()) return result;
  if (has_integer_bias()) {
    const auto* units = static_cast<const std::int32_t*>(bias_.data_ptr());
    std::transform(units, units + channels_, result.bias.begin(),
                   [](std::int32_t value) { return static_cast<float>(value); });
    return result;
  }
  const auto* bias = static_cast<const float*>(bias_.data_ptr());
  if (weight_.is_per_channel()) {
    const std::vector<float> scales = sum_scales(src_scale);
    std::transform(bias, bias + channels_, scales.begin(), result.bias.begin(), std::divides<>());
  } else {
    std::copy_n(bias, channels_, result.bias.begin());
    result.factor = 1.0F / (src_scale * scales_[0]);
  }
  return result;
}

std::vector<float> QuantizedWeight::real_bias(float src_scale) const {
  if (!has_bias()) return {};
  if (!has_integer_bias()) {
    const auto* bias = static_cast<const float*>(bias_.data_ptr());
    return {bias, bias + channels_};
  }
  std::vector<float> result = bias_terms(src_scale).bias;
  const std::vector<float> scales = sum_scales(src_scale);
  for (std::size_t n = 0; n < result.size(); ++n) result[n] *= scales[n];
  return result;
}

std::vector<std::int32_t> QuantizedWeight::compensation(std::int32_t src_zero_point) const {
  std::vector<std::int32_t> result = channel_sums_;
  for (std::int32_t& value : result) {
    // The product is taken in 64 bits and wraps, as the sums themselves do.
    value = static_cast<std::int32_t>(-static_cast<std::int64_t>(src_zero_point) * value);
  }
  return result;
}

// The scales are those of an x of scale 1, the sums what a zero point of -1 adds.
ChannelTerms::ChannelTerms(const QuantizedWeight& weight)
    : scales(weight.sum_scales(1.0F)), sums(weight.compensation(-1)) {
  if (!weight.has_zero_points()) return;
  const std::vector<std::int64_t>& zeros = weight.zero_points();
  const auto depth = static_cast<std::uint32_t>(weight.weight().size(1));
  for (std::size_t n = 0; n < sums.size(); ++n) {
    zero_points.push_back(static_cast<std::int32_t>(zeros[zeros.size() == 1 ? 0 : n]));
    sums[n] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[n]) -
                                        depth * static_cast<std::uint32_t>(zero_points[n]));
  }
}

}  // namespace quanta::cpu
