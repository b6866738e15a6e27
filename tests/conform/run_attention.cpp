// Attention and transformer layers: modules of several inputs, with masks.

#include <memory>
#include <string>
#include <vector>

#include "float_modules.h"
#include "network.h"
#include "quanta/nn/transformer.h"
#include "registry.h"

namespace quanta::conform {
namespace {

std::shared_ptr<nn::MultiheadAttention> make_attention(const Arguments& arguments) {
  nn::MultiheadAttentionOptions options;
  options.embed_dim = arguments.integer("embed_dim");
  options.num_heads = arguments.integer("num_heads");
  options.dropout = arguments.number("dropout", options.dropout);
  options.bias = arguments.flag("bias", options.bias);
  options.add_bias_kv = arguments.flag("add_bias_kv", options.add_bias_kv);
  options.add_zero_attn = arguments.flag("add_zero_attn", options.add_zero_attn);
  options.kdim = arguments.integer("kdim", options.kdim);
  options.vdim = arguments.integer("vdim", options.vdim);
  options.batch_first = arguments.flag("batch_first", options.batch_first);
  return nn::make_module<nn::MultiheadAttention>(options);
}

template <typename Layer>
std::shared_ptr<Layer> make_layer(const Arguments& arguments) {
  nn::TransformerLayerOptions options;
  options.d_model = arguments.integer("d_model");
  options.nhead = arguments.integer("nhead");
  options.dim_feedforward = arguments.integer("dim_feedforward", options.dim_feedforward);
  options.dropout = arguments.number("dropout", options.dropout);
  if (arguments.text("activation", "relu") == "gelu") {
    options.activation = nn::TransformerActivation::GELU;
  }
  options.layer_norm_eps = arguments.number("layer_norm_eps", options.layer_norm_eps);
  options.batch_first = arguments.flag("batch_first", options.batch_first);
  options.norm_first = arguments.flag("norm_first", options.norm_first);
  options.bias = arguments.flag("bias", options.bias);
  return nn::make_module<Layer>(options);
}

std::vector<Tensor> forward_attention(const ModuleCall& call) {
  const Case& test = call.test;
  const nn::AttentionCall options{.key_padding_mask = test.optional_tensor("key_padding_mask"),
                                  .need_weights = test.flag("need_weights", true),
                                  .attn_mask = test.optional_tensor("attn_mask"),
                                  .average_attn_weights = test.flag("average_attn_weights", true),
                                  .is_causal = test.flag("is_causal", false)};
  const nn::AttentionOutput result = call.as<nn::MultiheadAttention>().forward(
      call.tensor(0), call.tensor(1), call.tensor(2), options);
  std::vector<Tensor> results{result.output};
  if (result.weights.defined()) results.push_back(result.weights);
  return results;
}

std::vector<Tensor> forward_encoder_layer(const ModuleCall& call) {
  const Case& test = call.test;
  const nn::EncoderMasks masks{.src_mask = test.optional_tensor("src_mask"),
                               .src_key_padding_mask = test.optional_tensor("src_key_padding_mask"),
                               .is_causal = test.flag("is_causal", false)};
  return {call.as<nn::TransformerEncoderLayer>().forward(call.tensor(0), masks)};
}

std::vector<Tensor> forward_decoder_layer(const ModuleCall& call) {
  const Case& test = call.test;
  const nn::DecoderMasks masks{
      .tgt_mask = test.optional_tensor("tgt_mask"),
      .memory_mask = test.optional_tensor("memory_mask"),
      .tgt_key_padding_mask = test.optional_tensor("tgt_key_padding_mask"),
      .memory_key_padding_mask = test.optional_tensor("memory_key_padding_mask"),
      .tgt_is_causal = test.flag("tgt_is_causal", false),
      .memory_is_causal = test.flag("memory_is_causal", false)};
  return {call.as<nn::TransformerDecoderLayer>().forward(call.tensor(0), call.tensor(1), masks)};
}

const ModuleRegistration kTypes{
    {"MultiheadAttention", make_attention},
    {"TransformerEncoderLayer", make_layer<nn::TransformerEncoderLayer>},
    {"TransformerDecoderLayer", make_layer<nn::TransformerDecoderLayer>},
};

const ForwardRegistration kForwards{
    {"MultiheadAttention",
     forward_attention,
     {"need_weights", "average_attn_weights", "is_causal"}},
    {"TransformerEncoderLayer", forward_encoder_layer, {"is_causal"}},
    {"TransformerDecoderLayer", forward_decoder_layer, {"tgt_is_causal", "memory_is_causal"}},
};

}  // namespace
}  // namespace quanta::conform
