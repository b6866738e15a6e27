#include "quanta/fusion/accuracy/brecq.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fusion/accuracy/small_networks.h"
#include "quanta/fusion/accuracy/adaround.h"
#include "quanta/fusion/accuracy/detail/blocks.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using accuracy::WeightedLayer;
using test::four_bits;

const BrecqOptions kQuick{.iterations = 200, .batch_size = 8, .learning_rate = 0.05};

// Two residual blocks in a list, a layer before and one behind.
struct Block : nn::Module {
  nn::Child<nn::Linear> up, down;
  nn::Child<nn::ReLU> relu;
  Block() {
    register_module("up", up, nn::LinearOptions{12, 20});
    register_module("relu", relu);
    register_module("down", down, nn::LinearOptions{20, 12});
  }
  Tensor forward(const Tensor& x) const override { return down(relu(up(x))) + x; }
};
struct Residual : nn::Module {
  nn::Child<nn::Linear> first, last;
  nn::Child<nn::Sequential> blocks;
  Residual() {
    register_module("first", first, nn::LinearOptions{6, 12});
    register_module("blocks", blocks, Block(), Block());
    register_module("last", last, nn::LinearOptions{12, 4});
    eval();
  }
  Tensor forward(const Tensor& x) const override { return last(blocks(first(x))); }
};

Residual network() {
  manual_seed(11);
  return Residual();
}

std::vector<Tensor> data(std::uint64_t seed) {
  Generator generator(seed);
  return {randn({40, 6}, generator), randn({40, 6}, generator), randn({9, 6}, generator)};
}

Residual to_nearest(const Residual& net, const QConfigMapping& qconfigs) {
  Residual nearest = nn::deep_copy(net);
  for (const WeightedLayer& layer : accuracy::weighted_layers(nearest, qconfigs)) {
    *layer.weight = accuracy::weight_grid(layer)->round(*layer.weight);
  }
  return nearest;
}

double error_of(const nn::Module& got, const nn::Module& want, const std::vector<Tensor>& batches) {
  double sum = 0.0;
  for (const Tensor& x : batches) sum += test::mean_square(got(x) - want(x));
  return sum;
}

std::vector<std::string> told_by(const Residual& net, const BrecqOptions& options) {
  std::vector<std::string> told;
  CalibrationData shown(data(1));
  shown.progress = [&](std::string_view what, std::size_t, std::size_t) {
    told.emplace_back(what);
  };
  static_cast<void>(brecq(net, QConfigMapping(four_bits()), shown, options));
  return told;
}

TEST_CASE("brecq: residual blocks are fitted as one and layers outside of them alone") {
  BrecqOptions options = kQuick;
  options.iterations = 1;
  CHECK(told_by(network(), options) == std::vector<std::string>{"brecq: first", "brecq: blocks.0",
                                                                "brecq: blocks.1", "brecq: last"});
  options.blocks = {"blocks"};
  CHECK(told_by(network(), options) ==
        std::vector<std::string>{"brecq: first", "brecq: blocks", "brecq: last"});
}

TEST_CASE("brecq: weights become one of their two neighbours and errors get smaller") {
  Residual net = network();
  const QConfigMapping qconfigs(four_bits());
  Residual rounded = brecq(net, qconfigs, CalibrationData(data(1)), kQuick);
  CHECK(error_of(rounded, net, data(5)) < 0.6 * error_of(to_nearest(net, qconfigs), net, data(5)));
  const auto layers = accuracy::weighted_layers(rounded);
  const auto sources = accuracy::weighted_layers(net, qconfigs);
  REQUIRE(layers.size() == 6);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CAPTURE(layers[i].path);
    const auto grid = accuracy::weight_grid(sources[i]);
    CHECK(test::largest_difference(grid->round(*layers[i].weight), *layers[i].weight) == 0.0);
    const Tensor steps =
        (*layers[i].weight - *sources[i].weight) / grid->scale_for(layers[i].weight->dim());
    CHECK(steps.abs().max().item() < 1.0001);
    CHECK_FALSE(layers[i].weight->requires_grad());
    CHECK_FALSE(layers[i].layer->is_training());
  }
}

