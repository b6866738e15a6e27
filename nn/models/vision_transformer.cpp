#include "quanta/nn/models/vision_transformer.h"

#include "quanta/nn/detail/dynamic_linear.h"
#include "quanta/nn/models/detail/attend_heads.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/sizes.h"
#include "quanta/runtime/random.h"

namespace quanta::nn::models {
namespace {

constexpr double kEps = 1e-6;

// As timm begins: small numbers.
Tensor starting_values(const Dims& sizes) { return mul_scalar(randn(sizes), 0.02); }

std::int64_t count_patches(const VisionTransformerOptions& options) {
  const std::int64_t side = options.image_size / options.patch_size;
  return side * side;
}

}  // namespace

PatchEmbedding::PatchEmbedding(const VisionTransformerOptions& options) {
  register_module("proj", proj,
                  Conv2dOptions{.in_channels = options.in_channels,
                                .out_channels = options.features,
                                .kernel_size = {options.patch_size},
                                .stride = {options.patch_size}});
}

Tensor PatchEmbedding::forward(const Tensor& x) const { return proj(x).flatten(2).transpose(1, 2); }

VisionAttention::VisionAttention(const VisionTransformerOptions& options) : heads_(options.heads) {
  QUANTA_CHECK(heads_ >= 1 && options.features % heads_ == 0,
               "VisionAttention: heads: expected a divisor of {} features, got {}",
               options.features, heads_);
  const std::int64_t rows =
      quanta::detail::checked_product("VisionAttention", "features", {3, options.features});
  register_module("qkv", qkv, LinearOptions{options.features, rows});
  register_module("proj", proj, LinearOptions{options.features, options.features});
}

void VisionAttention::set_attention_dtype(DType dtype) {
  nn::detail::check_attention_dtype("VisionAttention", dtype);
  attention_dtype_ = dtype;
}

Tensor VisionAttention::forward(const Tensor& x) const {
  const std::int64_t width = x.size(2);
  const Tensor all = qkv(x);
  const auto part = [&](std::int64_t i) { return all.narrow(-1, i * width, width); };
  return proj(detail::attend_heads(part(0), part(1), part(2), heads_, {},
                                   is_training() ? DType::Float32 : attention_dtype_));
}

VisionMlp::VisionMlp(const VisionTransformerOptions& options) {
  register_module("fc1", fc1, LinearOptions{options.features, options.feed_forward});
  register_module("fc2", fc2, LinearOptions{options.feed_forward, options.features});
}

Tensor VisionMlp::forward(const Tensor& x) const { return fc2(nn::detail::gelu_of_linear(fc1, x)); }

VisionBlock::VisionBlock(const VisionTransformerOptions& options) {
  const LayerNormOptions layer_norm{.normalized_shape = {options.features}, .eps = kEps};
  register_module("norm1", norm1, layer_norm);
  register_module("attn", attn, options);
  register_module("norm2", norm2, layer_norm);
  register_module("mlp", mlp, options);
}

Tensor VisionBlock::forward(const Tensor& x) const {
  const Tensor y = add(x, attn(norm1(x)));
  return add(y, mlp(norm2(y)));
}

VisionTransformer::VisionTransformer(const VisionTransformerOptions& options) {
  QUANTA_CHECK(
      options.patch_size >= 1 && options.image_size >= options.patch_size &&
          options.image_size % options.patch_size == 0,
      "VisionTransformer: image_size: expected a multiple of the patches' {} pixels, got {}",
      options.patch_size, options.image_size);
  cls_token = starting_values({1, 1, options.features});
  pos_embed = starting_values({1, count_patches(options) + 1, options.features});
  register_parameter("cls_token", cls_token);
  register_parameter("pos_embed", pos_embed);
  register_module("patch_embed", patch_embed, options);
  register_module("blocks", blocks);
  for (std::int64_t i = 0; i < options.layers; ++i) blocks->push_back(VisionBlock(options));
  register_module("norm", norm,
                  LayerNormOptions{.normalized_shape = {options.features}, .eps = kEps});
  register_module("head", head, LinearOptions{options.features, options.num_classes});
}

Tensor VisionTransformer::forward(const Tensor& x) const {
  const Tensor patches = patch_embed(x);
  const Tensor token = cls_token.expand({patches.size(0), 1, patches.size(2)});
  Tensor y = add(cat({token, patches}, 1), pos_embed);
  for (std::size_t i = 0; i < blocks->size(); ++i) y = (*blocks.operator->())[i](y);
  return head(norm(y).select(1, 0));
}

}  // namespace quanta::nn::models
