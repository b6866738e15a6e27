#include "quanta/fusion/accuracy/awq.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta {
namespace {

constexpr WeightOnlyOptions kFourBits{.bits = 4, .group_size = 32};

// A norm with a few strong channels, two layers with a ReLU between them.
nn::Sequential network() {
  manual_seed(1);
  nn::LayerNorm norm(64);
  std::vector<float> gains(64, 1.0F);
  for (std::size_t c = 0; c < 64; c += 16) gains[c] = 30.0F;
  norm.weight = Tensor::from_values(gains, {64});
  nn::Sequential net(norm, nn::Linear(64, 96), nn::ReLU(), nn::Linear(96, 24));
  net.eval();
  return net;
}

Tensor rows(std::uint64_t seed = 1) {
  Generator generator(seed);
  return randn({128, 64}, generator);
}

CalibrationData data_of(const Tensor& x) { return CalibrationData(std::vector<Tensor>{x, x}); }

TEST_CASE("AWQ without a search of ranges keeps what a network calculates") {
  const nn::Sequential net = network();
  const auto scaled = awq(net, kFourBits, data_of(rows()), {.search_ranges = false});
  test::check_close(scaled(rows(5)), net(rows(5)), 1e-4F);
  CHECK_FALSE(scaled.state_dict().at("1.weight").equal(net.state_dict().at("1.weight")));
}

TEST_CASE("AWQ makes 4-bit weights better with either search and best with both") {
  const nn::Sequential net = network();
  const Tensor x = rows();
  const Tensor want = net(x);
  const auto quality = [&](const nn::Sequential& changed) {
    return test::sqnr_db(want, quantize_weight_only(changed, kFourBits)(x));
  };
  const double plain = quality(net);
  const double scales = quality(awq(net, kFourBits, data_of(x), {.search_ranges = false}));
  const double ranges = quality(awq(net, kFourBits, data_of(x), {.search_scales = false}));
  const double both = quality(awq(net, kFourBits, data_of(x)));
  CAPTURE(plain);
  CAPTURE(scales);
  CAPTURE(ranges);
  CHECK(scales > plain + 0.3);
  CHECK(ranges > plain);
  CHECK(both > scales);
  CHECK(both > plain + 1.0);
}

TEST_CASE("AWQ clips a group to the share of its range that loses least") {
  // One group of 16 columns; each is fed alone, so that the loss is the sum of squared errors.
  nn::Sequential net(nn::Linear(16, 1, false), nn::ReLU());
  net.eval();
  const auto layer = accuracy::weighted_layers(net)[0];
  std::vector<float> w(16);
  for (std::size_t i = 0; i < 16; ++i) w[i] = 0.45F * std::sin(static_cast<float>(3 * i));
  w[5] = 1.0F;
  *layer.weight = Tensor::from_values(w, {1, 16});
  std::vector<float> identity(256, 0.0F);
  for (std::size_t i = 0; i < 16; ++i) identity[i * 17] = 1.0F;
  const WeightOnlyOptions options{.bits = 4, .group_size = 16};
  const auto clipped = awq(net, options, data_of(Tensor::from_values(identity, {16, 16})),
                           {.search_scales = false, .range_steps = 10});
  double least = 1e9;
  float best = 0.0F;
  for (int i = 0; i < 5; ++i) {
    const float range = 1.0F - 0.1F * static_cast<float>(i);
    std::vector<float> tried = w;
    for (float& v : tried) v = std::clamp(v, -range, range);
    const Tensor got =
        quantize_weight_only(Tensor::from_values(tried, {1, 16}), {}, options).dequantize();
    const Tensor lost = sub(got, Tensor::from_values(w, {1, 16}));
    const double sum = mul(lost, lost).sum().item();
    if (sum < least) {
      least = sum;
      best = range;
    }
  }
  CHECK(clipped.state_dict().at("0.weight").to_float_vector()[5] == doctest::Approx(best));
}

TEST_CASE("AWQ keeps the ranges of queries and keys") {
  struct Net : nn::Module {
    nn::Child<nn::Linear> q_proj, v_proj;
    Net() {
      register_module("q_proj", q_proj, nn::LinearOptions{32, 8});
      register_module("v_proj", v_proj, nn::LinearOptions{32, 8});
      eval();
    }
    Tensor forward(const Tensor& x) const override { return q_proj(x) + v_proj(x); }
  };
  const Net net;
  const Tensor x = rows().narrow(1, 0, 32).contiguous();
  const Net changed = awq(net, {.bits = 4, .group_size = 16}, data_of(x), {.search_scales = false});
  CHECK(changed.q_proj->weight.equal(net.q_proj->weight));
  CHECK_FALSE(changed.v_proj->weight.equal(net.v_proj->weight));
}

TEST_CASE("AWQ cuts ranges alone where a norm's result is also added to something and says so") {
  struct PostNorm : nn::Module {
    nn::Child<nn::LayerNorm> norm;
    nn::Child<nn::Linear> dense, unused;
    PostNorm() {
      register_module("norm", norm, 64);
      register_module("dense", dense, nn::LinearOptions{64, 64});
      register_module("unused", unused, nn::LinearOptions{64, 64});
      eval();
    }
    Tensor forward(const Tensor& x) const override {
      const Tensor y = norm(x);
      return dense(y) + y;
    }
  };
  manual_seed(3);
  const PostNorm net;
  CalibrationData data = data_of(rows());
  std::vector<std::string> told;
  data.progress = [&](std::string_view what, std::size_t, std::size_t) { told.emplace_back(what); };
  const WeightOnlyFilter used{.skip = {"unused"}};
  const PostNorm changed = awq(net, kFourBits, data, {}, used);
  REQUIRE(told.size() == 2);
  CHECK(told[0].find("awq: no scales: ") == 0);
  CHECK(told[0].find("'norm'") != std::string::npos);
  CHECK(told[1] == "awq: dense");
  const PostNorm ranges = awq(net, kFourBits, data, {.search_scales = false}, used);
  CHECK(changed.dense->weight.equal(ranges.dense->weight));
  CHECK_FALSE(changed.dense->weight.equal(net.dense->weight));
  CHECK(changed.unused->weight.equal(net.unused->weight));
  test::refuses({"awq: model: expected linear layers that alone take"},
                [&] { awq(net, kFourBits, data, {.search_ranges = false}, used); });
  test::refuses({"awq: data.run", "reaches 'unused'", "filter.skip"},
                [&] { awq(net, kFourBits, data); });
  test::refuses({"filter.skip"}, [&] { awq(net, kFourBits, data, {}, {.skip = {"typo"}}); });
}

TEST_CASE("AWQ works on graphs") {
  Generator generator(6);
  test::NetBuilder builder;
  const std::string x = builder.input("x");
  const auto linear = [&](const std::string& in, std::int64_t from, std::int64_t to) {
    return builder.node("Gemm", {in, builder.constant(randn({to, from}, generator))},
                        {{"transB", std::int64_t{1}}});
  };
  const std::string y = linear(builder.node("Relu", {linear(x, 64, 32)}), 32, 16);
  const graph::Model net = graph::from_onnx(builder.finish({y}));
  const Tensor in = rows();
  const graph::Model changed = awq(net, kFourBits, data_of(in));
  const Tensor want = net(in);
  CHECK(test::sqnr_db(want, graph::quantize_weight_only_jit(changed, kFourBits)(in)) >
        test::sqnr_db(want, graph::quantize_weight_only_jit(net, kFourBits)(in)));
}

TEST_CASE("AWQ refuses what it cannot prepare and changes nothing") {
  nn::Sequential net = network();
  const CalibrationData data = data_of(rows());
  test::refuses({"awq: weight.group_size", "divisor of the 96 columns of '3'", "got 64"},
                [&] { awq(net, {.bits = 4, .group_size = 64}, data); });
  test::refuses({"bits"}, [&] { awq(net, {.bits = 3, .group_size = 32}, data); });
  test::refuses({"awq: scale_steps"}, [&] { awq(net, kFourBits, data, {.scale_steps = 0}); });
  test::refuses({"awq: largest_cut"}, [&] { awq(net, kFourBits, data, {.largest_cut = 2.0}); });
  test::refuses({"awq: model: expected nn::Linear layers"}, [] {
    nn::Sequential none(nn::ReLU{}, nn::ReLU{});
    awq(none, kFourBits, data_of(rows()));
  });
  test::refuses({"awq: data.run", "'1'"},
                [&] { awq(net, kFourBits, CalibrationData({rows()}, [](const nn::Module&) {})); });
  const StateDict before = net.state_dict();
  accuracy::weighted_layers(net)[0].weight->fill_(NAN);
  test::refuses({"awq: model: '1'", "finite"}, [&] { awq(net, kFourBits, data); });
  CHECK(accuracy_method("awq").name == "awq");
}

}  // namespace
}  // namespace quanta
