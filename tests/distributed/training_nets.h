#pragma once

// What the tests of training on several ranks train.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/module.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/stubs.h"
#include "quanta/ops/reduce.h"
#include "support/tensors.h"

namespace quanta::test {

struct Batch {
  Tensor input;
  Tensor target;
};

constexpr std::int64_t kTestClasses = 5;

/// The same on all ranks.
inline Batch whole_batch(std::int64_t examples, std::uint64_t seed = 7) {
  const Tensor target = Tensor::empty({examples}, DType::Int64);
  for (std::int64_t i = 0; i < examples; ++i) {
    target.mutable_data<std::int64_t>()[i] =
        (3 * i + static_cast<std::int64_t>(seed)) % kTestClasses;
  }
  return {random_tensor({examples, 2, 6, 6}, seed), target};
}

/// Rank `rank`'s part, which may be empty.
inline Batch part_of(const Batch& batch, int rank, int ranks) {
  const std::int64_t count = batch.target.size(0);
  const std::int64_t begin = count * rank / ranks;
  const std::int64_t length = count * (rank + 1) / ranks - begin;
  return {batch.input.narrow(0, begin, length), batch.target.narrow(0, begin, length)};
}

inline void fill_parameters(nn::Module& net, std::uint64_t seed) {
  for (const auto& [path, parameter] : net.named_parameters()) {
    ++seed;
    if (path.find("bn") != std::string::npos) continue;
    parameter.copy_(uniform_tensor(parameter.sizes(), 100 + seed, -0.5F, 0.5F));
  }
}

/// A convolution and a layer.
struct SmallNet : nn::Module {
  nn::Child<nn::Conv2d> conv;
  nn::Child<nn::ReLU> relu;
  nn::Child<nn::Linear> fc;

  explicit SmallNet(std::uint64_t seed) {
    register_module("conv", conv, {.in_channels = 2, .out_channels = 6, .kernel_size = 3});
    register_module("relu", relu);
    register_module("fc", fc, {.in_features = 6, .out_features = kTestClasses});
    fill_parameters(*this, seed);
  }
  Tensor forward(const Tensor& x) const override { return fc(mean(relu(conv(x)), {2, 3})); }
};

/// The same with batch norms, and to be quantized.
struct NormNet : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::BatchNorm2d> bn1, bn2;
  nn::Child<nn::ReLU> relu1;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;

  explicit NormNet(std::uint64_t seed) {
    register_module("quant", quant);
    register_module("conv1", conv1, {.in_channels = 2, .out_channels = 6, .kernel_size = 3});
    register_module("bn1", bn1, {.num_features = 6});
    register_module("relu1", relu1);
    register_module("conv2", conv2, {.in_channels = 6, .out_channels = 4, .kernel_size = 3});
    register_module("bn2", bn2, {.num_features = 4});
    register_module("fc", fc, {.in_features = 16, .out_features = kTestClasses});
    register_module("dequant", dequant);
    fill_parameters(*this, seed);
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor y = bn2(conv2(relu1(bn1(conv1(quant(x))))));
    return dequant(fc(y.reshape({y.size(0), 16})));
  }
};

/// Infinite where the sizes differ or a number is none.
inline double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  double largest = 0.0;
  const std::vector<float> left = a.detach().to_float_vector();
  const std::vector<float> right = b.detach().to_float_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double difference =
        std::abs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                     : std::max(largest, difference);
  }
  return largest;
}

}  // namespace quanta::test
