#include "quanta/ops/detail/cuda_float_weight.h"

#include <algorithm>
#include <bit>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {
namespace {

using cuda::WeightForm;
using cuda::WeightProductParams;

constexpr std::int64_t kChunkBytes = 16;

std::int64_t padded_depth(std::int64_t depth) {
  return round_up(depth, std::int64_t{WeightProductParams::kBlock});
}
std::int64_t padded_columns(std::int64_t columns) {
  return round_up(columns, std::int64_t{WeightProductParams::kColumns});
}

template <typename T>
cuda::Buffer upload(Device device, const std::vector<T>& values) {
  return {device, values.data(), values.size() * sizeof(T)};
}

WeightProductParams sizes_of(const FloatWeight& weight) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  QUANTA_SUPPORTED(weight.out_features <= kMost && weight.in_features <= kMost,
                   "linear: x: expected at most 2^30 features on a CUDA device, got {} and {}",
                   weight.in_features, weight.out_features);
  WeightProductParams params;
  params.columns = static_cast<int>(weight.out_features);
  params.padded_columns = static_cast<int>(padded_columns(weight.out_features));
  params.depth = static_cast<int>(weight.in_features);
  params.form = weight.bits == 16  ? WeightForm::Half
                : weight.bits == 8 ? WeightForm::Int8
                                   : WeightForm::Int4;
  if (weight.group < weight.in_features) {
    params.group_shift = std::countr_zero(static_cast<std::uint64_t>(weight.group));
    params.segment =
        static_cast<int>(std::min<std::int64_t>(weight.group, WeightProductParams::kBlock));
  }
  return params;
}

/// All elements in chunks, codes without their sign.
std::vector<std::uint8_t> chunks_of(const FloatWeight& weight) {
  const std::int64_t neighbours = kChunkBytes * 8 / weight.bits;
  const std::int64_t columns = padded_columns(weight.out_features);
  const bool is_half = weight.bits == 16;
  const int sign = is_half ? 0 : 1 << (weight.bits - 1);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(padded_depth(weight.in_features) /
                                                           neighbours * columns * kChunkBytes));
  for (std::int64_t i = 0; i < weight.out_features * weight.in_features; ++i) {
    const std::int64_t n = i / weight.in_features;
    const std::int64_t k = i % weight.in_features;
    const auto from = static_cast<std::size_t>(i);
    const int element = is_half ? weight.halves[from] : weight.codes[from] + sign;
    std::uint8_t* chunk = bytes.data() + (k / neighbours * columns + n) * kChunkBytes;
    const std::int64_t bit = k % neighbours * weight.bits;
    for (std::int64_t b = bit; b < bit + weight.bits; b += 8) {
      std::uint8_t& byte = chunk[b / 8];
      byte = static_cast<std::uint8_t>(byte | element >> (b - bit) << (b % 8));
    }
  }
  return bytes;
}

/// values [N, groups] as [groups, padded N].
template <typename T>
std::vector<T> turned(const std::vector<T>& values, std::int64_t out_features) {
  const std::int64_t groups = static_cast<std::int64_t>(values.size()) / out_features;
  const std::int64_t columns = padded_columns(out_features);
  std::vector<T> result(static_cast<std::size_t>(groups * columns));
  for (std::int64_t n = 0; n < out_features; ++n) {
    for (std::int64_t g = 0; g < groups; ++g) {
      result[static_cast<std::size_t>(g * columns + n)] =
          values[static_cast<std::size_t>(n * groups + g)];
    }
  }
  return result;
}

}  // namespace

CudaFloatWeight::Packed CudaFloatWeight::pack(Device device, const FloatWeight& weight) {
  Packed packed;
  WeightProductParams& params = packed.params;
  params = sizes_of(weight);
  packed.codes = upload(device, chunks_of(weight));
  params.w = packed.codes.as<unsigned char>();
  if (weight.bits != 16) {
    packed.scales = upload(device, turned(weight.scales, weight.out_features));
    params.scales = packed.scales.as<float>();
  }
  if (!weight.zero_points.empty()) {
    packed.zero_points = upload(device, turned(weight.zero_points, weight.out_features));
    params.zero_points = packed.zero_points.as<std::int8_t>();
  }
  if (weight.bias.defined()) {
    packed.bias = cuda::Buffer(device, weight.bias.data_ptr(), weight.bias.nbytes());
    params.bias = packed.bias.as<float>();
  }
  return packed;
}

void CudaFloatWeight::run(const std::function<FloatWeight()>& weight, bool relu, const Tensor& x,
                          const Tensor& out) {
  run(weight, relu,
      {.device = out.device(),
       .dtype = x.dtype(),
       .rows = out.numel() / out.sizes().back(),
       .x = x.device_ptr(),
       .y = out.device_ptr()});
}

void CudaFloatWeight::run(const std::function<FloatWeight()>& weight, bool relu, const Rows& rows) {
  WeightProductParams params;
  {
    const std::lock_guard lock(mutex_);
    auto known = devices_.find(rows.device.index);
    if (known == devices_.end()) {
      known = devices_.emplace(rows.device.index, pack(rows.device, weight())).first;
    }
    params = known->second.params;
  }
  params.x = rows.x;
  params.y = rows.y;
  params.is_bfloat16 = rows.dtype == DType::BFloat16;
  params.aligned_x =
      params.depth % 4 == 0 && reinterpret_cast<std::uintptr_t>(params.x) % kChunkBytes == 0;
  params.rows = rows.rows;
  params.relu = relu;
  cuda::multiply_weights(rows.device, params);
}

}  // namespace quanta::detail
