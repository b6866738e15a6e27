#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"

namespace quanta::networks {

/// A reader of text lines (Shi et al.: "An End-to-End Trainable Neural Network for Image-based
/// Sequence Recognition", 2017): seven convolutions, two bidirectional LSTM layers, a class for each
/// column. x [N, 1, 32, W], result [N, W / 4 - 1, num_classes]. The convolutions are for static
/// quantization, what follows for dynamic.
struct Crnn : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1, conv2, conv3, conv4, conv5, conv6, conv7;
  nn::Child<nn::BatchNorm2d> bn3, bn5, bn7;
  nn::Child<nn::ReLU> relu1, relu2, relu3, relu4, relu5, relu6, relu7;
  nn::Child<nn::MaxPool2d> pool1, pool2, pool4, pool6;
  nn::Child<nn::DeQuantStub> dequant;
  nn::Child<nn::LSTM> lstm;
  nn::Child<nn::Linear> fc;

  explicit Crnn(std::int64_t num_classes = 37);
  Tensor forward(const Tensor& image) const override;
};

std::vector<std::vector<std::string>> fusion_groups(const Crnn& model);

}  // namespace quanta::networks
