#include "quanta/fusion/accuracy/cross_layer_equalization.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fusion/accuracy/small_networks.h"
#include "fusion/graph/net_builder.h"
#include "fusion/small_network.h"
#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/find_fusion_groups.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/stubs.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"
#include "support/paths.h"

namespace quanta {
namespace {

using accuracy::WeightedLayer;

// Channels whose ranges differ by orders of magnitude, as in MobileNets.
void spread_channels(nn::Module& model, std::uint64_t seed) {
  Generator generator(seed);
  for (const WeightedLayer& layer : accuracy::weighted_layers(model)) {
    std::vector<float> divisors;
    for (std::int64_t c = 0; c < layer.out_channels(); ++c) {
      divisors.push_back(std::exp(4.0F * (generator.uniform() - 0.5F)));
    }
    accuracy::divide_outputs(layer, divisors);
  }
}

// Convolution, depthwise convolution, convolution; pool, flatten, linear.
nn::Sequential chain_network() {
  nn::Sequential net(nn::Conv2d(3, 8, 3, {.padding = 1}), nn::ReLU(),
                     nn::Conv2d(8, 8, 3, {.padding = 1, .groups = 8}), nn::LeakyReLU(),
                     nn::Conv2d(8, 6, 1), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                     nn::Linear(6 * 4 * 4, 5));
  net.eval();
  spread_channels(net, 3);
  return net;
}

Tensor image(std::uint64_t seed = 1) {
  Generator generator(seed);
  return randn({2, 3, 8, 8}, generator);
}

CalibrationData data_of(const Tensor& x) { return CalibrationData(std::vector<Tensor>{x, x}); }

TEST_CASE("Cross-layer equalization gives two layers the scales of the paper") {
  // r1 = {4, 0.25}, r2 = {1, 1}: s = {2, 0.5}.
  nn::Sequential net(nn::Linear(2, 2), nn::ReLU(), nn::Linear(2, 1));
  net.eval();
  const auto layers = accuracy::weighted_layers(net);
  *layers[0].weight = Tensor::from_values({4.0F, -1.0F, 0.125F, 0.25F}, {2, 2});
  *layers[0].bias = Tensor::from_values({1.0F, -2.0F});
  *layers[1].weight = Tensor::from_values({-1.0F, 1.0F}, {1, 2});
  const Tensor x = Tensor::from_values({0.5F, -1.0F}, {1, 2});
  const auto equal = cross_layer_equalization(net, data_of(x), {.max_iterations = 1});
  auto state = equal.state_dict();
  CHECK(state.at("0.weight").to_float_vector() == std::vector<float>{2.0F, -0.5F, 0.25F, 0.5F});
  CHECK(state.at("0.bias").to_float_vector() == std::vector<float>{0.5F, -4.0F});
  CHECK(state.at("2.weight").to_float_vector() == std::vector<float>{-2.0F, 0.5F});
  test::check_same_results(equal, net, x);
}

TEST_CASE("Cross-layer equalization keeps what a network calculates and levels its channels") {
  const nn::Sequential net = chain_network();
  auto equal = cross_layer_equalization(net, data_of(image()), {.max_iterations = 100});
  test::check_same_results(equal, net, image(9));
  const auto layers = accuracy::weighted_layers(equal);
  REQUIRE(layers.size() == 4);
  const std::vector<float> r1 = accuracy::largest_of_outputs(layers[0]);
  const std::vector<float> r2 = accuracy::largest_of_outputs(layers[1]);
  const std::vector<float> r3 = accuracy::largest_of_inputs(layers[2]);
  for (std::size_t c = 0; c < r1.size(); ++c) {
    CHECK(r1[c] == doctest::Approx(r2[c]).epsilon(0.01));
    CHECK(r2[c] == doctest::Approx(r3[c]).epsilon(0.01));
  }
  // The linear layer takes each channel 16 times.
  const std::vector<float> out = accuracy::largest_of_outputs(layers[2]);
  const std::vector<float> in = accuracy::largest_of_inputs(layers[3]);
  for (std::size_t c = 0; c < out.size(); ++c) {
    float most = 0.0F;
    for (std::size_t i = 0; i < 16; ++i) most = std::max(most, in[c * 16 + i]);
    CHECK(out[c] == doctest::Approx(most).epsilon(0.01));
  }
}

TEST_CASE("Cross-layer equalization and high bias absorption give the weights that AIMET gives") {
  const StateDict golden =
      read_safetensors(test::golden_cases() / "aimet" / "cross_layer_equalization.safetensors");
  nn::Sequential net(nn::Conv2d(3, 8, 3, {.padding = 1}), nn::ReLU(),
                     nn::Conv2d(8, 8, 3, {.padding = 1, .groups = 8}), nn::ReLU(),
                     nn::Conv2d(8, 12, 1), nn::ReLU(), nn::Conv2d(12, 6, 3, {.padding = 1}));
  net.eval();
  BatchNormStatistics statistics;
  const auto name = [](std::size_t i) { return "conv" + std::to_string(i + 1); };
  const auto layers = accuracy::weighted_layers(net);
  for (std::size_t i = 0; i < 4; ++i) {
    *layers[i].weight = golden.at("folded." + name(i) + ".weight").clone();
    *layers[i].bias = golden.at("folded." + name(i) + ".bias").clone();
    statistics.layers[layers[i].path] = {golden.at("beta." + name(i)).to_float_vector(),
                                         golden.at("gamma." + name(i)).to_float_vector()};
  }
  const auto check = [&](nn::Sequential& got, const std::string& kind) {
    const auto found = accuracy::weighted_layers(got);
    for (std::size_t i = 0; i < 4; ++i) {
      CAPTURE(kind + "." + name(i));
      test::check_close(*found[i].weight, golden.at(kind + "." + name(i) + ".weight"), 1e-5F);
      test::check_close(*found[i].bias, golden.at(kind + "." + name(i) + ".bias"), 1e-5F);
    }
  };
  const CalibrationData data = data_of(image());
  auto scaled =
      cross_layer_equalization(net, data, {.max_iterations = 1, .statistics = &statistics});
  check(scaled, "scaled");
  auto absorbed = absorb_high_biases(scaled, data, {.statistics = statistics});
  check(absorbed, "absorbed");
  CHECK_FALSE(absorbed.state_dict().at("2.bias").equal(scaled.state_dict().at("2.bias")));
}

TEST_CASE("High bias absorption moves what never falls below zero behind the ReLU") {
  // beta - 3 gamma = 5 - 3 = 2 for the first channel and below 0 for the second.
  nn::Sequential net(nn::Linear(1, 2), nn::ReLU(), nn::Linear(2, 1, false));
  net.eval();
  const auto layers = accuracy::weighted_layers(net);
  *layers[0].weight = Tensor::from_values({1.0F, 1.0F}, {2, 1});
  *layers[0].bias = Tensor::from_values({5.0F, 0.0F});
  *layers[1].weight = Tensor::from_values({3.0F, 7.0F}, {1, 2});
  const BatchNormStatistics statistics{{{"0", {{5.0F, 0.0F}, {1.0F, 1.0F}}}}};
  const Tensor x = Tensor::from_values({-1.0F, 0.0F, 2.0F}, {3, 1});
  const auto absorbed = absorb_high_biases(net, data_of(x), {.statistics = statistics});
  auto state = absorbed.state_dict();
  CHECK(state.at("0.bias").to_float_vector() == std::vector<float>{3.0F, 0.0F});
  CHECK(state.at("2.bias").to_float_vector() == std::vector<float>{6.0F});
  test::check_same_results(absorbed, net, x);
  // Measured: mean 5.3333, deviation 1.2472; nothing is known to be above 0 by more than that.
  const auto measured = absorb_high_biases(net, data_of(x));
  CHECK(measured.state_dict().at("0.bias").to_float_vector()[0] ==
        doctest::Approx(5.0 - (16.0 / 3 - 3 * std::sqrt(14.0) / 3)).epsilon(1e-4));
  CHECK_THROWS_WITH_AS(
      absorb_high_biases(net, data_of(x), {.statistics = {{{"0", {{1.0F}, {1.0F}}}}}}),
      doctest::Contains("absorb_high_biases: statistics: expected 2 channels"), ArgumentError);
}

TEST_CASE("Batch norm statistics are found under the layers that the norms are folded into") {
  test::SmallNetwork net;
  const BatchNormStatistics statistics = batch_norm_statistics(net, test::small_network_groups());
  REQUIRE(statistics.layers.size() == 2);
  CHECK(statistics.layers.at("conv1").mean == net.bn1->bias.to_float_vector());
  CHECK(statistics.layers.at("conv2").deviation == net.bn2->weight.to_float_vector());
}

TEST_CASE("Cross-layer equalization leaves what is added to something else") {
  test::SmallNetwork net;
  fuse_modules(net, test::small_network_groups());
  // conv1 goes into conv2 and the sum; conv2 into the sum: no pair.
  CHECK_THROWS_WITH_AS(
      cross_layer_equalization(net, CalibrationData(std::vector<Tensor>{test::small_input(1)})),
      doctest::Contains("what 'conv2' gives is taken by add"), ArgumentError);
}

TEST_CASE("Cross-layer equalization turns a ReLU6 between layers into a fused ReLU") {
  nn::models::FashionMobileNet net;
  net.eval();
  fuse_modules(net, fusion_groups(net));
  // Small enough that no ReLU6 cuts.
  for (const WeightedLayer& layer : accuracy::weighted_layers(net)) {
    *layer.weight = mul_scalar(*layer.weight, 0.7);
  }
  spread_channels(net, 4);
  for (const WeightedLayer& layer : accuracy::weighted_layers(net)) {
    if (layer.path != "fc") *layer.weight = mul_scalar(*layer.weight, 0.2);
  }
  Generator generator(5);
  const Tensor x = randn({2, 1, 28, 28}, generator);
  const CalibrationData data = data_of(x);
  const auto equal = cross_layer_equalization(net, data);
  CHECK(equal.get_submodule("blocks.0.expand")->type_name() == "ConvReLU2d");
  CHECK(equal.get_submodule("blocks.0.relu1")->type_name() == "Identity");
  CHECK(net.get_submodule("blocks.0.relu1")->type_name() == "ReLU6");
  test::check_same_results(equal, net, x);
  CHECK_THROWS_WITH_AS(cross_layer_equalization(net, data, {.replace_relu6 = false}),
                       doctest::Contains("a layer behind a ReLU6"), ArgumentError);
  const auto int8 = quantize(equal, x, std::vector<Tensor>{x}, {.fuse = false});
  CHECK(test::sqnr_db(net(x), int8(x)) > 15.0);
}

TEST_CASE("Cross-layer equalization works on graphs and changes a Clip to a Relu there") {
  Generator generator(6);
  test::NetBuilder builder;
  const std::string x = builder.input("x");
  const auto conv = [&](const std::string& in, std::int64_t out_channels,
                        std::int64_t in_channels) {
    return builder.node("Conv",
                        {in, builder.constant(randn({out_channels, in_channels, 3, 3}, generator)),
                         builder.constant(randn({out_channels}, generator))});
  };
  const std::string a = builder.node("Relu", {conv(x, 6, 3)});
  const std::string b = builder.node("Clip", {conv(a, 5, 6), builder.constant(Tensor::scalar(0.0)),
                                              builder.constant(Tensor::scalar(6.0))});
  const std::string c = builder.node("GlobalAveragePool", {conv(b, 4, 5)});
  const std::string d = builder.node("Flatten", {c});
  const std::string y = builder.node("Gemm", {d, builder.constant(randn({3, 4}, generator))},
                                     {{"transB", std::int64_t{1}}});
  graph::Model net = graph::from_onnx(builder.finish({y}));
  for (const WeightedLayer& layer : accuracy::weighted_layers(net)) {
    *layer.weight = mul_scalar(*layer.weight, 0.05);
  }
  spread_channels(net, 8);
  for (const WeightedLayer& layer : accuracy::weighted_layers(net)) {
    *layer.weight = mul_scalar(*layer.weight, 0.3);
  }
  const graph::Model equal =
      cross_layer_equalization(net, data_of(image()), {.max_iterations = 100});
  test::check_same_results(equal, net, image(4));
  const auto has = [](const graph::Model& model, const std::string& op) {
    return std::ranges::any_of(model.graph().nodes,
                               [&](const graph::Node& node) { return node.op == op; });
  };
  CHECK(has(net, "Clip"));
  CHECK_FALSE(has(equal, "Clip"));
  graph::Model copy = equal;
  const auto layers = accuracy::weighted_layers(copy);
  REQUIRE(layers.size() == 4);
  const std::vector<float> r1 = accuracy::largest_of_outputs(layers[1]);
  const std::vector<float> r2 = accuracy::largest_of_inputs(layers[2]);
  for (std::size_t i = 0; i < r1.size(); ++i) {
    CHECK(r1[i] == doctest::Approx(r2[i]).epsilon(0.01));
  }
  const std::vector<float> r3 = accuracy::largest_of_inputs(layers[3]);
  CHECK(accuracy::largest_of_outputs(layers[2])[0] == doctest::Approx(r3[0]).epsilon(0.01));
}

TEST_CASE("Cross-layer equalization refuses what it cannot equalize and changes nothing") {
  const nn::Sequential net = chain_network();
  const CalibrationData data = data_of(image());
  test::refuses({"max_iterations", "got 0"},
                [&] { cross_layer_equalization(net, data, {.max_iterations = 0}); });
  test::refuses({"tolerance"}, [&] { cross_layer_equalization(net, data, {.tolerance = NAN}); });
  test::refuses({"data.example"}, [&] { cross_layer_equalization(net, CalibrationData()); });
  nn::Sequential broken = chain_network();
  accuracy::weighted_layers(broken)[1].weight->fill_(NAN);
  test::refuses({"cross_layer_equalization: model: '2'", "finite"},
                [&] { cross_layer_equalization(broken, data); });
  test::refuses({"'2'", "finite"}, [&] { absorb_high_biases(broken, data); });
  const CalibrationData failing(
      {image()}, [](const nn::Module&) { throw ArgumentError("the data is broken"); });
  const StateDict before = net.state_dict();
  test::says([&] { absorb_high_biases(net, failing); }, "the data is broken");
  CHECK(test::same_state(before, net.state_dict()));
  CHECK(net.get_submodule("0")->is_plain_call());
}

TEST_CASE("The methods cle and bias-absorption have names") {
  const nn::Sequential net = chain_network();
  const std::vector<AccuracyMethod> methods{accuracy_method("cle"),
                                            accuracy_method("bias-absorption")};
  CHECK(methods[0].name == "cle");
  const auto changed = apply_methods(net, methods, get_default_qconfig(), data_of(image()));
  CHECK_FALSE(test::same_state(changed.state_dict(), net.state_dict()));
}

TEST_CASE("A network whose ReLU6 was replaced is quantized in one call, fused once") {
  manual_seed(4);
  nn::Sequential net(nn::make_module<nn::QuantStub>(), nn::make_module<nn::Conv2d>(3, 4, Dims{3}),
                     nn::make_module<nn::ReLU6>(), nn::make_module<nn::Conv2d>(4, 4, Dims{3}),
                     nn::make_module<nn::DeQuantStub>());
  net.eval();
  const Tensor x = image();
  const auto equalized = cross_layer_equalization(net, data_of(x));
  CHECK(find_fusion_groups(equalized, x).empty());
  const std::vector<Tensor> data{x};
  const auto int8 = quantize(equalized, x, data, {});
  CHECK(test::sqnr_db(equalized(x), int8(x)) > 25.0);
}

}  // namespace
}  // namespace quanta
