#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "observed.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

using test::observe;

const Tensor kSeen = Tensor::from_values({-3.0F, 3.0F});

void check_close(const Tensor& got, const Tensor& want, float tolerance) {
  REQUIRE(got.sizes() == want.sizes());
  const std::vector<float> a = got.to_float_vector();
  const std::vector<float> b = want.to_float_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(a[i] - b[i]) <= tolerance);
  }
}

Conv2dOptions reflecting_options() {
  return {.in_channels = 4,
          .out_channels = 6,
          .kernel_size = {3, 5},
          .stride = {1, 2},
          .padding = {1, 2},
          .groups = 2,
          .padding_mode = PaddingMode::Reflect};
}

TEST_CASE("Conv1d: reflected padding by hand") {
  Conv1d conv({.in_channels = 1,
               .out_channels = 1,
               .kernel_size = {3},
               .padding = {2},
               .bias = false,
               .padding_mode = PaddingMode::Reflect});
  conv.weight.copy_(Tensor::from_values({1.0F, 0.0F, 10.0F}, {1, 1, 3}));
  const Tensor x = Tensor::from_values({1.0F, 2.0F, 3.0F}, {1, 1, 3});
  const std::vector<float> want{13, 22, 31, 22, 13};  // of 3 2 1 2 3 2 1
  conv.eval();
  CHECK(conv(x).to_float_vector() == want);
  conv.train();
  CHECK(conv(x).to_float_vector() == want);
}

TEST_CASE("Conv1d and Conv2d and Conv3d: other padding is that of pad") {
  manual_seed(1);
  const Tensor x = randn({2, 3, 5, 6, 7});
  for (const auto& [mode, pad_mode] : {std::pair{PaddingMode::Reflect, PadMode::Reflect},
                                       std::pair{PaddingMode::Replicate, PadMode::Replicate},
                                       std::pair{PaddingMode::Circular, PadMode::Circular}}) {
    const Conv3d three({.in_channels = 3,
                        .out_channels = 2,
                        .kernel_size = {3},
                        .padding = {1, 2, 0},
                        .padding_mode = mode});
    check_close(three(x), conv3d(pad(x, {0, 0, 2, 2, 1, 1}, pad_mode), three.weight, three.bias),
                1e-5F);
    const Conv2d two({.in_channels = 3,
                      .out_channels = 2,
                      .kernel_size = {3},
                      .padding = {1, 2},
                      .dilation = {2, 1},
                      .padding_mode = mode});
    const Tensor image = x.select(2, 0);
    check_close(
        two(image),
        conv2d(pad(image, {2, 2, 1, 1}, pad_mode), two.weight, two.bias, {.dilation = {2, 1}}),
        1e-5F);
    check_close(two(image.select(0, 0)), two(image).select(0, 0), 1e-5F);
    const Conv1d one({.in_channels = 3,
                      .out_channels = 2,
                      .kernel_size = {3},
                      .padding = {2},
                      .padding_mode = mode});
    const Tensor line = image.select(2, 0);
    check_close(one(line), conv1d(pad(line, {2, 2}, pad_mode), one.weight, one.bias), 1e-5F);
  }
}

