#pragma once

// Private: the quantized linear layer of one packed weight [N, K].

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "quanta/ops/cpu/features.h"
#include "quanta/ops/cpu/gemm/conv_exact.h"
#include "quanta/ops/cpu/gemm/int8_plan.h"
#include "quanta/ops/cpu/gemm/int8_sums.h"
#include "quanta/ops/cpu/onednn/plan_cache.h"

namespace quanta::cpu {

class LinearInt8 {
 public:
  explicit LinearInt8(QuantizedWeight weight);

  const QuantizedWeight& weight() const noexcept { return weight_; }
  std::int64_t in_features() const noexcept { return shape_.in_channels; }
  std::int64_t out_features() const noexcept { return shape_.out_channels; }

  /// The weight in panels, made when it is first asked for.
  const CodePanels& panels() const;

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
    Code code;  ///< tests hold kernels down to less than what a plan was made for
    bool operator==(const Key&) const = default;
  };

  void few_rows(std::int64_t rows, int threads, const std::uint8_t* src, std::int32_t* dst) const;
  void run_sums(const Int8Plan& plan, std::int64_t rows, std::int32_t src_zero_point,
                const std::uint8_t* src, std::int32_t* dst) const;
  std::shared_ptr<const Int8Plan> plan(std::int64_t rows, const CallQParams& qparams,
                                       SumOutput output) const;
  std::shared_ptr<const Int8Plan> make_plan(const Key& key) const;
  const ExactWeights& exact_weights() const;
  ConvShape shape(std::int64_t rows) const;

  QuantizedWeight weight_;
  ConvShape shape_;  ///< as a 1x1 convolution over one row
  onednn::PackedWeights packed_;
  PlanCache<Key, Int8Plan> plans_;
  mutable std::once_flag exact_once_;
  mutable ExactWeights exact_;
  mutable std::once_flag panels_once_;
  mutable CodePanels panels_;
};

}  // namespace quanta::cpu
