#include "quanta/fusion/accuracy/detail/layer_matrix.h"

#include <doctest/doctest.h>

#include <limits>
#include <numeric>
#include <set>

#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/matmul.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta {
namespace {

using accuracy::LayerMatrix;
using accuracy::WeightedLayer;

// The layer as products of matrices gives what the layer gives, at all of its positions.
void check_layer(std::shared_ptr<nn::Module> module, const Tensor& x) {
  nn::Sequential net;
  net.push_back(std::move(module));
  net.eval();
  const WeightedLayer layer = accuracy::weighted_layers(net).at(0);
  const LayerMatrix matrix(layer);
  const Tensor y = net(x);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(matrix.positions(y)));
  std::iota(positions.begin(), positions.end(), 0);
  std::swap(positions.front(), positions.back());
  const Tensor weight = matrix.as_matrix(*layer.weight);
  CHECK(matrix.as_weight(weight).equal(*layer.weight));
  CHECK(weight.sizes() == Dims{matrix.groups(), matrix.rows(), matrix.columns()});
  Tensor product = bmm(matrix.patches(x, positions), weight.transpose(1, 2));
  if (layer.bias->defined()) {
    product = product + layer.bias->reshape({matrix.groups(), 1, matrix.rows()});
  }
  CHECK(test::largest_difference(product, matrix.results(y, positions)) < 1e-5);
}

TEST_CASE("A layer of any kind is the product of its patches and its weight") {
  Generator generator(1);
  check_layer(nn::make_module<nn::Linear>(5, 3), randn({2, 4, 5}, generator));
  check_layer(nn::make_module<nn::Conv1d>(4, 6, 3, nn::Conv1dOptions{.stride = 2, .padding = 2}),
              randn({2, 4, 9}, generator));
  check_layer(
      nn::make_module<nn::Conv2d>(
          4, 6, Dims{3, 2},
          nn::Conv2dOptions{.stride = {1, 2}, .padding = {2, 0}, .dilation = {2, 1}, .groups = 2}),
      randn({2, 4, 7, 5}, generator).contiguous(MemoryFormat::ChannelsLast));
  check_layer(
      nn::make_module<nn::Conv2d>(
          3, 6, 3,
          nn::Conv2dOptions{.padding = 1, .groups = 3, .padding_mode = nn::PaddingMode::Reflect}),
      randn({3, 5, 6}, generator));
  check_layer(nn::make_module<nn::Conv3d>(2, 3, 2, nn::Conv3dOptions{.padding = 1}),
              randn({2, 2, 3, 4, 3}, generator));
  check_layer(
      nn::make_module<nn::ConvTranspose2d>(
          4, 6, 3,
          nn::ConvTranspose2dOptions{
              .stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .dilation = {1, 2}}),
      randn({2, 4, 3, 5}, generator));
  check_layer(
      nn::make_module<nn::ConvTranspose1d>(3, 2, 4, nn::ConvTranspose1dOptions{.stride = 3}),
      randn({3, 5}, generator));
}

TEST_CASE("Positions are drawn without replacement from all calls") {
  Generator generator(2);
  const auto drawn = accuracy::draw_positions({40, 0, 60}, 50, generator);
  REQUIRE(drawn.size() == 3);
  CHECK(drawn[0].size() + drawn[2].size() == 50);
  CHECK(drawn[0].size() > 10);
  CHECK(drawn[1].empty());
  for (const auto& call : drawn) {
    CHECK(std::set<std::int64_t>(call.begin(), call.end()).size() == call.size());
    CHECK((call.empty() || (call.front() >= 0 && call.back() < 60)));
  }
  CHECK(accuracy::draw_positions({3, 2}, 50, generator) ==
        accuracy::DrawnPositions{{0, 1, 2}, {0, 1}});
}

TEST_CASE("Rows of a layer are refused when calls differ or numbers are not finite") {
  nn::Sequential net;
  net.push_back(nn::make_module<nn::Linear>(2, 3));
  net.eval();
  const std::vector<WeightedLayer> layers = accuracy::weighted_layers(net);
  const Tensor x = Tensor::from_values({1, 2, 3, 4}, {2, 2});
  const auto once = [&](const nn::Module& m) { m(x); };
  const accuracy::CallSizes sizes = accuracy::sizes_of_calls("adaround", net, layers, once);
  CHECK(sizes.positions.at("0") == std::vector<std::int64_t>{2});
  const accuracy::DrawnPositions all{{0, 1}};
  CHECK(accuracy::drawn_patches(net, layers[0], once, all).to_float_vector() ==
        std::vector<float>{1, 2, 3, 4});
  CHECK_THROWS_WITH_AS(accuracy::drawn_patches(
                           net, layers[0],
                           [&](const nn::Module& m) {
                             m(x);
                             m(x);
                           },
                           all),
                       doctest::Contains("expected the same calls"), ArgumentError);
  CHECK_THROWS_WITH_AS(accuracy::drawn_patches(
                           net, layers[0], [&](const nn::Module& m) { m(x.narrow(0, 0, 1)); }, all),
                       doctest::Contains("expected the same calls"), ArgumentError);
  CHECK_THROWS_AS(accuracy::sizes_of_calls("adaround", net, layers, [](const nn::Module&) {}),
                  ArgumentError);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor bad = Tensor::from_values({1, 2, 3, nan}, {2, 2});
  CHECK_THROWS_WITH_AS(accuracy::drawn_patches(
                           net, layers[0], [&](const nn::Module& m) { m(bad); }, all),
                       doctest::Contains("'0': data.run: expected finite numbers"), ArgumentError);
  CHECK(net.get_submodule("0")->is_plain_call());
}

}  // namespace
}  // namespace quanta
