#include "quanta/fusion/accuracy/bias_correction.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "fusion/small_network.h"
#include "quanta/fusion/accuracy/detail/channel_sums.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/misc.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using accuracy::WeightedLayer;

// 4 bits, one scale for a weight: {-8 .. 7}.
QConfig four_bits() {
  return {get_default_qconfig().activation,
          MinMaxObserver::with_args({.dtype = DType::QInt8,
                                     .qscheme = QScheme::PerTensorSymmetric,
                                     .quant_min = -8,
                                     .quant_max = 7})};
}

nn::Sequential network() {
  nn::Sequential net(nn::Conv2d(3, 8, 3, {.padding = 1, .bias = false}), nn::ReLU(),
                     nn::Conv2d(8, 8, 3, {.padding = 1, .groups = 8}), nn::ReLU(),
                     nn::Conv2d(8, 6, 1), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                     nn::Linear(6, 5));
  net.eval();
  return net;
}

CalibrationData images() {
  std::vector<Tensor> batches;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Generator generator(seed);
    batches.push_back(add_scalar(randn({4, 3, 8, 8}, generator), 0.5));
  }
  return CalibrationData(batches);
}

void round_weights(nn::Module& model, const QConfigMapping& qconfigs) {
  for (const WeightedLayer& layer : accuracy::weighted_layers(model, qconfigs)) {
    *layer.weight = accuracy::weight_grid(layer)->round(*layer.weight);
  }
}

// The largest difference of a channel's mean in any layer.
double largest_shift(nn::Module& model, nn::Module& reference, const CalibrationData& data) {
  double largest = 0.0;
  const auto sums_of = [&](nn::Module& of) {
    return accuracy::channel_sums(of, accuracy::weighted_layers(of), accuracy::Side::Outputs,
                                  data.run, "test");
  };
  const auto got = sums_of(model);
  const auto want = sums_of(reference);
  for (std::size_t i = 0; i < got.size(); ++i) {
    for (std::size_t c = 0; c < got[i].sum.size(); ++c) {
      largest = std::max(largest, std::abs(got[i].mean(c) - want[i].mean(c)));
    }
  }
  return largest;
}

TEST_CASE("Empirical bias correction gives the rounded network the float network's means") {
  nn::Sequential net = network();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data = images();
  nn::Sequential plain = nn::deep_copy(net);
  round_weights(plain, qconfigs);
  nn::Sequential corrected = bias_correction(net, qconfigs, data);
  for (const char* name : {"0.weight", "2.weight", "4.weight", "7.weight"}) {
    CHECK(corrected.state_dict().at(name).equal(net.state_dict().at(name)));
  }
  CHECK(corrected.state_dict().contains("0.bias"));
  CHECK_FALSE(net.state_dict().contains("0.bias"));
  round_weights(corrected, qconfigs);
  CHECK(largest_shift(plain, net, data) > 1e-3);
  CHECK(largest_shift(corrected, net, data) < 1e-5);
}

TEST_CASE("Analytic bias correction takes off the rounding error times the mean input") {
  // scale = 7 / 7.5: {7, 2} -> codes {7 (of 7.5), 2}; the mean of x is {0.5, 2}.
  nn::Sequential net(nn::Linear(2, 1), nn::Identity());
  net.eval();
  const auto layer = accuracy::weighted_layers(net)[0];
  *layer.weight = Tensor::from_values({7.5F, 2.2F}, {1, 2});
  *layer.bias = Tensor::from_values({1.0F});
  const Tensor x = Tensor::from_values({0.0F, 1.0F, 1.0F, 3.0F}, {2, 2});
  const auto corrected =
      bias_correction(net, QConfigMapping(four_bits()), CalibrationData(std::vector<Tensor>{x}),
                      {.error = BiasError::Analytic});
  // W' = {7, 2}: 1 - (-0.5 * 0.5 + -0.2 * 2) = 1.65.
  CHECK(corrected.state_dict().at("0.bias").to_float_vector()[0] == doctest::Approx(1.65));
}

