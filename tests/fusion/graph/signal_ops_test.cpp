// DFT, STFT and the windows.

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using test::NetBuilder;

Tensor integer(std::int64_t value) { return Tensor::from_int64({&value, 1}).view({}); }

Model dft_net(std::int64_t opset, OnnxAttributes attributes) {
  NetBuilder builder(opset);
  return from_onnx(
      builder.finish({builder.node("DFT", {builder.input("x")}, std::move(attributes))}));
}

/// The sums as they are defined, of [batch, n, 1 or 2].
Tensor direct(const Tensor& x, std::int64_t bins) {
  const std::int64_t n = x.size(1);
  const std::vector<float> values = x.to_float_vector();
  std::vector<float> result;
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t k = 0; k < bins; ++k) {
      std::complex<double> sum;
      for (std::int64_t j = 0; j < n; ++j) {
        const auto* at = values.data() + (b * n + j) * x.size(2);
        const std::complex<double> value(static_cast<double>(at[0]),
                                         x.size(2) == 2 ? static_cast<double>(at[1]) : 0.0);
        const double turns = static_cast<double>(j * k % n) / static_cast<double>(n);
        sum += value * std::polar(1.0, -2.0 * std::numbers::pi * turns);
      }
      result.push_back(static_cast<float>(sum.real()));
      result.push_back(static_cast<float>(sum.imag()));
    }
  }
  return Tensor::from_values(result, {x.size(0), bins, 2});
}

TEST_CASE("signal ops: DFT gives the sums that define it for any length") {
  Generator generator(1);
  for (const std::int64_t n : {1, 7, 12, 521, 1200, 1021 * 3}) {
    CAPTURE(n);
    for (const std::int64_t parts : {1, 2}) {
      const Tensor x = randn({2, n, parts}, generator);
      const Model net = dft_net(17, {{"axis", std::int64_t{1}}});
      CHECK(test::sqnr_db(direct(x, n), net(x)) > 110.0);
      CHECK(FrozenGraph(net).run(std::vector{x})[0].equal(net(x)));
    }
  }
}

TEST_CASE("signal ops: half of the DFT is enough for real numbers and goes back to them") {
  Generator generator(2);
  const Model forward = dft_net(20, {{"onesided", std::int64_t{1}}});
  const Model back = dft_net(20, {{"onesided", std::int64_t{1}}, {"inverse", std::int64_t{1}}});
  for (const std::int64_t n : {2, 10, 1200}) {
    const Tensor x = randn({3, n, 1}, generator);
    const Tensor half = forward(x);
    CHECK(half.sizes() == Dims{3, n / 2 + 1, 2});
    CHECK(test::sqnr_db(direct(x, n / 2 + 1), half) > 110.0);
    CHECK(test::sqnr_db(x, back(half)) > 110.0);
  }
}

TEST_CASE("signal ops: a length of the DFT cuts the signal or fills it up with zeros") {
  const Tensor x = Tensor::from_values({1, 2, 3}, {1, 3, 1});
  for (const std::int64_t n : {2, 5}) {
    NetBuilder builder(17);
    const Model net = from_onnx(
        builder.finish({builder.node("DFT", {builder.input("x"), builder.constant(integer(n))})}));
    const Tensor fitted =
        n == 2 ? x.slice(1, 0, 2) : Tensor::from_values({1, 2, 3, 0, 0}, {1, 5, 1});
    test::check_close(net(x), direct(fitted, n));
  }
}

TEST_CASE("signal ops: STFT is the DFT of each window") {
  Generator generator(3);
  const Tensor x = randn({2, 50}, generator);
  const Tensor window = randn({16}, generator);
  NetBuilder builder(17);
  const Model net = from_onnx(builder.finish({builder.node(
      "STFT", {builder.input("x"), builder.constant(integer(6)), builder.constant(window)})}));
  const Tensor result = net(x);
  REQUIRE(result.sizes() == Dims{2, 6, 9, 2});
  const std::vector<float> values = x.to_float_vector();
  const std::vector<float> factors = window.to_float_vector();
  std::vector<float> frame(16);
  for (std::size_t i = 0; i < 16; ++i) frame[i] = values[50 + 3 * 6 + i] * factors[i];
  test::check_close(result.select(0, 1).select(0, 3),
                    direct(Tensor::from_values(frame, {1, 16, 1}), 9).select(0, 0));
  CHECK_THROWS_WITH_AS(net(Tensor::ones({1, 8})), doctest::Contains("signal: expected at least 16"),
                       ArgumentError);
}

TEST_CASE("signal ops: windows and the weights of mel bands") {
  const auto run = [](const std::string& op, std::vector<Tensor> inputs,
                      OnnxAttributes attributes = {}) {
    NetBuilder builder(17);
    std::vector<std::string> names;
    for (const Tensor& input : inputs) names.push_back(builder.constant(input));
    const Model net = from_onnx(builder.finish({builder.node(op, names, std::move(attributes))}));
    return net.run(std::vector<Tensor>{})[0];
  };
  const OnnxAttributes symmetric{{"periodic", std::int64_t{0}}};
  test::check_close(run("HannWindow", {integer(4)}), Tensor::from_values({0, 0.5F, 1, 0.5F}));
  test::check_close(run("HannWindow", {integer(3)}, symmetric), Tensor::from_values({0, 1, 0}));
  test::check_close(run("BlackmanWindow", {integer(3)}, symmetric), Tensor::from_values({0, 1, 0}));
  test::check_close(run("HammingWindow", {integer(2)}), Tensor::from_values({4.0F / 46.0F, 1.0F}));
  const Tensor mel = run("MelWeightMatrix", {integer(2), integer(16), integer(8192),
                                             Tensor::scalar(0.0), Tensor::scalar(4096.0)});
  CHECK(mel.sizes() == Dims{9, 2});
  CHECK(test::largest_difference(sum(mel, {0}), Tensor::from_values({2, 3})) < 2.0);
}

}  // namespace
}  // namespace quanta::graph
