#include "quanta/fusion/accuracy/smooth_quant.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "fusion/accuracy/small_networks.h"
#include "fusion/graph/net_builder.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/norm.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta {
namespace {

// A norm whose result three layers take, as in a transformer's attention; then a ReLU.
struct Block : nn::Module {
  nn::Child<nn::LayerNorm> norm;
  nn::Child<nn::Linear> a, b, c, out;

  Block() {
    register_module("norm", norm, nn::LayerNormOptions{.normalized_shape = {16}});
    register_module("a", a, nn::LinearOptions{16, 12});
    register_module("b", b, nn::LinearOptions{16, 12});
    register_module("c", c, nn::LinearOptions{16, 12});
    register_module("out", out, nn::LinearOptions{12, 4});
    // Two channels of the norm are a hundred times the others.
    std::vector<float> gains(16, 1.0F);
    gains[3] = 100.0F;
    gains[9] = -80.0F;
    norm->weight.copy_(Tensor::from_values(gains, {16}));
    // They carry as much as the others do.
    for (const nn::Linear* fc : {a.operator->(), b.operator->(), c.operator->()}) {
      for (std::size_t i = 0; i < 16; ++i) {
        const Tensor column = fc->weight.select(1, static_cast<std::int64_t>(i));
        column.copy_(mul_scalar(column, 1.0 / std::abs(static_cast<double>(gains[i]))));
      }
    }
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor y = norm(x);
    return out(mul(a(y), b(y)).relu()) + c(y).narrow(-1, 0, 4);
  }
};

// The weight of an rms_norm is a parameter of the module itself.
struct RmsBlock : nn::Module {
  Tensor gain = Tensor::ones({8});
  nn::Child<nn::Linear> fc;
  RmsBlock() {
    register_parameter("gain", gain);
    register_module("fc", fc, nn::LinearOptions{8, 3});
    eval();
  }
  Tensor forward(const Tensor& x) const override { return fc(rms_norm(x, {8}, gain)); }
};

// The norm's result is added to something, too.
struct PostNorm : nn::Module {
  nn::Child<nn::LayerNorm> norm;
  nn::Child<nn::Linear> fc;
  PostNorm() {
    register_module("norm", norm, nn::LayerNormOptions{.normalized_shape = {8}});
    register_module("fc", fc, nn::LinearOptions{8, 8});
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor y = norm(x);
    return fc(y) + y;
  }
};

Tensor rows(std::int64_t columns, std::uint64_t seed = 1) {
  Generator generator(seed);
  return randn({3, 5, columns}, generator);
}

CalibrationData data_of(const Tensor& x) { return CalibrationData(std::vector<Tensor>{x, x}); }

TEST_CASE("SmoothQuant gives the scales of the paper's equation") {
  nn::Sequential net(nn::Linear(2, 2, false), nn::Linear(2, 2, false));
  net.eval();
  const auto layers = accuracy::weighted_layers(net);
  *layers[0].weight = Tensor::from_values({1.0F, 0.0F, 0.0F, 1.0F}, {2, 2});
  *layers[1].weight = Tensor::from_values({4.0F, 1.0F, -2.0F, 0.5F}, {2, 2});
  // max |X| = {16, 1}, max |W| = {4, 1}: s = {4 / 2, 1 / 1}.
  const Tensor x = Tensor::from_values({-16.0F, 1.0F, 2.0F, 0.5F}, {2, 2});
  const auto smooth = smooth_quant(net, data_of(x));
  const StateDict state = smooth.state_dict();
  CHECK(state.at("0.weight").to_float_vector() == std::vector<float>{0.5F, 0.0F, 0.0F, 1.0F});
  CHECK(state.at("1.weight").to_float_vector() == std::vector<float>{8.0F, 1.0F, -4.0F, 0.5F});
  // All into the weights: s = max |X|.
  const StateDict all = smooth_quant(net, data_of(x), {.alpha = 1.0}).state_dict();
  CHECK(all.at("1.weight").to_float_vector() == std::vector<float>{64.0F, 1.0F, -32.0F, 0.5F});
}

TEST_CASE("SmoothQuant scales a norm once for all layers that take its result") {
  const Block net;
  const Tensor x = rows(16);
  const Block smooth = smooth_quant(net, data_of(x));
  test::check_same_results(smooth, net, rows(16, 7));
  const auto gains = smooth.norm->weight.to_float_vector();
  CHECK(std::abs(gains[3]) < 0.2F * 100.0F);
  // The layers' columns have the factors that the norm has lost. (The rows of a or b are scaled as
  // well, for what their product goes into.)
  const StateDict before = net.state_dict();
  const StateDict after = smooth.state_dict();
  const Tensor lost = div(before.at("norm.weight"), after.at("norm.weight"));
  const Tensor gained = div(after.at("c.weight"), before.at("c.weight"));
  test::check_close(gained.select(0, 0), lost, 1e-4F);
  test::check_close(gained.select(0, 5), lost, 1e-4F);
}

TEST_CASE("SmoothQuant makes dynamic int8 layers better and its search no worse") {
  const Block net;
  const Tensor x = rows(16);
  const Tensor want = net(x);
  const double plain = test::sqnr_db(want, quantize_dynamic(net)(x));
  const double smooth = test::sqnr_db(want, quantize_dynamic(smooth_quant(net, data_of(x)))(x));
  const double searched = test::sqnr_db(
      want, quantize_dynamic(smooth_quant(net, data_of(x), {.search_alpha = true}))(x));
  CHECK(smooth > plain + 3.0);
  CHECK(searched > plain + 3.0);
}

TEST_CASE("SmoothQuant changes the weight of an rms_norm that a module calls itself") {
  const RmsBlock net;
  const RmsBlock smooth = smooth_quant(net, data_of(rows(8)));
  test::check_same_results(smooth, net, rows(8, 2));
  CHECK_FALSE(smooth.gain.equal(net.gain));
  CHECK(net.gain.equal(Tensor::ones({8})));
}

TEST_CASE("SmoothQuant works on graphs") {
  Generator generator(6);
  test::NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string norm = builder.node(
      "LayerNormalization",
      {x, builder.constant(randn({8}, generator)), builder.constant(randn({8}, generator))});
  const auto linear = [&](const std::string& in, std::int64_t out_features) {
    return builder.node(
        "Add", {builder.node("MatMul", {in, builder.constant(randn({8, out_features}, generator))}),
                builder.constant(randn({out_features}, generator))});
  };
  const std::string y = builder.node("Add", {linear(norm, 8), linear(norm, 8)});
  const graph::Model net = graph::from_onnx(builder.finish({y}));
  const graph::Model smooth = smooth_quant(net, data_of(rows(8)));
  test::check_same_results(smooth, net, rows(8, 2));
  CHECK_FALSE(test::same_state(smooth.state_dict(), net.state_dict()));
}

TEST_CASE("SmoothQuant refuses what it cannot smooth and changes nothing") {
  const Block net;
  const CalibrationData data = data_of(rows(16));
  test::refuses({"smooth_quant: alpha", "got 1.5"},
                [&] { smooth_quant(net, data, {.alpha = 1.5}); });
  test::refuses({"smooth_quant: model: expected linear layers", "taken by add"},
                [] { smooth_quant(PostNorm(), data_of(rows(8))); });
  test::refuses({"smooth_quant: data.run", "NaN"}, [&] {
    smooth_quant(net, CalibrationData({rows(16)}, [](const nn::Module& model) {
                   model(Tensor::full({2, 16}, NAN));
                 }));
  });
  const StateDict before = net.state_dict();
  const CalibrationData failing(
      {rows(16)}, [](const nn::Module&) { throw ArgumentError("the data is broken"); });
  test::says([&] { smooth_quant(net, failing); }, "the data is broken");
  CHECK(test::same_state(before, net.state_dict()));
  CHECK(net.a->is_plain_call());
  CHECK(accuracy_method("smooth-quant").name == "smooth-quant");
}

}  // namespace
}  // namespace quanta
