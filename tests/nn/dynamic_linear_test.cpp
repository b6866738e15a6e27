#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "observed.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/dynamic/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/reference.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

using test::random_tensor;

namespace qd = quantized::dynamic;
namespace niqd = intrinsic::quantized::dynamic;
using qd::ReduceRange;
using test::names;

std::shared_ptr<Linear> float_linear(const QConfig& qconfig, bool bias = true) {
  auto source =
      make_module<Linear>(LinearOptions{.in_features = 20, .out_features = 6, .bias = bias});
  source->eval();
  source->set_qconfig(qconfig);
  return source;
}

std::shared_ptr<qd::Linear> dynamic_linear(const QConfig& qconfig = default_dynamic_qconfig(),
                                           bool bias = true) {
  return std::dynamic_pointer_cast<qd::Linear>(
      qd::Linear::from_float(*float_linear(qconfig, bias)));
}

/// As many digits as were written down.
void check_close(const Tensor& got, const std::vector<double>& expected) {
  const std::vector<float> values = got.to_float_vector();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(static_cast<double>(values[i]) == doctest::Approx(expected[i]).epsilon(1e-7));
  }
}

}  // namespace

TEST_CASE("dynamic Linear: the golden numbers of the specification") {
  const QTensor weight = quantize_per_tensor(
      Tensor::from_values({0.5F, -0.25F, 1.0F, -1.0F, 0.75F, 0.1F}, {2, 3}), 0.01, 0, DType::QInt8);
  qd::Linear linear(weight, Tensor::from_values({0.3F, -0.2F}));
  const Tensor x = Tensor::from_values({-0.7F, 0.2F, 1.1F, 0.4F, -0.33F, 2.0F}, {2, 3});
  CHECK(linear.reduce_range() == ReduceRange::Yes);
  check_close(linear(x), {1.00688970, 0.75562990, 2.58543301, -0.65921259});
  linear.set_reduce_range(ReduceRange::No);
  check_close(linear(x), {1.00147057, 0.75982350, 2.58441162, -0.64841175});
}

TEST_CASE("dynamic Linear: from_float takes the weight observer of the qconfig") {
  const auto per_tensor = dynamic_linear();
  CHECK(per_tensor->weight_dtype() == DType::QInt8);
  CHECK(!per_tensor->weight().as_quantized().is_per_channel());
  const auto per_channel = dynamic_linear(per_channel_dynamic_qconfig());
  CHECK(per_channel->weight().as_quantized().is_per_channel());
  const auto source = float_linear(float16_dynamic_qconfig());
  const auto half = std::dynamic_pointer_cast<qd::Linear>(qd::Linear::from_float(*source));
  CHECK(half->weight_dtype() == DType::Float16);
  CHECK(half->weight().equal(source->weight.to(DType::Float16)));
  CHECK(half->bias().equal(source->bias));

  const Tensor x = random_tensor({3, 20});
  const quanta::quantized::LinearPackedParams packed(per_channel->weight().as_quantized(),
                                                     per_channel->bias());
  CHECK((*per_channel)(x).equal(quanta::quantized::linear_dynamic(x, packed, ReduceRange::Yes)));
  CHECK((*half)(x).equal(quanta::quantized::linear_dynamic_fp16(
      x, quanta::quantized::LinearPackedParamsFp16(half->weight(), half->bias()))));
}

TEST_CASE("dynamic Linear: prints as torch") {
  CHECK(to_string(*dynamic_linear()) ==
        "DynamicQuantizedLinear(in_features=20, out_features=6, dtype=torch.qint8, "
        "qscheme=torch.per_tensor_affine)");
  CHECK(to_string(*dynamic_linear(per_channel_dynamic_qconfig())) ==
        "DynamicQuantizedLinear(in_features=20, out_features=6, dtype=torch.qint8, "
        "qscheme=torch.per_channel_affine)");
  CHECK(to_string(*dynamic_linear(float16_dynamic_qconfig())) ==
        "DynamicQuantizedLinear(in_features=20, out_features=6, dtype=torch.float16)");
}

TEST_CASE("dynamic Linear: state has torch's names and round trips in both dtypes") {
  const auto saved = dynamic_linear();
  CHECK(names(saved->state_dict()) == std::vector<std::string>{"scale", "zero_point",
                                                               "_packed_params._packed_params/0",
                                                               "_packed_params._packed_params/1"});
  const Tensor x = random_tensor({2, 20});
  for (const QConfig& qconfig :
       {default_dynamic_qconfig(), per_channel_dynamic_qconfig(), float16_dynamic_qconfig()}) {
    for (const bool bias : {false, true}) {
      const auto source = dynamic_linear(qconfig, bias);
      source->set_reduce_range(ReduceRange::No);
      const auto loaded = dynamic_linear();
      loaded->load_state_dict(source->state_dict());
      CHECK(loaded->weight_dtype() == source->weight_dtype());
      CHECK(loaded->bias().defined() == bias);
      CHECK(loaded->reduce_range() == ReduceRange::No);
      CHECK((*loaded)(x).equal((*source)(x)));
    }
  }
}

