#pragma once

// Private: codes with one scale for a tensor, for each index along axes, or for each block.

#include <cstdint>

#include "quanta/observers/modelopt/compressed_tensor.h"
#include "quanta/ops/detail/amax.h"

namespace quanta::modelopt::detail {

/// A tensor, split into blocks where there are any, with the amax that belongs to each part.
struct ScaledBlocks {
  Tensor values;      ///< padded and split
  Tensor amax;        ///< broadcasts to them
  Dims scale_sizes;   ///< of the scales as they are kept
  Dims padded_sizes;  ///< before the split
  BlockSizes block_sizes;
};

ScaledBlocks blocks_along(const Tensor& x, const Dims& axis);
ScaledBlocks blocks_of(const Tensor& x, const BlockSizes& block_sizes);

/// A compressed tensor without data and scale yet.
CompressedTensor describe(CompressedKind kind, const Tensor& x, const ScaledBlocks& blocks);

/// amax / max_code; 1 for 0.
Tensor scales_of(const Tensor& amax, float max_code);

/// `codes` of split values as a tensor of `sizes`.
Tensor unsplit(const Tensor& codes, const ScaledBlocks& blocks, const Dims& sizes);

/// encode(value, scale) of every element, in `dtype`, whose bytes encode gives.
template <typename Encode>
Tensor map_scaled(const Tensor& values, const Tensor& scales, DType dtype, Encode&& encode) {
  using Code = decltype(encode(0.0F, 0.0F));
  Tensor codes = Tensor::empty(values.sizes(), dtype);
  const auto* from = static_cast<const float*>(values.data_ptr());
  auto* to = static_cast<Code*>(codes.data_ptr());
  quanta::detail::for_each_amax_run(
      values, scales, to, [&](std::int64_t offset, const cpu::AmaxRun& run) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          to[offset + i] = encode(from[offset + i], run.amax[i * run.step]);
        }
      });
  return codes;
}

/// data * scale.
Tensor dequantize_scaled(const CompressedTensor& x);

}  // namespace quanta::modelopt::detail
