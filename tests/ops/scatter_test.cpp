#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "quanta/ops/indexing.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<float>;

constexpr ScatterReduce kReductions[] = {ScatterReduce::None, ScatterReduce::Add,
                                         ScatterReduce::Multiply, ScatterReduce::Minimum,
                                         ScatterReduce::Maximum};

// Numbers in low..high-1.
Tensor random_integers(const Dims& sizes, std::int64_t low, std::int64_t high,
                       Generator& generator) {
  Integers values(static_cast<std::size_t>(product(sizes)));
  for (std::int64_t& value : values) value = generator.integer(low, high - 1);
  return Tensor::from_int64(values).view(sizes);
}

float reduced(ScatterReduce reduce, float old, float update) {
  switch (reduce) {
    case ScatterReduce::None:
      return update;
    case ScatterReduce::Add:
      return old + update;
    case ScatterReduce::Multiply:
      return old * update;
    case ScatterReduce::Minimum:
      return std::min(old, update);
    case ScatterReduce::Maximum:
      return std::max(old, update);
  }
  return 0.0F;
}

}  // namespace

TEST_CASE("scatter: agrees with index arithmetic for every reduction and dimension") {
  Generator generator(5);
  const Dims sizes{3, 4, 5};
  for (std::int64_t dim = 0; dim < 3; ++dim) {
    for (const ScatterReduce reduce : kReductions) {
      Dims part{2, 3, 4};
      part[static_cast<std::size_t>(dim)] = 7;  // longer than x is allowed along dim
      const Tensor x = random_integers(sizes, -3, 4, generator).to(DType::Float32);
      const Tensor src = random_integers(part, -3, 4, generator).to(DType::Float32);
      const std::int64_t length = x.size(dim);
      const Tensor index = random_integers(part, -length, length, generator);
      const Tensor want = x.clone();
      for (std::int64_t i = 0; i < part[0]; ++i) {
        for (std::int64_t j = 0; j < part[1]; ++j) {
          for (std::int64_t k = 0; k < part[2]; ++k) {
            const auto raw = static_cast<std::int64_t>(index[i][j][k].item());
            std::int64_t at[] = {i, j, k};
            at[dim] = raw < 0 ? raw + length : raw;
            const Tensor place = want[at[0]][at[1]][at[2]];
            place.fill_(reduced(reduce, static_cast<float>(place.item()),
                                static_cast<float>(src[i][j][k].item())));
          }
        }
      }
      CHECK(scatter(x, dim, index, src, reduce).equal(want));
      // The same numbers as integers, from a transposed tensor.
      const Tensor turned = x.to(DType::Int16).permute({2, 1, 0}).clone(MemoryFormat::Contiguous);
      CHECK(scatter(turned.permute({2, 1, 0}), dim, index.to(DType::Int32), src.to(DType::Int16),
                    reduce)
                .equal(want.to(DType::Int16)));
    }
  }
}

TEST_CASE("scatter: of Bool sums are or and products are and") {
  const Tensor x = Tensor::from_values({0, 1, 1, 0}).to(DType::Bool);
  const Tensor index = Tensor::from_int64(Integers{0, 0, 1, 3});
  const Tensor src = Tensor::from_values({1, 1, 0, 0}).to(DType::Bool);
  CHECK(scatter(x, 0, index, src, ScatterReduce::Add).to_int64_vector() == Integers{1, 1, 1, 0});
  CHECK(scatter(x, 0, index, src, ScatterReduce::Multiply).to_int64_vector() ==
        Integers{0, 0, 1, 0});
}