TEST_CASE("dynamic Linear: states of torch load without scale and with Float32 for Float16") {
  const auto source = dynamic_linear(float16_dynamic_qconfig());
  StateDict state;
  state.set("_packed_params._packed_params/0", source->weight().to(DType::Float32));
  state.set("_packed_params._packed_params/1", source->bias());
  const auto loaded = dynamic_linear();
  loaded->load_state_dict(state);
  CHECK(loaded->weight_dtype() == DType::Float16);
  CHECK(loaded->weight().equal(source->weight()));

  const auto codes = dynamic_linear();
  StateDict older;
  older.set("_packed_params.weight", codes->weight());
  older.set("_packed_params.bias", codes->bias());
  loaded->load_state_dict(older);
  CHECK((*loaded)(random_tensor({2, 20})).equal((*codes)(random_tensor({2, 20}))));
}

TEST_CASE("dynamic Linear: a wrong state is refused and changes nothing") {
  const auto linear = dynamic_linear();
  const Tensor before = (*linear)(random_tensor({2, 20}));
  CHECK_THROWS_WITH_AS(linear->load_state_dict(float_linear({})->state_dict()),
                       doctest::Contains("weight: expected QInt8, got Float32"), Error);
  CHECK_THROWS_WITH_AS(linear->load_state_dict(StateDict()),
                       doctest::Contains("_packed_params._packed_params/0"), Error);
  StateDict wrong = linear->state_dict();
  wrong.set("_packed_params._packed_params/0", random_tensor({6, 21}));
  CHECK_THROWS_WITH_AS(linear->load_state_dict(wrong), doctest::Contains("expected sizes [6, 20]"),
                       Error);
  CHECK((*linear)(random_tensor({2, 20})).equal(before));
}

TEST_CASE("dynamic Linear: set_weight_bias packs again") {
  const auto linear = dynamic_linear();
  const auto other = dynamic_linear(float16_dynamic_qconfig(), false);
  linear->set_weight_bias(other->weight(), other->bias());
  const Tensor x = random_tensor({4, 20});
  CHECK((*linear)(x).equal((*other)(x)));
  CHECK_THROWS_WITH_AS(linear->set_weight_bias(random_tensor({6, 19}), Tensor()),
                       doctest::Contains("set_weight_bias: weight: expected sizes [6, 20]"),
                       ArgumentError);
  CHECK((*linear)(x).equal((*other)(x)));
}

TEST_CASE("dynamic Linear: from_float and from_reference refuse what they cannot take") {
  CHECK_THROWS_WITH_AS(qd::Linear::from_float(*float_linear(float_qparams_weight_only_qconfig())),
                       doctest::Contains("expected an observer for QInt8 or Float16"),
                       ArgumentError);
  Linear plain({.in_features = 2, .out_features = 3});
  CHECK_THROWS_WITH_AS(qd::Linear::from_float(plain), doctest::Contains("qconfig"), ArgumentError);
  CHECK_THROWS_WITH_AS(qd::Linear::from_float(ReLU()),
                       doctest::Contains("module: expected Linear, got ReLU"), ArgumentError);
  CHECK_THROWS_WITH_AS(niqd::LinearReLU::from_float(plain),
                       doctest::Contains("module: expected LinearReLU, got Linear"), ArgumentError);

  const auto source = float_linear({});
  reference::WeightQParams qparams;
  qparams.scale = Tensor::full({1}, 0.01);
  qparams.zero_point = Tensor::zeros({1}, DType::Int64);
  const auto module = qd::Linear::from_reference(*reference::Linear::from_float(*source, qparams));
  CHECK(dynamic_cast<const qd::Linear&>(*module).weight().as_quantized().q_scale() ==
        doctest::Approx(0.01));
}

TEST_CASE("dynamic LinearReLU: is Linear with relu at the end") {
  for (const QConfig& qconfig : {default_dynamic_qconfig(), float16_dynamic_qconfig()}) {
    const auto source = float_linear(qconfig);
    intrinsic::LinearReLU fused(source, make_module<ReLU>());
    fused.eval();
    fused.set_qconfig(qconfig);
    const auto linear = qd::Linear::from_float(*source);
    const auto both = niqd::LinearReLU::from_float(fused);
    CHECK(to_string(*both).starts_with("DynamicQuantizedLinearReLU(in_features=20"));
    const Tensor x = random_tensor({5, 20});
    CHECK((*both)(x).equal(relu((*linear)(x))));
  }
}