TEST_CASE("brecq: a network of blocks in int8 keeps the codes") {
  const Residual net = network();
  const QConfigMapping qconfigs(four_bits());
  Residual rounded = brecq(net, qconfigs, CalibrationData(data(1)), kQuick);
  for (const WeightedLayer& layer : accuracy::weighted_layers(rounded)) {
    REQUIRE(layer.unit->qconfig() != nullptr);
    WeightedLayer kept = layer;
    kept.qconfig = *layer.unit->qconfig();
    CHECK(accuracy::weight_grid(kept)->round(*layer.weight).equal(*layer.weight));
  }
}

TEST_CASE("brecq: fused convolutions and graphs are fitted layer by layer") {
  const test::SmallNetwork net = test::fused_network();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData shown(test::batches(1));
  test::SmallNetwork rounded = brecq(net, qconfigs, shown, kQuick);
  const graph::Model rounded_graph = brecq(test::graph_of(net), qconfigs, shown, kQuick);
  double before = 0.0, after = 0.0, of_graph = 0.0;
  test::SmallNetwork nearest = nn::deep_copy(net);
  for (const WeightedLayer& layer : accuracy::weighted_layers(nearest, qconfigs)) {
    *layer.weight = accuracy::weight_grid(layer)->round(*layer.weight);
  }
  for (const Tensor& x : test::batches(9)) {
    before += test::mean_square(nearest(x) - net(x));
    after += test::mean_square(rounded(x) - net(x));
    of_graph += test::mean_square(rounded_graph(x) - net(x));
  }
  CHECK(after < 0.7 * before);
  CHECK(of_graph < 0.7 * before);
}

TEST_CASE("brecq: modules that take more than their first input are no blocks") {
  struct Pair : nn::Module {
    nn::Child<nn::Linear> left, right;
    Pair() {
      register_module("left", left, nn::LinearOptions{4, 4});
      register_module("right", right, nn::LinearOptions{4, 4});
    }
    Tensor forward(const Tensor& x) const override { return forward(x, Tensor::zeros(x.sizes())); }
    Tensor forward(const Tensor& x, const Tensor& y) const {
      const Tensor sum = left(x);
      return sum + right(y);
    }
  };
  struct Net : nn::Module {
    nn::Child<Pair> pair;
    Net() {
      register_module("pair", pair);
      eval();
    }
    Tensor forward(const Tensor& x) const override { return pair(x, x); }
  };
  manual_seed(3);
  const Net net;
  Generator generator(1);
  CalibrationData shown({randn({16, 4}, generator)});
  std::vector<std::string> told;
  shown.progress = [&](std::string_view what, std::size_t, std::size_t) {
    told.emplace_back(what);
  };
  const QConfigMapping qconfigs(four_bits());
  static_cast<void>(brecq(net, qconfigs, shown, kQuick));
  CHECK(told == std::vector<std::string>{"brecq: pair.left", "brecq: pair.right"});
  CHECK_THROWS_WITH_AS(brecq(net, qconfigs, shown, {.iterations = 1, .blocks = {"pair"}}),
                       doctest::Contains("brecq: blocks: expected modules that are called and "
                                         "depend on their first input alone, got 'pair'"),
                       ArgumentError);
}

TEST_CASE("brecq: calls of other sizes take their turns whole") {
  const Residual net = network();
  Generator generator(4);
  const std::vector<Tensor> batches{randn({2, 5, 6}, generator), randn({2, 7, 6}, generator),
                                    randn({2, 3, 6}, generator)};
  const QConfigMapping qconfigs(four_bits());
  const Residual rounded = brecq(net, qconfigs, CalibrationData(batches), kQuick);
  CHECK(error_of(rounded, net, batches) < error_of(to_nearest(net, qconfigs), net, batches));
}

