#include <doctest/doctest.h>

#include <span>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "small_network.h"
#include "support/own_networks.h"
#include "support/tensors.h"

// Plans for several sizes of the batch, inputs and outputs.

namespace quanta::test {
namespace {

struct TwoHeads : nn::Module {
  nn::Child<nn::Linear> a, b;
  TwoHeads() {
    register_module("a", a, {.in_features = 4, .out_features = 3});
    register_module("b", b, {.in_features = 4, .out_features = 2});
    eval();
  }
  std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
    require_inputs(inputs, 2);
    return {a(inputs[0]) * inputs[1], b(inputs[0])};
  }
};

}  // namespace

TEST_CASE("freeze: a range of batches, with any number of rows") {
  manual_seed(20);
  const SmallNetwork prepared = prepare(SmallNetwork(), get_default_qconfig());
  prepared(small_input(1, 6));
  const SmallNetwork int8 = convert(prepared);
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{8}, std::vector<std::int64_t>{4, 1, 4}}) {
    const FrozenModel frozen = freeze(int8, small_input(2, 1), {.batch_sizes = sizes});
    for (const std::int64_t rows : {1, 2, 4, 5, 8, 9, 13}) {
      CAPTURE(rows);
      const Tensor x = small_input(3, rows);
      CHECK(frozen(x).equal(int8(x)));
      CHECK(frozen({x})[0].equal(int8(x)));
    }
    CHECK_THROWS_AS(frozen(small_input(3, 0)), ArgumentError);
    CHECK_THROWS_AS(frozen(Tensor()), ArgumentError);
  }
  CHECK(freeze(int8, small_input(2, 1), {.batch_sizes = {4, 1, 4}}).batch_sizes() ==
        std::vector<std::int64_t>{1, 4});
  CHECK_THROWS_WITH_AS(freeze(int8, small_input(2, 1), {.batch_sizes = {0}}),
                       doctest::Contains("batch_sizes"), ArgumentError);
  CHECK_THROWS_AS(FrozenModel().info(), ArgumentError);
}

TEST_CASE("freeze: a range of batches is refused where a row depends on the others") {
  manual_seed(21);
  nn::Sequential net{nn::Linear({.in_features = 4, .out_features = 4})};
  net.eval();
  for (const std::int64_t rows : {1, 3}) {
    CHECK_THROWS_WITH_AS(
        freeze(quantize_dynamic(net), random_tensor({rows, 4}), {.batch_sizes = {1, 8}}),
        doctest::Contains("calculates each row by itself"), ArgumentError);
  }
  struct Centred : nn::Module {
    Tensor forward(const Tensor& x) const override { return x - mean(x, Dims{0}, {true}); }
  };
  Centred centred;
  centred.eval();
  CHECK_THROWS_AS(freeze(centred, random_tensor({1, 4}), {.batch_sizes = {1, 8}}), ArgumentError);
}

TEST_CASE("freeze: several inputs and outputs") {
  manual_seed(22);
  const TwoHeads net;
  const Tensor x = random_tensor({3, 4}, 1);
  const Tensor mask = random_tensor({3, 3}, 2);
  const FrozenModel frozen = freeze(net, {x, mask});
  const std::vector<Tensor> expected = net({mask.narrow(1, 0, 1) * x, mask});
  const std::vector<Tensor> results = frozen({mask.narrow(1, 0, 1) * x, mask});
  REQUIRE(results.size() == 2);
  CHECK(results[0].equal(expected[0]));
  CHECK(results[1].equal(expected[1]));
  CHECK_THROWS_WITH_AS(frozen(x, mask), doctest::Contains("outputs: expected one"), ArgumentError);
  CHECK_THROWS_AS(frozen(x), ArgumentError);
  const FrozenModel ranged = freeze(net, {x, mask}, {.batch_sizes = {2}});
  CHECK(ranged({x, mask})[1].sizes() == Dims{3, 2});
  CHECK_THROWS_AS(ranged({x, mask.narrow(0, 0, 2)}), ArgumentError);
}

}  // namespace quanta::test
