#pragma once

// Private: the float linear layer of one weight [N, K].

#include <cstdint>
#include <memory>
#include <string_view>

#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/ops/cpu/onednn/plan_cache.h"
#include "quanta/ops/cpu/onednn/plans.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

class LinearFloat {
 public:
  /// `weight` is contiguous, `bias` [N] or undefined.
  LinearFloat(Tensor weight, Tensor bias, FloatEpilogue epilogue);
  /// The way back: src [rows, N] times the weight, [rows, K].
  struct Back {};
  LinearFloat(Tensor weight, Back);

  std::int64_t in_features() const noexcept { return in_features_; }
  std::int64_t out_features() const noexcept { return out_features_; }

  /// src [rows, in_features()] to dst [rows, out_features()], both dense. Returns the kernel's
  /// name.
  std::string_view run(std::int64_t rows, const float* src, float* dst) const;

 private:
  struct Key {
    std::int64_t rows;
    int threads;
    bool operator==(const Key&) const = default;
  };
  std::shared_ptr<const onednn::Executable> make(const Key& key) const;

  Tensor weight_, bias_;
  std::int64_t in_features_, out_features_;
  FloatEpilogue epilogue_;
  onednn::PackedWeights packed_;
  PlanCache<Key, onednn::Executable> plans_;
};

}  // namespace quanta::cpu
