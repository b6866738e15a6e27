#pragma once

#include <memory>
#include <string>

#include "quanta/nn/split_attention.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized::dynamic {

/// Attention whose four projections are dynamic::Linear layers: each with QInt8 or Float16 rows of
/// its own, activations Float32 in and out, products of queries and keys in float. PyTorch leaves
/// nn.MultiheadAttention in float (see torch_dynamic_spec in fusion/quantize_dynamic.h).
///
/// State: that of dynamic::Linear below linear_Q, linear_K, linear_V and out_proj, and bias_k and
/// bias_v in float.
class MultiheadAttention : public SplitMultiheadAttention {
 public:
  /// Takes an nn::MultiheadAttention with a qconfig as dynamic::Linear::from_float does. Throws
  /// ArgumentError for another module and without one.
  static std::shared_ptr<Module> from_float(const Module& module);
  /// "DynamicQuantizedMultiheadAttention".
  std::string type_name() const override;

  /// For from_float.
  MultiheadAttention(const nn::MultiheadAttention& source, const QConfig& qconfig);
};

}  // namespace quanta::nn::quantized::dynamic
