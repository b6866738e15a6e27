#pragma once

#include <memory>
#include <string>

#include "quanta/nn/quantizable/attention.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// Attention on quantized tensors: a quantizable::MultiheadAttention whose parts are converted.
/// QUInt8 in, QUInt8 out, weights included. Masks are those of the float module.
///
/// bias_k and bias_v are QUInt8 with the parameters of their own range, and saved so under these
/// names (torch gives bias_v those of the already quantized bias_k, and saves neither).
class MultiheadAttention : public quantizable::MultiheadAttention {
 public:
  /// A copy of `converted`. Throws ArgumentError if one of its parts is not quantized.
  explicit MultiheadAttention(const quantizable::MultiheadAttention& converted);
  /// Takes a quantizable::MultiheadAttention whose parts are converted, as convert does it before
  /// the call.
  static std::shared_ptr<Module> from_observed(const Module& module);

  /// The learned key and value, quantized; undefined without.
  const Tensor& quantized_bias_k() const noexcept { return rows_.key; }
  const Tensor& quantized_bias_v() const noexcept { return rows_.value; }
  std::string type_name() const override { return "QuantizedMultiheadAttention"; }

 protected:
  BiasRows bias_rows() const override { return rows_; }
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  BiasRows rows_;
};

}  // namespace quanta::nn::quantized
