#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "observed.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/observers/other_observers.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

using test::names;
using test::observe;

const Tensor kSeen = Tensor::from_values({-1.0F, 2.0F});

QTensor quantized_input(const Dims& sizes) {
  return quantize_per_tensor(randn(sizes), 0.03, 70, DType::QUInt8);
}

TEST_CASE("quantized Linear: from_float gives the numbers of the formula") {
  Linear source({.in_features = 2, .out_features = 2});
  source.weight.copy_(Tensor::from_values({1.0F, -0.5F, 0.25F, 0.75F}, {2, 2}));
  source.bias.copy_(Tensor::from_values({0.1F, -0.2F}));
  observe(source, kSeen);
  const auto module = quantized::Linear::from_float(source);
  const auto& linear = dynamic_cast<const quantized::Linear&>(*module);

  // Weight: symmetric QInt8, scale 1 / 127.5. Output: range -1..2 over 255 codes.
  CHECK(linear.weight().q_scale() == doctest::Approx(1.0 / 127.5));
  CHECK(linear.weight().to_int64_vector() == std::vector<std::int64_t>{127, -64, 32, 96});
  CHECK(linear.scale == doctest::Approx(3.0 / 255.0));
  CHECK(linear.zero_point == 85);

  const QTensor x =
      quantize_per_tensor(Tensor::from_values({1.0F, -1.0F}, {1, 2}), 0.01, 100, DType::QUInt8);
  // Sums (127 + 64) * 100 and (32 - 96) * 100, in steps of 0.01 / 127.5.
  const double step = 0.01 / 127.5;
  const QTensor y = (*module)(x).as_quantized();
  CHECK(y.to_int64_vector() ==
        std::vector<std::int64_t>{85 + std::lround((19100 * step + 0.1) / (3.0 / 255.0)),
                                  85 + std::lround((-6400 * step - 0.2) / (3.0 / 255.0))});
}

TEST_CASE("quantized Linear: state has torch's names") {
  Linear source({.in_features = 3, .out_features = 2});
  observe(source, kSeen);
  const auto module = quantized::Linear::from_float(source);
  CHECK(names(module->state_dict()) == std::vector<std::string>{"scale", "zero_point",
                                                                "_packed_params._packed_params/0",
                                                                "_packed_params._packed_params/1"});
  CHECK(module->state_dict().at("scale").dim() == 0);
  CHECK(module->state_dict().at("zero_point").dtype() == DType::Int64);
  Linear without_bias({.in_features = 3, .out_features = 2, .bias = false});
  observe(without_bias, kSeen);
  CHECK(quantized::Linear::from_float(without_bias)->state_dict().size() == 3);
}

TEST_CASE("quantized Linear: state round trips and older names load") {
  Linear first({.in_features = 3, .out_features = 2});
  Linear second({.in_features = 3, .out_features = 2});
  observe(first, kSeen);
  observe(second, Tensor::from_values({-4.0F, 4.0F}), default_per_channel_qconfig());
  const auto saved = quantized::Linear::from_float(second);
  const StateDict state = saved->state_dict();
  const QTensor x = quantized_input({5, 3});
  const Tensor want = (*saved)(x);

  const auto loaded = quantized::Linear::from_float(first);
  loaded->load_state_dict(state);
  CHECK((*loaded)(x).equal(want));

  for (const std::string older : {"_packed_params.", ""}) {
    StateDict old_state;
    old_state.set("scale", state.at("scale").reshape({1}).to(DType::Float64));
    old_state.set("zero_point", state.at("zero_point").reshape({1}).to(DType::Int32));
    old_state.set(older + "weight", state.at("_packed_params._packed_params/0"));
    old_state.set(older + "bias", state.at("_packed_params._packed_params/1"));
    const auto module = quantized::Linear::from_float(first);
    module->load_state_dict(old_state);
    CHECK((*module)(x).equal(want));
  }
}

