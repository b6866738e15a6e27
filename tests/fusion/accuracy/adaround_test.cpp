#include "quanta/fusion/accuracy/adaround.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "fusion/accuracy/small_networks.h"
#include "quanta/fusion/accuracy/detail/following_activation.h"
#include "quanta/fusion/accuracy/detail/soft_rounding.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using accuracy::SoftRounding;
using accuracy::WeightedLayer;
using test::four_bits;

const AdaRoundOptions kQuick{.iterations = 300, .batch_size = 64, .learning_rate = 0.05};

// How far the layers' weights are from the float ones, in steps of the grid, and that they lie on it.
void check_up_or_down(nn::Module& rounded, nn::Module& source, const QConfigMapping& qconfigs) {
  const auto layers = accuracy::weighted_layers(rounded);
  const auto sources = accuracy::weighted_layers(source, qconfigs);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CAPTURE(layers[i].path);
    const auto grid = accuracy::weight_grid(sources[i]);
    REQUIRE(grid.has_value());
    CHECK(test::largest_difference(grid->round(*layers[i].weight), *layers[i].weight) == 0.0);
    const Tensor scale = grid->scale_for(layers[i].weight->dim());
    const Tensor steps = (*layers[i].weight - *sources[i].weight) / scale;
    const std::vector<float> values = steps.to_float_vector();
    bool is_neighbour = true;
    for (const float value : values) is_neighbour = is_neighbour && std::abs(value) < 1.0001F;
    CHECK(is_neighbour);
  }
}

TEST_CASE("adaround: each weight becomes one of its two neighbours and errors get smaller") {
  test::SmallNetwork net = test::fused_network();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data(test::batches(1));
  test::SmallNetwork rounded = adaround(net, qconfigs, data, kQuick);
  check_up_or_down(rounded, net, qconfigs);

  test::SmallNetwork nearest = nn::deep_copy(net);
  for (const WeightedLayer& layer : accuracy::weighted_layers(nearest, qconfigs)) {
    *layer.weight = accuracy::weight_grid(layer)->round(*layer.weight);
  }
  double before = 0.0;
  double after = 0.0;
  for (const Tensor& x : test::batches(9)) {  // other data than what it was fitted on
    before += test::mean_square(nearest(x) - net(x));
    after += test::mean_square(rounded(x) - net(x));
  }
  CHECK(after < 0.6 * before);
}

TEST_CASE("adaround: int8 networks have the codes that it chose") {
  const test::SmallNetwork net = test::fused_network();
  const QConfigMapping qconfigs(four_bits());
  const std::vector<Tensor> batches = test::batches(1);
  test::SmallNetwork rounded = adaround(net, qconfigs, CalibrationData(batches), kQuick);
  const auto int8 = quantize(rounded, batches[0], batches, {.qconfigs = qconfigs, .fuse = false});
  const auto module = int8.get_submodule("fc");
  const auto& linear = dynamic_cast<const nn::quantized::Linear&>(*module);
  CHECK(dequantize(linear.weight()).equal(rounded.fc->weight));
}

TEST_CASE("adaround: a graph gets the weights that the same network as a class gets") {
  const test::SmallNetwork net = test::fused_network();
  graph::Model graph = test::graph_of(net);
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data(test::batches(1));
  test::SmallNetwork rounded = adaround(net, qconfigs, data, kQuick);
  graph::Model rounded_graph = adaround(graph, qconfigs, data, kQuick);
  const auto layers = accuracy::weighted_layers(rounded);
  const auto nodes = accuracy::weighted_layers(rounded_graph);
  REQUIRE(layers.size() == nodes.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CHECK(test::largest_difference(*layers[i].weight, *nodes[i].weight) == 0.0);
  }
}

TEST_CASE("adaround: errors are measured behind the activation that follows") {
  test::SmallNetwork net = test::fused_network();
  graph::Model graph = test::graph_of(net);
  const std::vector<Tensor> example{test::batches(1)[0]};
  const auto eager = accuracy::following_activations(net, accuracy::weighted_layers(net), example);
  REQUIRE(eager.size() == 1);
  CHECK(eager.begin()->first == "conv1");
  CHECK(eager.begin()->second->name() == "relu");
  const auto nodes =
      accuracy::following_activations(graph, accuracy::weighted_layers(graph), example);
  REQUIRE(nodes.size() == 1);
  CHECK(nodes.begin()->second->name() == "relu");
  // What a ReLU cuts off does not count: other weights come out.
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data(test::batches(1));
  AdaRoundOptions before = kQuick;
  before.after_activation = false;
  CHECK_FALSE(adaround(net, qconfigs, data, before)
                  .state_dict()
                  .at("conv1.0.weight")
                  .equal(adaround(net, qconfigs, data, kQuick).state_dict().at("conv1.0.weight")));
}

TEST_CASE("adaround: inputs of the float network and other seeds give other weights") {
  manual_seed(2);
  const test::SmallNetwork net = test::fused_network();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data(test::batches(1));
  const Tensor usual = adaround(net, qconfigs, data, kQuick).fc->weight;
  CHECK(adaround(net, qconfigs, data, kQuick).fc->weight.equal(usual));
  AdaRoundOptions other = kQuick;
  other.inputs = AdaRoundOptions::Inputs::Float;
  CHECK_FALSE(adaround(net, qconfigs, data, other).fc->weight.equal(usual));
  other = kQuick;
  other.seed = 1;
  CHECK_FALSE(adaround(net, qconfigs, data, other).fc->weight.equal(usual));
}

