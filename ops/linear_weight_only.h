#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "quanta/runtime/tensor.h"

/// Linear layers whose weight alone is quantized: activations stay in float, and what is saved is
/// memory traffic, which limits a layer at batch 1.
///
/// All throw ArgumentError for what does not fit. Many threads may call them at once while nobody
/// writes to the arguments; packed weights are immutable, and copies share them.
namespace quanta {

class Operation;

/// How a weight [N, K] is quantized.
struct WeightOnlyOptions {
  int bits = 8;                 ///< 8 or 4
  std::int64_t group_size = 0;  ///< columns that share a scale: a power of two >= 16 that divides
                                ///< K; 0: all of them (one scale for each output channel)
  bool symmetric = true;        ///< signed codes around 0; else unsigned ones with a zero point
  bool operator==(const WeightOnlyOptions&) const = default;
};

/// A quantized weight and its bias, packed for the kernels. Immutable; copies share it.
///
///   w[n, k] = (code[n, k] - zero_point[n, g]) * scale[n, g],  g = k / group_size
class WeightOnlyPackedParams {
 public:
  WeightOnlyPackedParams() = default;
  /// Codes that somebody else chose (GPTQ, AWQ, ...). `codes` [N, K]: Int8 in -2^(bits-1) ..
  /// 2^(bits-1)-1 if symmetric, else UInt8 in 0 .. 2^bits-1; `scales` Float32 [N, groups], finite
  /// and > 0; `zero_points` UInt8 [N, groups] in 0 .. 2^bits-1, undefined if symmetric; `bias`
  /// Float32 [N] or undefined. Throws ArgumentError.
  WeightOnlyPackedParams(const Tensor& codes, const Tensor& scales, const Tensor& zero_points,
                         const Tensor& bias, const WeightOnlyOptions& options);
  /// The same from bytes(), for `in_features` columns.
  static WeightOnlyPackedParams from_bytes(const Tensor& bytes, const Tensor& scales,
                                           const Tensor& zero_points, const Tensor& bias,
                                           std::int64_t in_features,
                                           const WeightOnlyOptions& options);

  bool defined() const noexcept { return impl_ != nullptr; }
  // All of these throw ArgumentError if empty.
  const WeightOnlyOptions& options() const;
  std::int64_t in_features() const;
  std::int64_t out_features() const;
  // What the constructor takes, as new tensors.
  Tensor codes() const;
  Tensor scales() const;
  Tensor zero_points() const;
  const Tensor& bias() const;
  /// The codes as files keep them, UInt8: [N, K] for 8 bits (signed ones in two's complement), [N,
  /// (K + 1) / 2] for 4, even columns in the low half of a byte.
  Tensor bytes() const;
  /// Float32 [N, K].
  Tensor dequantize() const;
  /// Bytes that stay in memory: codes, scales, zero points and bias.
  std::size_t nbytes() const;

  struct Impl;
  const Impl& impl() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

/// What a call of linear_weight_only multiplies with, for files; null for another operation.
const WeightOnlyPackedParams* weight_only_params_of(const Operation& operation);

/// Rounds a Float32 weight [N, K] to nearest. For a group with n = min(w, 0) and p = max(w, 0), in
/// float32 as torch's observers do it (eps 2^-23):
///
///   symmetric:   scale = max(max(-n, p) / ((2^bits - 1) / 2), eps)
///                code = clamp(round_half_even(w * (1 / scale)), -2^(bits-1), 2^(bits-1)-1)
///   asymmetric:  scale = max((p - n) / (2^bits - 1), eps)
///                zero_point = clamp(-round_half_even(n / scale), 0, 2^bits-1)
///                code = clamp(round_half_even(w * (1 / scale)) + zero_point, 0, 2^bits-1)
///
/// Throws ArgumentError for a group size that does not divide K and for weights that are not
/// finite.
WeightOnlyPackedParams quantize_weight_only(const Tensor& weight, const Tensor& bias,
                                            const WeightOnlyOptions& options = {});

/// x [..., K], Float32 or BFloat16, times the weight transposed, plus bias: [..., N] of x's dtype.
/// Products and sums are float32 for both; a BFloat16 result is rounded once, at the end. The
/// result does not depend on the number of threads; its last bits may depend on the instruction set
/// and on the number of rows, which decide the order of the sums. On a CUDA device the order is the
/// same for any number of rows, and none of the CPU's: there are K + 2 roundings at most on the way
/// to a sum.
Tensor linear_weight_only(const Tensor& x, const WeightOnlyPackedParams& packed);

}  // namespace quanta
