#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "devices_support.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/models/bert.h"
#include "quanta/nn/models/encoder_classifier.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/on_device.h"

// Encoders on the device. Their linear layers hold int8 weights; embeddings, attention, norms and
// gelu between them are floats, whose arithmetic is the CPU's step by step.

namespace quanta {
namespace {

using nn::models::BertActivation;
using nn::models::BertConfig;
using nn::models::BertModel;
using nn::models::SentenceEncoder;
using nn::models::WordPieceTokenizer;
using test::check_same_on_device;

const Device kDevice = test::test_device();

// Heads of 8 features.
BertConfig small_config() {
  return {.vocab_size = 37,
          .hidden_size = 24,
          .num_hidden_layers = 2,
          .num_attention_heads = 3,
          .intermediate_size = 41,
          .max_position_embeddings = 12};
}

// Larger weights than new ones have: attention has something to choose.
BertModel random_model(const BertConfig& config) {
  manual_seed(7);
  BertModel model(config);
  for (const nn::Module::NamedTensor& parameter : model.named_parameters()) {
    parameter.tensor.copy_(mul_scalar(randn(parameter.tensor.sizes()), 0.4));
  }
  model.eval();
  return model;
}

// Every number once and again, and another row of them.
Tensor random_ids(std::int64_t batch, std::int64_t steps) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < batch * steps; ++i) ids.push_back(i * 11 % 37);
  return Tensor::from_int64(ids).reshape({batch, steps});
}

// The last `hidden` steps of the second row are padding.
Tensor padding_mask(std::int64_t batch, std::int64_t steps, std::int64_t hidden) {
  const Tensor mask = Tensor::ones({batch, steps}, DType::Int64);
  if (hidden > 0) mask.select(0, 1).slice(0, steps - hidden, steps).fill_(0.0);
  return mask;
}

DynamicSpec per_channel() {
  return DynamicSpec().add_type<nn::Linear>(per_channel_dynamic_qconfig());
}

}  // namespace

TEST_CASE("cuda encoders: a BERT with dynamic layers gives the CPU's floats") {
  for (const auto activation :
       {BertActivation::Gelu, BertActivation::GeluTanh, BertActivation::Relu}) {
    CAPTURE(static_cast<int>(activation));
    BertConfig config = small_config();
    config.hidden_act = activation;
    const BertModel model = random_model(config);
    BertModel dynamic = activation == BertActivation::Relu ? quantize_dynamic(model, per_channel())
                                                           : quantize_dynamic(model);
    const Tensor ids = random_ids(2, 7);
    const Tensor types = Tensor::ones({2, 7}, DType::Int64);
    const Tensor plain = dynamic(ids);
    const Tensor masked = dynamic.forward(ids, padding_mask(2, 7, 3), types);
    CHECK_FALSE(masked.equal(plain));
    const Tensor pooled = dynamic.pooler(plain);
    dynamic.to(kDevice);
    check_same_on_device(dynamic(ids.to(kDevice)), plain);
    check_same_on_device(
        dynamic.forward(ids.to(kDevice), padding_mask(2, 7, 3).to(kDevice), types.to(kDevice)),
        masked);
    // Its end is a tanh, which is CUDA's own.
    CHECK(test::same_numbers(dynamic.pooler(plain.to(kDevice)), pooled, test::library_bound()));
    const auto frozen = freeze(dynamic, ids.to(kDevice));
    for (int run = 0; run < 2; ++run) check_same_on_device(frozen(ids.to(kDevice)), plain);
    // Back again.
    dynamic.to(Device::cpu());
    CHECK(dynamic(ids).equal(plain));
  }
}

// The CPU's order of sums in such layers is that of its instruction set (ops/linear_weight_only.h).
TEST_CASE("cuda encoders: a BERT whose weights alone are integers is near to the CPU's") {
  BertConfig config = small_config();
  config.hidden_size = 48;
  config.intermediate_size = 80;
  const BertModel model = random_model(config);
  for (const int bits : {8, 4}) {
    CAPTURE(bits);
    BertModel small = quantize_weight_only(
        model, {.bits = bits, .group_size = bits == 4 ? 16 : 0, .symmetric = bits == 8});
    const Tensor ids = random_ids(2, 5);
    const Tensor expected = small(ids);
    small.to(kDevice);
    const Tensor got = small(ids.to(kDevice));
    REQUIRE(got.device() == kDevice);
    CHECK(test::largest_difference(got.cpu(), expected) < 1e-5);
  }
}

TEST_CASE("cuda encoders: sentences become the CPU's vectors") {
  const auto tokenizer = WordPieceTokenizer::from_text(
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\n##a\n##b\n", "vocab.txt", {.max_length = 12});
  SentenceEncoder encoder(tokenizer, quantize_dynamic(random_model(small_config())));
  const std::vector<std::string> texts{"a b ca", "d", "abba c d a a a a a a a a"};
  const Tensor expected = encoder.encode(texts);
  encoder.model.to(kDevice);
  const Tensor got = encoder.encode(texts);
  REQUIRE(got.device().is_cpu());
  CHECK(got.equal(expected));
}

TEST_CASE("cuda encoders: layers that share their input give the CPU's floats") {
  manual_seed(8);
  nn::models::EncoderClassifier network(2, {.features = 24, .heads = 3, .feed_forward = 40}, 5);
  network.eval();
  auto dynamic = quantize_dynamic(network);
  Generator generator(9);
  const Tensor x = randn({3, 6, 24}, generator);
  const Tensor expected = dynamic(x);
  dynamic.to(kDevice);
  check_same_on_device(dynamic(x.to(kDevice)), expected);
  const auto frozen = freeze(dynamic, x.to(kDevice));
  for (int run = 0; run < 2; ++run) check_same_on_device(frozen(x.to(kDevice)), expected);
}

// Float layers sum in the order of the device's library.
TEST_CASE("cuda encoders: attention with keys of its own is near to the CPU's") {
  manual_seed(10);
  nn::MultiheadAttention attention(
      {.embed_dim = 24, .num_heads = 3, .add_bias_kv = true, .add_zero_attn = true});
  attention.eval();
  Generator generator(11);
  const Tensor x = randn({5, 2, 24}, generator);
  const Tensor padding = Tensor::zeros({2, 5}, DType::Bool);
  padding.select(0, 1).slice(0, 3, 5).fill_(1.0);
  for (const bool need_weights : {false, true}) {
    CAPTURE(need_weights);
    const auto call = [&](const Tensor& input, const Tensor& mask) {
      return attention.forward(input, input, input,
                               {.key_padding_mask = mask, .need_weights = need_weights});
    };
    attention.to(Device::cpu());
    const nn::AttentionOutput expected = call(x, padding);
    attention.to(kDevice);
    const nn::AttentionOutput got = call(x.to(kDevice), padding.to(kDevice));
    CHECK(test::largest_difference(got.output.cpu(), expected.output) < 1e-5);
    REQUIRE(got.weights.defined() == need_weights);
    if (need_weights) {
      CHECK(test::largest_difference(got.weights.cpu(), expected.weights) < 1e-6);
    }
  }
}

}  // namespace quanta
