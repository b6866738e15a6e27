#pragma once

// Private: the quantized linear layer of one packed weight [N, K].

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "quanta/ops/cpu/gemm/conv_exact.h"
#include "quanta/ops/cpu/gemm/int8_sums.h"
#include "quanta/ops/cpu/gemm/quantized_weight.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/ops/cpu/onednn/plan_cache.h"

namespace quanta::cpu {

class LinearInt8 {
 public:
  explicit LinearInt8(QuantizedWeight weight);

  const QuantizedWeight& weight() const noexcept { return weight_; }
  std::int64_t in_features() const noexcept { return shape_.in_channels; }
  std::int64_t out_features() const noexcept { return shape_.out_channels; }

  /// Otherwise the kernels of conv_exact.h, with the weight in 16 bits.
  bool uses_onednn() const noexcept { return use_onednn_; }

  /// src [rows, K] to codes [rows, N], both dense. Returns the kernel's name.
  std::string_view codes(std::int64_t rows, const CallQParams& qparams, SumOutput output,
                         const std::uint8_t* src, std::uint8_t* dst) const;
  Int8Sums sums(std::int64_t rows, std::int32_t src_zero_point, const std::uint8_t* src) const;
  /// Sums of x * (w - its zero point) to dst [rows, N]. Returns the kernel's name.
  std::string_view products(std::int64_t rows, const std::uint8_t* src, std::int32_t* dst) const;

 private:
  struct Key {
    std::int64_t rows;
    CallQParams qparams;
    SumOutput output;
    int threads;
    bool operator==(const Key&) const = default;
  };
  struct Plan;

  void few_rows(std::int64_t rows, int threads, const std::uint8_t* src, std::int32_t* dst) const;
  void run_sums(const Plan& plan, std::int64_t rows, std::int32_t src_zero_point,
                const std::uint8_t* src, std::int32_t* dst) const;
  std::shared_ptr<const Plan> plan(std::int64_t rows, const CallQParams& qparams,
                                   SumOutput output) const;
  std::shared_ptr<const Plan> make_plan(const Key& key) const;
  const ExactWeights& exact_weights() const;
  /// The weight in panels (gemv_int8.h).
  const std::int8_t* panels() const;
  ConvShape shape(std::int64_t rows) const;

  QuantizedWeight weight_;
  ConvShape shape_;  ///< as a 1x1 convolution over one row
  bool use_onednn_;
  onednn::PackedWeights packed_;
  PlanCache<Key, Plan> plans_;
  mutable std::once_flag exact_once_;
  mutable ExactWeights exact_;
  mutable std::once_flag panels_once_;
  mutable Tensor panels_;
};

}  // namespace quanta::cpu
