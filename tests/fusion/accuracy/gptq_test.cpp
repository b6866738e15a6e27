#include "quanta/fusion/accuracy/gptq.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fusion/accuracy/small_networks.h"
#include "quanta/fusion/accuracy/detail/cholesky.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using accuracy::WeightedLayer;
using test::four_bits;

using Matrix = std::vector<std::vector<double>>;

Matrix matrix_of(const Tensor& values) {
  const std::vector<float> floats = values.to_float_vector();
  const auto columns = static_cast<std::size_t>(values.size(1));
  Matrix rows;
  for (std::size_t i = 0; i < floats.size(); i += columns) {
    rows.emplace_back(floats.begin() + static_cast<std::ptrdiff_t>(i),
                      floats.begin() + static_cast<std::ptrdiff_t>(i + columns));
  }
  return rows;
}

// The inverse by Gauss-Jordan.
Matrix inverse(Matrix a) {
  const std::size_t n = a.size();
  Matrix inv(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) inv[i][i] = 1.0;
  for (std::size_t j = 0; j < n; ++j) {
    const double pivot = a[j][j];
    for (std::size_t k = 0; k < n; ++k) {
      a[j][k] /= pivot;
      inv[j][k] /= pivot;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double factor = a[i][j];
      if (i == j || factor == 0.0) continue;
      for (std::size_t k = 0; k < n; ++k) {
        a[i][k] -= factor * a[j][k];
        inv[i][k] -= factor * inv[j][k];
      }
    }
  }
  return inv;
}

// The paper's equations 2 and 3 as they stand, with columns of `w` in `order`: each column's error
// goes to all that are left by a row of the inverse Hessian, from which the column is then removed.
// round(row, column, value, w).
template <typename Round>
Matrix reference_gptq(Matrix w, const Matrix& x, double percdamp,
                      const std::vector<std::size_t>& order, const Round& round) {
  const std::size_t n = order.size();
  Matrix hessian(n, std::vector<double>(n));
  double mean = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (const auto& row : x) {
        hessian[i][j] += 2.0 * row[i] * row[j] / static_cast<double>(x.size());
      }
    }
    mean += hessian[i][i] / static_cast<double>(n);
  }
  for (std::size_t i = 0; i < n; ++i) hessian[i][i] += percdamp * mean;
  Matrix inv = inverse(hessian);
  for (const std::size_t j : order) {
    for (std::size_t r = 0; r < w.size(); ++r) {
      const double rounded = round(r, j, w);
      const double error = (w[r][j] - rounded) / inv[j][j];
      for (std::size_t k = 0; k < n; ++k) w[r][k] -= error * inv[j][k];
      w[r][j] = rounded;
    }
    const Matrix before = inv;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < n; ++k) inv[i][k] -= before[i][j] * before[j][k] / before[j][j];
    }
  }
  return w;
}

// Inputs whose columns depend on one another, as activations do.
Tensor correlated(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  Generator generator(seed);
  const Tensor common = randn({rows, 1}, generator);
  return randn({rows, columns}, generator) + mul_scalar(common, 1.5);
}

nn::Sequential one_linear(std::uint64_t seed, std::int64_t in, std::int64_t out) {
  manual_seed(seed);
  nn::Sequential net;
  net.push_back(nn::make_module<nn::Linear>(in, out));
  net.eval();
  return net;
}

Tensor& weight_of(nn::Sequential& net) {
  return dynamic_cast<nn::Linear&>(*net.get_submodule("0")).weight;
}

std::vector<std::size_t> natural(std::size_t n) {
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  return order;
}

// By the mean square of the columns of x.
std::vector<std::size_t> descending(const Matrix& x) {
  std::vector<std::size_t> order = natural(x[0].size());
  std::vector<double> squares(order.size());
  for (const auto& row : x) {
    for (std::size_t j = 0; j < row.size(); ++j) squares[j] += row[j] * row[j];
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return squares[a] > squares[b]; });
  return order;
}

void check_equal(const Tensor& got, const Matrix& want) {
  const Matrix values = matrix_of(got);
  REQUIRE(values.size() == want.size());
  double largest = 0.0;
  for (std::size_t r = 0; r < want.size(); ++r) {
    for (std::size_t k = 0; k < want[r].size(); ++k) {
      largest = std::max(largest, std::abs(values[r][k] - want[r][k]));
    }
  }
  // A code more or less would be a whole step, some 0.04.
  CHECK(largest < 1e-6);
}

