#pragma once

#include <memory>
#include <string>

#include "quanta/nn/attention.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/stubs.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantizable {

/// nn::MultiheadAttention in parts that can be observed, called as the float one. Projections and
/// their results are quantized; the products of queries, keys and values, masks and softmax stay
/// in float, as in torch:
///
///   q, k, v = linear_Q(query), linear_K(key), linear_V(value)
///   q = dequant_q(q_scaling_product.mul_scalar(q, 1 / sqrt(head_dim))), k and v likewise
///   output = out_proj(quant_attn_output(softmax(q k^T + mask) v))
///   weights = mean of quant_attn_output_weights(softmax(q k^T + mask)) over heads
///
/// Children have these names; bias_k and bias_v stay parameters. On float tensors the results are
/// those of the float module.
class MultiheadAttention : public nn::MultiheadAttention {
 public:
  explicit MultiheadAttention(const MultiheadAttentionOptions& options);
  /// Takes an nn::MultiheadAttention; copies its weights, QConfig and mode.
  static std::shared_ptr<MultiheadAttention> from_float(const Module& module);

  /// A float module with the weights of this one; quantized ones are dequantized.
  std::shared_ptr<nn::MultiheadAttention> dequantize() const;
  std::string type_name() const override { return "QuantizableMultiheadAttention"; }

 protected:
  Projected project(const Tensor& query, const Tensor& key, const Tensor& value) const override;
  Tensor project_output(const Tensor& heads) const override;
  Tensor finish_weights(const Tensor& weights) const override;
  bool takes_quantized() const override { return true; }
  bool watches_weights() const override;

  /// bias_k and bias_v, float or quantized.
  struct BiasRows {
    Tensor key{}, value{};
  };
  virtual BiasRows bias_rows() const { return {bias_k, bias_v}; }

 private:
  Child<nn::Linear> linear_q_, linear_k_, linear_v_;
  Child<nn::FloatFunctional> q_scaling_product_;
  Child<nn::QuantStub> quant_attn_output_, quant_attn_output_weights_;
  Child<nn::DeQuantStub> dequant_q_, dequant_k_, dequant_v_;
};

}  // namespace quanta::nn::quantizable
