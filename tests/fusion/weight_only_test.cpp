#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/runtime/error.h"
#include "support/files.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

struct Block : nn::Module {
  nn::Child<nn::Linear> up, down;
  nn::Child<nn::ReLU> relu;
  Block() {
    register_module("up", up, nn::LinearOptions{.in_features = 64, .out_features = 128});
    register_module("relu", relu);
    register_module("down", down, nn::LinearOptions{.in_features = 128, .out_features = 64});
  }
  Tensor forward(const Tensor& x) const override { return down(relu(up(x))); }
};

struct Network : nn::Module {
  nn::Child<Block> first, second;
  nn::Child<nn::Linear> head;
  Network() {
    register_module("first", first);
    register_module("second", second);
    register_module("head", head, nn::LinearOptions{.in_features = 64, .out_features = 10});
    eval();
  }
  Tensor forward(const Tensor& x) const override { return head(second(first(x))); }
};

/// Paths of the layers that have packed weights.
std::vector<std::string> packed_paths(const nn::Module& model) {
  std::vector<std::string> paths;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    if (dynamic_cast<const nn::weight_only::Linear*>(entry.module) != nullptr) {
      paths.push_back(entry.path);
    }
  }
  return paths;
}

Tensor some_input() { return random_tensor({5, 64}, 1); }

double relative_error(const Tensor& got, const Tensor& expected) {
  const std::vector<float> lhs = got.to_float_vector();
  const std::vector<float> rhs = expected.to_float_vector();
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < lhs.size(); ++i) {
    error += std::pow(static_cast<double>(lhs[i]) - rhs[i], 2);
    norm += std::pow(static_cast<double>(rhs[i]), 2);
  }
  return std::sqrt(error / norm);
}

using Paths = std::vector<std::string>;

}  // namespace

TEST_CASE("quantize_weight_only: all linear layers of a copy are replaced and outputs stay close") {
  const Network net;
  const Tensor x = some_input();
  const Tensor expected = net(x);
  // Rounding to 2^bits levels of about four standard deviations: half a step each, averaged.
  struct Bound {
    WeightOnlyOptions options;
    double error;
  };
  for (const Bound& bound : {Bound{{8, 0, true}, 0.01}, Bound{{8, 32, false}, 0.01},
                             Bound{{4, 32, true}, 0.2}, Bound{{4, 32, false}, 0.2}}) {
    const Network quantized = quantize_weight_only(net, bound.options);
    CHECK(packed_paths(quantized) ==
          Paths{"first.up", "first.down", "second.up", "second.down", "head"});
    const double error = relative_error(quantized(x), expected);
    CHECK(error < bound.error);
    CHECK(error > 0.0);
    // Replacing the weights by what their codes stand for gives the same network in float.
    Network dequantized;
    dequantized.load_state_dict(net.state_dict());
    for (const nn::Module::NamedModule& entry : quantized.named_modules()) {
      const auto* layer = dynamic_cast<const nn::weight_only::Linear*>(entry.module);
      if (layer == nullptr) continue;
      dynamic_cast<nn::Linear&>(*dequantized.get_submodule(entry.path))
          .weight.copy_(layer->weight());
    }
    CHECK(relative_error(quantized(x), dequantized(x)) < 1e-5);
  }
  CHECK(packed_paths(net).empty());
  CHECK(net(x).equal(expected));
}

TEST_CASE("quantize_weight_only: the filter takes names and skips and asks") {
  const Network net;
  CHECK(packed_paths(quantize_weight_only(net, {}, {.names = {"first"}})) ==
        Paths{"first.up", "first.down"});
  CHECK(packed_paths(quantize_weight_only(net, {}, {.skip = {"head", "second.up"}})) ==
        Paths{"first.up", "first.down", "second.down"});
  CHECK(packed_paths(quantize_weight_only(net, {}, {.names = {"first"}, .skip = {"first.up"}})) ==
        Paths{"first.down"});
  const auto wide = [](const std::string&, const nn::Module& layer) {
    return dynamic_cast<const nn::Linear&>(layer).options().in_features == 128;
  };
  CHECK(packed_paths(quantize_weight_only(net, {}, {.accept = wide})) ==
        Paths{"first.down", "second.down"});
  Network in_place;
  quantize_weight_only_(in_place, {4, 128, true}, {.accept = wide});
  CHECK(packed_paths(in_place) == Paths{"first.down", "second.down"});
}

