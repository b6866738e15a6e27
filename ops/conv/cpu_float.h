#pragma once

// Private: the float convolution of one weight, transposed too.

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/ops/cpu/onednn/plan_cache.h"
#include "quanta/ops/cpu/onednn/plans.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

class ConvFloat {
 public:
  /// `weight` is contiguous in torch's order, `bias` [O] or undefined.
  ConvFloat(Tensor weight, Tensor bias, const ConvShape& geometry, int spatial,
            FloatEpilogue epilogue);

  /// `src` and `dst` are channels-last and dense. Returns the kernel's name.
  std::string_view run(const ConvShape& shape, const float* src, float* dst) const;

 private:
  struct Key {
    std::int64_t batch;
    std::array<std::int64_t, 3> in, out;
    int threads;
    bool operator==(const Key&) const = default;
  };

  std::shared_ptr<const onednn::Executable> make(const ConvShape& shape, int threads) const;

  Tensor weight_, bias_;
  int spatial_;
  FloatEpilogue epilogue_;
  onednn::PackedWeights packed_;
  PlanCache<Key, onednn::Executable> plans_;
};

}  // namespace quanta::cpu
