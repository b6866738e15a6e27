#include <doctest/doctest.h>

#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/module_path.h"
#include "support/tensors.h"

// Modules with several inputs and outputs, and what copying a module shares.

namespace quanta::test {
namespace {

struct Two : nn::Module {
  nn::Child<nn::Linear> fc;
  Two() { register_module("fc", fc, {.in_features = 3, .out_features = 3}); }
  using Module::forward;
  Tensor forward(const Tensor& x, const Tensor& y) const { return add(fc(x), y); }
  std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
    require_inputs(inputs, 2);
    return {forward(inputs[0], inputs[1])};
  }
};

struct Heads : nn::Module {
  nn::Child<Two> two;
  Heads() { register_module("two", two); }
  std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
    require_inputs(inputs, 2);
    return {two(inputs[0], inputs[1]), inputs[1]};
  }
};

}  // namespace

TEST_CASE("modules of several tensors: calls, paths and hooks") {
  const Heads net;
  const Tensor x = random_tensor({2, 3}, 1);
  const Tensor y = random_tensor({2, 3}, 2);
  const Tensor expected = add(net.two->fc(x), y);
  CHECK(net({x, y})[0].equal(expected));
  CHECK((*net.two.module())(x, y).equal(expected));
  CHECK_THROWS_WITH_AS(net(x, y), doctest::Contains("outputs: expected one"), ArgumentError);
  CHECK_THROWS_WITH_AS(net(x), doctest::Contains("module({x, mask})"), UnsupportedError);
  CHECK_THROWS_WITH_AS(net({x}), doctest::Contains("expected 2 tensors, got 1"), ArgumentError);
  CHECK_THROWS_WITH_AS(net({x, Tensor()}), doctest::Contains("inputs[1]"), ArgumentError);
  CHECK_THROWS_WITH_AS(net({random_tensor({2, 4}), y}), doctest::Contains("'two.fc'"),
                       ArgumentError);

  Heads watched;
  std::size_t seen = 0;
  std::string path;
  watched.two->register_forward_all_pre_hook(
      [&](const nn::Module&, std::span<const Tensor> inputs) {
        seen += inputs.size();
        path = current_module_path();
        return std::vector<Tensor>(inputs.begin(), inputs.end());
      });
  const auto id = watched.two->register_forward_all_hook(
      [&](const nn::Module&, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
        seen += inputs.size() + outputs.size();
        return std::vector<Tensor>{mul_scalar(outputs[0], 2.0)};
      });
  watched.two->register_forward_hook(
      [&](const nn::Module&, const Tensor& input, const Tensor& output) {
        CHECK(input.equal(x));
        return output;
      });
  const Tensor doubled = mul_scalar(add(watched.two->fc(x), y), 2.0);
  CHECK(watched({x, y})[0].equal(doubled));
  CHECK(seen == 5);
  CHECK(path == "two");
  watched.two->remove_hook(id);
  CHECK_FALSE(watched({x, y})[0].equal(doubled));
}

TEST_CASE("hooks that give another number of tensors are told, and old ids remove nothing") {
  Heads net;
  const Tensor x = random_tensor({2, 3}, 1);
  const auto nothing = [](const nn::Module&, std::span<const Tensor>) {
    return std::vector<Tensor>();
  };
  const auto id = net.two->register_forward_all_pre_hook(nothing);
  CHECK_THROWS_WITH_AS(net({x, x}), doctest::Contains("expected 2 tensors, got 0"), ArgumentError);
  net.two->remove_hook(id);
  nn::Linear& fc = *net.two->fc.operator->();
  const auto other = fc.register_forward_all_pre_hook(nothing);
  CHECK(other != id);
  CHECK_THROWS_WITH_AS(net({x, x}), doctest::Contains("expected 1 tensor, got 0"), ArgumentError);
  fc.remove_hook(id);
  CHECK_FALSE(fc.is_plain_call());
  fc.remove_hook(other);
  fc.register_forward_all_hook([](const nn::Module&, std::span<const Tensor>,
                                  std::span<const Tensor>) { return std::vector<Tensor>(); });
  CHECK_THROWS_WITH_AS(net({x, x}), doctest::Contains("outputs: expected one"), ArgumentError);
}

TEST_CASE("copying a module shares all tensors below, clone and deep_copy copy all") {
  nn::Sequential net{nn::Sequential{nn::Linear({.in_features = 2, .out_features = 2})},
                     nn::Linear({.in_features = 2, .out_features = 2})};
  const auto storage = [](const nn::Module& module, std::size_t i) {
    return module.parameters().at(i).storage().get();
  };
  nn::Sequential copy = net;
  const nn::Sequential deep = nn::deep_copy(net);
  const nn::Sequential inside{net};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(storage(copy, i) == storage(net, i));
    CHECK(storage(deep, i) != storage(net, i));
    CHECK(deep.parameters()[i].equal(net.parameters()[i]));
  }
  // The trees are apart: what stands in one can be swapped without the other.
  CHECK(copy.get_submodule("0") != net.get_submodule("0"));
  copy.replace_child("1", nn::make_module<nn::Sequential>());
  CHECK(net.get_submodule("1")->type_name() == "Linear");
  static_assert(std::is_abstract_v<nn::Module>);
  const std::shared_ptr<nn::Module> clone = net.get_submodule("0")->clone();
  CHECK(storage(*clone, 0) != storage(net, 0));
}

TEST_CASE("tied weights stay tied in a deep copy") {
  struct Tied : nn::Module {
    nn::Child<nn::Linear> a, b;
    Tied() {
      register_module("a", a, {.in_features = 2, .out_features = 2});
      register_module("b", b, {.in_features = 2, .out_features = 2});
      b->weight = a->weight;
    }
    Tensor forward(const Tensor& x) const override { return b(a(x)); }
  };
  const Tied net;
  const Tied deep = nn::deep_copy(net);
  CHECK(deep.a->weight.is_same(deep.b->weight));
  CHECK_FALSE(deep.a->weight.is_same(net.a->weight));
  CHECK(deep.named_parameters().size() == 3);
}

}  // namespace quanta::test
