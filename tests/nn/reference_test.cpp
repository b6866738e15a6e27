#include "quanta/nn/reference.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "observed.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

using reference::WeightQParams;
using test::names;

WeightQParams per_tensor(double scale, std::int64_t zero_point = 0) {
  return {.scale = Tensor::scalar(scale),
          .zero_point = Tensor::scalar(static_cast<double>(zero_point), DType::Int64)};
}

WeightQParams per_channel(std::int64_t channels, std::int64_t axis = 0) {
  Tensor scale = Tensor::empty({channels});
  for (std::int64_t i = 0; i < channels; ++i) {
    scale.mutable_data<float>()[i] = 0.002F + 0.0005F * static_cast<float>(i);
  }
  return {.qscheme = QScheme::PerChannelSymmetric,
          .scale = scale,
          .zero_point = Tensor::zeros({channels}, DType::Int64),
          .axis = axis};
}

// The quantized module made from `module` rounds what `module` computes on the dequantized input.
template <typename Quantized, typename Reference>
void check_from_reference(const Reference& module, const Dims& input_sizes) {
  constexpr double kScale = 0.02;
  constexpr std::int64_t kZeroPoint = 128;
  const auto quantized = Quantized::from_reference(module, kScale, kZeroPoint);
  const QTensor x = quantize_per_tensor(randn(input_sizes), 0.03, 110, DType::QUInt8);
  const Tensor got = (*quantized)(x);
  const Tensor want = module(dequantize(x));
  REQUIRE(got.sizes() == want.sizes());
  CHECK(dynamic_cast<const Quantized&>(*quantized).weight().equal(module.get_quantized_weight()));
  const std::vector<float> a = got.to_float_vector();
  const std::vector<float> b = want.to_float_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double clamped = std::min(std::max<double>(b[i], -128 * kScale), 127 * kScale);
    CAPTURE(b[i]);
    CHECK(std::abs(a[i] - clamped) <= 0.5 * kScale + 1e-4);
  }
}

TEST_CASE("reference Linear: computes with the weight as quantizing leaves it") {
  Linear source({.in_features = 2, .out_features = 2});
  source.weight.copy_(Tensor::from_values({1.0F, -0.52F, 0.24F, 9.0F}, {2, 2}));
  source.bias.copy_(Tensor::from_values({0.5F, -0.5F}));
  const auto module = reference::Linear::from_float(source, per_tensor(0.05, 3));
  CHECK(module->get_quantized_weight().to_int64_vector() ==
        std::vector<std::int64_t>{23, -7, 8, 127});
  const Tensor x = Tensor::from_values({1.0F, 2.0F}, {1, 2});
  const std::vector<float> y = (*module)(x).to_float_vector();
  CHECK(y[0] == doctest::Approx(1.0 - 2 * 0.5 + 0.5));
  CHECK(y[1] == doctest::Approx(0.25 + 2 * 6.2 - 0.5));
  CHECK(to_string(*module) ==
        "QuantizedLinear(Reference)(in_features=2, out_features=2, bias=True)");
}

TEST_CASE("reference modules: have weights of their own and torch's names in the state") {
  Linear source({.in_features = 3, .out_features = 2});
  const auto module = reference::Linear::from_float(source, per_channel(2));
  const Tensor before = module->weight.clone();
  source.weight.fill_(0.0);
  CHECK(module->weight.equal(before));
  CHECK(module->weight_qparams().qscheme == QScheme::PerChannelAffine);
  CHECK(names(module->state_dict()) == std::vector<std::string>{"weight", "bias", "weight_scale",
                                                                "weight_zero_point",
                                                                "weight_axis"});
}

TEST_CASE("reference modules: a state brings parameters and bad ones are refused whole") {
  manual_seed(1);
  const Linear first({.in_features = 3, .out_features = 2});
  const Linear second({.in_features = 3, .out_features = 2});
  const auto saved = reference::Linear::from_float(first, per_tensor(0.01));
  const auto loaded = reference::Linear::from_float(second, per_tensor(0.3));
  loaded->load_state_dict(saved->state_dict());
  CHECK(loaded->get_quantized_weight().equal(saved->get_quantized_weight()));
  const auto copy = loaded->clone();
  const Tensor x = randn({4, 3});
  CHECK((*copy)(x).equal((*saved)(x)));

  StateDict state = saved->state_dict();
  state.set("weight_scale", Tensor::scalar(-1.0));
  CHECK_THROWS_WITH_AS(loaded->load_state_dict(state), doctest::Contains("weight_scale: "),
                       ArgumentError);
  state.set("weight_scale", Tensor::scalar(0.5));
  state.set("weight_axis", Tensor::scalar(0.5));
  CHECK_THROWS_WITH_AS(loaded->load_state_dict(state), doctest::Contains("expected one integer"),
                       ArgumentError);
  state.erase("weight_axis");
  state.erase("weight_zero_point");
  CHECK_THROWS_WITH_AS(loaded->load_state_dict(state), doctest::Contains("weight_zero_point"),
                       ArgumentError);
  CHECK((*loaded)(x).equal((*saved)(x)));
}

