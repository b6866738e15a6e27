#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/efficientnet.h"
#include "quanta/nn/models/vision_transformer.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::nn::models {
namespace {

using test::random_tensor;
using test::sqnr_db;

std::int64_t count_parameters(const Module& model) {
  std::int64_t count = 0;
  for (const Tensor& tensor : model.parameters()) count += tensor.numel();
  return count;
}

}  // namespace

TEST_CASE("EfficientNet-B0: torchvision's parameters and names") {
  const EfficientNet model = efficientnet_b0();
  CHECK(count_parameters(model) == 5'288'548);
  const StateDict state = model.state_dict();
  CHECK(state.at("features.0.0.weight").sizes() == Dims{32, 3, 3, 3});
  CHECK(state.at("features.1.0.block.0.0.weight").sizes() == Dims{32, 1, 3, 3});
  CHECK(state.at("features.4.2.block.2.fc1.weight").sizes() == Dims{20, 480, 1, 1});
  CHECK(state.at("features.7.0.block.3.1.running_var").sizes() == Dims{320});
  CHECK(state.at("classifier.1.weight").sizes() == Dims{1000, 1280});
}

TEST_CASE("EfficientNet-B0: fused it is the same and int8 is near to it") {
  manual_seed(21);
  EfficientNet model = efficientnet_b0(10);
  StateDict state = model.state_dict();
  // New layers shrink a signal, which these carry through all of them.
  for (const auto& [name, tensor] : model.state_dict()) {
    if (tensor.dim() >= 2) state.set(name, mul_scalar(tensor, std::sqrt(6.0)));
  }
  model.load_state_dict(state);
  model.eval();
  const Tensor x = random_tensor({2, 3, 64, 64}, 1);
  const Tensor y = model(x);
  fuse_modules(model, fusion_groups(model));
  CHECK(sqnr_db(y, model(x)) > 80.0);
  const EfficientNet prepared = prepare(model, get_default_qconfig("x86"));
  prepared(x);
  const EfficientNet int8 = convert(prepared);
  CHECK(sqnr_db(y, int8(x)) > 15.0);
  CHECK(freeze(int8, x)(x).equal(int8(x)));
}

TEST_CASE("VisionTransformer: timm's parameters and names") {
  const VisionTransformer model;
  CHECK(count_parameters(model) == 5'717'416);
  const StateDict state = model.state_dict();
  CHECK(state.at("cls_token").sizes() == Dims{1, 1, 192});
  CHECK(state.at("pos_embed").sizes() == Dims{1, 197, 192});
  CHECK(state.at("patch_embed.proj.weight").sizes() == Dims{192, 3, 16, 16});
  CHECK(state.at("blocks.11.attn.qkv.bias").sizes() == Dims{576});
  CHECK(state.at("blocks.0.mlp.fc2.weight").sizes() == Dims{192, 768});
  CHECK(state.at("norm.weight").sizes() == Dims{192});
}

TEST_CASE("VisionTransformer: the tokens stand in the order of the patches") {
  manual_seed(22);
  VisionTransformer model({.image_size = 32, .features = 8, .layers = 1, .heads = 2});
  model.eval();
  Tensor image = Tensor::zeros({1, 3, 32, 32});
  const Tensor dark = model.patch_embed->forward(image);
  CHECK(dark.sizes() == Dims{1, 4, 8});
  image.narrow(2, 0, 16).narrow(3, 16, 16).fill_(1.0);  // the second patch
  const Tensor lit = model.patch_embed->forward(image);
  for (const std::int64_t patch : {0, 1, 2, 3}) {
    CHECK(lit.select(1, patch).equal(dark.select(1, patch)) == (patch != 1));
  }
}

TEST_CASE("VisionTransformer: dynamic int8 is near to float and frozen with its bits") {
  manual_seed(23);
  VisionTransformer model({.image_size = 64, .layers = 2, .num_classes = 10});
  model.eval();
  const VisionTransformer int8 = quantize_dynamic(model);
  const Tensor x = random_tensor({2, 3, 64, 64}, 2);
  CHECK(sqnr_db(model(x), int8(x)) > 25.0);
  CHECK(freeze(int8, x)(x).equal(int8(x)));
}

TEST_CASE("VisionTransformer: sizes that do not fit are refused") {
  CHECK_THROWS_WITH_AS(VisionTransformer({.image_size = 225}),
                       doctest::Contains("image_size: expected a multiple of the patches' 16"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(VisionTransformer({.heads = 5}),
                       doctest::Contains("heads: expected a divisor of 192 features, got 5"),
                       ArgumentError);
}

}  // namespace quanta::nn::models