TEST_CASE("quantized Linear: a bad state is refused whole") {
  Linear source({.in_features = 3, .out_features = 2});
  observe(source, kSeen);
  const auto module = quantized::Linear::from_float(source);
  const QTensor x = quantized_input({5, 3});
  const Tensor before = (*module)(x);

  StateDict state = module->state_dict();
  state.set("scale", Tensor::scalar(-1.0));
  CHECK_THROWS_WITH_AS(module->load_state_dict(state),
                       doctest::Contains("scale: expected a finite number > 0, got -1"),
                       ArgumentError);
  state = module->state_dict();
  state.set("scale", Tensor::scalar(0.5));
  state.set("_packed_params._packed_params/0", source.weight);
  CHECK_THROWS_WITH_AS(module->load_state_dict(state), doctest::Contains("quantized tensor"),
                       ArgumentError);
  state = module->state_dict();
  state.set("scale", Tensor::scalar(0.5));
  state.erase("_packed_params._packed_params/0");
  CHECK_THROWS_WITH_AS(module->load_state_dict(state),
                       doctest::Contains("_packed_params._packed_params/0"), ArgumentError);
  CHECK((*module)(x).equal(before));
}

TEST_CASE("quantized Conv2d: from_float takes options and a per-channel weight over") {
  Conv2d source({.in_channels = 4,
                 .out_channels = 6,
                 .kernel_size = {3},
                 .stride = {2},
                 .padding = {1},
                 .groups = 2});
  observe(source, Tensor::from_values({-3.0F, 3.0F}), get_default_qconfig("fbgemm"));
  const auto module = quantized::Conv2d::from_float(source);
  const auto& conv = dynamic_cast<const quantized::Conv2d&>(*module);
  CHECK(conv.weight().is_per_channel());
  CHECK(conv.weight().q_per_channel_axis() == 0);
  CHECK(conv.bias().equal(source.bias));

  const QTensor x = quantized_input({2, 4, 7, 6});
  const QTensor y = (*module)(x).as_quantized();
  const Tensor want =
      quantize_per_tensor(conv2d(dequantize(x), dequantize(conv.weight()), source.bias,
                                 {.stride = {2}, .padding = {1}, .groups = 2}),
                          conv.scale, conv.zero_point, DType::QUInt8);
  REQUIRE(y.sizes() == want.sizes());
  const auto got_codes = y.to_int64_vector();
  const auto want_codes = want.to_int64_vector();
  for (std::size_t i = 0; i < got_codes.size(); ++i) {
    CHECK_MESSAGE(std::abs(got_codes[i] - want_codes[i]) <= 1, i);
  }
  CHECK(to_string(conv).starts_with(
      "QuantizedConv2d(4, 6, kernel_size=(3, 3), stride=(2, 2), scale=0.02"));
  CHECK(to_string(conv).ends_with("padding=(1, 1), groups=2)"));
  CHECK(names(conv.state_dict()) ==
        std::vector<std::string>{"weight", "bias", "scale", "zero_point"});
}

TEST_CASE("quantized Linear and Conv2d: the file decides whether there is a bias") {
  Linear linear({.in_features = 3, .out_features = 2});
  observe(linear, kSeen);
  const auto module = quantized::Linear::from_float(linear);
  StateDict state = module->state_dict();
  state.erase("_packed_params._packed_params/1");
  module->load_state_dict(state);
  CHECK_FALSE(dynamic_cast<const quantized::Linear&>(*module).bias().defined());

  Conv2d conv({.in_channels = 2, .out_channels = 3, .kernel_size = {1}, .bias = false});
  observe(conv, kSeen);
  const auto quantized_conv = quantized::Conv2d::from_float(conv);
  state = quantized_conv->state_dict();
  state.set("bias", Tensor::ones({3}));
  quantized_conv->load_state_dict(state);
  CHECK(dynamic_cast<const quantized::Conv2d&>(*quantized_conv).bias().equal(Tensor::ones({3})));
}

