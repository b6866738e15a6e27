#pragma once

// Networks as a user writes them: nothing in forward knows of quantization but the stubs.

#include <cstdint>
#include <span>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "quanta/nn/transformer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shuffle.h"

namespace quanta::test {

/// cat as forward writes it, and by hand, as PyTorch's eager mode wants it.
struct Join : nn::Module {
  nn::Child<nn::FloatFunctional> skip;
  explicit Join(bool by_hand) {
    if (by_hand) register_module("skip", skip);
  }
  using Module::forward;
  Tensor forward(const Tensor& x, const Tensor& y) const {
    const std::vector<Tensor> both{x, y};
    return skip ? skip->cat(both, 1) : cat(both, 1);
  }
};

/// Two convolutions, each with batch norm and ReLU.
struct DoubleConv : nn::Module {
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::BatchNorm2d> bn1, bn2;
  nn::Child<nn::ReLU> relu1, relu2;
  DoubleConv(std::int64_t in, std::int64_t out) {
    register_module("conv1", conv1,
                    {.in_channels = in, .out_channels = out, .kernel_size = {3}, .padding = {1}});
    register_module("bn1", bn1, {.num_features = out});
    register_module("relu1", relu1);
    register_module("conv2", conv2,
                    {.in_channels = out, .out_channels = out, .kernel_size = {3}, .padding = {1}});
    register_module("bn2", bn2, {.num_features = out});
    register_module("relu2", relu2);
  }
  Tensor forward(const Tensor& x) const override { return relu2(bn2(conv2(relu1(bn1(conv1(x)))))); }
};

/// [N, 3, H, W] -> [N, 2, H, W], H and W multiples of 4. Ronneberger et al. 2015.
struct UNet : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<DoubleConv> down1, down2, bottom, up2, up1;
  nn::Child<nn::MaxPool2d> pool;
  nn::Child<nn::ConvTranspose2d> grow2, grow1;
  nn::Child<nn::Conv2d> head;
  nn::Child<nn::DeQuantStub> dequant;
  nn::Child<Join> join2, join1;
  explicit UNet(bool by_hand = false) {
    register_module("quant", quant);
    register_module("down1", down1, 3, 8);
    register_module("down2", down2, 8, 16);
    register_module("bottom", bottom, 16, 32);
    register_module("pool", pool, {.kernel_size = {2}});
    register_module("grow2", grow2,
                    {.in_channels = 32, .out_channels = 16, .kernel_size = {2}, .stride = {2}});
    register_module("up2", up2, 32, 16);
    register_module("grow1", grow1,
                    {.in_channels = 16, .out_channels = 8, .kernel_size = {2}, .stride = {2}});
    register_module("up1", up1, 16, 8);
    register_module("join2", join2, by_hand);
    register_module("join1", join1, by_hand);
    register_module("head", head, {.in_channels = 8, .out_channels = 2, .kernel_size = {1}});
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& image) const override {
    const Tensor x1 = down1(quant(image));
    const Tensor x2 = down2(pool(x1));
    const Tensor x3 = bottom(pool(x2));
    const Tensor y2 = up2(join2(x2, grow2(x3)));
    const Tensor y1 = up1(join1(x1, grow1(y2)));
    return dequant(head(y1));
  }
};

/// Half of the channels go through the branch. Ma et al. 2018.
struct ShuffleUnit : nn::Module {
  nn::Child<nn::Sequential> branch;
  nn::Child<Join> join;
  explicit ShuffleUnit(std::int64_t channels, bool by_hand = false) {
    register_module("join", join, by_hand);
    const std::int64_t half = channels / 2;
    const nn::Conv2dOptions point{
        .in_channels = half, .out_channels = half, .kernel_size = {1}, .bias = false};
    const nn::Conv2dOptions depthwise{.in_channels = half,
                                      .out_channels = half,
                                      .kernel_size = {3},
                                      .padding = {1},
                                      .groups = half,
                                      .bias = false};
    register_module("branch", branch, nn::Conv2d(point), nn::BatchNorm2d({.num_features = half}),
                    nn::ReLU(), nn::Conv2d(depthwise), nn::BatchNorm2d({.num_features = half}),
                    nn::Conv2d(point), nn::BatchNorm2d({.num_features = half}), nn::ReLU());
  }
  Tensor forward(const Tensor& x) const override {
    const std::vector<Tensor> halves = chunk(x, 2, 1);
    return channel_shuffle(join(halves[0], branch(halves[1])), 2);
  }
};

