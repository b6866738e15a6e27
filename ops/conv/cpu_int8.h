#pragma once

// Private: the quantized convolution of one packed weight.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "quanta/ops/conv/cpu_depthwise.h"
#include "quanta/ops/cpu/features.h"
#include "quanta/ops/cpu/gemm/conv_exact.h"
#include "quanta/ops/cpu/gemm/int8_plan.h"
#include "quanta/ops/cpu/gemm/int8_sums.h"
#include "quanta/ops/cpu/onednn/plan_cache.h"

namespace quanta::cpu {

class ConvInt8 {
 public:
  /// `geometry` needs no batch and no spatial sizes. `spatial` is 2 or 3 (1-d counts as 2-d).
  ConvInt8(QuantizedWeight weight, const ConvShape& geometry, int spatial);

  const QuantizedWeight& weight() const noexcept { return weight_; }

  /// What follows the codes.
  struct After {
    const CodeTable* table = nullptr;  ///< null: nothing is looked up
    CodeAddend addend{};               ///< what is added before that
  };
  /// Codes of the whole result, channels-last and dense like `src`. Returns the kernel's name.
  std::string_view codes(const ConvShape& shape, const CallQParams& qparams, SumOutput output,
                         const std::uint8_t* src, std::uint8_t* dst, const After& after) const;
  /// The weight in the form that kernels of ours read, if there is one.
  std::span<const std::byte> packed_memory() const noexcept;
  Int8Sums sums(const ConvShape& shape, std::int32_t src_zero_point, const std::uint8_t* src) const;

 private:
  struct Key {
    std::int64_t batch;
    std::array<std::int64_t, 3> in;
    CallQParams qparams;
    SumOutput output;
    int threads;
    Code code;  ///< tests hold kernels down to less than what a plan was made for
    bool operator==(const Key&) const = default;
  };
  struct Plan;

  std::shared_ptr<const Plan> plan(const ConvShape& shape, const CallQParams& qparams,
                                   SumOutput output) const;
  std::shared_ptr<const Plan> make_plan(const ConvShape& shape, const Key& key) const;
  /// Leaves the plan as it is when oneDNN has nothing.
  void use_onednn(const ConvShape& shape, const Key& key, Plan& plan) const;
  /// The kernels that do nothing behind the codes.
  void plain_codes(const Plan& plan, const ConvShape& shape, std::int32_t src_zero_point,
                   const std::uint8_t* src, std::uint8_t* dst) const;
  const ExactWeights& exact_weights() const;
  /// The weight in the order of the rows: those of the input, gathered ones, or those in the image.
  const CodePanels& panels() const;
  const DepthwiseWeights& depthwise_weights() const;

  QuantizedWeight weight_;
  ConvShape geometry_;
  int spatial_;
  onednn::PackedWeights packed_;
  PlanCache<Key, Plan> plans_;
  mutable std::once_flag exact_once_, depthwise_once_, panels_once_;
  mutable ExactWeights exact_;
  mutable CodePanels panels_;
  mutable std::atomic<bool> has_panels_{false};
  mutable DepthwiseWeights depthwise_;
};

}  // namespace quanta::cpu
