#include "quanta/nn/transformer.h"

#include <utility>

#include "quanta/nn/detail/layer_count.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"

namespace quanta::nn {
namespace {

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options) {
  return {.embed_dim = options.d_model,
          .num_heads = options.nhead,
          .dropout = options.dropout,
          .bias = options.bias,
          .batch_first = options.batch_first};
}

LayerNormOptions norm_options(const TransformerLayerOptions& options) {
  return {
      .normalized_shape = {options.d_model}, .eps = options.layer_norm_eps, .bias = options.bias};
}

// linear2(dropout(activation(linear1(x)))), which encoder and decoder layers share.
template <typename Layer>
Tensor feed_forward(const Layer& layer, const Tensor& x) {
  const TransformerLayerOptions& options = layer.options();
  Tensor y = layer.linear1(x);
  if (options.activation_function) {
    y = options.activation_function(y);
  } else {
    y = options.activation == TransformerActivation::GELU ? gelu(y) : relu(y);
  }
  return layer.linear2(layer.dropout(y));
}

// x plus a part of the layer, normalized before or after.
template <typename Part>
Tensor residual(const Tensor& x, bool norm_first, const Child<LayerNorm>& norm, Part&& part) {
  return norm_first ? add(x, part(norm(x))) : norm(add(x, part(x)));
}

template <typename Layer>
void add_copies(ModuleList& layers, const Layer& layer, std::int64_t count, std::string_view op) {
  detail::check_layer_count(op, count);
  for (std::int64_t i = 0; i < count; ++i) layers.push_back(deep_copy(layer));
}

template <typename Layer>
const Layer& layer_at(const ModuleList& layers, std::size_t index, std::string_view op) {
  const auto* layer = dynamic_cast<const Layer*>(&layers[index]);
  QUANTA_CHECK(layer != nullptr, "{}: layers: expected a {}Layer at {}, got {}", op, op, index,
               layers[index].type_name());
  return *layer;
}

[[noreturn]] void throw_no_memory(std::string_view op) {
  throw ArgumentError(with_module_path(fmt::format(
      "{}: memory: expected the encoder's output, call forward(tgt, memory); got none", op)));
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerLayerOptions& options)
    : options_(options) {
  const std::int64_t width = options.d_model;
  const std::int64_t inner = options.dim_feedforward;
  register_module("self_attn", self_attn, attention_options(options));
  register_module("linear1", linear1, LinearOptions{width, inner, options.bias});
  register_module("dropout", dropout, options.dropout);
  register_module("linear2", linear2, LinearOptions{inner, width, options.bias});
  register_module("norm1", norm1, norm_options(options));
  register_module("norm2", norm2, norm_options(options));
  register_module("dropout1", dropout1, options.dropout);
  register_module("dropout2", dropout2, options.dropout);
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const EncoderMasks& masks) const {
  const detail::PathScope scope(this);
  const Tensor x = residual(src, options_.norm_first, norm1, [&](const Tensor& input) {
    const AttentionCall call{.key_padding_mask = masks.src_key_padding_mask,
                             .need_weights = false,
                             .attn_mask = masks.src_mask,
                             .is_causal = masks.is_causal};
    return dropout1(self_attn->forward(input, input, input, call).output);
  });
  return residual(x, options_.norm_first, norm2,
                  [&](const Tensor& input) { return dropout2(feed_forward(*this, input)); });
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer,
                                       std::int64_t num_layers) {
  register_module("layers", layers);
  add_copies(*layers.operator->(), layer, num_layers, "TransformerEncoder");
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer,
                                       std::int64_t num_layers,
                                       const LayerNormOptions& norm_options)
    : TransformerEncoder(layer, num_layers) {
  register_module("norm", norm, norm_options);
}

Tensor TransformerEncoder::forward(const Tensor& src, const EncoderMasks& masks) const {
  const detail::PathScope scope(this);
  Tensor x = src;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    x = layer_at<TransformerEncoderLayer>(*layers.operator->(), i, "TransformerEncoder")
            .forward(x, masks);
  }
  return norm ? norm(x) : x;
}

TransformerDecoderLayer::TransformerDecoderLayer(const TransformerLayerOptions& options)
    : options_(options) {
  const std::int64_t width = options.d_model;
  const std::int64_t inner = options.dim_feedforward;
  register_module("self_attn", self_attn, attention_options(options));
  register_module("multihead_attn", multihead_attn, attention_options(options));
  register_module("linear1", linear1, LinearOptions{width, inner, options.bias});
  register_module("dropout", dropout, options.dropout);
  register_module("linear2", linear2, LinearOptions{inner, width, options.bias});
  register_module("norm1", norm1, norm_options(options));
  register_module("norm2", norm2, norm_options(options));
  register_module("norm3", norm3, norm_options(options));
  register_module("dropout1", dropout1, options.dropout);
  register_module("dropout2", dropout2, options.dropout);
  register_module("dropout3", dropout3, options.dropout);
}

Tensor TransformerDecoderLayer::forward(const Tensor& /*tgt*/) const {
  throw_no_memory("TransformerDecoderLayer");
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory,
                                        const DecoderMasks& masks) const {
  const detail::PathScope scope(this);
  Tensor x = residual(tgt, options_.norm_first, norm1, [&](const Tensor& input) {
    const AttentionCall call{.key_padding_mask = masks.tgt_key_padding_mask,
                             .need_weights = false,
                             .attn_mask = masks.tgt_mask,
                             .is_causal = masks.tgt_is_causal};
    return dropout1(self_attn->forward(input, input, input, call).output);
  });
  x = residual(x, options_.norm_first, norm2, [&](const Tensor& input) {
    const AttentionCall call{.key_padding_mask = masks.memory_key_padding_mask,
                             .need_weights = false,
                             .attn_mask = masks.memory_mask,
                             .is_causal = masks.memory_is_causal};
    return dropout2(multihead_attn->forward(input, memory, memory, call).output);
  });
  return residual(x, options_.norm_first, norm3,
                  [&](const Tensor& input) { return dropout3(feed_forward(*this, input)); });
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer,
                                       std::int64_t num_layers) {
  register_module("layers", layers);
  add_copies(*layers.operator->(), layer, num_layers, "TransformerDecoder");
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer,
                                       std::int64_t num_layers,
                                       const LayerNormOptions& norm_options)
    : TransformerDecoder(layer, num_layers) {
  register_module("norm", norm, norm_options);
}

Tensor TransformerDecoder::forward(const Tensor& /*tgt*/) const {
  throw_no_memory("TransformerDecoder");
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory,
                                   const DecoderMasks& masks) const {
  const detail::PathScope scope(this);
  Tensor x = tgt;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    x = layer_at<TransformerDecoderLayer>(*layers.operator->(), i, "TransformerDecoder")
            .forward(x, memory, masks);
  }
  return norm ? norm(x) : x;
}

Tensor generate_square_subsequent_mask(std::int64_t size) {
  QUANTA_CHECK(size >= 0, "generate_square_subsequent_mask: size: expected at least 0, got {}",
               size);
  return causal_mask(size, size);
}

}  // namespace quanta::nn