TEST_CASE(
    "brecq: samples says how many rows are looked at, and whose memory is used again is copied") {
  const Residual net = network();
  const QConfigMapping qconfigs(four_bits());
  const Tensor batch = data(1)[0];
  const std::int64_t rows = batch.size(0);
  BrecqOptions options = kQuick;
  options.samples = rows / 2;
  const Tensor of_all = brecq(net, qconfigs, CalibrationData({batch}), options).last->weight;
  const Tensor other = batch.clone();
  other.narrow(0, rows / 2, rows - rows / 2).fill_(3.0);
  CHECK(brecq(net, qconfigs, CalibrationData({other}), options).last->weight.equal(of_all));
  // A run that fills one buffer again and again.
  Generator generator(6);
  const std::vector<Tensor> batches{randn(batch.sizes(), generator),
                                    randn(batch.sizes(), generator)};
  const Tensor buffer = batches[0].clone();
  const CalibrationData refilled({batches[0]}, [&](const nn::Module& model) {
    for (const Tensor& each : batches) {
      buffer.copy_(each);
      model(buffer);
    }
  });
  CHECK(
      brecq(net, qconfigs, refilled, kQuick)
          .last->weight.equal(brecq(net, qconfigs, CalibrationData(batches), kQuick).last->weight));
}

TEST_CASE("brecq: the same seed gives the same weights and another one others") {
  const Residual net = network();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData shown(data(1));
  BrecqOptions options = kQuick;
  const Tensor usual = brecq(net, qconfigs, shown, options).last->weight;
  CHECK(brecq(net, qconfigs, shown, options).last->weight.equal(usual));
  options.seed = 1;
  CHECK_FALSE(brecq(net, qconfigs, shown, options).last->weight.equal(usual));
}

TEST_CASE("brecq: wrong arguments are refused by name and the model stays as it was") {
  const Residual net = network();
  const StateDict before = nn::deep_copy(net).state_dict();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData shown(data(1));
  const auto refuses = [&](const BrecqOptions& options, const std::string& text) {
    CHECK_THROWS_WITH_AS(static_cast<void>(brecq(net, qconfigs, shown, options)),
                         doctest::Contains(text.c_str()), ArgumentError);
  };
  refuses({.iterations = 0}, "brecq: iterations: expected at least 1, got 0");
  refuses({.batch_size = 0}, "brecq: batch_size: expected at least 1, got 0");
  refuses({.samples = 0}, "brecq: samples: expected at least 1, got 0");
  refuses({.learning_rate = 0.0}, "brecq: learning_rate");
  refuses({.regularization = -1.0}, "brecq: regularization");
  refuses({.warm_start = 2.0}, "brecq: warm_start");
  refuses({.blocks = {"typo"}}, "brecq: blocks: expected paths of modules with integer weights");
  refuses({.blocks = {"blocks.0.relu"}}, "got 'blocks.0.relu'");
  refuses({.blocks = {"blocks", "blocks.1"}}, "got 'blocks.1' in another");
  CHECK_THROWS_WITH_AS(brecq(net, QConfigMapping(), shown),
                       doctest::Contains("brecq: qconfigs: expected one with integer weights"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(brecq(net, qconfigs, CalibrationData()),
                       doctest::Contains("brecq: data.run"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      brecq(net, qconfigs, CalibrationData({data(1)[0]}, [](const nn::Module&) {})),
      doctest::Contains("brecq: data.run: expected data that reaches every layer"), ArgumentError);
  std::vector<Tensor> bad = data(1);
  bad[1].fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK_THROWS_WITH_AS(brecq(net, qconfigs, CalibrationData(bad), kQuick),
                       doctest::Contains("brecq: data.run: expected finite numbers"),
                       ArgumentError);
  for (const auto& [name, value] : before) CHECK(net.state_dict().at(name).equal(value));
  CHECK(accuracy_method("brecq").name == "brecq");
  CHECK(accuracy_method("block-reconstruction").name == "brecq");
}

}  // namespace
}  // namespace quanta
