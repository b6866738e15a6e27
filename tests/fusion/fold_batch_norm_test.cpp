#include <doctest/doctest.h>

#include <cmath>

#include "quanta/fusion/fuse_modules.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/norm.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "small_network.h"

namespace quanta::test {

TEST_CASE("fold_batch_norm: convolution then batch norm equals the folded convolution") {
  Generator generator(2);
  const Tensor x = randn({2, 4, 6, 6}, generator);
  const Tensor weight = randn({6, 2, 3, 3}, generator);
  const Tensor mean = randn({6}, generator);
  const Tensor var = rand({6}, generator);
  const Tensor gamma = randn({6}, generator);
  const Tensor beta = randn({6}, generator);
  const ConvOptions options{.groups = 2};
  const Tensor want = batch_norm(conv2d(x, weight, {}, options), mean, var, gamma, beta);
  const FoldedWeights folded = fold_batch_norm(weight, {}, mean, var, 1e-5, gamma, beta);
  CHECK(largest_difference(conv2d(x, folded.weight, folded.bias, options), want) < 1e-3F);
}

TEST_CASE("fold_batch_norm: transposed convolutions scale dimension 1 of each group") {
  Generator generator(2);
  for (const std::int64_t groups : {1, 2}) {
    const Tensor x = randn({2, 4, 5, 5}, generator);
    const Tensor weight = randn({4, 6 / groups, 3, 3}, generator);
    const Tensor bias = randn({6}, generator);
    const Tensor mean = randn({6}, generator);
    const Tensor var = rand({6}, generator);
    const ConvTransposeOptions options{.stride = {2}, .groups = groups};
    const Tensor want = batch_norm(conv_transpose2d(x, weight, bias, options), mean, var, {}, {});
    const FoldedWeights folded = fold_batch_norm(weight, bias, mean, var, 1e-5, {}, {}, groups);
    CHECK(largest_difference(conv_transpose2d(x, folded.weight, folded.bias, options), want) <
          1e-2F);
  }
}

TEST_CASE("fold_batch_norm: statistics of another channel count are refused") {
  const Tensor weight = Tensor::ones({4, 3, 1, 1});
  CHECK_THROWS_WITH_AS(
      fold_batch_norm(weight, {}, Tensor::ones({3}), Tensor::ones({4}), 1e-5, {}, {}),
      doctest::Contains("running_mean: expected Float32 [4]"), ArgumentError);
}

}  // namespace quanta::test
