#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "devices_support.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/transformer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/random.h"

// Networks in Float16 and BFloat16: they run whole on the device, and each layer gives there what it
// gives on the CPU in Float32 for the same numbers, rounded.

namespace quanta {
namespace {

const Device kDevice = test::test_device();

template <typename... Tensors>
void cast_all(DType dtype, Tensors&... tensors) {
  ((tensors = tensors.defined() ? tensors.to(dtype) : tensors), ...);
}

// Puts the parameters and statistics of all modules below into a dtype.
void cast(nn::Module& net, DType dtype) {
  for (const auto& entry : net.named_modules()) {
    nn::Module* const module = entry.module;
    if (auto* conv = dynamic_cast<nn::ConvNd*>(module)) cast_all(dtype, conv->weight, conv->bias);
    if (auto* linear = dynamic_cast<nn::Linear*>(module)) {
      cast_all(dtype, linear->weight, linear->bias);
    }
    if (auto* norm = dynamic_cast<nn::BatchNormNd*>(module)) {
      cast_all(dtype, norm->weight, norm->bias, norm->running_mean, norm->running_var);
    }
    if (auto* norm = dynamic_cast<nn::LayerNorm*>(module)) {
      cast_all(dtype, norm->weight, norm->bias);
    }
    if (auto* table = dynamic_cast<nn::Embedding*>(module)) cast_all(dtype, table->weight);
    if (auto* attention = dynamic_cast<nn::MultiheadAttention*>(module)) {
      cast_all(dtype, attention->in_proj_weight, attention->in_proj_bias);
    }
  }
}

// |got - want| <= steps * the distance of numbers of this dtype beside the largest of both. A sum of a
// library may lie on the other side of the middle between two of them.
void check_near(const Tensor& got, const Tensor& want, DType dtype, double steps) {
  REQUIRE(got.device() == kDevice);
  REQUIRE(got.dtype() == dtype);
  REQUIRE(got.sizes() == want.sizes());
  const double unit = dtype == DType::Float16 ? 0x1p-10 : 0x1p-7;
  const std::vector<float> left = got.cpu().to_float_vector();
  const std::vector<float> right = want.to_float_vector();
  double largest = 0.0;
  for (const float value : right) largest = std::max(largest, std::abs(double{value}));
  // Several roundings on the way are those of larger numbers.
  const double floor = steps <= 1.0 ? 0x1p-6 : 0x1p-2;
  std::int64_t different = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double bound = steps * unit * std::max(std::abs(double{right[i]}), largest * floor);
    if (!(std::abs(double{left[i]} - double{right[i]}) <= bound)) {
      FAIL_CHECK("at " << i << ": got " << left[i] << ", expected " << right[i]);
      return;
    }
    different += left[i] == right[i] ? 0 : 1;
  }
  // One rounding: few sums are so near to a middle.
  if (steps <= 1.0) CHECK(different * 20 <= static_cast<std::int64_t>(left.size()));
}

nn::Sequential small_cnn() {
  using nn::Conv2d;
  nn::Sequential net;
  net.push_back(Conv2d({.in_channels = 3, .out_channels = 8, .kernel_size = {3}, .padding = {1}}));
  net.push_back(nn::BatchNorm2d(8));
  net.push_back(nn::ReLU());
  net.push_back(nn::MaxPool2d({.kernel_size = {2}}));
  net.push_back(Conv2d(
      {.in_channels = 8, .out_channels = 8, .kernel_size = {3}, .padding = {1}, .groups = 8}));
  net.push_back(nn::Hardswish());
  net.push_back(Conv2d({.in_channels = 8, .out_channels = 12, .kernel_size = {1}, .bias = false}));
  net.push_back(nn::ReLU6());
  net.push_back(nn::AdaptiveAvgPool2d(Dims{1}));
  net.push_back(nn::Flatten());
  net.push_back(nn::Linear(12, 5));
  return net;
}

nn::TransformerEncoderLayer small_block(bool norm_first) {
  return nn::TransformerEncoderLayer({.d_model = 24,
                                      .nhead = 3,
                                      .dim_feedforward = 40,
                                      .dropout = 0.0,
                                      .activation = nn::TransformerActivation::GELU,
                                      .batch_first = true,
                                      .norm_first = norm_first});
}

// Its parameters are numbers of the dtype.
void round_parameters(nn::Module& net, DType dtype) {
  cast(net, dtype);
  cast(net, DType::Float32);
}

}  // namespace

TEST_CASE("cuda narrow networks: a CNN gives layer for layer what Float32 gives rounded") {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    CAPTURE(to_string(dtype));
    manual_seed(3);
    nn::Sequential wide = small_cnn();
    wide.eval();
    round_parameters(wide, dtype);
    manual_seed(3);
    nn::Sequential narrow = small_cnn();
    narrow.eval();
    cast(narrow, dtype);
    narrow.to(kDevice);
    Tensor x = randn({2, 3, 12, 10}).to(dtype).to(kDevice);
    const Tensor input = x;
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      CAPTURE(i);
      const Tensor y = narrow[i](x);
      check_near(y, wide[i](x.cpu().to(DType::Float32)).to(dtype), dtype, 1.0);
      x = y;
    }
    CHECK(test::same_numbers(narrow(input), x));
  }
}

