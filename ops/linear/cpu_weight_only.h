#pragma once

// Private: a linear layer of float activations and one weight [N, K] of 8 or 4 bits.

#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/ops/linear/cpu_weight_only_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// A weight as it is quantized: signed codes in a byte each, [N, K]; scales and zero points (also
/// signed; empty: 0) [N, K / group].
struct WeightOnlyCodes {
  int bits = 8;
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
  std::int64_t group = 0;  ///< in_features for one scale a channel; else a multiple of 8
  std::vector<std::int8_t> codes{};
  std::vector<float> scales{};
  std::vector<std::int8_t> zero_points{};
};

class WeightOnlyLinear {
 public:
  /// `bias` [N], contiguous, or undefined.
  WeightOnlyLinear(const WeightOnlyCodes& weight, Tensor bias);

  std::int64_t in_features() const noexcept { return in_features_; }
  std::int64_t out_features() const noexcept { return out_features_; }
  const Tensor& bias() const noexcept { return bias_; }
  /// The codes as they are kept.
  const Tensor& packed() const noexcept { return codes_; }
  /// What was packed.
  WeightOnlyCodes unpack() const;
  /// (code - zero_point) * scale to dst [N, K].
  void dequantize(float* dst) const;
  /// Bytes that a product with one row reads.
  std::size_t nbytes() const noexcept;

  /// src [rows, K] to dst [rows, N], both dense and of `dtype` (Float32 or BFloat16). Returns the
  /// kernel's name.
  std::string_view run(std::int64_t rows, DType dtype, const void* src, void* dst) const;

 private:
  std::int64_t blocks() const noexcept;
  std::int64_t groups() const noexcept;
  WeightOnlyBlock block(std::int64_t index) const;
  void pack_codes(const WeightOnlyCodes& weight);
  void pack_group_values(const WeightOnlyCodes& weight);
  template <typename T>
  void run_rows(std::int64_t rows, const T* src, T* dst) const;

  int bits_;
  std::int64_t out_features_, in_features_, group_;
  std::int64_t depth_;  // in_features_ in whole steps
  Tensor bias_;
  Tensor codes_, scales_, zero_points_;  // in the kernels' blocks; tensors are aligned memory
};

}  // namespace quanta::cpu
