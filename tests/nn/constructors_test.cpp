#include <doctest/doctest.h>

#include <cstdint>

#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/runtime/error.h"

// Layers made with torch's arguments in torch's order.

namespace quanta::nn {
namespace {

struct Net : Module {
  Child<Conv2d> conv;
  Child<BatchNorm2d> bn;
  Child<MaxPool2d> pool;
  Child<Linear> fc;
  Net() {
    register_module("conv", conv, 3, 8, 3);
    register_module("bn", bn, 8);
    register_module("pool", pool, 2);
    register_module("fc", fc, 8, 2);
  }
  Tensor forward(const Tensor& x) const override { return fc(pool(bn(conv(x))).mean({2, 3})); }
};

}  // namespace

TEST_CASE("convolutions take sizes, then options by name") {
  CHECK(Conv2d(3, 8, 3).weight.sizes() == Dims{8, 3, 3, 3});
  CHECK(Conv2d(3, 8, {3, 5}).weight.sizes() == Dims{8, 3, 3, 5});
  CHECK(Conv1d(3, 8, 3).options().padding == Dims{0});
  const Conv2d conv(4, 8, 3, {.stride = 2, .padding = 1, .groups = 2, .bias = false});
  CHECK(conv.weight.sizes() == Dims{8, 2, 3, 3});
  CHECK(!conv.bias.defined());
  CHECK(conv.options().stride == Dims{2, 2});
  CHECK(conv.forward(Tensor::ones({1, 4, 8, 8})).sizes() == Dims{1, 8, 4, 4});
  CHECK(Conv2d({.in_channels = 3, .out_channels = 8, .kernel_size = 3}).options().kernel_size ==
        Dims{3, 3});
  CHECK(ConvTranspose2d(3, 8, 2, {.stride = 2}).weight.sizes() == Dims{3, 8, 2, 2});
  CHECK_THROWS_AS(Conv2d(3, 8, 3, {.in_channels = 4}), ArgumentError);
  CHECK_THROWS_AS(Conv2d(3, 8, 3, {.kernel_size = 5}), ArgumentError);
  CHECK_THROWS_AS(Conv2d(0, 8, 3), ArgumentError);
  CHECK_THROWS_AS(Conv2d(3, 8, 0), ArgumentError);
}

TEST_CASE("other layers take their sizes") {
  CHECK(Linear(4, 2).weight.sizes() == Dims{2, 4});
  CHECK(!Linear(4, 2, false).bias.defined());
  CHECK(BatchNorm2d(8).running_mean.sizes() == Dims{8});
  CHECK(BatchNorm2d(8, {.eps = 1e-3}).options().eps == 1e-3);
  CHECK(BatchNorm2d({.num_features = 8}).options().num_features == 8);
  CHECK_THROWS_AS(BatchNorm2d(8, {.num_features = 4}), ArgumentError);
  CHECK(LayerNorm(32).weight.sizes() == Dims{32});
  CHECK(LayerNorm({32}).weight.sizes() == Dims{32});
  CHECK(LayerNorm({4, 32}, 1e-3).weight.sizes() == Dims{4, 32});
  CHECK(LayerNorm({4, 32}, 1e-3).options().eps == 1e-3);
  CHECK(LayerNorm({.normalized_shape = {4, 32}}).weight.sizes() == Dims{4, 32});
  CHECK(GroupNorm(2, 8).weight.sizes() == Dims{8});
  CHECK(MaxPool2d(2).options().kernel_size == Dims{2});
  CHECK(MaxPool2d(3, {.stride = 2}).forward(Tensor::ones({1, 1, 7, 7})).sizes() ==
        Dims{1, 1, 3, 3});
  CHECK(MaxPool2d({.kernel_size = {2, 3}}).options().kernel_size == Dims{2, 3});
  CHECK(AvgPool2d(2).forward(Tensor::ones({1, 1, 4, 4})).sizes() == Dims{1, 1, 2, 2});
  CHECK_THROWS_AS(AvgPool2d(2, {.kernel_size = 3}), ArgumentError);
  CHECK(AdaptiveAvgPool2d(1).forward(Tensor::ones({1, 2, 4, 4})).sizes() == Dims{1, 2, 1, 1});
  CHECK(AdaptiveAvgPool2d({1}).output_size() == AdaptiveAvgPool2d(1).output_size());
  CHECK(AdaptiveAvgPool2d({1, 2}).output_size() == Dims{1, 2});
  CHECK(Embedding(100, 32).weight.sizes() == Dims{100, 32});
  CHECK(Embedding(100, 32, 0).options().padding_idx == 0);
  CHECK(EmbeddingBag(100, 32, EmbeddingBagMode::Sum).options().mode == EmbeddingBagMode::Sum);
}

TEST_CASE("recurrent layers take their sizes") {
  CHECK(LSTM(4, 8).weights(0).weight_ih.sizes() == Dims{32, 4});
  CHECK(GRU(4, 8, {.num_layers = 2}).options().num_layers == 2);
  CHECK(RNN(4, 8).weights(0).weight_hh.sizes() == Dims{8, 8});
  CHECK_THROWS_AS(LSTM(4, 8, {.hidden_size = 9}), ArgumentError);
  CHECK_THROWS_AS(LSTM(0, 8), ArgumentError);
}

TEST_CASE("children are registered with sizes") {
  Net net;
  CHECK(net.conv->options().out_channels == 8);
  CHECK(net.fc->options().in_features == 8);
  net.eval();
  CHECK(net.forward(Tensor::ones({1, 3, 6, 6})).sizes() == Dims{1, 2});
}

TEST_CASE("layers whose sizes overflow when they are multiplied are refused") {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62U;
  const auto refused = [](const auto& make) {
    CHECK_THROWS_WITH_AS(make(), doctest::Contains("2^57"), ArgumentError);
  };
  refused([] { LSTM({.input_size = 1, .hidden_size = kHuge}); });
  refused([] { GRU({.input_size = 1, .hidden_size = kHuge, .bidirectional = true}); });
  refused([] { RNN({.input_size = 1, .hidden_size = kHuge}); });
  refused([] { LSTMCell({.input_size = 1, .hidden_size = kHuge}); });
  refused([] { GRUCell({.input_size = kHuge, .hidden_size = 1}); });
  refused([] { MultiheadAttention({.embed_dim = kHuge, .num_heads = 1}); });
  refused([] { MultiheadAttention({.embed_dim = 4, .num_heads = 1, .kdim = kHuge - 1 + kHuge}); });
  refused([] { Conv2d(4, 8, {kHuge, kHuge}); });
  refused([] { ConvTranspose2d(kHuge, kHuge, 3); });
  refused([] { Linear(kHuge, kHuge); });
  refused([] { Embedding(kHuge, 4); });
}

}  // namespace quanta::nn
