#include "quanta/nn/models/encoder_classifier.h"

#include "quanta/nn/detail/dynamic_linear.h"
#include "quanta/nn/detail/layer_count.h"
#include "quanta/nn/models/detail/attend_heads.h"
#include "quanta/ops/activation.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::models {

EncoderLayer::EncoderLayer(const EncoderOptions& options)
    : heads_(options.heads), attention_dtype_(options.attention_dtype) {
  const std::int64_t width = options.features;
  QUANTA_CHECK(heads_ >= 1 && width % heads_ == 0,
               "EncoderLayer: heads: expected a divisor of {} features, got {}", width, heads_);
  const LinearOptions square{width, width};
  const LayerNormOptions norm{.normalized_shape = {width}, .eps = 1e-12};
  register_module("query", query, square);
  register_module("key", key, square);
  register_module("value", value, square);
  register_module("out", out, square);
  register_module("ln1", ln1, norm);
  register_module("fc1", fc1, LinearOptions{width, options.feed_forward});
  register_module("fc2", fc2, LinearOptions{options.feed_forward, width});
  register_module("ln2", ln2, norm);
}

void EncoderLayer::set_attention_dtype(DType dtype) {
  nn::detail::check_attention_dtype("EncoderLayer", dtype);
  attention_dtype_ = dtype;
}

Tensor EncoderLayer::forward(const Tensor& x) const {
  const auto [queries, keys, values] = nn::detail::linear_of_three(query, key, value, x);
  const Tensor attended = detail::attend_heads(queries, keys, values, heads_, {},
                                               is_training() ? DType::Float32 : attention_dtype_);
  const Tensor y = ln1(nn::detail::add_linear(x, out, attended));
  return ln2(nn::detail::add_linear(y, fc2, nn::detail::gelu_of_linear(fc1, y)));
}

EncoderClassifier::EncoderClassifier(std::int64_t num_layers, const EncoderOptions& options,
                                     std::int64_t num_classes) {
  nn::detail::check_layer_count("EncoderClassifier", num_layers);
  register_module("layers", layers);
  for (std::int64_t i = 0; i < num_layers; ++i) layers->push_back(EncoderLayer(options));
  register_module("pooler", pooler, LinearOptions{options.features, options.features});
  register_module("fc", fc, LinearOptions{options.features, num_classes});
}

Tensor EncoderClassifier::forward(const Tensor& x) const {
  Tensor y = x;
  for (std::size_t i = 0; i < layers->size(); ++i) y = (*layers.operator->())[i](y);
  return fc(tanh(pooler(y.select(1, 0))));
}

}  // namespace quanta::nn::models
