#pragma once

#include "quanta/nn/module.h"
#include "quanta/ops/linear_dynamic.h"

// Nothing here throws. set_reduce_range is for one thread at a time, while nobody calls the module.

namespace quanta::nn::quantized::dynamic {

/// What modules have in common that quantize their float input anew in each call.
class DynamicModule {
 public:
  virtual ~DynamicModule() = default;
  /// Whether codes of activations use 7 bits only. Yes unless set otherwise, as in torch, whose
  /// kernels could overflow; Quanta's cannot, so that No costs nothing and is more accurate.
  quanta::quantized::ReduceRange reduce_range() const noexcept { return reduce_range_; }
  void set_reduce_range(quanta::quantized::ReduceRange reduce_range) noexcept {
    reduce_range_ = reduce_range;
  }

 protected:
  quanta::quantized::ReduceRange reduce_range_ = quanta::quantized::ReduceRange::Yes;
};

/// On every such module below `model`, itself included:
///   auto int8 = quantize_dynamic(net);
///   set_reduce_range(int8, ReduceRange::No);      // 8-bit activations
void set_reduce_range(Module& model, quanta::quantized::ReduceRange reduce_range);

}  // namespace quanta::nn::quantized::dynamic
