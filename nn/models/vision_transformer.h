#pragma once

#include <cstdint>

#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Vision transformers (Dosovitskiy et al.: "An Image is Worth 16x16 Words", 2021) under timm's
/// names. They are for quantize_dynamic and quantize_weight_only.
namespace quanta::nn::models {

/// The defaults are those of ViT-Tiny (DeiT-Ti), timm's vit_tiny_patch16_224.
struct VisionTransformerOptions {
  std::int64_t image_size = 224;  ///< pixels of a side
  std::int64_t patch_size = 16;
  std::int64_t in_channels = 3;
  std::int64_t features = 192;
  std::int64_t layers = 12;
  std::int64_t heads = 3;
  std::int64_t feed_forward = 768;
  std::int64_t num_classes = 1000;
};

/// An image [N, C, H, W] as a row of features for each of its patches, [N, patches, features].
struct PatchEmbedding : Module {
  Child<Conv2d> proj;

  explicit PatchEmbedding(const VisionTransformerOptions& options);
  Tensor forward(const Tensor& x) const override;
};

struct VisionAttention : Module, HasAttentionDtype {
  Child<Linear> qkv, proj;

  /// Throws ArgumentError for a number of heads that does not divide the features.
  explicit VisionAttention(const VisionTransformerOptions& options);
  /// x [N, tokens, features].
  Tensor forward(const Tensor& x) const override;
  void set_attention_dtype(DType dtype) override;

 private:
  std::int64_t heads_;
  DType attention_dtype_ = DType::Float32;
};

/// fc2(gelu(fc1(x))).
struct VisionMlp : Module {
  Child<Linear> fc1, fc2;

  explicit VisionMlp(const VisionTransformerOptions& options);
  Tensor forward(const Tensor& x) const override;
};

/// x = x + attn(norm1(x)); x = x + mlp(norm2(x)).
struct VisionBlock : Module {
  Child<LayerNorm> norm1;
  Child<VisionAttention> attn;
  Child<LayerNorm> norm2;
  Child<VisionMlp> mlp;

  explicit VisionBlock(const VisionTransformerOptions& options);
  Tensor forward(const Tensor& x) const override;
};

/// x [N, in_channels, image_size, image_size] Float32, result [N, num_classes]. timm's names
/// ("blocks.3.attn.qkv.weight", "pos_embed").
struct VisionTransformer : Module {
  Tensor cls_token;  ///< [1, 1, features]
  Tensor pos_embed;  ///< [1, patches + 1, features]
  Child<PatchEmbedding> patch_embed;
  Child<ModuleList> blocks;
  Child<LayerNorm> norm;
  Child<Linear> head;

  /// Throws ArgumentError for an image size that is no multiple of the patch size.
  explicit VisionTransformer(const VisionTransformerOptions& options = {});
  Tensor forward(const Tensor& x) const override;
};

}  // namespace quanta::nn::models