TEST_CASE("Conv2d: the padding mode is printed and too much of it refused") {
  const Conv2d conv(reflecting_options());
  CHECK(to_string(conv) ==
        "Conv2d(4, 6, kernel_size=(3, 5), stride=(1, 2), padding=(1, 2), groups=2, "
        "padding_mode=reflect)");
  CHECK_THROWS_WITH_AS(conv(randn({1, 4, 5, 2})), doctest::Contains("less than the size 2"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(conv(randn({4, 5})),
                       doctest::Contains("Conv2d: x: expected 3 or 4 dimensions, got [4, 5]"),
                       ArgumentError);
}

TEST_CASE("quantized Conv2d: pads the codes by reflection and then convolves") {
  manual_seed(2);
  Conv2d source(reflecting_options());
  observe(source, kSeen, default_per_channel_qconfig());
  const auto module = quantized::Conv2d::from_float(source);
  const auto& conv = dynamic_cast<const quantized::Conv2d&>(*module);
  CHECK(conv.padding_mode() == PaddingMode::Reflect);
  const quantized::Conv2d plain({.stride = {1, 2}, .groups = 2}, conv.weight(), conv.bias(),
                                conv.scale, conv.zero_point);
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    const Tensor x =
        quantize_per_tensor(randn({2, 4, 6, 9}), 0.03, 70, DType::QUInt8).contiguous(format);
    CHECK((*module)(x).equal(plain(pad(x, {2, 2, 1, 1}, PadMode::Reflect))));
    CHECK((*module)(x.select(0, 1)).equal((*module)(x).select(0, 1)));
    // Two units of the output and what the weight lost.
    check_close(dequantize((*module)(x)), source(dequantize(x)), 0.08F);
  }
  CHECK(to_string(*module).find("padding=(1, 2), padding_mode=reflect") != std::string::npos);
}

TEST_CASE("quantized Conv1d: reflection survives copies and loaded states") {
  manual_seed(3);
  const Conv1dOptions options{.in_channels = 2,
                              .out_channels = 3,
                              .kernel_size = {3},
                              .padding = {2},
                              .padding_mode = PaddingMode::Reflect};
  Conv1d first(options);
  Conv1d second(options);
  observe(first, kSeen);
  observe(second, Tensor::from_values({-2.0F, 2.5F}));
  const auto saved = quantized::Conv1d::from_float(first);
  const auto loaded = quantized::Conv1d::from_float(second)->clone();
  loaded->load_state_dict(saved->state_dict());
  const QTensor x = quantize_per_tensor(randn({2, 2, 5}), 0.03, 70, DType::QUInt8);
  CHECK((*loaded)(x).equal((*saved)(x)));
  CHECK_THROWS_WITH_AS((*saved)(randn({2, 2, 5})), doctest::Contains("quantized::conv1d: x:"),
                       ArgumentError);
}

TEST_CASE("quantized ConvReLU2d: reflects as well") {
  manual_seed(4);
  intrinsic::ConvReLU2d source(make_module<Conv2d>(reflecting_options()), make_module<ReLU>());
  source.eval();
  observe(source, Tensor::from_values({0.0F, 3.0F}));
  const auto module = intrinsic::quantized::ConvReLU2d::from_float(source);
  const QTensor x = quantize_per_tensor(randn({2, 4, 6, 9}), 0.03, 70, DType::QUInt8);
  check_close(dequantize((*module)(x)), source(dequantize(x)), 0.08F);
}

TEST_CASE("quantized convolutions: padding modes without a kernel are refused by name") {
  Conv3d three({.in_channels = 1,
                .out_channels = 1,
                .kernel_size = {3},
                .padding = {1},
                .padding_mode = PaddingMode::Reflect});
  observe(three, kSeen);
  CHECK_THROWS_WITH_AS(quantized::Conv3d::from_float(three),
                       doctest::Contains("quantized::conv3d: padding_mode: expected zeros (reflect "
                                         "is for 1d and 2d), got reflect"),
                       UnsupportedError);
  Conv2d two({.in_channels = 1,
              .out_channels = 1,
              .kernel_size = {3},
              .padding = {1},
              .padding_mode = PaddingMode::Circular});
  observe(two, kSeen);
  CHECK_THROWS_WITH_AS(quantized::Conv2d::from_float(two),
                       doctest::Contains("expected zeros or reflect, got circular"),
                       UnsupportedError);
  intrinsic::ConvAdd2d add(make_module<Conv2d>(reflecting_options()));
  observe(add, kSeen);
  CHECK_THROWS_WITH_AS(intrinsic::quantized::ConvAdd2d::from_float(add),
                       doctest::Contains("ConvAdd2d.from_float: padding_mode: expected zeros"),
                       UnsupportedError);
}

}  // namespace
}  // namespace quanta::nn
