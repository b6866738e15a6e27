// The forms of 1 to 3 dimensions that share their code: each computes what its op or its parts do.

#include <doctest/doctest.h>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

using test::check_close;
using test::random_tensor;

constexpr double kScale = 0.1;
constexpr std::int64_t kZeroPoint = 60;
constexpr std::int64_t kChannels = 5;

Dims image(std::int64_t spatial) {
  Dims sizes{2, kChannels};
  for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(6 - d);
  return sizes;
}

QTensor codes(const Dims& sizes, DType dtype = DType::QUInt8) {
  return quantize_per_tensor(random_tensor(sizes), 0.03, dtype == DType::QUInt8 ? 100 : -20, dtype);
}

Tensor positive(std::int64_t count) {
  Generator generator(4);
  const Tensor x = rand({count}, generator);
  for (std::int64_t i = 0; i < count; ++i) x.mutable_data<float>()[i] += 0.5F;
  return x;
}

template <typename T, typename Options>
std::shared_ptr<T> evaluated(const Options& options) {
  auto module = make_module<T>(options);
  if constexpr (requires { module->running_var; }) {
    module->running_mean = random_tensor({kChannels}, 9);
    module->running_var = positive(kChannels);
    module->weight = random_tensor({kChannels}, 10);
    module->bias = random_tensor({kChannels}, 11);
  }
  module->eval();
  return module;
}

template <typename Conv>
std::shared_ptr<Conv> conv() {
  return evaluated<Conv>(
      ConvNdOptions{.in_channels = kChannels, .out_channels = kChannels, .kernel_size = {3}});
}

template <typename Norm>
std::shared_ptr<Norm> norm() {
  return evaluated<Norm>(BatchNormOptions{.num_features = kChannels});
}

std::shared_ptr<ReLU> relu() { return make_module<ReLU>(); }

template <typename Conv, typename Norm, typename ConvBn, typename ConvBnReLU, typename ConvReLU>
void check_conv_forms(std::int64_t spatial) {
  CAPTURE(spatial);
  const Tensor x = random_tensor(image(spatial));
  const auto c = conv<Conv>();
  const auto b = norm<Norm>();
  ConvBn conv_bn(c, b);
  conv_bn.eval();
  check_close(conv_bn(x), (*b)((*c)(x)));
  ConvBnReLU conv_bn_relu(c, b, relu());
  conv_bn_relu.eval();
  check_close(conv_bn_relu(x), quanta::relu((*b)((*c)(x))));
  ConvReLU conv_relu(c, relu());
  conv_relu.eval();
  check_close(conv_relu(x), quanta::relu((*c)(x)));
}

TEST_CASE("intrinsic modules: each computes what its parts do in one to three dimensions") {
  using namespace intrinsic;
  check_conv_forms<Conv1d, BatchNorm1d, ConvBn1d, ConvBnReLU1d, ConvReLU1d>(1);
  check_conv_forms<Conv2d, BatchNorm2d, ConvBn2d, ConvBnReLU2d, ConvReLU2d>(2);
  check_conv_forms<Conv3d, BatchNorm3d, ConvBn3d, ConvBnReLU3d, ConvReLU3d>(3);

  const auto l = evaluated<Linear>(LinearOptions{.in_features = 7, .out_features = kChannels});
  const auto b1 = norm<BatchNorm1d>();
  LinearBn1d linear_bn(l, b1);
  linear_bn.eval();
  const Tensor rows = random_tensor({4, 7});
  check_close(linear_bn(rows), (*b1)((*l)(rows)));

  const auto b2 = norm<BatchNorm2d>();
  const auto b3 = norm<BatchNorm3d>();
  BNReLU2d bn_relu2(b2, relu());
  BNReLU3d bn_relu3(b3, relu());
  bn_relu2.eval();
  bn_relu3.eval();
  check_close(bn_relu2(random_tensor(image(2))), quanta::relu((*b2)(random_tensor(image(2)))));
  check_close(bn_relu3(random_tensor(image(3))), quanta::relu((*b3)(random_tensor(image(3)))));
}

QTensor weight(std::int64_t spatial) {
  Dims sizes{kChannels, kChannels};
  for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(2);
  return quantize_per_tensor(random_tensor(sizes, 3), 0.01, 0, DType::QInt8);
}

