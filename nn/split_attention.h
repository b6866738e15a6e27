#pragma once

#include <functional>
#include <memory>

#include "quanta/nn/attention.h"
#include "quanta/nn/linear.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

/// nn::MultiheadAttention whose projections are modules of their own, so that they can be quantized
/// one by one; called as the float one, with Float32 inputs and masks of the same forms. Base of
/// the forms that quantize_dynamic and quantize_weight_only put in:
///
///   q, k, v = linear_Q(query), linear_K(key), linear_V(value)
///   output = out_proj(softmax(q k^T / sqrt(head_dim) + mask) v)
///
/// Where query, key and value are one tensor and the layers are dynamic int8 ones, it is quantized
/// once for all three products. Children have these names; bias_k and bias_v stay parameters.
class SplitMultiheadAttention : public MultiheadAttention {
 protected:
  /// What a float projection becomes.
  using MakeProjection = std::function<std::shared_ptr<Module>(const Linear& projection)>;

  /// Rows of `source`'s weights, each projection made anew by `make`, which must not return null.
  /// Settings and mode are those of `source`. Throws ArgumentError for one that is split already.
  SplitMultiheadAttention(const MultiheadAttention& source, const MakeProjection& make);

  Projected project(const Tensor& query, const Tensor& key, const Tensor& value) const override;

 private:
  Child<Linear> linear_q_, linear_k_, linear_v_;
};

}  // namespace quanta::nn