TEST_CASE("quantized Conv2d: state round trips and other sizes are refused") {
  const Conv2dOptions options{.in_channels = 2, .out_channels = 3, .kernel_size = {3}};
  Conv2d first(options);
  Conv2d second(options);
  observe(first, kSeen);
  observe(second, Tensor::from_values({-0.5F, 0.5F}), default_per_channel_qconfig());
  const auto saved = quantized::Conv2d::from_float(second);
  const auto loaded = quantized::Conv2d::from_float(first);
  const QTensor x = quantized_input({1, 2, 6, 5});
  CHECK_FALSE((*loaded)(x).equal((*saved)(x)));
  loaded->load_state_dict(saved->state_dict());
  CHECK((*loaded)(x).equal((*saved)(x)));
  CHECK((*loaded->clone())(x).equal((*saved)(x)));

  Conv2d other({.in_channels = 2, .out_channels = 3, .kernel_size = {1}});
  observe(other, kSeen);
  CHECK_THROWS_WITH_AS(loaded->load_state_dict(quantized::Conv2d::from_float(other)->state_dict()),
                       doctest::Contains("weight: expected sizes [3, 2, 3, 3], got [3, 2, 1, 1]"),
                       ArgumentError);
  CHECK((*loaded)(x).equal((*saved)(x)));
}

TEST_CASE("quantized Conv2d: a float tensor is refused with what is missing") {
  Conv2d source({.in_channels = 2, .out_channels = 3, .kernel_size = {3}});
  observe(source, kSeen);
  CHECK_THROWS_WITH_AS((*quantized::Conv2d::from_float(source))(randn({1, 2, 5, 5})),
                       doctest::Contains("QuantStub"), ArgumentError);
}

