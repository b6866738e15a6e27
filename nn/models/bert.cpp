#include "quanta/nn/models/bert.h"

#include "quanta/nn/models/detail/attend_heads.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::models {
namespace {

LayerNormOptions norm_options(const BertConfig& config) {
  return {.normalized_shape = {config.hidden_size}, .eps = config.layer_norm_eps};
}

const BertConfig& checked(const BertConfig& config) {
  const auto at_least_one = [](std::string_view name, std::int64_t value) {
    QUANTA_CHECK(value >= 1, "BertModel: {}: expected at least 1, got {}", name, value);
  };
  at_least_one("vocab_size", config.vocab_size);
  at_least_one("hidden_size", config.hidden_size);
  at_least_one("num_hidden_layers", config.num_hidden_layers);
  at_least_one("num_attention_heads", config.num_attention_heads);
  at_least_one("intermediate_size", config.intermediate_size);
  at_least_one("max_position_embeddings", config.max_position_embeddings);
  at_least_one("type_vocab_size", config.type_vocab_size);
  QUANTA_CHECK(config.hidden_size % config.num_attention_heads == 0,
               "BertModel: num_attention_heads: expected a divisor of hidden_size {}, got {}",
               config.hidden_size, config.num_attention_heads);
  return config;
}

// The part of attention_mask that attention takes; nothing where all tokens are seen.
Tensor make_additive_mask(const Tensor& attention_mask, const Tensor& input_ids) {
  if (!attention_mask.defined()) return {};
  QUANTA_CHECK(attention_mask.sizes() == input_ids.sizes(),
               "BertModel: attention_mask: expected sizes {} as input_ids has, got {}",
               input_ids.sizes(), attention_mask.sizes());
  const Tensor seen = ne(attention_mask, 0.0);
  const Tensor added = additive_mask("BertModel", "attention_mask", seen, false);
  if (added.numel() == 0 || min(added).item() == 0.0) return {};
  return added.view({added.size(0), 1, 1, added.size(1)});
}

}  // namespace

BertSelfAttention::BertSelfAttention(const BertConfig& config)
    : heads_(config.num_attention_heads), attention_dtype_(config.attention_dtype) {
  const LinearOptions square{config.hidden_size, config.hidden_size};
  register_module("query", query, square);
  register_module("key", key, square);
  register_module("value", value, square);
}

void BertSelfAttention::set_attention_dtype(DType dtype) {
  nn::detail::check_attention_dtype("BertSelfAttention", dtype);
  attention_dtype_ = dtype;
}

Tensor BertSelfAttention::forward(const Tensor& x, const Tensor& mask) const {
  return detail::attend_heads(query(x), key(x), value(x), heads_, mask,
                              is_training() ? DType::Float32 : attention_dtype_);
}

BertOutput::BertOutput(std::int64_t in_features, const BertConfig& config) {
  register_module("dense", dense, LinearOptions{in_features, config.hidden_size});
  register_module("LayerNorm", layer_norm, norm_options(config));
}

Tensor BertOutput::forward(const Tensor& /*x*/) const {
  throw ArgumentError(with_module_path(
      "BertOutput: input: expected the layer's input to add, call forward(x, input); got none"));
}

Tensor BertOutput::forward(const Tensor& x, const Tensor& input) const {
  return layer_norm(add(dense(x), input));
}

BertAttention::BertAttention(const BertConfig& config) {
  register_module("self", self, config);
  register_module("output", output, config.hidden_size, config);
}

Tensor BertAttention::forward(const Tensor& x, const Tensor& mask) const {
  return output->forward(self->forward(x, mask), x);
}

BertIntermediate::BertIntermediate(const BertConfig& config) : activation_(config.hidden_act) {
  register_module("dense", dense, LinearOptions{config.hidden_size, config.intermediate_size});
}

Tensor BertIntermediate::forward(const Tensor& x) const {
  const Tensor y = dense(x);
  switch (activation_) {
    case BertActivation::Gelu:
      return gelu(y);
    case BertActivation::GeluTanh:
      return gelu(y, GeluApproximation::Tanh);
    case BertActivation::Relu:
      return relu(y);
  }
  return y;
}

BertLayer::BertLayer(const BertConfig& config) {
  register_module("attention", attention, config);
  register_module("intermediate", intermediate, config);
  register_module("output", output, config.intermediate_size, config);
}

Tensor BertLayer::forward(const Tensor& x, const Tensor& mask) const {
  const Tensor attended = attention->forward(x, mask);
  return output->forward(intermediate(attended), attended);
}

BertEncoder::BertEncoder(const BertConfig& config) {
  register_module("layer", layer);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layer->push_back(make_module<BertLayer>(config));
  }
}

Tensor BertEncoder::forward(const Tensor& x, const Tensor& mask) const {
  const ModuleList& layers = *layer.operator->();
  Tensor y = x;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    y = static_cast<const BertLayer&>(layers[i]).forward(y, mask);
  }
  return y;
}

BertEmbeddings::BertEmbeddings(const BertConfig& config) {
  const std::int64_t width = config.hidden_size;
  register_module("word_embeddings", word_embeddings, EmbeddingOptions{config.vocab_size, width});
  register_module("position_embeddings", position_embeddings,
                  EmbeddingOptions{config.max_position_embeddings, width});
  register_module("token_type_embeddings", token_type_embeddings,
                  EmbeddingOptions{config.type_vocab_size, width});
  register_module("LayerNorm", layer_norm, norm_options(config));
}

Tensor BertEmbeddings::forward(const Tensor& input_ids, const Tensor& token_type_ids) const {
  const Device device = input_ids.device();
  const Tensor types =
      token_type_ids.defined() ? token_type_ids : Tensor::zeros({1, 1}, DType::Int64).to(device);
  const Tensor words = add(word_embeddings(input_ids), token_type_embeddings(types));
  const Tensor positions = Tensor::arange(input_ids.size(1), DType::Int64).to(device);
  return layer_norm(add(words, position_embeddings(positions)));
}

BertPooler::BertPooler(const BertConfig& config) {
  register_module("dense", dense, LinearOptions{config.hidden_size, config.hidden_size});
}

Tensor BertPooler::forward(const Tensor& hidden) const { return tanh(dense(hidden.select(1, 0))); }

BertModel::BertModel(const BertConfig& config) : config_(checked(config)) {
  register_module("embeddings", embeddings, config_);
  register_module("encoder", encoder, config_);
  if (config_.pooler) register_module("pooler", pooler, config_);
}

Tensor BertModel::forward(const Tensor& input_ids, const Tensor& attention_mask,
                          const Tensor& token_type_ids) const {
  const nn::detail::PathScope scope(this);
  QUANTA_CHECK(input_ids.defined() && input_ids.dim() == 2,
               "BertModel: input_ids: expected [batch, steps], got {}",
               input_ids.defined() ? to_string(input_ids.sizes()) : "an undefined tensor");
  QUANTA_CHECK(input_ids.size(1) <= config_.max_position_embeddings,
               "BertModel: input_ids: expected at most {} steps, got {}",
               config_.max_position_embeddings, input_ids.size(1));
  QUANTA_CHECK(!token_type_ids.defined() || token_type_ids.sizes() == input_ids.sizes(),
               "BertModel: token_type_ids: expected sizes {} as input_ids has, got {}",
               input_ids.sizes(), token_type_ids.sizes());
  const Tensor mask = make_additive_mask(attention_mask, input_ids);
  return encoder->forward(embeddings->forward(input_ids, token_type_ids), mask);
}

}  // namespace quanta::nn::models