TEST_CASE("reference modules: parameters that do not suit the weight are refused") {
  const Linear source({.in_features = 3, .out_features = 2});
  CHECK_THROWS_AS(reference::Linear::from_float(source, per_channel(3)), ArgumentError);
  CHECK_THROWS_AS(reference::Linear::from_float(source, per_tensor(0.1, 200)), ArgumentError);
  CHECK_THROWS_WITH_AS(reference::Linear::from_float(source, {}),
                       doctest::Contains("WeightQParams: scale: expected tensors"), ArgumentError);
  WeightQParams floating = per_channel(2);
  floating.zero_point = Tensor::zeros({2});
  CHECK_THROWS_WITH_AS(reference::Linear::from_float(source, floating),
                       doctest::Contains("zero_point: expected integer ones"), ArgumentError);
  const auto observer = default_weight_observer()();
  CHECK_THROWS_WITH_AS(WeightQParams::from_observer(*observer), doctest::Contains("that saw data"),
                       ArgumentError);
}

TEST_CASE(
    "reference modules: a weight with NaN or infinity is refused where it would become codes") {
  const Linear source({.in_features = 3, .out_features = 2});
  for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    CAPTURE(odd);
    Linear broken({.in_features = 3, .out_features = 2});
    broken.weight.mutable_data<float>()[4] = odd;
    const char* text = "weight: expected finite numbers, got a range of";
    CHECK_THROWS_WITH_AS(reference::Linear::from_float(broken, per_tensor(0.01)),
                         doctest::Contains(text), ArgumentError);
    // A state: nothing changes.
    const auto module = reference::Linear::from_float(source, per_channel(2));
    const QTensor before = module->get_quantized_weight();
    StateDict state = module->state_dict();
    for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
      state.set("weight", broken.weight.to(dtype));
      state.set("weight_scale", Tensor::full({2}, 0.25));
      CHECK_THROWS_WITH_AS(module->load_state_dict(state), doctest::Contains(text), ArgumentError);
      CHECK(module->get_quantized_weight().equal(before));
    }
    // By hand: what forward computes with is not looked at each time, codes are.
    module->weight.copy_(broken.weight);
    CHECK(module->get_weight().numel() == 6);
    CHECK_THROWS_WITH_AS(quantized::Linear::from_reference(*module, 0.1, 3),
                         doctest::Contains(text), ArgumentError);
    // A module that holds anything takes a good state.
    module->load_state_dict(reference::Linear::from_float(source, per_channel(2))->state_dict());
    CHECK(module->get_quantized_weight().equal(before));
  }
  // Biases are floats.
  Linear biased({.in_features = 3, .out_features = 2});
  biased.bias.fill_(HUGE_VAL);
  const auto module = reference::Linear::from_float(biased, per_tensor(0.01));
  module->load_state_dict(module->state_dict());
  CHECK(module->bias.equal(biased.bias));
}

TEST_CASE("WeightQParams: those of an observer quantize as from_float does") {
  manual_seed(2);
  for (const QConfig& qconfig : {default_qconfig(), default_per_channel_qconfig()}) {
    Conv2d source({.in_channels = 4, .out_channels = 3, .kernel_size = {3}});
    test::observe(source, Tensor::from_values({-1.0F, 2.0F}), qconfig);
    const auto observer = qconfig.weight();
    observer->forward(source.weight);
    const auto module =
        reference::Conv2d::from_float(source, WeightQParams::from_observer(*observer));
    const auto converted = quantized::Conv2d::from_float(source);
    const auto& conv = dynamic_cast<const quantized::Conv2d&>(*converted);
    CHECK(module->get_quantized_weight().equal(conv.weight()));
    const auto other = quantized::Conv2d::from_reference(*module, conv.scale, conv.zero_point);
    const QTensor x = quantize_per_tensor(randn({2, 4, 6, 7}), 0.03, 110, DType::QUInt8);
    CHECK((*other)(x).equal((*converted)(x)));
  }
}

