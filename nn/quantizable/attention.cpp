#include "quanta/nn/quantizable/attention.h"

#include <array>
#include <cmath>
#include <string_view>

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/take_settings.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/observers/other_observers.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"

namespace quanta::nn::quantizable {
namespace {

// Weight and bias of a projection, float or quantized, as float tensors.
struct FloatParams {
  Tensor weight, bias;
};

FloatParams float_params(const std::shared_ptr<Module>& module) {
  if (const auto* quantized = dynamic_cast<const nn::quantized::Linear*>(module.get())) {
    return {quanta::dequantize(quantized->weight()), quantized->bias()};
  }
  const auto& linear =
      nn::detail::expect_module<nn::Linear>("MultiheadAttention.dequantize", *module, "Linear");
  return {linear.weight, linear.bias};
}

// The row of a learned key or value behind quantized ones, as quantized cat makes it: with their
// scale and zero point. Float again, as the ones that follow it.
Tensor row_like(const Tensor& row, const Tensor& projected) {
  if (!row.defined() || !projected.is_quantized()) return row;
  const QTensor like = projected.as_quantized();
  return quanta::dequantize(quantize_per_tensor(quanta::dequantize(row), like.q_scale(),
                                                like.q_zero_point(), like.dtype()));
}

void copy_rows(const Tensor& to, const Tensor& from, std::int64_t first) {
  if (to.defined()) to.copy_(from.narrow(0, first, to.size(0)));
}

}  // namespace

MultiheadAttention::MultiheadAttention(const MultiheadAttentionOptions& options)
    : nn::MultiheadAttention(options, NoProjections{}) {
  const MultiheadAttentionOptions& all = this->options();
  const auto inputs = [&](std::int64_t features) {
    return LinearOptions{.in_features = features, .out_features = all.embed_dim, .bias = all.bias};
  };
  register_module("linear_Q", linear_q_, inputs(all.embed_dim));
  register_module("linear_K", linear_k_, inputs(all.kdim));
  register_module("linear_V", linear_v_, inputs(all.vdim));
  register_module("q_scaling_product", q_scaling_product_);
  register_module("quant_attn_output", quant_attn_output_);
  register_module("quant_attn_output_weights", quant_attn_output_weights_);
  register_module("dequant_q", dequant_q_);
  register_module("dequant_k", dequant_k_);
  register_module("dequant_v", dequant_v_);
}

std::shared_ptr<MultiheadAttention> MultiheadAttention::from_float(const Module& module) {
  const auto& source = nn::detail::expect_module<nn::MultiheadAttention>(
      "quantizable::MultiheadAttention.from_float", module, "MultiheadAttention");
  auto result = make_module<MultiheadAttention>(source.options());
  const std::int64_t width = source.options().embed_dim;
  const std::array<nn::Linear*, 3> parts{result->linear_q_.operator->(),
                                         result->linear_k_.operator->(),
                                         result->linear_v_.operator->()};
  const std::array<Tensor, 3> own{source.q_proj_weight, source.k_proj_weight, source.v_proj_weight};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * width;
    if (source.in_proj_weight.defined()) {
      copy_rows(parts[i]->weight, source.in_proj_weight, first);
    } else {
      copy_rows(parts[i]->weight, own[i], 0);
    }
    if (source.in_proj_bias.defined()) copy_rows(parts[i]->bias, source.in_proj_bias, first);
  }
  const FloatParams output = float_params(source.out_proj.module());
  copy_rows(result->out_proj->weight, output.weight, 0);
  copy_rows(result->out_proj->bias, output.bias, 0);
  if (source.bias_k.defined()) {
    result->bias_k.copy_(source.bias_k);
    result->bias_v.copy_(source.bias_v);
  }
  nn::detail::take_settings(*result, source);
  if (const QConfig* qconfig = source.qconfig()) {
    // It only multiplies with a number, so that nothing is observed: torch's parameters are the
    // ones without data.
    result->q_scaling_product_->set_qconfig(
        QConfig{FixedQParamsObserver::with_args({}), qconfig->weight});
  }
  return result;
}

std::shared_ptr<nn::MultiheadAttention> MultiheadAttention::dequantize() const {
  auto result = make_module<nn::MultiheadAttention>(options());
  const std::int64_t width = options().embed_dim;
  const std::array<FloatParams, 3> parts{float_params(linear_q_.module()),
                                         float_params(linear_k_.module()),
                                         float_params(linear_v_.module())};
  const std::array<Tensor, 3> own{result->q_proj_weight, result->k_proj_weight,
                                  result->v_proj_weight};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * width;
    const Tensor target =
        result->in_proj_weight.defined() ? result->in_proj_weight.narrow(0, first, width) : own[i];
    target.copy_(parts[i].weight);
    if (result->in_proj_bias.defined()) {
      result->in_proj_bias.narrow(0, first, width).copy_(parts[i].bias);
    }
  }
  const FloatParams output = float_params(out_proj.module());
  result->out_proj->weight.copy_(output.weight);
  if (result->out_proj->bias.defined()) result->out_proj->bias.copy_(output.bias);
  const BiasRows rows = bias_rows();
  if (rows.key.defined()) {
    result->bias_k.copy_(quanta::dequantize(rows.key));
    result->bias_v.copy_(quanta::dequantize(rows.value));
  }
  result->train(is_training());
  return result;
}

MultiheadAttention::Projected MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                          const Tensor& value) const {
  const double factor = 1.0 / std::sqrt(static_cast<double>(head_dim()));
  const Tensor q = q_scaling_product_->mul_scalar(linear_q_(query), factor);
  const Tensor k = linear_k_(key);
  const Tensor v = linear_v_(value);
  const BiasRows rows = bias_rows();
  return {dequant_q_(q),         dequant_k_(k),           dequant_v_(v),
          row_like(rows.key, k), row_like(rows.value, v), true};
}

Tensor MultiheadAttention::project_output(const Tensor& heads) const {
  return out_proj(quant_attn_output_(heads));
}

Tensor MultiheadAttention::finish_weights(const Tensor& weights) const {
  return quant_attn_output_weights_(weights);
}

bool MultiheadAttention::watches_weights() const {
  return quant_attn_output_weights_.module()->activation_post_process() != nullptr;
}

}  // namespace quanta::nn::quantizable
