#include "quanta/nn/transformer.h"

#include <doctest/doctest.h>

#include <cmath>

#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/bert.h"
#include "quanta/nn/models/detail/attend_heads.h"
#include "quanta/nn/models/encoder_classifier.h"
#include "quanta/nn/models/vision_transformer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::nn {
namespace {

using test::largest_difference;

constexpr double kTolerance = 2e-5;

template <typename Layer>
Layer layer(TransformerLayerOptions options) {
  options.d_model = 8;
  options.nhead = 2;
  options.dim_feedforward = 12;
  Layer result(options);
  for (const Module::NamedTensor& parameter : result.named_parameters()) {
    parameter.tensor.copy_(mul_scalar(randn(parameter.tensor.sizes()), 0.4));
  }
  result.eval();
  return result;
}

TEST_CASE("TransformerEncoderLayer: forward is the sum of its named parts") {
  manual_seed(1);
  for (const bool norm_first : {false, true}) {
    const auto module = layer<TransformerEncoderLayer>(
        {.activation = TransformerActivation::GELU, .batch_first = true, .norm_first = norm_first});
    const Tensor x = randn({2, 5, 8});
    const auto attend = [&](const Tensor& t) { return module.self_attn(t); };
    const auto feed = [&](const Tensor& t) { return module.linear2(gelu(module.linear1(t))); };
    Tensor expected;
    if (norm_first) {
      const Tensor y = add(x, attend(module.norm1(x)));
      expected = add(y, feed(module.norm2(y)));
    } else {
      const Tensor y = module.norm1(add(x, attend(x)));
      expected = module.norm2(add(y, feed(y)));
    }
    CHECK(largest_difference(module(x), expected) < kTolerance);
  }
}

TEST_CASE("TransformerEncoderLayer: an activation function takes the place of the named one") {
  manual_seed(2);
  auto module = layer<TransformerEncoderLayer>({.activation = TransformerActivation::GELU});
  auto other = layer<TransformerEncoderLayer>(
      {.activation_function = [](const Tensor& x) { return gelu(x); }});
  other.load_state_dict(module.state_dict());
  const Tensor x = randn({3, 2, 8});
  CHECK(module(x).equal(other(x)));
}

TEST_CASE("TransformerEncoder: causal masks and padding hide what comes later") {
  manual_seed(3);
  const auto part = layer<TransformerEncoderLayer>({.batch_first = true});
  TransformerEncoder encoder(part, 3);
  encoder.eval();
  const Tensor x = randn({2, 6, 8});
  const Tensor mask = generate_square_subsequent_mask(6);
  CHECK(mask.select(0, 2).to_float_vector()[2] == 0.0F);
  CHECK(std::isinf(mask.select(0, 2).to_float_vector()[3]));
  const Tensor y = encoder.forward(x, {.src_mask = mask});
  CHECK(largest_difference(y, encoder.forward(x, {.src_mask = mask, .is_causal = true})) <
        kTolerance);
  const Tensor start = x.narrow(1, 0, 4);
  CHECK(largest_difference(
            y.narrow(1, 0, 4),
            encoder.forward(start, {.src_mask = generate_square_subsequent_mask(4)})) < kTolerance);
  const Tensor padding = Tensor::zeros({2, 6}, DType::Bool);
  padding.narrow(1, 4, 2).fill_(1.0);
  CHECK(largest_difference(encoder.forward(x, {.src_key_padding_mask = padding}).narrow(1, 0, 4),
                           encoder(start)) < kTolerance);
}

TEST_CASE("TransformerEncoder: layers are copies with names of their own and a norm may follow") {
  manual_seed(4);
  const auto part = layer<TransformerEncoderLayer>({});
  TransformerEncoder plain(part, 2);
  TransformerEncoder normed(part, 2, {.normalized_shape = {8}});
  plain.eval();
  normed.eval();
  CHECK(plain.state_dict().contains("layers.1.self_attn.out_proj.weight"));
  CHECK_FALSE(plain.state_dict().contains("norm.weight"));
  CHECK(normed.state_dict().contains("norm.weight"));
  const Tensor x = randn({3, 2, 8});
  CHECK(largest_difference(plain(x), part(part(x))) < kTolerance);
  CHECK(largest_difference(normed(x), normed.norm(plain(x))) < kTolerance);
  plain.layers->ptr(0)->named_parameters()[0].tensor.fill_(0.0);
  CHECK(largest_difference(part(x), part(x)) == 0.0);
  CHECK(part.state_dict().begin()->second.to_float_vector()[0] != 0.0F);
}

TEST_CASE("TransformerDecoder: memory is attended with its own masks") {
  manual_seed(5);
  for (const bool norm_first : {false, true}) {
    const auto part =
        layer<TransformerDecoderLayer>({.batch_first = true, .norm_first = norm_first});
    TransformerDecoder decoder(part, 2, {.normalized_shape = {8}});
    decoder.eval();
    const Tensor x = randn({2, 5, 8});
    const Tensor memory = randn({2, 7, 8});
    const Tensor padding = Tensor::zeros({2, 7}, DType::Bool);
    padding.narrow(1, 6, 1).fill_(1.0);
    CHECK(largest_difference(decoder.forward(x, memory, {.memory_key_padding_mask = padding}),
                             decoder.forward(x, memory.narrow(1, 0, 6))) < kTolerance);
    const Tensor mask = generate_square_subsequent_mask(5);
    const Tensor y = decoder.forward(x, memory, {.tgt_mask = mask, .tgt_is_causal = true});
    const Tensor start = decoder.forward(x.narrow(1, 0, 3), memory,
                                         {.tgt_mask = generate_square_subsequent_mask(3)});
    CHECK(largest_difference(y.narrow(1, 0, 3), start) < kTolerance);
    const Tensor by_parts = decoder.norm(part.forward(part.forward(x, memory), memory));
    CHECK(largest_difference(decoder.forward(x, memory), by_parts) < kTolerance);
  }
}

TEST_CASE("TransformerEncoderLayer: dropout draws in train mode") {
  manual_seed(6);
  auto module = layer<TransformerEncoderLayer>({.dropout = 0.5});
  const Tensor x = randn({3, 2, 8});
  CHECK(module(x).equal(module(x)));
  module.train();
  CHECK_FALSE(module(x).equal(module(x)));
}

TEST_CASE("TransformerEncoder: errors of calls with masks name the module by its path") {
  const TransformerEncoder encoder(layer<TransformerEncoderLayer>({}), 2);
  CHECK_THROWS_WITH_AS(encoder.forward(Tensor::ones({3, 2, 8}), {.src_mask = Tensor::ones({2, 2})}),
                       doctest::Contains("(in module 'layers.0.self_attn')"), ArgumentError);
}

TEST_CASE("transformer layers: bad options and missing memory are refused by name") {
  const auto part = layer<TransformerEncoderLayer>({});
  CHECK_THROWS_WITH_AS(TransformerEncoder(part, 0),
                       doctest::Contains("num_layers: expected 1..65536, got 0"), ArgumentError);
  CHECK_THROWS_AS(TransformerEncoder(part, std::int64_t{1} << 50U), ArgumentError);
  CHECK_THROWS_AS(models::EncoderClassifier(std::int64_t{1} << 50U), ArgumentError);
  const auto decoder = layer<TransformerDecoderLayer>({});
  CHECK_THROWS_WITH_AS(decoder(randn({3, 2, 8})),
                       doctest::Contains("memory: expected the encoder's output"), ArgumentError);
  CHECK_THROWS_WITH_AS(TransformerDecoder(decoder, 1)(randn({3, 2, 8})),
                       doctest::Contains("memory: expected the encoder's output"), ArgumentError);
  CHECK_THROWS_AS(TransformerEncoderLayer({.d_model = 7, .nhead = 2}), ArgumentError);
  CHECK_THROWS_AS(part.forward(randn({3, 2, 8}), {.src_mask = Tensor::zeros({2, 2})}),
                  ArgumentError);
  CHECK_THROWS_AS(generate_square_subsequent_mask(-1), ArgumentError);
}

TEST_CASE("EncoderClassifier: forward is attention and feed-forward by the names of bert4") {
  manual_seed(7);
  models::EncoderClassifier model(2, {.features = 12, .heads = 3, .feed_forward = 20}, 5);
  model.eval();
  CHECK(model.state_dict().contains("layers.1.ln2.weight"));
  const Tensor x = randn({2, 4, 12});
  CHECK(model(x).sizes() == Dims{2, 5});
  const auto& first = dynamic_cast<const models::EncoderLayer&>((*model.layers.operator->())[0]);
  const auto heads = [](const Tensor& t) { return t.view({2, 4, 3, 4}).transpose(1, 2); };
  const Tensor weights = attention_weights(heads(first.query(x)), heads(first.key(x)), {}, 0.5);
  const Tensor attended =
      matmul(weights, heads(first.value(x))).transpose(1, 2).reshape({2, 4, 12});
  const Tensor y = first.ln1(add(x, first.out(attended)));
  CHECK(largest_difference(first(x), first.ln2(add(y, first.fc2(gelu(first.fc1(y)))))) <
        kTolerance);
  CHECK_THROWS_WITH_AS(models::EncoderLayer({.features = 10, .heads = 3}),
                       doctest::Contains("heads: expected a divisor of 10"), ArgumentError);
}

TEST_CASE("EncoderLayer: attention_dtype is that of the products in eval mode") {
  const auto layer = [](DType dtype) {
    manual_seed(9);
    models::EncoderLayer made(
        {.features = 64, .heads = 2, .feed_forward = 128, .attention_dtype = dtype});
    made.eval();
    return made;
  };
  models::EncoderLayer int8 = layer(DType::QInt8);
  const models::EncoderLayer float32 = layer(DType::Float32);
  const Tensor x = randn({2, 33, 64});
  CHECK(largest_difference(int8(x), float32(x)) > 0.0);
  CHECK(test::sqnr_db(float32(x), int8(x)) > 40.0);
  int8.train();
  CHECK(largest_difference(int8(x), float32(x)) == 0.0);
}

TEST_CASE("set_attention_dtype: models have it as MultiheadAttention has") {
  manual_seed(10);
  const auto changes = [](auto model, const Tensor& x) {
    model.eval();
    const Tensor float32 = model(x);
    set_attention_dtype(model, DType::QInt8);
    const Tensor int8 = model(x);
    CHECK(largest_difference(int8, float32) > 0.0);
    CHECK(test::sqnr_db(float32, int8) > 30.0);
    CHECK_THROWS_WITH_AS(
        set_attention_dtype(model, DType::QUInt8),
        doctest::Contains("attention_dtype: expected Float32 or QInt8, got QUInt8"), ArgumentError);
    set_attention_dtype(model, DType::Float32);
    CHECK(largest_difference(model(x), float32) == 0.0);
  };
  changes(models::EncoderClassifier(2, {.features = 64, .heads = 2, .feed_forward = 128}, 5),
          randn({2, 33, 64}));
  changes(models::VisionTransformer({.image_size = 32, .patch_size = 8, .layers = 2}),
          randn({1, 3, 32, 32}));
  changes(models::BertSelfAttention({.hidden_size = 64, .num_attention_heads = 4}),
          randn({2, 21, 64}));
}

TEST_CASE("EncoderLayer: dynamic layers together give the bits of the calls one by one") {
  manual_seed(8);
  models::EncoderClassifier model(1, {.features = 64, .heads = 2, .feed_forward = 128}, 5);
  model.eval();
  const auto dynamic = quantize_dynamic(model);
  const Tensor x = randn({2, 9, 64});
  const auto& layer = dynamic_cast<const models::EncoderLayer&>((*dynamic.layers.operator->())[0]);
  const Tensor attended =
      models::detail::attend_heads(layer.query(x), layer.key(x), layer.value(x), 2);
  const Tensor y = layer.ln1(add(x, layer.out(attended)));
  CHECK(largest_difference(layer(x), layer.ln2(add(y, layer.fc2(gelu(layer.fc1(y)))))) == 0.0);

  // A hook sees what passes, and what it makes of it counts.
  auto hooked = dynamic;
  auto& second = dynamic_cast<models::EncoderLayer&>((*hooked.layers.operator->())[0]);
  int calls = 0;
  second.fc1.module()->register_forward_hook(
      [&](const Module&, const Tensor&, const Tensor& output) {
        ++calls;
        return mul_scalar(output, 0.0);
      });
  CHECK(largest_difference(second(x), layer(x)) > kTolerance);
  CHECK(calls == 1);
}

}  // namespace
}  // namespace quanta::nn
