#include "quanta/ops/cpu/gemm/sums_to_codes.h"

#include <cmath>
#include <vector>

#include "quanta/runtime/parallel.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

float apply(const FloatFunction& function, float value) {
  switch (function.step) {
    case FloatStep::None:
      break;
    case FloatStep::ReLU:
      return value > 0.0F ? value : 0.0F;
    case FloatStep::LeakyReLU:
      return value > 0.0F ? value : value * function.negative_slope;
    case FloatStep::Tanh:
      return std::tanh(value);
  }
  return value;
}

}  // namespace

void sums_to_codes(const Int8Sums& sums, const QuantizedWeight& weight, const CallQParams& qparams,
                   const FloatFunction& function, const QuantizedAddend* addend, std::int64_t rows,
                   std::int64_t channels, std::uint8_t* dst) {
  const std::vector<float> scales = weight.sum_scales(qparams.src_scale);
  const std::vector<float> biases = weight.real_bias(qparams.src_scale);
  const float* bias = biases.empty() ? nullptr : biases.data();
  const float inv_scale = math::inverse_scale(qparams.dst_scale);
  constexpr std::int64_t kGrain = 8192;
  parallel_for(rows, kGrain / channels + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t n = 0; n < channels; ++n) {
        const auto channel = static_cast<std::size_t>(n);
        const std::int64_t i = row * channels + n;
        std::int32_t sum = sums.values[i];
        if (sums.compensation != nullptr) sum += sums.compensation[n];
        float value = static_cast<float>(sum) * scales[channel];
        if (bias != nullptr) value += bias[n];
        if (addend != nullptr) {
          value += math::dequantize(addend->codes[i], addend->scale, addend->zero_point);
        }
        dst[i] = static_cast<std::uint8_t>(
            math::quantize(apply(function, value), inv_scale, qparams.dst_zero_point, 0, 255));
      }
    }
  });
}

}  // namespace quanta::cpu