TEST_CASE("Analytic bias correction knows the mean of a clipped normal variable") {
  const double beta = 0.5;
  const double gamma = 2.0;
  Generator generator(5);
  const Tensor normal = add_scalar(mul_scalar(randn({1 << 18}, generator), gamma), beta);
  const BatchNormStatistics statistics{
      {{"0", {{static_cast<float>(beta)}, {static_cast<float>(gamma)}}}}};
  const auto correction = [&](const std::shared_ptr<nn::Module>& activation) {
    nn::Sequential net;
    net.push_back(nn::Linear(1, 1)).push_back(activation).push_back(nn::Linear(1, 2, false));
    net.eval();
    const auto layers = accuracy::weighted_layers(net);
    *layers[1].weight = Tensor::from_values({7.5F, 2.25F}, {2, 1});  // W' - W = {-0.5, -0.25}
    const CalibrationData data(std::vector<Tensor>{Tensor::ones({1, 1})});
    const auto corrected =
        bias_correction(net, QConfigMapping(four_bits()), data,
                        {.error = BiasError::Analytic, .statistics = statistics});
    const std::vector<float> bias = corrected.state_dict().at("2.bias").to_float_vector();
    CHECK(bias[1] == doctest::Approx(bias[0] / 2));
    return static_cast<double>(bias[0]);
  };
  CHECK(correction(nn::make_module<nn::Identity>()) == doctest::Approx(0.5 * beta));
  CHECK(correction(nn::make_module<nn::ReLU>()) ==
        doctest::Approx(0.5 * relu(normal).mean().item()).epsilon(0.01));
  CHECK(correction(nn::make_module<nn::ReLU6>()) ==
        doctest::Approx(0.5 * relu6(normal).mean().item()).epsilon(0.01));
}

TEST_CASE("Bias correction can round activations and works on graphs") {
  Generator generator(6);
  test::NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string a = builder.node(
      "Relu", {builder.node("Conv", {x, builder.constant(randn({6, 3, 3, 3}, generator))})});
  const std::string y = builder.node("Conv", {a, builder.constant(randn({4, 6, 3, 3}, generator)),
                                              builder.constant(randn({4}, generator))});
  graph::Model net = graph::from_onnx(builder.finish({y}));
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data = images();
  graph::Model corrected = bias_correction(net, qconfigs, data);
  const graph::Model rounding =
      bias_correction(net, qconfigs, data, {.quantize_activations = true});
  CHECK_FALSE(test::same_state(rounding.state_dict(), corrected.state_dict()));
  CHECK(rounding.node_modules()[0]->named_observers().empty());
  graph::Model plain = nn::deep_copy(net);
  round_weights(plain, qconfigs);
  round_weights(corrected, qconfigs);
  CHECK(largest_shift(corrected, net, data) < 1e-4);
  CHECK(largest_shift(plain, net, data) > 1e-2);
}

TEST_CASE("Bias correction brings an int8 network closer to the float one") {
  test::SmallNetwork net;
  fuse_modules(net, test::small_network_groups());
  std::vector<Tensor> batches;
  for (std::uint64_t seed = 0; seed < 4; ++seed) batches.push_back(test::small_input(seed, 16));
  const CalibrationData data(batches);
  const QuantizeOptions options{.qconfigs = QConfigMapping(four_bits()), .fuse = false};
  const auto plain = quantize(net, batches[0], batches, options);
  const auto with_activations =
      bias_correction(net, options.qconfigs, data, {.quantize_activations = true});
  const auto corrected = quantize(with_activations, batches[0], batches, options);
  const Tensor x = test::small_input(77, 64);
  CHECK(test::sqnr_db(net(x), corrected(x)) > test::sqnr_db(net(x), plain(x)) + 2.0);
}

TEST_CASE("Bias correction refuses what it cannot correct and changes nothing") {
  nn::Sequential net = network();
  const CalibrationData data = images();
  const StateDict before = net.state_dict();
  test::refuses({"bias_correction: qconfigs", "got none"},
                [&] { bias_correction(net, QConfigMapping(), data); });
  test::refuses({"bias-correction: data.run"},
                [&] { bias_correction(net, four_bits(), CalibrationData()); });
  test::refuses({"bias_correction: statistics: expected 8 channels for '0', got 1"}, [&] {
    bias_correction(net, four_bits(), data,
                    {.error = BiasError::Analytic, .statistics = {{{"0", {{1.0F}, {1.0F}}}}}});
  });
  const CalibrationData failing(
      {data.example}, [](const nn::Module&) { throw ArgumentError("the data is broken"); });
  test::says([&] { bias_correction(net, four_bits(), failing); }, "the data is broken");
  accuracy::weighted_layers(net)[1].weight->fill_(NAN);
  test::says([&] { bias_correction(net, four_bits(), data); }, "");
  CHECK(net.get_submodule("0")->is_plain_call());
  CHECK(before.at("0.weight").equal(net.state_dict().at("0.weight")));
}

}  // namespace
}  // namespace quanta