TEST_CASE("quantize_weight_only: what cannot be done is listed and nothing changes") {
  Network net;
  const std::string before = to_string(net);
  CHECK_THROWS_WITH_AS(quantize_weight_only_(net, {4, 128, true}),
                       doctest::Contains("'first.up': quantize_weight_only: group_size"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_weight_only_(net, {}, {.names = {"frist"}}),
                       doctest::Contains("filter.names: expected paths of the model, got 'frist'"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_weight_only_(net, {}, {.skip = {"first.middle"}}),
                       doctest::Contains("filter.skip: expected paths"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_weight_only_(net, {}, {.skip = {"first", "second", "head"}}),
                       doctest::Contains("expected at least one nn::Linear or "
                                         "nn::MultiheadAttention that the filter takes"),
                       ArgumentError);
  CHECK(to_string(net) == before);
  nn::Linear root({.in_features = 4, .out_features = 4});
  CHECK_THROWS_WITH_AS(quantize_weight_only_(root), doctest::Contains("the root itself"),
                       ArgumentError);
}

TEST_CASE("quantize_weight_only: hooks and mode stay and fused layers are left alone") {
  nn::Sequential net{nn::Linear({.in_features = 16, .out_features = 16}), nn::ReLU(),
                     nn::Linear({.in_features = 16, .out_features = 4})};
  net.eval();
  fuse_modules(net, {{"0", "1"}});
  int calls = 0;
  net.get_submodule("2")->register_forward_hook(
      [&](const nn::Module&, const Tensor&, const Tensor& y) {
        ++calls;
        return y;
      });
  quantize_weight_only_(net);
  CHECK(packed_paths(net) == Paths{"2"});
  CHECK(!net.get_submodule("2")->is_training());
  net(Tensor::ones({1, 16}));
  CHECK(calls == 1);
}

TEST_CASE("quantize_weight_only: a layer that stands in two places stays one layer") {
  nn::Sequential net;
  const auto shared = nn::make_module<nn::Linear>(nn::LinearOptions{16, 16});
  net.add_module("a", shared);
  net.add_module("b", shared);
  quantize_weight_only_(net);
  CHECK(net.get_submodule("a") == net.get_submodule("b"));
  CHECK(net.get_submodule("a") != shared);
}

TEST_CASE("save_model and load_model: weight-only layers come back bit by bit") {
  const TemporaryFile file;
  const Tensor x = some_input();
  for (const WeightOnlyOptions& options :
       {WeightOnlyOptions{}, WeightOnlyOptions{8, 64, false}, WeightOnlyOptions{4, 32, true},
        WeightOnlyOptions{4, 16, false}}) {
    const Network quantized = quantize_weight_only(Network(), options, {.skip = {"second.up"}});
    save_model(quantized, file.path);
    Network loaded;
    load_model(loaded, file.path);
    CHECK(to_string(loaded) == to_string(quantized));
    CHECK(loaded(x).equal(quantized(x)));
  }
}

TEST_CASE("load_model: weight-only layers of other sizes leave the model as it was") {
  const TemporaryFile file;
  save_model(quantize_weight_only(Network(), {4, 32, true}), file.path);
  struct Wider : Network {
    Wider() {
      head.emplace(nn::LinearOptions{.in_features = 64, .out_features = 11});
      eval();
    }
  };
  Wider wider;
  const std::string before = to_string(wider);
  CHECK_THROWS_WITH_AS(load_model(wider, file.path),
                       doctest::Contains("head.weight_packed: weight_packed: expected 11 rows"),
                       ArgumentError);
  CHECK(to_string(wider) == before);
}

}  // namespace quanta::test
