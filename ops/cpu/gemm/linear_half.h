#pragma once

// Private: linear layers with a Float16 weight on plain memory. No allocation in steady state; safe
// from many threads.

#include <cstdint>
#include <mutex>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// A Float16 weight [N, K] in panels, with its bias.
struct HalfLinearWeight {
  /// `weight` Float16 [N, K], contiguous.
  HalfLinearWeight(const Tensor& weight, Tensor packed_bias);
  Tensor weight() const;
  std::int64_t out_features, in_features;
  Tensor panels;  ///< Float16, see half_product.h
  Tensor bias;    ///< Float32 [N], contiguous, or undefined

  /// A Float32 copy of a small weight's panels, made when it is first asked for; null for a large
  /// one.
  const float* floats() const;

 private:
  mutable std::once_flag floats_once_;
  mutable Tensor floats_;
};

/// x [rows, K] to out [rows, N], both dense; rows >= 1. The result does not depend on `rows`,
/// threads or instruction set. Returns the kernel's name.
std::string_view linear_half_rows(const float* x, std::int64_t rows, const HalfLinearWeight& packed,
                                  bool relu, float* out);

}  // namespace quanta::cpu
