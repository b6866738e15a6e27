#include "quanta/fusion/compare_layers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/small_network.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/container.h"
#include "quanta/observers/format_qconfig.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::fused_network;
using test::int8_of;
using test::small_input;
using test::SmallNetwork;

std::vector<std::string> paths(const std::vector<LayerComparison>& layers) {
  std::vector<std::string> result;
  for (const LayerComparison& layer : layers) result.push_back(layer.path);
  return result;
}

}  // namespace

TEST_CASE("compare_layers: a row for each int8 layer in the order of execution") {
  const SmallNetwork net = fused_network();
  const SmallNetwork int8 = int8_of(net);
  const Tensor x = small_input(7);
  const Tensor want = net(x), got = int8(x);
  const std::vector<LayerComparison> layers = compare_layers(net, int8, {x});

  CHECK(paths(layers) ==
        std::vector<std::string>{"quant", "conv1", "conv2", "skip", "fc", "dequant"});
  const LayerComparison& conv = layers[1];
  CHECK(conv.float_type == "ConvReLU2d");
  CHECK(conv.type == "QuantizedConvReLU2d");
  const Tensor codes = int8.conv1(int8.quant(x));
  REQUIRE(conv.scale.has_value());
  CHECK(*conv.scale == codes.impl()->quantizer.scale);
  CHECK(*conv.zero_point == codes.impl()->quantizer.zero_point);
  CHECK(conv.sqnr == doctest::Approx(sqnr(net.conv1(net.quant(x)), codes)));
  CHECK_FALSE(layers.back().scale.has_value());
  CHECK(layers.back().sqnr == doctest::Approx(sqnr(want, got)));
  for (const LayerComparison& layer : layers) {
    CHECK(layer.sqnr > 15.0);
    CHECK(layer.sqnr < 80.0);
  }
  // Neither model is another one afterwards.
  CHECK(net(x).equal(want));
  CHECK(int8(x).equal(got));
  CHECK(net.get_submodule("conv1")->activation_post_process() == nullptr);
}

TEST_CASE("compare_layers: the sums of several inputs are those of one batch") {
  const SmallNetwork net = fused_network();
  const SmallNetwork int8 = int8_of(net);
  const Tensor x = small_input(8);
  const auto whole = compare_layers(net, int8, {x});
  const auto parts =
      compare_layers(net, int8, {x.slice(0, 0, 1).contiguous(), x.slice(0, 1, 4).contiguous()});
  REQUIRE(paths(parts) == paths(whole));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(parts[i].sqnr == doctest::Approx(whole[i].sqnr).epsilon(0.01));
  }
}

TEST_CASE("compare_layers: simulated formats and dynamic layers") {
  const SmallNetwork net = fused_network();
  const Tensor x = small_input(9);
  const SmallNetwork simulated = simulate_quantization(net, qconfig_for_format("fp8"),
                                                       [&](const nn::Module& model) { model(x); });
  const auto in_format = compare_layers(net, simulated, {x});
  REQUIRE(in_format.size() >= 4);
  for (const LayerComparison& layer : in_format) CHECK_FALSE(layer.scale.has_value());

  const SmallNetwork dynamic = quantize_dynamic(net);
  const auto layers = compare_layers(net, dynamic, {x});
  REQUIRE(paths(layers) == std::vector<std::string>{"fc"});
  CHECK_FALSE(layers[0].scale.has_value());
  CHECK(layers[0].sqnr > 25.0);
}

TEST_CASE("compare_layers: a model beside itself has nothing to compare") {
  const SmallNetwork net = fused_network();
  CHECK(compare_layers(net, net, {small_input(1)}).empty());
}

TEST_CASE("compare_layers: models that do not go together are refused") {
  const SmallNetwork net = fused_network();
  const SmallNetwork int8 = int8_of(net);
  CHECK_THROWS_WITH_AS(compare_layers(SmallNetwork(), int8, {small_input(1)}),
                       doctest::Contains("got a BatchNorm2d at bn1"), ArgumentError);
  CHECK_THROWS_WITH_AS(compare_layers(net, int8, {}),
                       doctest::Contains("inputs: expected at least one tensor"), ArgumentError);
}

TEST_CASE("compare_layers: the table has a line for each layer") {
  const std::vector<LayerComparison> layers{{"conv1", "Conv2d", "QuantizedConv2d", 0.25, 3, 31.25},
                                            {"fc", "Linear", "Linear", {}, {}, 9.0}};
  CHECK(to_string(layers) ==
        "layer  type                    scale  zero point  SQNR dB\n"
        "conv1  QuantizedConv2d          0.25           3     31.2\n"
        "fc     Linear                      -           -      9.0\n");
}

}  // namespace quanta
