#include "quanta/fusion/accuracy/outliers.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "fusion/small_network.h"
#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/misc.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

nn::Sequential network() {
  nn::Sequential net(nn::QuantStub(), nn::Conv2d(3, 8, 3, {.padding = 1}), nn::ReLU(),
                     nn::Conv2d(8, 6, 3), nn::ReLU(), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                     nn::Linear(6, 5), nn::DeQuantStub());
  net.eval();
  fuse_modules(net, {{"1", "2"}, {"3", "4"}});
  return net;
}

Tensor image(std::uint64_t seed = 1) {
  Generator generator(seed);
  return randn({2, 3, 8, 8}, generator);
}

CalibrationData data_of(const Tensor& x) { return CalibrationData(std::vector<Tensor>{x, x}); }

TEST_CASE("Layers that take channels with outliers stay in float") {
  nn::Sequential net = network();
  // Channel 2 of what the second convolution takes is far larger than the others.
  std::vector<float> divisors(8, 1.0F);
  divisors[2] = 1e-3F;
  accuracy::divide_outputs(accuracy::weighted_layers(net)[0], divisors);
  std::vector<std::string> kept;
  const auto changed =
      keep_outliers_in_float(net, get_default_qconfig(), data_of(image()), {.kept = &kept});
  CHECK(kept == std::vector<std::string>{"3"});
  CHECK(test::same_state(changed.state_dict(), net.state_dict()));
  const auto module = changed.get_submodule("3");
  CHECK(module->has_qconfig_attribute());
  CHECK(module->qconfig() == nullptr);
  const std::vector<Tensor> data{image()};
  const auto int8 = quantize(changed, data[0], data, {.fuse = false});
  CHECK(int8.get_submodule("3")->type_name() == "ConvReLU2d");
  CHECK(int8.get_submodule("1")->type_name() == "QuantizedConvReLU2d");
  CHECK(int8(image()).defined());

  const auto none =
      keep_outliers_in_float(network(), get_default_qconfig(), data_of(image()), {.kept = &kept});
  CHECK(kept.empty());
  CHECK_FALSE(none.get_submodule("3")->has_qconfig_attribute());
  test::refuses({"keep_outliers_in_float: ratio", "got 0.5"}, [&] {
    keep_outliers_in_float(net, get_default_qconfig(), data_of(image()), {.ratio = 0.5});
  });
}

TEST_CASE("Outlier channels are split into two of half the weight") {
  nn::Sequential net(nn::Linear(2, 2), nn::ReLU(), nn::Linear(2, 2, false));
  net.eval();
  const auto layers = accuracy::weighted_layers(net);
  *layers[0].weight = Tensor::from_values({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2});
  *layers[0].bias = Tensor::from_values({0.5F, -1.0F});
  *layers[2 - 1].weight = Tensor::from_values({1.0F, -8.0F, 0.5F, 2.0F}, {2, 2});
  const Tensor x = Tensor::from_values({0.5F, -1.0F, 2.0F, 1.0F}, {2, 2});
  const auto split = split_outlier_channels(net, data_of(x), {.expand = 1.0});
  const StateDict state = split.state_dict();
  // Channel 1 twice: 8 becomes 4 and 4, and then the first 4 becomes 2 and 2.
  CHECK(state.at("2.weight").to_float_vector() ==
        std::vector<float>{1.0F, -2.0F, -4.0F, -2.0F, 0.5F, 0.5F, 1.0F, 0.5F});
  CHECK(state.at("0.weight").to_float_vector() ==
        std::vector<float>{1.0F, 2.0F, 3.0F, 4.0F, 3.0F, 4.0F, 3.0F, 4.0F});
  CHECK(state.at("0.bias").to_float_vector() == std::vector<float>{0.5F, -1.0F, -1.0F, -1.0F});
  CHECK(split(x).equal(net(x)));
}

TEST_CASE("A network with split channels calculates the same and is quantized as before") {
  const nn::Sequential net = network();
  auto split = split_outlier_channels(net, data_of(image()), {.expand = 0.2});
  test::check_close(split(image(4)), net(image(4)), 1e-5F);
  const auto before = accuracy::weighted_layers(const_cast<nn::Sequential&>(net));
  const auto after = accuracy::weighted_layers(split);
  REQUIRE(after.size() == 3);
  CHECK(after[0].out_channels() == 10);
  CHECK(accuracy::in_channels(after[1]) == 10);
  CHECK(accuracy::in_channels(after[2]) == 8);
  const auto largest = [](const accuracy::WeightedLayer& layer) {
    double most = 0.0;
    for (const float w : accuracy::largest_of_inputs(layer)) {
      most = std::max(most, static_cast<double>(w));
    }
    return most;
  };
  CHECK(largest(after[1]) < largest(before[1]));
  const std::vector<Tensor> data{image()};
  const auto int8 = quantize(split, data[0], data, {.fuse = false});
  CHECK(test::sqnr_db(net(image()), int8(image())) > 20.0);
}

TEST_CASE("Channels are split in graphs where nothing is reshaped to a fixed size") {
  Generator generator(6);
  const auto make = [&](bool fixed) {
    test::NetBuilder builder;
    const std::string x = builder.input("x");
    const auto conv = [&](const std::string& in, std::int64_t from, std::int64_t to) {
      return builder.node("Conv", {in, builder.constant(randn({to, from, 1, 1}, generator))});
    };
    std::string y = builder.node("Relu", {conv(x, 3, 4)});
    if (fixed) {
      const std::vector<std::int64_t> sizes{2, 4, 8, 8};
      y = builder.node("Reshape", {y, builder.constant(Tensor::from_int64(sizes))});
    }
    return graph::from_onnx(builder.finish({conv(y, 4, 5)}));
  };
  const graph::Model net = make(false);
  const graph::Model split = split_outlier_channels(net, data_of(image()));
  test::check_close(split(image(3)), net(image(3)), 1e-5F);
  const graph::Model fixed = make(true);
  test::fails({"split_outlier_channels: model: expected a network that runs"},
              [&] { split_outlier_channels(fixed, data_of(image())); });
}

TEST_CASE("Splitting refuses what it cannot split and changes nothing") {
  nn::Sequential net = network();
  const CalibrationData data = data_of(image());
  test::refuses({"expand", "got 0"}, [&] { split_outlier_channels(net, data, {.expand = 0.0}); });
  test::refuses({"split_outlier_channels: model"}, [&] {
    nn::Sequential alone(nn::Conv2d(3, 4, 1), nn::ReLU());
    split_outlier_channels(alone, data);
  });
  const StateDict before = net.state_dict();
  test::says(
      [&] {
        split_outlier_channels(net,
                               CalibrationData({Tensor::zeros({2, 7})}, [](const nn::Module&) {}));
      },
      "");
  CHECK(test::same_state(before, net.state_dict()));
  CHECK(accuracy_method("outlier-split").name == "outlier-split");
  CHECK(accuracy_method("outlier-float").name == "outlier-float");
}

}  // namespace
}  // namespace quanta
