#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Small networks of recurrent and linear layers, with the names of the checkpoints and benchmark
/// networks that they load.
namespace quanta::nn::models {

/// The outputs of the last step, [batch, steps, features] to [batch, features].
Tensor last_step(const Tensor& outputs);

/// A classifier on the last step of a recurrent layer: children `rnn` and `fc`.
struct LstmClassifier : Module {
  Child<LSTM> rnn;
  Child<Linear> fc;

  LstmClassifier(const RecurrentOptions& options, std::int64_t num_classes);
  /// x [batch, steps, features].
  Tensor forward(const Tensor& x) const override { return fc(last_step(rnn(x))); }
};
struct GruClassifier : Module {
  Child<GRU> rnn;
  Child<Linear> fc;

  GruClassifier(const RecurrentOptions& options, std::int64_t num_classes);
  Tensor forward(const Tensor& x) const override { return fc(last_step(rnn(x))); }
};

/// Fashion-MNIST, x [N, 1, 28, 28] Float32: the image as 28 steps of 28 pixels. Children `lstm` or
/// `gru`, and `fc`, as in the checkpoints fashion_lstm and fashion_gru.
struct FashionLstm : Module {
  Child<LSTM> lstm;
  Child<Linear> fc;

  explicit FashionLstm(std::int64_t num_classes = 10);
  Tensor forward(const Tensor& x) const override;
};
struct FashionGru : Module {
  Child<GRU> gru;
  Child<Linear> fc;

  explicit FashionGru(std::int64_t num_classes = 10);
  Tensor forward(const Tensor& x) const override;
};

/// Three linear layers with ReLU between them: 784 -> 1024 -> 1024 -> 10.
struct Mlp : Module {
  Child<QuantStub> quant;
  Child<Linear> fc1;
  Child<ReLU> relu1;
  Child<Linear> fc2;
  Child<ReLU> relu2;
  Child<Linear> fc3;
  Child<DeQuantStub> dequant;

  explicit Mlp(std::int64_t in_features = 784, std::int64_t hidden = 1024,
               std::int64_t num_classes = 10);
  Tensor forward(const Tensor& x) const override;
};

/// What to give to fuse_modules: linear layers with their ReLUs.
std::vector<std::vector<std::string>> fusion_groups(const Mlp& model);

}  // namespace quanta::nn::models