double output_error(const nn::Module& got, const nn::Module& want,
                    const std::vector<Tensor>& data) {
  double sum = 0.0;
  for (const Tensor& x : data) sum += test::mean_square(got(x) - want(x));
  return sum;
}

nn::Sequential rounded_to_nearest(const nn::Sequential& net, const QConfigMapping& qconfigs) {
  nn::Sequential nearest = nn::deep_copy(net);
  for (const WeightedLayer& layer : accuracy::weighted_layers(nearest, qconfigs)) {
    *layer.weight = accuracy::weight_grid(layer)->round(*layer.weight);
  }
  return nearest;
}

TEST_CASE("upper_factor_of_inverse: its square times the matrix is one") {
  const std::vector<double> a{4, 1, 0.5, 1, 3, -1, 0.5, -1, 2};
  std::vector<double> u = a;
  REQUIRE(accuracy::upper_factor_of_inverse(u, 3));
  CHECK(u[3] == 0.0);
  CHECK(u[7] == 0.0);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      double product = 0.0;
      for (std::size_t k = 0; k < 3; ++k) {
        double square = 0.0;
        for (std::size_t l = 0; l < 3; ++l) square += u[l * 3 + i] * u[l * 3 + k];
        product += square * a[k * 3 + j];
      }
      CHECK(product == doctest::Approx(i == j ? 1.0 : 0.0));
    }
  }
  std::vector<double> singular{1, 1, 1, 1};
  CHECK_FALSE(accuracy::upper_factor_of_inverse(singular, 2));
}

TEST_CASE("gptq: weights are those of the paper's equations in any order and block size") {
  for (const bool act_order : {false, true}) {
    for (const std::int64_t block_size : {1, 5, 128}) {
      CAPTURE(act_order);
      CAPTURE(block_size);
      nn::Sequential net = one_linear(3, 19, 21);
      const Tensor x = correlated(4, 40, 19);
      const QConfigMapping qconfigs(four_bits());
      nn::Sequential rounded =
          gptq(net, qconfigs, CalibrationData({x}),
               {.percdamp = 0.02, .act_order = act_order, .block_size = block_size});
      const WeightedLayer layer = accuracy::weighted_layers(net, qconfigs)[0];
      const std::vector<float> scales =
          accuracy::weight_grid(layer)->scale_for(2).to_float_vector();
      const Matrix inputs = matrix_of(x);
      const Matrix want = reference_gptq(
          matrix_of(*layer.weight), inputs, 0.02, act_order ? descending(inputs) : natural(19),
          [&](std::size_t r, std::size_t j, const Matrix& w) {
            const auto scale = static_cast<double>(scales[r]);
            return std::clamp(std::nearbyint(w[r][j] / scale), -8.0, 7.0) * scale;
          });
      check_equal(weight_of(rounded), want);
    }
  }
}

TEST_CASE("gptq: the network's error on its data is smaller than with rounding to nearest") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    nn::Sequential net = one_linear(seed, 32, 24);
    const std::vector<Tensor> data{correlated(seed + 10, 64, 32), correlated(seed + 20, 17, 32)};
    const QConfigMapping qconfigs(four_bits());
    for (const bool act_order : {false, true}) {
      const auto rounded = gptq(net, qconfigs, CalibrationData(data), {.act_order = act_order});
      CHECK(output_error(rounded, net, data) <
            output_error(rounded_to_nearest(net, qconfigs), net, data));
    }
  }
}

