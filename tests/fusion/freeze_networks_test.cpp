// freeze: recurrent, transformer and float networks, and layers of every family.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/dynamic/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/models/bert.h"
#include "quanta/nn/models/encoder_classifier.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/mobilenet_v3.h"
#include "quanta/nn/models/recurrent.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/nn/transformer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::random_tensor;

template <typename Make>
void check_frozen(const nn::Module& net, Make&& make_input) {
  const FrozenModel frozen = freeze(net, make_input(1));
  for (std::uint64_t seed = 2; seed < 5; ++seed) {
    const Tensor x = make_input(seed);
    CHECK(frozen(x).equal(net(x)));
  }
}

template <typename Net>
void check_frozen(Net net, const Dims& sizes) {
  net.eval();
  check_frozen(net, [&](std::uint64_t seed) { return random_tensor(sizes, seed); });
}

template <typename Net>
Net eval_mode(Net net) {
  net.eval();
  return net;
}

TEST_CASE("freeze: recurrent classifiers, float and dynamic, at several batch sizes") {
  const nn::RecurrentOptions options{
      .input_size = 24, .hidden_size = 32, .num_layers = 2, .batch_first = true};
  for (const std::int64_t batch : {1, 3, 20}) {
    CAPTURE(batch);
    const Dims sizes{batch, 7, 24};
    const auto lstm = eval_mode(nn::models::LstmClassifier(options, 10));
    const auto gru = eval_mode(nn::models::GruClassifier(options, 10));
    check_frozen(lstm, sizes);
    check_frozen(gru, sizes);
    check_frozen(quantize_dynamic(lstm), sizes);
    check_frozen(quantize_dynamic(gru), sizes);
  }
}

TEST_CASE("freeze: recurrent layers with directions, projections and as an RNN") {
  const nn::RecurrentOptions options{
      .input_size = 12, .hidden_size = 16, .num_layers = 2, .bidirectional = true};
  check_frozen(nn::LSTM(options), {5, 2, 12});
  check_frozen(nn::GRU(options), {5, 2, 12});
  check_frozen(nn::RNN(options), {5, 2, 12});
  check_frozen(nn::LSTM({.input_size = 12, .hidden_size = 16, .proj_size = 8}), {5, 12});
  nn::Sequential dynamic(nn::LSTM{options});
  dynamic.eval();
  check_frozen(quantize_dynamic(dynamic), {5, 2, 12});
}

TEST_CASE("freeze: transformers, float and dynamic") {
  const nn::models::EncoderOptions options{.features = 32, .heads = 4, .feed_forward = 64};
  for (const std::int64_t batch : {1, 2}) {
    const Dims sizes{batch, 20, 32};
    const auto encoder = eval_mode(nn::models::EncoderClassifier(2, options, 10));
    check_frozen(encoder, sizes);
    check_frozen(quantize_dynamic(encoder), sizes);
  }
  nn::TransformerEncoderLayer layer({.d_model = 32, .nhead = 4, .dim_feedforward = 48});
  layer.eval();
  check_frozen(layer, {6, 2, 32});
  check_frozen(quantize_dynamic(layer), {6, 2, 32});
}

TEST_CASE("freeze: a BERT of token ids") {
  nn::models::BertConfig config;
  config.vocab_size = 50;
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.intermediate_size = 64;
  config.max_position_embeddings = 16;
  const auto make_ids = [](std::uint64_t seed) {
    return clamp(mul_scalar(relu(random_tensor({2, 9}, seed)), 20.0), 0.0, 49.0).to(DType::Int64);
  };
  const auto bert = eval_mode(nn::models::BertModel(config));
  check_frozen(bert, make_ids);
  check_frozen(quantize_dynamic(bert), make_ids);
}

TEST_CASE("freeze: float networks") {
  check_frozen(nn::models::FashionResNet(), {2, 1, 28, 28});
  check_frozen(nn::models::FashionMobileNet(), {1, 1, 28, 28});
  check_frozen(nn::models::Mlp(), {4, 784});
  check_frozen(nn::Sequential(nn::ConvTranspose2d(nn::ConvTranspose2dOptions{
                                  .in_channels = 3, .out_channels = 6, .kernel_size = {3}}),
                              nn::GroupNorm({.num_groups = 2, .num_channels = 6}), nn::ReLU(),
                              nn::InstanceNorm2d({.num_features = 6})),
               {2, 3, 5, 6});
}

