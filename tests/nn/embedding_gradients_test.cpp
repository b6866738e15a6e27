#include <doctest/doctest.h>

#include <vector>

#include "quanta/nn/embedding.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/gradcheck.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

using test::indices;

Tensor float64_leaf(const Dims& sizes, std::uint64_t seed) {
  return test::random_tensor(sizes, seed).to(DType::Float64).set_requires_grad();
}

}  // namespace

TEST_CASE("Embedding: gradients of the table agree with finite differences") {
  Embedding embedding({.num_embeddings = 5, .embedding_dim = 3});
  CHECK(autograd::gradcheck(
      [&](std::span<const Tensor> inputs) {
        embedding.weight = inputs[0];
        return embedding(indices({4, 0, 4, 2}).view({2, 2}));
      },
      {float64_leaf({5, 3}, 1)}));
}

TEST_CASE("Embedding: the row of padding_idx gets no gradient") {
  Embedding embedding({.num_embeddings = 4, .embedding_dim = 2, .padding_idx = 1});
  embedding.requires_grad_();
  sum(embedding(indices({1, 3, 1, 3}))).backward();
  CHECK(embedding.weight.grad().to_float_vector() ==
        std::vector<float>{0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 2.0F, 2.0F});
}

TEST_CASE("EmbeddingBag: gradients agree with finite differences in every mode") {
  for (const auto mode : {EmbeddingBagMode::Sum, EmbeddingBagMode::Mean, EmbeddingBagMode::Max}) {
    EmbeddingBag bag({.num_embeddings = 6, .embedding_dim = 3, .mode = mode, .padding_idx = 2});
    const auto run = [&](std::span<const Tensor> inputs) {
      bag.weight = inputs[0];
      return bag.forward(indices({4, 0, 2, 4, 5, 1, 2}), indices({0, 3, 3, 6}),
                         inputs.size() > 1 ? inputs[1] : Tensor());
    };
    // The gradient of the padding row is zero by rule, and it has no part in the result either.
    CHECK(autograd::gradcheck(run, {float64_leaf({6, 3}, 1)}));
    if (mode == EmbeddingBagMode::Sum) {
      CHECK(autograd::gradcheck(run, {float64_leaf({6, 3}, 1), float64_leaf({7}, 2)}));
    }
  }
}

}  // namespace quanta::nn
