#pragma once

// Private: a quantized weight with its bias, and the numbers that turn integer sums into codes.

#include <cstdint>
#include <memory>
#include <vector>

#include "quanta/runtime/detail/file_memory.h"
#include "quanta/runtime/detail/packed_forms.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// The quantization parameters of one call.
struct CallQParams {
  float src_scale = 1.0F;
  std::int32_t src_zero_point = 0;
  float dst_scale = 1.0F;
  std::int32_t dst_zero_point = 0;
  bool operator==(const CallQParams&) const = default;
};

/// The bias as math::requantize has it.
struct BiasTerms {
  std::vector<float> bias;  ///< one a channel
  float factor = 1.0F;
};

/// What becomes of the exact int32 sums.
enum class SumOutput : std::uint8_t { Codes, CodesReLU, Sums };

class QuantizedWeight {
 public:
  /// `weight` is QInt8 and contiguous, per tensor or per channel along axis 0, `bias` Float32 or
  /// Int32 [channels] or undefined. Both have been checked.
  QuantizedWeight(QTensor weight, Tensor bias, std::int64_t channels);

  const QTensor& weight() const noexcept { return weight_; }
  const Tensor& bias() const noexcept { return bias_; }
  const std::int8_t* codes() const noexcept;
  /// Gives the memory of the codes back, where it is a file's, until somebody looks at them again.
  /// Kernels call it when they have packed the codes.
  void release_codes() const { detail::release_file_memory(weight_); }
  /// What kernels made of the codes.
  detail::PackedForms& forms() const noexcept { return *forms_; }
  const std::vector<std::int64_t>& zero_points() const noexcept { return zero_points_; }
  bool has_zero_points() const noexcept { return has_zero_points_; }
  bool has_bias() const noexcept { return bias_.defined(); }
  /// Int32, in units of the sums.
  bool has_integer_bias() const noexcept {
    return bias_.defined() && bias_.dtype() == DType::Int32;
  }

  /// t[n] = sx * sw[n].
  std::vector<float> sum_scales(float src_scale) const;
  /// t[n] / so.
  std::vector<float> multipliers(const CallQParams& qparams) const;
  /// As fbgemm has it: bias / t where the weight is per channel, else the bias and the factor 1 / t.
  /// Zeros without bias, an integer one as it is, both with the factor 1.
  BiasTerms bias_terms(float src_scale) const;
  /// The bias in real units: t * an integer one. Empty without bias.
  std::vector<float> real_bias(float src_scale) const;

  /// -zx * sum(w[n]) for each channel n: what sums of x * w lack to be sums of (x - zx) * w. The
  /// weight is [channels, ...].
  std::vector<std::int32_t> compensation(std::int32_t src_zero_point) const;
  /// Whether sums of x * w, and what is added to them for any zero point, stay below 2^24, so that
  /// float32 arithmetic on them is exact.
  bool exact_in_float() const noexcept { return exact_in_float_; }

 private:
  QTensor weight_;
  std::shared_ptr<detail::PackedForms> forms_;
  Tensor bias_;
  std::int64_t channels_;
  std::vector<float> scales_;  // one, or one a channel
  std::vector<std::int64_t> zero_points_;
  bool has_zero_points_ = false;
  std::vector<std::int32_t> channel_sums_;
  bool exact_in_float_ = true;
};

/// What turns integer sums of each output channel n into floats.
struct ChannelTerms {
  explicit ChannelTerms(const QuantizedWeight& weight);
  std::vector<float> scales;
  /// Sums of w - (zero point of w).
  std::vector<std::int32_t> sums;
  /// Empty when all are 0.
  std::vector<std::int32_t> zero_points;
};

}  // namespace quanta::cpu
