#pragma once

#include <memory>
#include <string>

#include "quanta/nn/split_attention.h"
#include "quanta/ops/linear_weight_only.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::weight_only {

/// Attention whose four projections are weight_only::Linear layers; everything else as in
/// nn::MultiheadAttention. State: theirs below linear_Q, linear_K, linear_V and out_proj, and bias_k
/// and bias_v in float.
class MultiheadAttention : public SplitMultiheadAttention {
 public:
  /// Quantizes the projections of an nn::MultiheadAttention. Throws ArgumentError for another
  /// module and as quantize_weight_only does.
  static std::shared_ptr<Module> from_float(const Module& module,
                                            const WeightOnlyOptions& options = {});
  std::string type_name() const override { return "WeightOnlyMultiheadAttention"; }

  /// For from_float.
  MultiheadAttention(const nn::MultiheadAttention& source, const WeightOnlyOptions& options);
};

}  // namespace quanta::nn::weight_only