TEST_CASE("gptq: results of convolutions lie nearer than with rounding to nearest") {
  const test::SmallNetwork net = test::fused_network();
  // Neighbours alike, as in pictures: what is independent cannot make up for one another.
  std::vector<Tensor> batches;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    Generator generator(seed + 50);
    batches.push_back(test::small_input(seed, 32) + randn({32, 1, 1, 1}, generator));
  }
  for (const std::string path : {"conv1", "conv2"}) {
    CAPTURE(path);
    QConfigMapping qconfigs;
    qconfigs.set_module_name(path, four_bits());
    test::SmallNetwork rounded = gptq(net, qconfigs, CalibrationData(batches));
    test::SmallNetwork nearest = nn::deep_copy(net);
    for (const WeightedLayer& layer : accuracy::weighted_layers(nearest, qconfigs)) {
      if (layer.qconfig) *layer.weight = accuracy::weight_grid(layer)->round(*layer.weight);
    }
    const auto results_of = [&](const nn::Module& model) {
      test::SmallNetwork copy = nn::deep_copy(dynamic_cast<const test::SmallNetwork&>(model));
      std::vector<Tensor> results;
      ModuleHooks hooks;
      for (const WeightedLayer& layer : accuracy::weighted_layers(copy)) {
        if (layer.path != path) continue;
        hooks.watch(*layer.layer, [&](const Tensor&, const Tensor& y) { results.push_back(y); });
      }
      for (const Tensor& x : batches) copy(x);
      return results;
    };
    const std::vector<Tensor> want = results_of(net);
    const auto error_of = [&](const nn::Module& model) {
      const std::vector<Tensor> got = results_of(model);
      double sum = 0.0;
      for (std::size_t i = 0; i < want.size(); ++i) sum += test::mean_square(got[i] - want[i]);
      return sum;
    };
    CHECK(error_of(rounded) < 0.95 * error_of(nearest));
  }
}

TEST_CASE("gptq: convolutions lie on the QConfig's grid and int8 networks have those codes") {
  test::SmallNetwork net = test::fused_network();
  const QConfigMapping qconfigs(four_bits());
  const std::vector<Tensor> batches = test::batches(1);
  test::SmallNetwork rounded = gptq(net, qconfigs, CalibrationData(batches));
  const auto layers = accuracy::weighted_layers(rounded);
  const auto sources = accuracy::weighted_layers(net, qconfigs);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CAPTURE(layers[i].path);
    const auto grid = accuracy::weight_grid(sources[i]);
    CHECK(test::largest_difference(grid->round(*layers[i].weight), *layers[i].weight) == 0.0);
  }
  const auto int8 = quantize(rounded, batches[0], batches, {.qconfigs = qconfigs, .fuse = false});
  const auto module = int8.get_submodule("fc");
  const auto& linear = dynamic_cast<const nn::quantized::Linear&>(*module);
  CHECK(dequantize(linear.weight()).equal(rounded.fc->weight));
}

TEST_CASE("gptq: each group of a convolution is a matrix of its own") {
  manual_seed(7);
  nn::Sequential net;
  net.push_back(nn::make_module<nn::Conv2d>(nn::Conv2dOptions{
      .in_channels = 6, .out_channels = 6, .kernel_size = {3}, .padding = {1}, .groups = 3}));
  net.eval();
  Generator generator(8);
  const Tensor x = randn({3, 6, 7, 7}, generator);
  const QConfigMapping qconfigs(four_bits());
  nn::Sequential rounded = gptq(net, qconfigs, CalibrationData({x}));
  const std::vector<Tensor> data{x};
  CHECK(output_error(rounded, net, data) <
        output_error(rounded_to_nearest(net, qconfigs), net, data));
  // The middle group alone is a network that gives the same weights.
  nn::Sequential part;
  part.push_back(nn::make_module<nn::Conv2d>(
      nn::Conv2dOptions{.in_channels = 2, .out_channels = 2, .kernel_size = {3}, .padding = {1}}));
  part.eval();
  *accuracy::weighted_layers(part)[0].weight =
      accuracy::weighted_layers(net)[0].weight->narrow(0, 2, 2).contiguous();
  nn::Sequential rounded_part =
      gptq(part, qconfigs, CalibrationData({x.narrow(1, 2, 2).contiguous()}));
  CHECK(test::largest_difference(*accuracy::weighted_layers(rounded_part)[0].weight,
                                 accuracy::weighted_layers(rounded)[0].weight->narrow(0, 2, 2)) <
        1e-6);
}

TEST_CASE("gptq: a graph gets the weights that the same network as a class gets") {
  const test::SmallNetwork net = test::fused_network();
  const graph::Model graph = test::graph_of(net);
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data(test::batches(1));
  test::SmallNetwork rounded = gptq(net, qconfigs, data);
  graph::Model rounded_graph = gptq(graph, qconfigs, data);
  const auto layers = accuracy::weighted_layers(rounded);
  const auto nodes = accuracy::weighted_layers(rounded_graph);
  REQUIRE(layers.size() == nodes.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CHECK(test::largest_difference(*layers[i].weight, *nodes[i].weight) == 0.0);
  }
}