TEST_CASE("adaround: layers without integer weights stay as they are") {
  const test::SmallNetwork net = test::fused_network();
  QConfigMapping qconfigs(four_bits());
  qconfigs.set_module_name("fc", std::nullopt);
  std::vector<std::string> told;
  CalibrationData data(test::batches(1));
  data.progress = [&](std::string_view what, std::size_t done, std::size_t total) {
    told.push_back(std::string(what) + " " + std::to_string(done) + "/" + std::to_string(total));
  };
  const test::SmallNetwork rounded = adaround(net, qconfigs, data, kQuick);
  CHECK(rounded.fc->weight.equal(net.fc->weight));
  CHECK_FALSE(rounded.get_submodule("fc")->has_qconfig_attribute());
  CHECK(told == std::vector<std::string>{"adaround: conv1 1/2", "adaround: conv2 2/2"});
}

TEST_CASE("adaround: wrong arguments are refused by name") {
  const test::SmallNetwork net = test::fused_network();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data(test::batches(1));
  CHECK_THROWS_WITH_AS(adaround(net, qconfigs, CalibrationData()),
                       doctest::Contains("adaround: data.run"), ArgumentError);
  CHECK_THROWS_WITH_AS(adaround(net, QConfigMapping(), data),
                       doctest::Contains("adaround: qconfigs: expected one with integer weights"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(adaround(net, QConfigMapping(float16_static_qconfig()), data),
                       doctest::Contains("expected an observer with integer codes"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(adaround_method({.iterations = 0}),
                       doctest::Contains("iterations: expected at least 1, got 0"), ArgumentError);
  CHECK_THROWS_WITH_AS(adaround_method({.learning_rate = -1}), doctest::Contains("learning_rate"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(adaround_method({.warm_start = 1.5}), doctest::Contains("warm_start"),
                       ArgumentError);
  std::vector<Tensor> bad = test::batches(1);
  bad[1].fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK_THROWS_WITH_AS(adaround(net, qconfigs, CalibrationData(bad), kQuick),
                       doctest::Contains("expected finite numbers"), ArgumentError);
  test::SmallNetwork broken = nn::deep_copy(net);
  broken.fc->weight.fill_(std::numeric_limits<double>::infinity());
  CHECK_THROWS_WITH_AS(adaround(broken, qconfigs, data, kQuick),
                       doctest::Contains("'fc': expected a weight of finite numbers"),
                       ArgumentError);
  CHECK(accuracy_method("adaround").name == "adaround");
}

TEST_CASE("SoftRounding: starts at the float weight and at nearest rounding") {
  test::SmallNetwork net = test::fused_network();
  const WeightedLayer layer = accuracy::weighted_layers(net, QConfigMapping(four_bits()))[1];
  const auto grid = accuracy::weight_grid(layer);
  const SoftRounding rounding(*layer.weight, *grid);
  // Within the codes: the largest weight of a channel is half a step beyond them.
  const Tensor nearest = grid->round(*layer.weight);
  const double half_step = 0.5 * grid->scale_for(4).max().item();
  CHECK(test::largest_difference(rounding.soft(), *layer.weight) <= half_step + 1e-6);
  // Halves may go either way.
  CHECK(test::largest_difference((rounding.hard() - *layer.weight).abs(),
                                 (nearest - *layer.weight).abs()) < 1e-6);
}

TEST_CASE("SoftRounding: the slope is that of finite differences") {
  // One weight 0.3 steps above code 2: w = 2.3. Adam's first step is the sign of the slope times
  // the learning rate, whatever its size.
  const accuracy::WeightGrid grid{
      .qparams = {Tensor::from_values({1.0F}), Tensor::from_int64(std::vector<std::int64_t>{0})},
      .axis = {},
      .quant_min = -8,
      .quant_max = 7,
      .keep = {}};
  const Tensor w = Tensor::from_values({2.3F});
  const auto after = [&](float gradient, double regularization) {
    SoftRounding rounding(w, grid);
    rounding.step(Tensor::from_values({gradient}),
                  {.learning_rate = 0.1, .regularization = regularization, .beta = 2.0});
    return rounding.soft().item();
  };
  CHECK(after(1.0F, 0.0) < 2.3);
  CHECK(after(-1.0F, 0.0) > 2.3);
  // The regularizer alone pulls to the nearer end; d/dh of -(2h - 1)^2 at h = 0.3 is 1.6.
  CHECK(after(0.0F, 1.0) < 2.3);
  CHECK(after(-1.5F, 1.0) < 2.3);
  CHECK(after(-1.7F, 1.0) > 2.3);
}

TEST_CASE("rounding_step: beta falls from 20 to 2 after the warm start") {
  CHECK(accuracy::rounding_step(0.1, 0.2, 0.01, 0.5).regularization == 0.0);
  CHECK(accuracy::rounding_step(0.2, 0.2, 0.01, 0.5).beta == doctest::Approx(20.0));
  CHECK(accuracy::rounding_step(0.6, 0.2, 0.01, 0.5).beta == doctest::Approx(11.0));
  CHECK(accuracy::rounding_step(1.0, 0.2, 0.01, 0.5).beta == doctest::Approx(2.0));
  CHECK(accuracy::rounding_step(1.0, 0.2, 0.01, 0.5).regularization == 0.5);
}

}  // namespace
}  // namespace quanta
