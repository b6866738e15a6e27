// Attention and transformer layers: modules of several inputs, with masks.

#include <vector>

#include "float_modules.h"
#include "network.h"
#include "options.h"

namespace quanta::conform {
namespace {

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
    {"MultiheadAttention", factory<nn::MultiheadAttention, nn::MultiheadAttentionOptions>()},
    {"TransformerEncoderLayer",
     factory<nn::TransformerEncoderLayer, nn::TransformerLayerOptions>()},
    {"TransformerDecoderLayer",
     factory<nn::TransformerDecoderLayer, nn::TransformerLayerOptions>()},
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
