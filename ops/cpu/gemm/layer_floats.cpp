#include "quanta/ops/cpu/gemm/layer_floats.h"

#include <cstring>
#include <vector>

#include "quanta/ops/cpu/gemm/sums_to_floats.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {

void layer_floats(const Int8Sums& sums, const QuantizedWeight& weight, float src_scale,
                  std::int64_t rows, std::int64_t channels, float* dst) {
  // What each channel's sums lack, in integers that wrap: subtracted with a factor of -1.
  std::vector<std::int32_t> added(static_cast<std::size_t>(channels), 0);
  if (sums.compensation != nullptr) added.assign(sums.compensation, sums.compensation + channels);
  if (weight.has_integer_bias()) {
    const auto* bias = static_cast<const std::int32_t*>(weight.bias().data_ptr());
    for (std::size_t n = 0; n < added.size(); ++n) {
      added[n] = static_cast<std::int32_t>(static_cast<std::uint32_t>(added[n]) +
                                           static_cast<std::uint32_t>(bias[n]));
    }
  }
  const std::vector<float> scales = weight.sum_scales(1.0F);
  const bool float_bias = weight.has_bias() && !weight.has_integer_bias();
  const SumsToFloats args{
      .src_scale = src_scale,
      .src_zero_point = -1,
      .scales = scales.data(),
      .weight_sums = added.data(),
      .zero_points = nullptr,
      .src_sum = 0,
      .bias = float_bias ? static_cast<const float*>(weight.bias().data_ptr()) : nullptr,
      .relu = false};
  constexpr std::int64_t kGrain = 16384;
  parallel_for(rows, kGrain / channels + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* to = dst + row * channels;
      std::memcpy(to, sums.values + row * channels,
                  static_cast<std::size_t>(channels) * sizeof(float));
      sums_to_floats(args, 0, channels, to);
    }
  });
}

}  // namespace quanta::cpu