/// Steps on codes, of which plans make tables and tails of others.
struct RandomCodes : nn::Module {
  std::uint64_t seed;
  quantized::ConvPackedParams wide, deep;

  explicit RandomCodes(std::uint64_t given)
      : seed(given),
        wide(weight({8, 8, 1, 1}), random_tensor({8}, 1), {}, 2),
        deep(weight({8, 1, 3, 3}), random_tensor({8}, 2), {.padding = {1}, .groups = 8}, 2) {
    eval();
  }
  static QTensor weight(const Dims& sizes) {
    return quantize_per_tensor(random_tensor(sizes, 5), 0.05, 0, DType::QInt8);
  }

  static std::size_t below(Generator& generator, std::size_t count) {
    const auto value = static_cast<std::size_t>(generator.uniform() * static_cast<float>(count));
    return std::min(count - 1, value);
  }

  QTensor step(const QTensor& a, const QTensor& b, std::size_t kind) const {
    switch (kind) {
      case 0:
        return quantized::conv(a, wide, 0.2, 110);
      case 1:
        return quantized::conv_relu(a, deep, 0.1, 3);
      case 2:
        return quantized::hardswish(a, 0.07, 30);
      case 3:
        return quantized::mul(a, b, 0.15, 100);
      case 4:
        return QTensor(relu(a));
      case 5:
        return quantize_per_tensor(dequantize(a), 0.08, 90, DType::QUInt8);
      case 6:
        return quantized::add_relu(a, b, 0.12, 0);
      case 7:
        return quantized::cat(std::array{QTensor(a.slice(1, 0, 4)), QTensor(b.slice(1, 4, 8))}, 1,
                              0.1, 80);
      default:
        return quantized::add(a, b, 0.12, 100);
    }
  }

  Tensor forward(const Tensor& x) const override {
    Generator generator(seed);
    std::vector<QTensor> results{
        quantize_per_tensor(x.contiguous(MemoryFormat::ChannelsLast), 0.05, 120, DType::QUInt8)};
    for (std::size_t i = 4 + below(generator, 12); i-- > 0;) {
      // Mostly what was made last.
      const QTensor a =
          results[results.size() - 1 - below(generator, std::min<std::size_t>(results.size(), 2))];
      results.push_back(step(a, results[below(generator, results.size())], below(generator, 10)));
    }
    return dequantize(results.back());
  }
};

TEST_CASE("freeze: random networks of codes") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    check_frozen(RandomCodes(seed), {2, 8, 5, 7});
  }
}

TEST_CASE("freeze: MobileNetV3 converted") {
  nn::models::MobileNetV3 net = nn::models::mobilenet_v3_small();
  net.eval();
  const Tensor image = random_tensor({1, 3, 32, 32}, 3);
  fuse_modules(net, nn::models::fusion_groups(net));
  const auto prepared = prepare(net, get_default_qconfig());
  prepared(image);
  check_frozen(convert(prepared), {1, 3, 32, 32});
}

TEST_CASE("freeze: embeddings, weight-only and dynamic convolutions") {
  nn::Sequential bags(nn::EmbeddingBag({.num_embeddings = 20, .embedding_dim = 8}),
                      nn::Linear(nn::LinearOptions{8, 4}));
  bags.eval();
  const auto make_ids = [](std::uint64_t seed) {
    return clamp(mul_scalar(relu(random_tensor({3, 5}, seed)), 9.0), 0.0, 19.0).to(DType::Int64);
  };
  check_frozen(bags, make_ids);
  nn::Sequential linear(nn::Linear(nn::LinearOptions{32, 16}));
  linear.eval();
  check_frozen(quantize_weight_only(linear), {3, 32});
  const QTensor weight = quantize_per_tensor(random_tensor({6, 3, 3, 3}, 9), 0.05, 0, DType::QInt8);
  check_frozen(nn::quantized::dynamic::Conv2d({.padding = {1}}, weight, random_tensor({6}, 10)),
               {2, 3, 5, 6});
}

TEST_CASE("freeze: recurrent cells, float and dynamic") {
  const nn::CellOptions options{.input_size = 12, .hidden_size = 16};
  const auto check_cell = [](auto cell) {
    check_frozen(cell, {3, 12});
    nn::Sequential net(std::move(cell));
    net.eval();
    check_frozen(quantize_dynamic(net), {3, 12});
  };
  check_cell(nn::RNNCell(options));
  check_cell(nn::LSTMCell(options));
  check_cell(nn::GRUCell(options));
}

}  // namespace
}  // namespace quanta