template <typename Conv, typename ConvReLU, typename ConvTranspose>
void check_quantized_conv(std::int64_t spatial) {
  CAPTURE(spatial);
  const QTensor x = codes(image(spatial));
  const QTensor w = weight(spatial);
  const Tensor bias = random_tensor({kChannels}, 5);
  const ConvOptions options{.stride = {2}, .padding = {1}};
  const quanta::quantized::ConvPackedParams packed(w, bias, options, spatial);
  CHECK(Conv(options, w, bias, kScale, kZeroPoint)(x).equal(
      quanta::quantized::conv(x, packed, kScale, kZeroPoint)));
  CHECK(ConvReLU(options, w, bias, kScale, kZeroPoint)(x).equal(
      quanta::quantized::conv_relu(x, packed, kScale, kZeroPoint)));
  const ConvTransposeOptions transposed{.stride = {2}, .output_padding = {1}};
  CHECK(ConvTranspose(transposed, w, bias, kScale, kZeroPoint)(x).equal(quanta::quantized::conv(
      x, quanta::quantized::ConvPackedParams::transposed(w, bias, transposed, spatial), kScale,
      kZeroPoint)));
}

TEST_CASE("quantized convolution modules: each gives what its op gives") {
  namespace q = quantized;
  namespace iq = intrinsic::quantized;
  check_quantized_conv<q::Conv1d, iq::ConvReLU1d, q::ConvTranspose1d>(1);
  check_quantized_conv<q::Conv2d, iq::ConvReLU2d, q::ConvTranspose2d>(2);
  check_quantized_conv<q::Conv3d, iq::ConvReLU3d, q::ConvTranspose3d>(3);
}

template <typename BatchNorm, typename BNReLU>
void check_quantized_batch_norm(std::int64_t spatial, DType dtype) {
  CAPTURE(spatial);
  const std::int64_t zero_point = dtype == DType::QUInt8 ? kZeroPoint : -kZeroPoint;
  const QTensor x = codes(image(spatial), dtype);
  BatchNorm plain({.num_features = kChannels}, kScale, zero_point);
  BNReLU fused({.num_features = kChannels}, kScale, zero_point);
  for (auto* module : {static_cast<quantized::BatchNormNd*>(&plain),
                       static_cast<quantized::BatchNormNd*>(&fused)}) {
    module->weight = random_tensor({kChannels}, 6);
    module->bias = random_tensor({kChannels}, 7);
    module->running_mean = random_tensor({kChannels}, 8);
    module->running_var = positive(kChannels);
  }
  CHECK(
      plain(x).equal(quanta::quantized::batch_norm(x, plain.weight, plain.bias, plain.running_mean,
                                                   plain.running_var, 1e-5, kScale, zero_point)));
  CHECK(fused(x).equal(quanta::quantized::batch_norm_relu(x, plain.weight, plain.bias,
                                                          plain.running_mean, plain.running_var,
                                                          1e-5, kScale, zero_point)));
}

TEST_CASE("quantized norm modules: each gives what its op gives") {
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    check_quantized_batch_norm<quantized::BatchNorm2d, intrinsic::quantized::BNReLU2d>(2, dtype);
    check_quantized_batch_norm<quantized::BatchNorm3d, intrinsic::quantized::BNReLU3d>(3, dtype);
  }
  const Tensor w = random_tensor({kChannels}, 6);
  const Tensor b = random_tensor({kChannels}, 7);
  const auto want = [&](std::int64_t spatial) {
    return quanta::quantized::instance_norm(codes(image(spatial)), w, b, 1e-5, kScale, kZeroPoint);
  };
  const InstanceNormOptions options{.num_features = kChannels, .affine = true};
  CHECK(
      quantized::InstanceNorm1d(options, w, b, kScale, kZeroPoint)(codes(image(1))).equal(want(1)));
  CHECK(
      quantized::InstanceNorm2d(options, w, b, kScale, kZeroPoint)(codes(image(2))).equal(want(2)));
  CHECK(
      quantized::InstanceNorm3d(options, w, b, kScale, kZeroPoint)(codes(image(3))).equal(want(3)));
}

}  // namespace
}  // namespace quanta::nn