TEST_CASE("quantized Conv2d: from_float refuses what was not prepared or calibrated") {
  Conv2d source({.in_channels = 2, .out_channels = 3, .kernel_size = {3}});
  CHECK_THROWS_WITH_AS(
      quantized::Conv2d::from_float(source),
      doctest::Contains("Conv2d.from_float: module: expected a Conv2d with a qconfig"),
      ArgumentError);
  source.set_qconfig(default_qconfig());
  CHECK_THROWS_WITH_AS(quantized::Conv2d::from_float(source), doctest::Contains("prepare"),
                       ArgumentError);
  source.set_activation_post_process(std::make_shared<MinMaxObserver>());
  CHECK_THROWS_WITH_AS(quantized::Conv2d::from_float(source), doctest::Contains("calibration"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::Conv2d::from_float(Linear({.in_features = 1, .out_features = 1})),
                       doctest::Contains("module: expected Conv2d, got Linear"), ArgumentError);
}

TEST_CASE("quantized Conv2d: from_float refuses observers of another dtype") {
  Conv2d source({.in_channels = 2, .out_channels = 3, .kernel_size = {3}});
  observe(source, kSeen, default_quint8_weight_qconfig());
  CHECK_THROWS_WITH_AS(quantized::Conv2d::from_float(source),
                       doctest::Contains("qconfig.weight: expected an observer for QInt8"),
                       ArgumentError);
  source.set_qconfig(default_qconfig());
  auto int8_observer =
      std::make_shared<MinMaxObserver>(MinMaxObserverOptions{.dtype = DType::QInt8});
  int8_observer->forward(kSeen);
  source.set_activation_post_process(int8_observer);
  CHECK_THROWS_AS(quantized::Conv2d::from_float(source), UnsupportedError);
  source.set_activation_post_process(std::make_shared<PlaceholderObserver>());
  CHECK_THROWS_WITH_AS(quantized::Conv2d::from_float(source),
                       doctest::Contains("expected an observer for a quantized dtype"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(
      observe(source, Tensor::from_values({0.0F, std::numeric_limits<float>::infinity()})),
      doctest::Contains("expected finite values"), ArgumentError);
}

TEST_CASE("quantized ConvTranspose2d: a per-channel weight is refused with what to use") {
  ConvTranspose2d source({.in_channels = 4, .out_channels = 3, .kernel_size = {2}, .stride = {2}});
  observe(source, kSeen, default_per_channel_qconfig());
  CHECK_THROWS_WITH_AS(quantized::ConvTranspose2d::from_float(source),
                       doctest::Contains("use default_qconfig"), ArgumentError);
  observe(source, kSeen);
  const auto module = quantized::ConvTranspose2d::from_float(source);
  CHECK((*module)(quantized_input({1, 4, 3, 3})).sizes() == Dims{1, 3, 6, 6});
  CHECK(to_string(*module).starts_with("QuantizedConvTranspose2d(4, 3, kernel_size=(2, 2)"));
}

TEST_CASE("quantized Conv1d and Conv3d: state and result have the float layer's sizes") {
  Conv1d source1({.in_channels = 2, .out_channels = 3, .kernel_size = {3}, .padding = {1}});
  observe(source1, kSeen);
  const auto conv1 = quantized::Conv1d::from_float(source1);
  CHECK((*conv1)(quantized_input({2, 2, 9})).sizes() == Dims{2, 3, 9});
  CHECK(conv1->state_dict().at("weight").sizes() == Dims{3, 2, 3});
  Conv3d source3({.in_channels = 2, .out_channels = 3, .kernel_size = {1, 3, 3}});
  observe(source3, kSeen);
  const auto conv3 = quantized::Conv3d::from_float(source3);
  CHECK((*conv3)(quantized_input({1, 2, 3, 5, 5})).sizes() == Dims{1, 3, 3, 3, 3});
}

TEST_CASE("intrinsic quantized modules: results are clamped at zero where a ReLU was fused") {
  const auto conv =
      make_module<Conv2d>(Conv2dOptions{.in_channels = 2, .out_channels = 3, .kernel_size = {3}});
  intrinsic::ConvReLU2d fused(conv, make_module<ReLU>());
  observe(fused, kSeen);
  observe(*conv, kSeen);
  const auto plain = quantized::Conv2d::from_float(*conv);
  const auto with_relu = intrinsic::quantized::ConvReLU2d::from_float(fused);
  CHECK(with_relu->type_name() == "QuantizedConvReLU2d");
  const QTensor x = quantized_input({1, 2, 6, 6});
  CHECK((*with_relu)(x).equal(relu((*plain)(x))));
  CHECK_THROWS_AS(intrinsic::quantized::ConvReLU2d::from_float(*conv), ArgumentError);

  const auto linear = make_module<Linear>(LinearOptions{.in_features = 4, .out_features = 3});
  intrinsic::LinearReLU fused_linear(linear, make_module<ReLU>());
  observe(fused_linear, kSeen);
  observe(*linear, kSeen);
  const QTensor z = quantized_input({5, 4});
  CHECK((*intrinsic::quantized::LinearReLU::from_float(fused_linear))(z).equal(
      relu((*quantized::Linear::from_float(*linear))(z))));
}

TEST_CASE("intrinsic quantized ConvAdd2d: stands in the slot of the float one") {
  struct Net : Module {
    Child<intrinsic::ConvAdd2d> conv_add;
    explicit Net(const std::shared_ptr<Module>& conv) {
      register_module("conv_add", conv_add, conv);
    }
    Tensor forward(const Tensor& x) const override { return conv_add->forward(x, x); }
  };
  Net net(
      make_module<Conv2d>(Conv2dOptions{.in_channels = 3, .out_channels = 3, .kernel_size = {1}}));
  net.eval();
  const Tensor x = randn({1, 3, 4, 4});
  const Tensor want = net(x);
  observe(*net.conv_add.operator->(), want);
  net.replace_child("conv_add",
                    intrinsic::quantized::ConvAdd2d::from_float(*net.conv_add.operator->()));
  const QTensor q = quantize_per_tensor(x, 0.04, 128, DType::QUInt8);
  const std::vector<float> got = net(q).to_float_vector();
  const std::vector<float> wanted = want.to_float_vector();
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK_MESSAGE(std::abs(got[i] - wanted[i]) < 0.15F, i);
  }
  CHECK(net.state_dict().contains("conv_add.weight"));
  net.load_state_dict(net.state_dict());
}

}  // namespace
}  // namespace quanta::nn