TEST_CASE("gptq: columns that no data reaches become 0") {
  nn::Sequential net = one_linear(5, 6, 4);
  Tensor x = correlated(6, 20, 6);
  x.narrow(1, 2, 1).fill_(0.0);
  nn::Sequential rounded = gptq(net, QConfigMapping(four_bits()), CalibrationData({x}));
  CHECK(weight_of(rounded).narrow(1, 2, 1).abs().max().item() == 0.0);
  CHECK(weight_of(rounded).narrow(1, 3, 1).abs().max().item() > 0.0);
}

TEST_CASE("gptq_weight_only: codes and scales are those of the paper's equations") {
  for (const bool symmetric : {true, false}) {
    for (const bool static_groups : {false, true}) {
      CAPTURE(symmetric);
      CAPTURE(static_groups);
      nn::Sequential net = one_linear(9, 48, 10);
      const Tensor x = correlated(10, 100, 48);
      const WeightOnlyOptions weight{.bits = 4, .group_size = 16, .symmetric = symmetric};
      const nn::Sequential small =
          gptq_weight_only(net, CalibrationData({x}), weight,
                           {.act_order = static_groups, .static_groups = static_groups});
      const auto module = small.get_submodule("0");
      const auto& linear = dynamic_cast<const nn::weight_only::Linear&>(*module);
      CHECK(linear.options() == weight);
      CHECK(linear.bias().equal(dynamic_cast<nn::Linear&>(*net.get_submodule("0")).bias));
      const Matrix inputs = matrix_of(x);
      const Matrix floats = matrix_of(weight_of(net));
      // Scale and zero point of a row's group, from the weights as they are or as they were.
      Matrix scales(10, std::vector<double>(3)), zeros = scales;
      const auto find = [&](std::size_t r, std::size_t group, const Matrix& w) {
        double low = 0.0, high = 0.0;
        for (std::size_t k = group * 16; k < (group + 1) * 16; ++k) {
          low = std::min(low, w[r][k]);
          high = std::max(high, w[r][k]);
        }
        // Float32: the largest weight of a symmetric group lies between two codes.
        scales[r][group] =
            static_cast<float>(symmetric ? std::max(-low, high) / 7.5 : (high - low) / 15.0);
        zeros[r][group] = symmetric ? 0.0 : -std::nearbyint(low / scales[r][group]);
      };
      const double least = symmetric ? -8.0 : 0.0;
      const Matrix want = reference_gptq(
          floats, inputs, 0.01, static_groups ? descending(inputs) : natural(48),
          [&](std::size_t r, std::size_t j, const Matrix& w) {
            const std::size_t group = j / 16;
            if (static_groups) find(r, group, floats);
            if (!static_groups && j % 16 == 0) find(r, group, w);
            const double code = std::clamp(
                std::nearbyint(w[r][j] / scales[r][group]) + zeros[r][group], least, least + 15.0);
            return (code - zeros[r][group]) * scales[r][group];
          });
      check_equal(linear.weight(), want);
    }
  }
}

TEST_CASE(
    "gptq_weight_only: errors are smaller than quantize_weight_only's and graphs get the same") {
  manual_seed(11);  // not each tiny layer gains
  const test::SmallNetwork net = test::fused_network();
  const std::vector<Tensor> batches = test::batches(1);
  const WeightOnlyOptions weight{.bits = 4, .group_size = 0};
  const CalibrationData data(batches);
  const auto small = gptq_weight_only(net, data, weight);
  CHECK(output_error(small, net, batches) <
        output_error(quantize_weight_only(net, weight), net, batches));
  const graph::Model graph = gptq_weight_only(test::graph_of(net), data, weight);
  test::check_same_results(graph, small, batches[1]);
  test::check_same_results(nn::deep_copy(small), small, batches[1]);
  CHECK(small.get_submodule("fc")->type_name() == "WeightOnlyLinear");
}

TEST_CASE("gptq_weight_only: convolutions stay float ones whose weights lie on a grid") {
  const test::SmallNetwork net = test::fused_network();
  const std::vector<Tensor> batches = test::batches(1);
  test::SmallNetwork small =
      gptq_weight_only(net, CalibrationData(batches), {.bits = 4, .group_size = 0},
                       {.convolutions = true}, {.skip = {"conv1"}});
  auto layers = accuracy::weighted_layers(small);
  CHECK(layers[0].weight->equal(net.state_dict().at("conv1.0.weight")));
  // At most 16 values in each channel.
  const Matrix rows = matrix_of(layers[1].weight->reshape({8, 72}));
  for (std::vector<double> row : rows) {
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    CHECK(row.size() <= 16);
  }
  CHECK(output_error(small, net, batches) > 0.0);
}

