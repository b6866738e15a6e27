#pragma once

// Private: products of codes that are no matter of tensor cores, on a CUDA device.

#include "quanta/ops/cuda/int8_product.h"

namespace quanta::cuda {

/// Whether a tile of multiply_codes would be zeros for the most part.
constexpr bool has_few_products(std::int64_t columns, std::int64_t group_channels) {
  constexpr int kFew = 4;
  return columns <= kFew && group_channels <= kFew;
}

/// What multiply_codes calls where has_few_products: depthwise convolutions and their like.
QUANTA_CUDA_ENTRY(multiply_few_codes, ProductParams)

/// y = the sums of what each row of the product reads of x, int32, one for each matrix, pixel and
/// group: what ActivationProduct calls row_sums.
QUANTA_CUDA_ENTRY(sum_windows, ProductParams)

}  // namespace quanta::cuda