TEST_CASE("from_reference: Linear and convolutions round what the reference module computes") {
  manual_seed(3);
  const Linear linear({.in_features = 7, .out_features = 5});
  check_from_reference<quantized::Linear>(*reference::Linear::from_float(linear, per_channel(5)),
                                          {3, 7});
  const Conv1d one({.in_channels = 4,
                    .out_channels = 6,
                    .kernel_size = {3},
                    .stride = {2},
                    .padding = {2},
                    .groups = 2,
                    .padding_mode = PaddingMode::Reflect});
  check_from_reference<quantized::Conv1d>(*reference::Conv1d::from_float(one, per_channel(6)),
                                          {2, 4, 9});
  const Conv2d two({.in_channels = 3,
                    .out_channels = 5,
                    .kernel_size = {3, 2},
                    .padding = {1, 0},
                    .dilation = {1, 2},
                    .bias = false});
  check_from_reference<quantized::Conv2d>(*reference::Conv2d::from_float(two, per_channel(5)),
                                          {2, 3, 6, 7});
  const Conv3d three({.in_channels = 3, .out_channels = 4, .kernel_size = {2}});
  check_from_reference<quantized::Conv3d>(*reference::Conv3d::from_float(three, per_tensor(0.004)),
                                          {1, 3, 4, 5, 6});
}

TEST_CASE("from_reference: transposed convolutions with one scale and one a channel") {
  manual_seed(4);
  const ConvTranspose1d one({.in_channels = 4,
                             .out_channels = 6,
                             .kernel_size = {3},
                             .stride = {2},
                             .padding = {1},
                             .output_padding = {1},
                             .groups = 2});
  check_from_reference<quantized::ConvTranspose1d>(
      *reference::ConvTranspose1d::from_float(one, per_tensor(0.004)), {2, 4, 5});
  const ConvTranspose2d two({.in_channels = 3, .out_channels = 5, .kernel_size = {3}});
  check_from_reference<quantized::ConvTranspose2d>(
      *reference::ConvTranspose2d::from_float(two, per_channel(5, 1)), {2, 3, 4, 5});
  const ConvTranspose3d three({.in_channels = 3, .out_channels = 2, .kernel_size = {2}});
  check_from_reference<quantized::ConvTranspose3d>(
      *reference::ConvTranspose3d::from_float(three, per_tensor(0.004)), {1, 3, 3, 4, 2});
}

TEST_CASE("from_reference: fused modules take the reference module of their first part") {
  manual_seed(5);
  const Conv2d conv({.in_channels = 3, .out_channels = 5, .kernel_size = {3}});
  const auto module = reference::Conv2d::from_float(conv, per_channel(5));
  const QTensor x = quantize_per_tensor(randn({2, 3, 6, 7}), 0.03, 110, DType::QUInt8);
  const auto plain = quantized::Conv2d::from_reference(*module, 0.02, 100);
  const auto fused = intrinsic::quantized::ConvReLU2d::from_reference(*module, 0.02, 100);
  CHECK(fused->type_name() == "QuantizedConvReLU2d");
  CHECK((*fused)(x).equal(relu((*plain)(x))));
  const Linear linear({.in_features = 7, .out_features = 5});
  const auto linear_reference = reference::Linear::from_float(linear, per_channel(5));
  const QTensor rows = quantize_per_tensor(randn({3, 7}), 0.03, 110, DType::QUInt8);
  const auto fused_linear =
      intrinsic::quantized::LinearReLU::from_reference(*linear_reference, 0.02, 100);
  CHECK((*fused_linear)(rows).equal(
      relu((*quantized::Linear::from_reference(*linear_reference, 0.02, 100))(rows))));
}

TEST_CASE("from_reference: a weight of another dtype is refused by name") {
  const Linear source({.in_features = 3, .out_features = 2});
  WeightQParams qparams = per_tensor(0.01, 100);
  qparams.dtype = DType::QUInt8;
  const auto module = reference::Linear::from_float(source, qparams);
  CHECK_THROWS_WITH_AS(quantized::Linear::from_reference(*module, 0.1, 0),
                       doctest::Contains("weight: expected"), Error);
}

}  // namespace
}  // namespace quanta::nn