TEST_CASE("scatter: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({2, 3});
  const Tensor index = Tensor::from_int64(Integers{2}).view({1, 1});
  CHECK_THROWS_WITH_AS(scatter(x, 0, index, Tensor::ones({1, 1})),
                       doctest::Contains("scatter: index: expected -2..1, got 2"), ArgumentError);
  CHECK_THROWS_WITH_AS(scatter(x, 0, index, Tensor::ones({1, 2})), doctest::Contains("src"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(scatter(x, 0, index.view({1}), Tensor::ones({1})),
                       doctest::Contains("index: expected 2 dimensions"), ArgumentError);
  CHECK_THROWS_WITH_AS(scatter(x, 0, index, Tensor::ones({1, 1}, DType::Int32)),
                       doctest::Contains("src: expected Float32"), ArgumentError);
  const Tensor empty = Tensor::from_int64({}).view({0, 3});
  CHECK(scatter(x, 0, empty, Tensor::ones({0, 3})).equal(x));
}

TEST_CASE("scatter_nd and gather_nd: place and take the slices that rows name") {
  Generator generator(6);
  const Tensor x = random_integers({3, 4, 5}, -9, 10, generator);
  const Tensor index = Tensor::from_int64(Integers{2, -1, 0, 3, 2, 3}).view({3, 2});
  const Tensor taken = gather_nd(x, index);
  REQUIRE(taken.sizes() == Dims{3, 5});
  CHECK(taken[0].equal(x[2][3]));
  CHECK(taken[1].equal(x[0][3]));
  CHECK(taken[2].equal(x[2][3]));
  const Tensor updates = random_integers({3, 5}, -9, 10, generator);
  const Tensor placed = scatter_nd(x, index, updates);
  CHECK(placed[2][3].equal(updates[2]));  // the last one stays
  CHECK(placed[0][3].equal(updates[1]));
  CHECK(placed[1].equal(x[1]));
  const Tensor added = scatter_nd(x, index, updates, ScatterReduce::Add);
  for (std::int64_t i = 0; i < 5; ++i) {
    CHECK(added[2][3][i].item() == x[2][3][i].item() + updates[0][i].item() + updates[2][i].item());
  }
  // Whole elements, and quantized ones.
  const Tensor elements = Tensor::from_int64(Integers{1, 1, 1, 0, 0, 0}).view({2, 3});
  CHECK(gather_nd(x, elements).to_int64_vector() ==
        Integers{x[1][1][1].to_int64_vector()[0], x[0][0][0].to_int64_vector()[0]});
}

TEST_CASE("gather_nd: batch dimensions of x and index belong together") {
  Generator generator(7);
  const Tensor x = random_integers({2, 3, 4, 5}, -9, 10, generator);
  const Tensor index = random_integers({2, 3, 6, 1}, -4, 4, generator);
  const Tensor taken = gather_nd(x, index, 2);
  REQUIRE(taken.sizes() == Dims{2, 3, 6, 5});
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      for (std::int64_t k = 0; k < 6; ++k) {
        const auto at = static_cast<std::int64_t>(index[i][j][k][0].item());
        CHECK(taken[i][j][k].equal(x[i][j][at < 0 ? at + 4 : at]));
      }
    }
  }
  CHECK_THROWS_WITH_AS(gather_nd(x, index.narrow(0, 0, 1), 2), doctest::Contains("index"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(gather_nd(x, Tensor::from_int64(Integers{7}), 0),
                       doctest::Contains("expected -2..1, got 7"), ArgumentError);
  CHECK_THROWS_WITH_AS(gather_nd(x, Tensor::zeros({2, 5}, DType::Int64)),
                       doctest::Contains("expected 1..4 numbers in a row"), ArgumentError);
}

TEST_CASE("scatter_cache: writes on from where each batch begins") {
  const Tensor x = Tensor::zeros({2, 4, 1});
  const Tensor update = Tensor::from_values({1, 2, 3, 4}, {2, 2, 1});
  const Tensor start = Tensor::from_int64(Integers{1, 3});
  CHECK(scatter_cache(x, update, start, 1, true).to_float_vector() ==
        Floats{0, 1, 2, 0, 4, 0, 0, 3});
  CHECK(scatter_cache(x, update, Tensor(), 1).to_float_vector() == Floats{1, 2, 0, 0, 3, 4, 0, 0});
  CHECK_THROWS_WITH_AS(scatter_cache(x, update, start, 1),
                       doctest::Contains("start: expected 0..2, got 3"), ArgumentError);
  CHECK_THROWS_WITH_AS(scatter_cache(x, update, start, 0), doctest::Contains("dim"), ArgumentError);
}

TEST_CASE("one_hot: indices from both ends, and none for those outside") {
  const Tensor index = Tensor::from_int64(Integers{1, -1, 3, -4});
  const Tensor values = Tensor::from_values({5, 7});
  CHECK(one_hot(index, 3, values).to_float_vector() == Floats{5, 7, 5, 5, 5, 7, 5, 5, 5, 5, 5, 5});
  CHECK(one_hot(index, 3, values, 0).equal(one_hot(index, 3, values).t()));
  CHECK(one_hot(index, 0, values).sizes() == Dims{4, 0});
  CHECK_THROWS_WITH_AS(one_hot(index, -1, values), doctest::Contains("depth"), ArgumentError);
  CHECK_THROWS_WITH_AS(one_hot(index, 3, Tensor::ones({3})), doctest::Contains("values"),
                       ArgumentError);
}

TEST_CASE("wrap_indices: negative numbers count from the end") {
  CHECK(wrap_indices(Tensor::from_int64(Integers{0, -1, -5, 4}), 5).to_int64_vector() ==
        Integers{0, 4, 0, 4});
  CHECK_THROWS_WITH_AS(
      wrap_indices(Tensor::from_int64(Integers{-2}), std::numeric_limits<std::int64_t>::min()),
      doctest::Contains("length: expected a number >= 0"), ArgumentError);
}

}  // namespace quanta