TEST_CASE("dynamic Linear: a clone is its own and threads do not disturb each other") {
  const auto linear = dynamic_linear();
  const auto copy = std::dynamic_pointer_cast<qd::Linear>(linear->clone());
  linear->set_weight_bias(random_tensor({6, 20}), Tensor());
  CHECK(copy->weight_dtype() == DType::QInt8);
  const Tensor x = random_tensor({1, 20});
  const Tensor expected = (*copy)(x);
  std::vector<int> failures(3, 0);
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < failures.size(); ++t) {
    workers.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) failures[t] += (*copy)(x).equal(expected) ? 0 : 1;
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(failures == std::vector<int>(3, 0));
}

namespace {

/// The static convolution with the input's own parameters for its result.
template <typename Static, typename Options>
Tensor conv_reference(const Options& options, const QTensor& weight, const Tensor& bias,
                      const Tensor& x, bool reduce_range) {
  const math::QParams qparams = choose_qparams_per_tensor(x, reduce_range);
  Static conv(options, weight, bias, qparams.scale, qparams.zero_point);
  return dequantize(conv(quantize_per_tensor(x, qparams.scale, qparams.zero_point, DType::QUInt8))
                        .as_quantized());
}

template <typename Dynamic, typename Static, typename Float, typename Options>
void check_conv(const Dims& input, std::string_view name) {
  Float source(
      {.in_channels = 4, .out_channels = 6, .kernel_size = {3}, .stride = {2}, .padding = {1}});
  source.eval();
  source.set_qconfig(default_dynamic_qconfig());
  const auto module = std::dynamic_pointer_cast<Dynamic>(Dynamic::from_float(source));
  CHECK(to_string(*module).starts_with("DynamicQuantized" + std::string(name) + "(4, 6, "));
  const Tensor x = random_tensor(input);
  const Options options{.stride = {2}, .padding = {1}};
  CHECK((*module)(x).equal(
      conv_reference<Static>(options, module->weight(), module->bias(), x, true)));
  module->set_reduce_range(ReduceRange::No);
  CHECK((*module)(x).equal(
      conv_reference<Static>(options, module->weight(), module->bias(), x, false)));

  const auto loaded = std::dynamic_pointer_cast<Dynamic>(Dynamic::from_float(source));
  loaded->load_state_dict(module->state_dict());
  CHECK(loaded->reduce_range() == ReduceRange::No);
  CHECK((*loaded)(x).equal((*module)(x)));
  CHECK_THROWS_AS((*module)(quantize_per_tensor(x, 0.1, 0, DType::QUInt8)), ArgumentError);
  CHECK_THROWS_AS((*module)(random_tensor({1, 5, 8, 8, 8, 8})), ArgumentError);
}

}  // namespace

TEST_CASE("dynamic convolutions: the input's parameters are those of the result as in torch") {
  check_conv<qd::Conv1d, quantized::Conv1d, Conv1d, ConvOptions>({2, 4, 9}, "Conv1d");
  check_conv<qd::Conv2d, quantized::Conv2d, Conv2d, ConvOptions>({2, 4, 9, 7}, "Conv2d");
  check_conv<qd::Conv3d, quantized::Conv3d, Conv3d, ConvOptions>({1, 4, 5, 6, 7}, "Conv3d");
  check_conv<qd::ConvTranspose1d, quantized::ConvTranspose1d, ConvTranspose1d,
             ConvTransposeOptions>({2, 4, 9}, "ConvTranspose1d");
  check_conv<qd::ConvTranspose2d, quantized::ConvTranspose2d, ConvTranspose2d,
             ConvTransposeOptions>({2, 4, 5, 6}, "ConvTranspose2d");
  check_conv<qd::ConvTranspose3d, quantized::ConvTranspose3d, ConvTranspose3d,
             ConvTransposeOptions>({1, 4, 3, 4, 5}, "ConvTranspose3d");
}

TEST_CASE("dynamic convolutions: padding by reflection and refused weights") {
  Conv2d source({.in_channels = 3,
                 .out_channels = 2,
                 .kernel_size = {3},
                 .padding = {1},
                 .padding_mode = PaddingMode::Reflect});
  source.set_qconfig(default_dynamic_qconfig());
  const auto module = qd::Conv2d::from_float(source);
  CHECK((*module)(random_tensor({1, 3, 6, 6})).sizes() == Dims{1, 2, 6, 6});
  source.set_qconfig(float16_dynamic_qconfig());
  CHECK_THROWS_WITH_AS(qd::Conv2d::from_float(source),
                       doctest::Contains("qconfig.weight: expected an observer for QInt8"),
                       ArgumentError);
  ConvTranspose2d turned({.in_channels = 3, .out_channels = 2, .kernel_size = {3}});
  turned.set_qconfig(per_channel_dynamic_qconfig());
  CHECK_THROWS_WITH_AS(qd::ConvTranspose2d::from_float(turned),
                       doctest::Contains("expected a per-tensor observer"), ArgumentError);
}

}  // namespace quanta::nn
