#pragma once

#include <cstdint>
#include <optional>

#include "quanta/ops/block_quant.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/tensor.h"

/// What quantizers would give, without the work: sizes and dtype of the result, as torch's meta
/// tensors have them. Each function checks its arguments as the one of the same name does, but for
/// what only the elements tell, and throws the same errors. Nothing is recorded. Many threads may
/// call these functions at once while nobody changes the arguments.
///
///   const Tensor x = meta::empty({1 << 20, 1 << 20});   // 4 TiB, if there were elements
///   const Dims sizes = meta::fake_tensor_quant(x, meta::empty({})).sizes();
namespace quanta::meta {

/// A tensor without memory of its own: all elements are one zero, which nobody writes to. Throws
/// ArgumentError for sizes that no tensor can have.
Tensor empty(const Dims& sizes, DType dtype = DType::Float32);

// Arguments are tensors of any kind, results such as meta::empty gives.

Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax,
                         const FakeTensorQuantOptions& options = {});
Tensor legacy_fake_tensor_quant(const Tensor& x, const Tensor& amax,
                                const TensorQuantOptions& options = {});
TensorQuantResult tensor_quant(const Tensor& x, const Tensor& amax,
                               const TensorQuantOptions& options = {},
                               std::optional<DType> output_dtype = std::nullopt);
Tensor fake_affine_tensor_quant(const Tensor& x, std::int64_t num_bits = 8);
Tensor scaled_e4m3(const Tensor& x, const Tensor& amax = {}, const ScaledE4M3Options& options = {});
Tensor static_fp4(const Tensor& x, const Tensor& amax, const StaticFp4Options& options = {});
Tensor dynamic_block_quant(const Tensor& x, const Tensor& amax = {},
                           const DynamicBlockOptions& options = {});

}  // namespace quanta::meta

namespace quanta {

/// ModelOpt's name of meta::scaled_e4m3 with the options' defaults: a tensor of the sizes and dtype
/// of x. Throws what scaled_e4m3 throws for these arguments.
inline Tensor scaled_e4m3_abstract(const Tensor& x, const Tensor& amax = {}) {
  return meta::scaled_e4m3(x, amax);
}

}  // namespace quanta
