#pragma once

#include <cstdint>

#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// A BERT-shaped encoder fed with embeddings and a classifier on its first token: the benchmark
/// network `bert4`, with its names.
namespace quanta::nn::models {

struct EncoderOptions {
  std::int64_t features = 768;
  std::int64_t heads = 12;
  std::int64_t feed_forward = 3072;
  /// Of the products of queries, keys and values in eval mode: Float32 or QInt8 (ops/attention.h).
  DType attention_dtype = DType::Float32;
};

/// x = ln1(x + out(attention(x))); x = ln2(x + fc2(gelu(fc1(x)))).
struct EncoderLayer : Module, HasAttentionDtype {
  Child<Linear> query, key, value, out;
  Child<LayerNorm> ln1;
  Child<Linear> fc1, fc2;
  Child<LayerNorm> ln2;

  explicit EncoderLayer(const EncoderOptions& options);
  /// x [batch, steps, features].
  Tensor forward(const Tensor& x) const override;
  void set_attention_dtype(DType dtype) override;

 private:
  std::int64_t heads_;
  DType attention_dtype_;
};

struct EncoderClassifier : Module {
  Child<ModuleList> layers;
  Child<Linear> pooler;
  Child<Linear> fc;

  explicit EncoderClassifier(std::int64_t num_layers = 4, const EncoderOptions& options = {},
                             std::int64_t num_classes = 1000);
  /// x [batch, steps, features] to [batch, num_classes].
  Tensor forward(const Tensor& x) const override;
};

}  // namespace quanta::nn::models