/// [N, 3, H, W] -> [N, 10].
struct ShuffleNet : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> bn1;
  nn::Child<nn::ReLU> relu1;
  nn::Child<nn::Sequential> stage;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;
  explicit ShuffleNet(bool by_hand = false) {
    register_module("quant", quant);
    register_module("conv1", conv1,
                    {.in_channels = 3,
                     .out_channels = 24,
                     .kernel_size = {3},
                     .stride = {2},
                     .padding = {1},
                     .bias = false});
    register_module("bn1", bn1, {.num_features = 24});
    register_module("relu1", relu1);
    register_module("stage", stage, ShuffleUnit(24, by_hand), ShuffleUnit(24, by_hand),
                    ShuffleUnit(24, by_hand));
    register_module("fc", fc, {.in_features = 24, .out_features = 10});
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& image) const override {
    const Tensor y = stage(relu1(bn1(conv1(quant(image)))));
    return dequant(fc(mean(y, Dims{2, 3})));
  }
};

/// Text lines: [N, 1, 16, W] -> [N, W / 4, 11]. Shi et al. 2017.
struct Crnn : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::BatchNorm2d> bn2;
  nn::Child<nn::ReLU> relu1, relu2;
  nn::Child<nn::MaxPool2d> pool1, pool2;
  nn::Child<nn::DeQuantStub> dequant;
  nn::Child<nn::LSTM> lstm;
  nn::Child<nn::Linear> fc;
  Crnn() {
    register_module("quant", quant);
    register_module("conv1", conv1,
                    {.in_channels = 1, .out_channels = 16, .kernel_size = {3}, .padding = {1}});
    register_module("relu1", relu1);
    register_module("pool1", pool1, {.kernel_size = {2}});
    register_module("conv2", conv2,
                    {.in_channels = 16, .out_channels = 32, .kernel_size = {3}, .padding = {1}});
    register_module("bn2", bn2, {.num_features = 32});
    register_module("relu2", relu2);
    register_module("pool2", pool2, {.kernel_size = {2}});
    register_module("dequant", dequant);
    register_module(
        "lstm", lstm,
        {.input_size = 128, .hidden_size = 48, .batch_first = true, .bidirectional = true});
    register_module("fc", fc, {.in_features = 96, .out_features = 11});
    // The recurrent part is for quantize_dynamic, or stays as it is.
    lstm->set_qconfig(std::nullopt);
    fc->set_qconfig(std::nullopt);
    eval();
  }
  Tensor forward(const Tensor& image) const override {
    const Tensor y = pool2(relu2(bn2(conv2(pool1(relu1(conv1(quant(image))))))));
    const Tensor steps = dequant(y).permute({0, 3, 1, 2}).flatten(2);
    return log_softmax(fc(lstm(steps)), -1);
  }
};

/// Ids [N, L] Int64 and a mask [N, L] (true: padding) -> [N, 5].
struct TextEncoder : nn::Module {
  nn::Child<nn::Embedding> words;
  nn::Child<nn::TransformerEncoder> encoder;
  nn::Child<nn::Linear> head;
  TextEncoder() {
    register_module("words", words, {.num_embeddings = 100, .embedding_dim = 32});
    register_module("encoder", encoder,
                    nn::TransformerEncoderLayer(
                        {.d_model = 32, .nhead = 4, .dim_feedforward = 64, .batch_first = true}),
                    2);
    register_module("head", head, {.in_features = 32, .out_features = 5});
    eval();
  }
  Tensor forward(const Tensor& ids, const Tensor& padding) const {
    const Tensor y = encoder->forward(words(ids), {.src_key_padding_mask = padding});
    return head(y.select(1, 0));
  }
  Tensor forward(const Tensor& ids) const override { return forward(ids, Tensor()); }
  std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
    require_inputs(inputs, 2);
    return {forward(inputs[0], inputs[1])};
  }
};

}  // namespace quanta::test
