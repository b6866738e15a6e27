#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "observed.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/nn/quantized/pooling.h"
#include "quanta/nn/quantized/qfunctional.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

using test::names;
using test::observe;

const Tensor kSeen = Tensor::from_values({-2.0F, 3.0F});

QTensor quantized_input(const Dims& sizes) {
  return quantize_per_tensor(randn(sizes), 0.03, 70, DType::QUInt8);
}

// The float module on dequantized values, quantized again: at most one unit from the module.
void check_against_float(const Module& source, const Module& module, const QTensor& x) {
  const QTensor got = module(x).as_quantized();
  const Tensor want = quantize_per_tensor(source.forward(dequantize(x)), got.q_scale(),
                                          got.q_zero_point(), DType::QUInt8);
  REQUIRE(got.sizes() == want.sizes());
  const auto got_codes = got.to_int64_vector();
  const auto want_codes = want.to_int64_vector();
  for (std::size_t i = 0; i < got_codes.size(); ++i) {
    CHECK_MESSAGE(std::abs(got_codes[i] - want_codes[i]) <= 1, module.type_name() << " " << i);
  }
}

TEST_CASE("Quantize: parameters come from the stub's observer and load in torch's shapes") {
  QuantStub stub;
  observe(stub, kSeen);
  const auto module = quantized::Quantize::from_float(stub);
  const auto& quantize = dynamic_cast<const quantized::Quantize&>(*module);
  CHECK(quantize.scale == doctest::Approx(5.0 / 255.0));
  CHECK(quantize.zero_point == 102);
  CHECK(quantize.dtype() == DType::QUInt8);
  const StateDict state = module->state_dict();
  CHECK(state.at("scale").sizes() == Dims{1});
  CHECK(state.at("zero_point").sizes() == Dims{1});
  const Tensor x = randn({2, 3});
  const Tensor y = (*module)(x);
  CHECK(y.equal(quantize_per_tensor(x, quantize.scale, 102, DType::QUInt8)));
  CHECK(quantized::DeQuantize::from_float(DeQuantStub())->forward(y).equal(dequantize(y)));

  const auto other = make_module<quantized::Quantize>(1.0, 0, DType::QUInt8);
  StateDict scalars;
  scalars.set("scale", state.at("scale").reshape({}));
  scalars.set("zero_point", state.at("zero_point").reshape({}).to(DType::Int32));
  other->load_state_dict(scalars);
  CHECK((*other)(x).equal(y));
  scalars.set("zero_point", Tensor::scalar(300, DType::Int64));
  CHECK_THROWS_WITH_AS(other->load_state_dict(scalars),
                       doctest::Contains("zero_point: expected 0..255, got 300"), ArgumentError);
  CHECK_THROWS_AS(quantized::Quantize::from_float(DeQuantStub()), ArgumentError);
  CHECK_THROWS_AS(quantized::Quantize(0.0, 0, DType::QUInt8), ArgumentError);
  CHECK_THROWS_AS(quantized::Quantize(1.0, 0, DType::Float32), ArgumentError);
}