TEST_CASE("gptq: a block of any size is all columns at most") {
  const nn::Sequential net = one_linear(5, 6, 4);
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data({correlated(6, 20, 6)});
  const auto whole = gptq(net, qconfigs, data, {.block_size = 6});
  const auto huge = gptq(net, qconfigs, data, {.block_size = std::int64_t{1} << 60});
  CHECK(huge.state_dict().begin()->second.equal(whole.state_dict().begin()->second));
}

TEST_CASE("gptq_weight_only: options are checked in networks of convolutions too") {
  const test::SmallNetwork net = test::fused_network();
  const CalibrationData data(test::batches(1));
  const GptqWeightOnlyOptions options{.static_groups = true, .convolutions = true};
  CHECK_THROWS_AS(
      gptq_weight_only(net, data, {.bits = 4, .group_size = -3}, options, {.skip = {"fc"}}),
      ArgumentError);
  CHECK_THROWS_AS(
      gptq_weight_only(net, data, {.bits = 3, .group_size = 0}, options, {.skip = {"fc"}}),
      ArgumentError);
}

TEST_CASE("gptq: wrong arguments are refused by name and the model stays as it was") {
  nn::Sequential net = one_linear(5, 6, 4);
  const StateDict before = nn::deep_copy(net).state_dict();
  const QConfigMapping qconfigs(four_bits());
  const CalibrationData data({correlated(6, 20, 6)});
  CHECK_THROWS_WITH_AS(gptq_method({.percdamp = -0.1}),
                       doctest::Contains("gptq: percdamp: expected at least 0, got -0.1"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(gptq_method({.block_size = 0}),
                       doctest::Contains("gptq: block_size: expected at least 1, got 0"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(gptq(net, qconfigs, CalibrationData()), doctest::Contains("gptq: data.run"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(gptq(net, QConfigMapping(), data),
                       doctest::Contains("gptq: qconfigs: expected one with integer weights"),
                       ArgumentError);
  // Fewer rows than columns and nothing added to the diagonal.
  CHECK_THROWS_WITH_AS(
      gptq(net, qconfigs, CalibrationData({correlated(6, 2, 6)}), {.percdamp = 0.0}),
      doctest::Contains("with which the Hessian of '0' is positive definite"), ArgumentError);
  Tensor bad = correlated(6, 20, 6);
  bad.narrow(0, 3, 1).fill_(std::numeric_limits<double>::infinity());
  CHECK_THROWS_WITH_AS(gptq(net, qconfigs, CalibrationData({bad})),
                       doctest::Contains("expected finite numbers"), ArgumentError);
  CalibrationData none = data;
  none.run = [](const nn::Module&) {};
  CHECK_THROWS_WITH_AS(gptq(net, qconfigs, none),
                       doctest::Contains("gptq: data.run: expected data that reaches every layer"),
                       ArgumentError);
  const WeightOnlyOptions whole{.bits = 4, .group_size = 0};
  CHECK_THROWS_WITH_AS(gptq_weight_only(net, none, whole),
                       doctest::Contains("gptq: data.run: expected data"), ArgumentError);
  CHECK_THROWS_WITH_AS(gptq_weight_only(net, data, {.bits = 4, .group_size = 32}),
                       doctest::Contains("group_size"), ArgumentError);
  CHECK_THROWS_WITH_AS(gptq_weight_only(net, data, {.bits = 3}), doctest::Contains("bits"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(gptq_weight_only(net, data, whole, {}, {.names = {"typo"}}),
                       doctest::Contains("filter.names"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      gptq_weight_only(net, data, {.bits = 4, .group_size = 16}, {.act_order = true}),
      doctest::Contains("gptq: static_groups: expected true with act_order"), UnsupportedError);
  for (const auto& [name, value] : before) CHECK(net.state_dict().at(name).equal(value));
  CHECK(accuracy_method("gptq").name == "gptq");
}

}  // namespace
}  // namespace quanta