TEST_CASE("cuda narrow networks: a transformer block gives layer for layer what Float32 gives") {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    CAPTURE(to_string(dtype));
    manual_seed(4);
    nn::TransformerEncoderLayer wide = small_block(false);
    wide.eval();
    round_parameters(wide, dtype);
    manual_seed(4);
    nn::TransformerEncoderLayer narrow = small_block(false);
    narrow.eval();
    cast(narrow, dtype);
    narrow.to(kDevice);
    manual_seed(5);
    nn::Embedding table(nn::EmbeddingOptions{.num_embeddings = 17, .embedding_dim = 24});
    cast(table, dtype);
    table.to(kDevice);
    const Tensor ids = Tensor::from_int64(std::vector<std::int64_t>{3, 0, 16, 5, 5, 1, 9, 2});
    const Tensor x = table(ids.reshape({2, 4}).to(kDevice));

    const auto beside = [&](const auto& here, const auto& there, const Tensor& input,
                            double steps) {
      const Tensor y = here(input);
      check_near(y, there(input.cpu().to(DType::Float32)).to(dtype), dtype, steps);
      return y;
    };
    // Four roundings on the way through the heads.
    const Tensor attended = beside(narrow.self_attn, wide.self_attn, x, 6.0);
    const Tensor first = beside(narrow.norm1, wide.norm1, add(x, attended), 1.0);
    const Tensor inner = gelu(beside(narrow.linear1, wide.linear1, first, 1.0));
    const Tensor last = beside(narrow.norm2, wide.norm2,
                               add(first, beside(narrow.linear2, wide.linear2, inner, 1.0)), 1.0);
    CHECK(test::same_numbers(narrow(x), last));
    // With masks of truth values, of padding and of what comes later.
    nn::EncoderMasks masks{.src_mask = nn::generate_square_subsequent_mask(4).to(dtype).to(kDevice),
                           .src_key_padding_mask =
                               Tensor::from_int64(std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 0, 1})
                                   .reshape({2, 4})
                                   .to(DType::Bool)
                                   .to(kDevice)};
    nn::EncoderMasks wide_masks{.src_mask = nn::generate_square_subsequent_mask(4),
                                .src_key_padding_mask = masks.src_key_padding_mask.cpu()};
    check_near(narrow.forward(x, masks),
               wide.forward(x.cpu().to(DType::Float32), wide_masks).to(dtype), dtype, 24.0);
  }
}

TEST_CASE("cuda narrow networks: a block learns in BFloat16") {
  for (const bool norm_first : {false, true}) {
    manual_seed(6);
    nn::TransformerEncoderLayer wide = small_block(norm_first);
    round_parameters(wide, DType::BFloat16);
    manual_seed(6);
    nn::TransformerEncoderLayer narrow = small_block(norm_first);
    cast(narrow, DType::BFloat16);
    narrow.to(kDevice);
    const Tensor x = randn({2, 5, 24}).to(DType::BFloat16);
    const Tensor wanted = randn({2, 5, 24}).to(DType::BFloat16);
    const auto learn = [&](nn::Module& net, const Tensor& input) {
      net.requires_grad_();
      const Tensor y = net(input);
      sum(mul(y, wanted.to(y.dtype()).to(y.device()))).backward();
      return net.parameters();
    };
    const std::vector<Tensor> want = learn(wide, x.to(DType::Float32));
    const std::vector<Tensor> got = learn(narrow, x.to(kDevice));
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      REQUIRE(got[i].grad().defined());
      CHECK(got[i].grad().dtype() == DType::BFloat16);
      CHECK(got[i].grad().device() == kDevice);
      const std::vector<float> left = got[i].grad().cpu().to_float_vector();
      const std::vector<float> right = want[i].grad().to_float_vector();
      double difference = 0.0;
      double size = 0.0;
      for (std::size_t k = 0; k < left.size(); ++k) {
        difference += std::pow(double{left[k]} - double{right[k]}, 2.0);
        size += std::pow(double{right[k]}, 2.0);
      }
      CHECK(std::sqrt(difference) <= 0.05 * std::sqrt(size) + 1e-4);
    }
  }
}

TEST_CASE("cuda narrow networks: a CNN learns in Float16") {
  manual_seed(7);
  nn::Sequential wide = small_cnn();
  round_parameters(wide, DType::Float16);
  manual_seed(7);
  nn::Sequential narrow = small_cnn();
  cast(narrow, DType::Float16);
  narrow.to(kDevice);
  const Tensor x = randn({4, 3, 12, 10}).to(DType::Float16);
  const auto learn = [&](nn::Module& net, const Tensor& input) {
    net.requires_grad_();
    const Tensor y = net(input);
    sum(mul(y, y)).backward();
    return net.parameters();
  };
  const std::vector<Tensor> want = learn(wide, x.to(DType::Float32));
  const std::vector<Tensor> got = learn(narrow, x.to(kDevice));
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].grad().dtype() == DType::Float16);
    const std::vector<float> left = got[i].grad().cpu().to_float_vector();
    const std::vector<float> right = want[i].grad().to_float_vector();
    double difference = 0.0;
    double size = 0.0;
    for (std::size_t k = 0; k < left.size(); ++k) {
      difference += std::pow(double{left[k]} - double{right[k]}, 2.0);
      size += std::pow(double{right[k]}, 2.0);
    }
    CHECK(std::sqrt(difference) <= 0.05 * std::sqrt(size) + 1e-3);
  }
}

}  // namespace quanta