TEST_CASE("quantized activations: results are those of the float function") {
  const QTensor x = quantized_input({4, 3, 5});
  Hardswish hardswish_layer;
  observe(hardswish_layer, kSeen);
  check_against_float(hardswish_layer, *quantized::Hardswish::from_float(hardswish_layer), x);
  LeakyReLU leaky(0.1);
  observe(leaky, kSeen);
  check_against_float(leaky, *quantized::LeakyReLU::from_float(leaky), x);
  ELU elu_layer(0.7);
  observe(elu_layer, kSeen);
  check_against_float(elu_layer, *quantized::ELU::from_float(elu_layer), x);
  Sigmoid sigmoid_layer;
  observe(sigmoid_layer, kSeen);
  check_against_float(sigmoid_layer, *quantized::Sigmoid::from_float(sigmoid_layer), x);
  Softmax softmax_layer(1);
  observe(softmax_layer, kSeen);
  check_against_float(softmax_layer, *quantized::Softmax::from_float(softmax_layer), x);
  CHECK(quantized::ReLU::from_float(ReLU())->forward(x).equal(relu(x)));
  CHECK_THROWS_WITH_AS(quantized::ReLU::from_float(ReLU6()), doctest::Contains("got ReLU6"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::ReLU().forward(Tensor::ones({2})),
                       doctest::Contains("quantized::relu: x"), Error);
  CHECK(quantized::ReLU6::from_float(ReLU6())->forward(x).equal(relu6(x)));
  CHECK(quantized::Dropout::from_float(Dropout(0.3))->forward(x).is_same(x));
  CHECK(to_string(*quantized::LeakyReLU::from_float(leaky)) ==
        "QuantizedLeakyReLU(negative_slope=0.1)");
}

template <typename Quantized, typename Float>
std::string check_own_activation(Float source, const QTensor& x) {
  observe(source, Tensor::from_values({-6.0F, 3.0F}));
  const auto module = Quantized::from_float(source);
  check_against_float(source, *module, x);
  CHECK(names(module->state_dict()) == std::vector<std::string>{"scale", "zero_point"});
  const QTensor y = (*module)(x).as_quantized();
  CHECK(y.q_scale() == doctest::Approx(9.0 / 255.0));
  CHECK(y.q_zero_point() == 170);
  CHECK_THROWS_WITH_AS(Quantized::from_float(ReLU()), doctest::Contains("got ReLU"), ArgumentError);
  CHECK_THROWS_WITH_AS((*module)(kSeen), doctest::Contains("QuantStub"), ArgumentError);
  return to_string(*module);
}

TEST_CASE("quantized activations: those that torch lacks give the float function's codes") {
  const QTensor x = quantized_input({4, 3, 5});
  CHECK(check_own_activation<quantized::GELU>(GELU(), x) == "QuantizedGELU(approximate='none')");
  CHECK(check_own_activation<quantized::GELU>(GELU(GeluApproximation::Tanh), x) ==
        "QuantizedGELU(approximate='tanh')");
  CHECK(check_own_activation<quantized::SiLU>(SiLU(), x) == "QuantizedSiLU()");
  CHECK(check_own_activation<quantized::Mish>(Mish(), x) == "QuantizedMish()");
  CHECK(check_own_activation<quantized::CELU>(CELU(0.7), x) == "QuantizedCELU(alpha=0.7)");
  CHECK(check_own_activation<quantized::SELU>(SELU(), x) == "QuantizedSELU()");
  CHECK(check_own_activation<quantized::Softplus>(Softplus(1.5, 2.0), x) ==
        "QuantizedSoftplus(beta=1.5, threshold=2.0)");
  CHECK(check_own_activation<quantized::Softsign>(Softsign(), x) == "QuantizedSoftsign()");
  CHECK(check_own_activation<quantized::LogSigmoid>(LogSigmoid(), x) == "QuantizedLogSigmoid()");
  CHECK(check_own_activation<quantized::LogSoftmax>(LogSoftmax(1), x) ==
        "QuantizedLogSoftmax(dim=1)");
  CHECK(check_own_activation<quantized::Tanh>(Tanh(), x) == "QuantizedTanh()");
}

TEST_CASE("quantized activations: a float tensor is refused with what is missing") {
  CHECK_THROWS_WITH_AS(quantized::Hardswish(0.1, 0)(kSeen), doctest::Contains("QuantStub"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::ReLU6()(kSeen), doctest::Contains("QuantStub"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::MaxPool2d({.kernel_size = {2}})(randn({1, 1, 4, 4})),
                       doctest::Contains("QuantStub"), ArgumentError);
}

TEST_CASE("quantized ELU: parameters are saved and a file without them needs a calibrated module") {
  ELU source;
  observe(source, kSeen);
  const auto module = quantized::ELU::from_float(source);
  CHECK(names(module->state_dict()) == std::vector<std::string>{"scale", "zero_point"});
  module->load_state_dict(StateDict());
  const auto fresh = make_module<quantized::ELU>(1.0, 0);
  CHECK_THROWS_WITH_AS(fresh->load_state_dict(StateDict()), doctest::Contains("scale"),
                       ArgumentError);
  fresh->load_state_dict(module->state_dict());
  const QTensor x = quantized_input({7});
  CHECK((*fresh)(x).equal((*module)(x)));
}

TEST_CASE("quantized PReLU: the weight is QUInt8 and needs such an observer") {
  PReLU source(1, 1.25);
  observe(source, kSeen, default_quint8_weight_qconfig());
  const auto module = quantized::PReLU::from_float(source);
  const QTensor x = quantized_input({3, 4});
  check_against_float(source, *module, x);
  CHECK(names(module->state_dict()) == std::vector<std::string>{"weight", "scale", "zero_point"});
  module->load_state_dict(module->state_dict());
  observe(source, kSeen);
  CHECK_THROWS_WITH_AS(quantized::PReLU::from_float(source), doctest::Contains("QUInt8"),
                       ArgumentError);
  observe(source, kSeen, default_per_channel_qconfig());
  CHECK_THROWS_WITH_AS(quantized::PReLU::from_float(source),
                       doctest::Contains("default_quint8_weight_qconfig"), ArgumentError);
}

TEST_CASE("quantized PReLU: slopes below one scale positive values down as in torch") {
  PReLU source(1, 0.25);
  observe(source, kSeen, default_quint8_weight_qconfig());
  const auto module = quantized::PReLU::from_float(source);
  const QTensor x = quantize_per_tensor(Tensor::from_values({2.0F}), 0.02, 0, DType::QUInt8);
  // The observer saw 0.25 only, and 1.0 has no code of its own in that range.
  CHECK((*module)(x).item() == doctest::Approx(0.5).epsilon(0.05));
}

TEST_CASE("quantized norms: results are those of the float function") {
  manual_seed(11);
  const QTensor x = quantized_input({2, 6, 5, 4});
  BatchNorm2d batch({.num_features = 6});
  batch.running_mean.copy_(randn({6}));
  batch.running_var.copy_(rand({6}));
  batch.weight.copy_(randn({6}));
  batch.eval();
  observe(batch, Tensor::from_values({-6.0F, 6.0F}));
  const auto quantized_batch = quantized::BatchNorm2d::from_float(batch);
  check_against_float(batch, *quantized_batch, x);
  CHECK(names(quantized_batch->state_dict()) ==
        std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                 "num_batches_tracked", "scale", "zero_point"});
  quantized_batch->load_state_dict(quantized_batch->state_dict());
  CHECK_THROWS_AS((*quantized_batch)(quantized_input({2, 6, 5})), ArgumentError);

  const auto batch_ptr = make_module<BatchNorm2d>(batch);
  intrinsic::BNReLU2d fused(batch_ptr, make_module<ReLU>());
  observe(fused, Tensor::from_values({-6.0F, 6.0F}));
  const auto quantized_fused = intrinsic::quantized::BNReLU2d::from_float(fused);
  CHECK((*quantized_fused)(x).equal(relu((*quantized_batch)(x))));

  LayerNorm layer({.normalized_shape = {4}});
  layer.weight.copy_(randn({4}));
  observe(layer, kSeen);
  check_against_float(layer, *quantized::LayerNorm::from_float(layer), x);
  GroupNorm group({.num_groups = 3, .num_channels = 6});
  group.bias.copy_(randn({6}));
  observe(group, kSeen);
  check_against_float(group, *quantized::GroupNorm::from_float(group), x);
  InstanceNorm2d instance({.num_features = 6});
  observe(instance, kSeen);
  const auto quantized_instance = quantized::InstanceNorm2d::from_float(instance);
  check_against_float(instance, *quantized_instance, x);
  CHECK(names(quantized_instance->state_dict()) == std::vector<std::string>{"scale", "zero_point"});
}

TEST_CASE("quantized norms: those of trained layers have no gradient") {
  const QTensor x = quantized_input({2, 6, 5, 4});
  const auto check = [&x](auto source, const auto& convert) {
    observe(source, kSeen);
    source.eval();
    const Tensor wanted = (*convert(source))(x);
    source.requires_grad_();
    const Tensor y = (*convert(source))(x);
    CHECK_FALSE(y.requires_grad());
    CHECK(y.equal(wanted));
  };
  check(LayerNorm({.normalized_shape = {4}}), quantized::LayerNorm::from_float);
  check(GroupNorm({.num_groups = 3, .num_channels = 6}), quantized::GroupNorm::from_float);
  check(BatchNorm2d({.num_features = 6}), quantized::BatchNorm2d::from_float);
}

TEST_CASE("quantized norms: the float module's parameters are copied") {
  LayerNorm source({.normalized_shape = {4}});
  observe(source, kSeen);
  const auto module = quantized::LayerNorm::from_float(source);
  source.weight.fill_(5.0);
  CHECK(module->state_dict().at("weight").equal(Tensor::ones({4})));
}

TEST_CASE("QFunctional: each operation gives the codes of the float one that was observed") {
  manual_seed(3);
  using Operation = std::function<Tensor(const FloatFunctional&, const Tensor&, const Tensor&)>;
  using F = const FloatFunctional&;
  using T = const Tensor&;
  const std::vector<Operation> operations = {
      [](F f, T a, T b) { return f.sub(a, b); },
      [](F f, T a, T b) { return f.div(a, b); },
      [](F f, T a, T) { return f.neg(a); },
      [](F f, T a, T b) { return f.minimum(a, b); },
      [](F f, T a, T b) { return f.maximum(a, b); },
      [](F f, T a, T) {
        return f.mean(a, {2, 3}, {.keepdim = true});
      },
      [](F f, T a, T) { return f.mean(a, {}); },
      [](F f, T a, T) { return f.softmax(a, 1); },
  };
  const QTensor x = quantize_per_tensor(randn({2, 3, 5, 4}), 0.03, 70, DType::QUInt8);
  // No zeros: it is a divisor.
  const QTensor y = quantize_per_tensor(Tensor::from_values({0.5F, 1.0F, 2.0F}).view({3, 1, 1}),
                                        0.02, 0, DType::QUInt8);
  for (const Operation& operation : operations) {
    FloatFunctional functional;
    functional.set_qconfig(default_qconfig());
    const auto observer = std::make_shared<MinMaxObserver>();
    functional.set_activation_post_process(observer, Module::Observation::Explicit);
    observer->forward(Tensor::from_values({-3.0F, 3.0F}));
    const Tensor floats = operation(functional, dequantize(x), dequantize(y));
    CHECK(observer->has_data());
    const auto module = quantized::QFunctional::from_float(functional);
    const auto& quantized = dynamic_cast<const FloatFunctional&>(*module);
    const QTensor got = operation(quantized, x, y).as_quantized();
    const auto want = quantize_per_tensor(floats, got.q_scale(), got.q_zero_point(), DType::QUInt8)
                          .to_int64_vector();
    REQUIRE(got.sizes() == floats.sizes());
    const auto codes = got.to_int64_vector();
    for (std::size_t i = 0; i < codes.size(); ++i) CHECK(std::abs(codes[i] - want[i]) <= 1);
    CHECK_THROWS_WITH_AS(operation(quantized, dequantize(x), dequantize(y)),
                         doctest::Contains("QuantStub"), ArgumentError);
  }
}

TEST_CASE("QFunctional: stands in the slot of a FloatFunctional and sets the parameters") {
  struct Net : Module {
    Child<FloatFunctional> skip;
    Net() { register_module("skip", skip); }
    Tensor forward(const Tensor& x) const override { return skip->add(x, x); }
  };
  Net net;
  observe(*net.skip.operator->(), kSeen);
  net.replace_child("skip", quantized::QFunctional::from_float(*net.skip.operator->()));
  const QTensor x =
      quantize_per_tensor(Tensor::from_values({0.5F, -0.75F}), 0.01, 100, DType::QUInt8);
  const QTensor y = net(x).as_quantized();
  CHECK(y.q_scale() == doctest::Approx(5.0 / 255.0));
  CHECK(y.q_zero_point() == 102);
  CHECK(y.to_int64_vector() == std::vector<std::int64_t>{153, 102 - 76});
  CHECK(names(net.state_dict()) == std::vector<std::string>{"skip.scale", "skip.zero_point"});
  CHECK(net.skip->cat({x, x}).as_quantized().q_zero_point() == 102);
  CHECK(net.skip->mul(x, x).as_quantized().q_zero_point() == 102);
  CHECK(net.skip->add_relu(x, x).to_int64_vector()[1] == 102);
  CHECK(net.skip->mul_scalar(x, 2.0).as_quantized().q_scale() == doctest::Approx(0.02));
  CHECK_THROWS_WITH_AS(net(randn({2})), doctest::Contains("QuantStub"), ArgumentError);
  CHECK_THROWS_AS(quantized::QFunctional::from_float(*net.skip.operator->()), ArgumentError);
  CHECK_THROWS_AS(net.skip(x), UnsupportedError);
}

}  // namespace
}  // namespace quanta::nn
