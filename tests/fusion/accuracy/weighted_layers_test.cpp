#include "quanta/fusion/accuracy/detail/weighted_layers.h"

#include <doctest/doctest.h>

#include "fusion/small_network.h"
#include "quanta/fusion/accuracy/detail/layer_data.h"
#include "quanta/fusion/accuracy/method.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using accuracy::WeightedLayer;

test::SmallNetwork fused_network() {
  test::SmallNetwork net;
  fuse_modules(net, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
  return net;
}

QConfig four_bits() {
  return {get_default_qconfig().activation,
          PerChannelMinMaxObserver::with_args({.dtype = DType::QInt8,
                                               .qscheme = QScheme::PerChannelSymmetric,
                                               .quant_min = -8,
                                               .quant_max = 7})};
}

TEST_CASE("Layers are found under the paths that prepare and convert use") {
  test::SmallNetwork net = fused_network();
  std::vector<WeightedLayer> layers = accuracy::weighted_layers(net, QConfigMapping(four_bits()));
  REQUIRE(layers.size() == 3);
  CHECK(layers[0].path == "conv1");
  CHECK(layers[0].layer != layers[0].unit);
  CHECK(layers[1].path == "conv2");
  CHECK(layers[2].path == "fc");
  CHECK(layers[2].kind == WeightedLayer::Kind::Linear);
  CHECK(layers[0].qconfig.has_value());
  CHECK_FALSE(net.has_qconfig_attribute());

  QConfigMapping without(four_bits());
  without.set_module_name("fc", std::nullopt);
  CHECK_FALSE(accuracy::weighted_layers(net, without)[2].qconfig.has_value());
}

TEST_CASE("A layer's function is what the layer calculates, with other parameters") {
  test::SmallNetwork net = fused_network();
  const WeightedLayer fc = accuracy::weighted_layers(net)[2];
  Generator generator(1);
  const Tensor x = randn({4, 8}, generator);
  const accuracy::LayerFunction function(fc);
  CHECK(test::largest_difference(function(x, *fc.weight, *fc.bias), (*fc.layer)(x)) < 1e-5);
  const Tensor doubled = function(x, mul_scalar(*fc.weight, 2.0), Tensor());
  const Tensor plain = function(x, *fc.weight, Tensor());
  CHECK(test::largest_difference(doubled, mul_scalar(plain, 2.0)) < 1e-5);
}

TEST_CASE("Convert gives a weight on a kept grid the codes that it lies on") {
  test::SmallNetwork net = fused_network();
  const QConfigMapping qconfigs(four_bits());
  const WeightedLayer fc = accuracy::weighted_layers(net, qconfigs)[2];
  const auto grid = accuracy::weight_grid(fc);
  REQUIRE(grid.has_value());
  // Nowhere near the ends of the range: observed anew, the grid would be a finer one.
  const Tensor third = grid->round(mul_scalar(*fc.weight, 0.3));
  *fc.weight = third;
  accuracy::keep_grid(fc, *grid);
  Generator generator(2);
  const std::vector<Tensor> data{randn({2, 3, 8, 8}, generator)};
  const auto int8 = quantize(net, data[0], data, {.qconfigs = qconfigs, .fuse = false});
  const auto module = int8.get_submodule("fc");
  const auto& linear = dynamic_cast<const nn::quantized::Linear&>(*module);
  CHECK(dequantize(linear.weight()).equal(third));
}

TEST_CASE("Layers come in the order of their calls, and with what they are given") {
  test::SmallNetwork net = fused_network();
  const std::vector<WeightedLayer> layers = accuracy::weighted_layers(net);
  Generator generator(3);
  const Tensor x = randn({2, 3, 8, 8}, generator);
  const CalibrationData data(std::vector<Tensor>{x, x});
  CHECK(accuracy::order_of_calls(net, layers, data.run) ==
        std::vector<std::string>{"conv1", "conv2", "fc"});
  const std::vector<Tensor> inputs = accuracy::inputs_of(net, layers[0], data.run);
  REQUIRE(inputs.size() == 2);
  CHECK(inputs[0].sizes() == x.sizes());
  CHECK(net.get_submodule("fc")->is_plain_call());
  CHECK_THROWS_AS(accuracy::inputs_of(net, layers[0], [](const nn::Module&) {}), ArgumentError);
}

TEST_CASE("A method without data, and an unknown one, are refused by name") {
  const AccuracyMethod nothing{
      .name = "nothing",
      .apply = [](nn::Module&, nn::Module&, const QConfigMapping&, const CalibrationData&) {}};
  const test::SmallNetwork net = fused_network();
  CHECK_THROWS_WITH_AS(apply_method(net, nothing, QConfigMapping(four_bits()), CalibrationData()),
                       doctest::Contains("nothing: data.run"), ArgumentError);
  CHECK_THROWS_WITH_AS(accuracy_method("magic"), doctest::Contains("expected one of"),
                       ArgumentError);
}

TEST_CASE("A method's reference is what the last one left that keeps what the model calculates") {
  std::vector<std::pair<double, double>> seen;  // the first bias of model and reference
  const auto add_one = [&](bool compensates) {
    return AccuracyMethod{.name = "add one",
                          .apply =
                              [&](nn::Module& model, nn::Module& reference, const QConfigMapping&,
                                  const CalibrationData&) {
                                const auto bias = [](nn::Module& net) {
                                  return *accuracy::weighted_layers(net)[2].bias;
                                };
                                seen.emplace_back(bias(model)[0].item(), bias(reference)[0].item());
                                bias(model).fill_(bias(model)[0].item() + 1.0);
                                bias(reference).fill_(-1.0);  // may be spoiled
                              },
                          .compensates = compensates};
  };
  test::SmallNetwork net = fused_network();
  net.fc->bias.fill_(0.0);
  const std::vector<AccuracyMethod> methods{add_one(false), add_one(true), add_one(true)};
  apply_methods(net, methods, QConfigMapping(four_bits()), CalibrationData({randn({1, 3, 8, 8})}));
  CHECK(seen == std::vector<std::pair<double, double>>{{0, 0}, {1, 1}, {2, 1}});
  CHECK(net.fc->bias[0].item() == 0.0);
}

}  // namespace
}  // namespace quanta
