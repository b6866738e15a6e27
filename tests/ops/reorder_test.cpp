// Triangles, reversed sequences and what is there once.

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <vector>

#include "quanta/ops/quantize.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/sort.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<float>;

Tensor counted(const Dims& sizes) {
  Integers values(static_cast<std::size_t>(product(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i) + 1;
  return Tensor::from_int64(values).view(sizes);
}

}  // namespace

TEST_CASE("triu and tril: 0 on the other side of the diagonal") {
  for (const Dims& sizes : {Dims{2, 3, 5}, Dims{2, 5, 3}, Dims{1, 1}, Dims{4, 4}}) {
    const Tensor x = counted(sizes).to(DType::Float32);
    const std::int64_t columns = x.size(-1);
    for (std::int64_t k = -6; k <= 6; ++k) {
      const Floats upper = triu(x, k).to_float_vector();
      const Floats lower = tril(x, k).to_float_vector();
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        const std::int64_t row = i / columns % x.size(-2);
        const auto value = static_cast<float>(i + 1);
        const auto at = static_cast<std::size_t>(i);
        CHECK(upper[at] == (i % columns >= row + k ? value : 0.0F));
        CHECK(lower[at] == (i % columns <= row + k ? value : 0.0F));
      }
    }
  }
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  const Tensor x = counted({3, 3});
  CHECK(triu(x, kFar).equal(Tensor::zeros({3, 3}, DType::Int64)));
  CHECK(tril(x, kFar).equal(x));
  CHECK(triu(x, -kFar - 1).equal(x));
  CHECK_THROWS_WITH_AS(triu(Tensor::ones({3})), doctest::Contains("triu: x"), ArgumentError);
}

TEST_CASE("triu: zeros of codes are the zero point") {
  const Tensor codes = quantize_per_tensor(Tensor::ones({2, 2}), 0.5, 7, DType::QUInt8);
  CHECK(triu(codes).to_int64_vector() == Integers{9, 9, 7, 9});
}

TEST_CASE("reverse_sequence: as many as each length says") {
  const Tensor x = counted({4, 3, 2});
  const Integers lengths{4, 1, 3};
  const Tensor index = Tensor::from_int64(lengths);
  for (const bool swapped : {false, true}) {
    const Tensor source = swapped ? x.transpose(0, 1) : x;
    Tensor result = reverse_sequence(source, index, swapped ? 1 : 0, swapped ? 0 : 1);
    if (swapped) result = result.transpose(0, 1);
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t length = lengths[static_cast<std::size_t>(b)];
      for (std::int64_t t = 0; t < 4; ++t) {
        CHECK(result[t][b].equal(x[t < length ? length - 1 - t : t][b]));
      }
    }
  }
  CHECK_THROWS_WITH_AS(reverse_sequence(x, Tensor::from_int64(Integers{1, 5, 1})),
                       doctest::Contains("lengths: expected 0..4, got 5"), ArgumentError);
  CHECK_THROWS_WITH_AS(reverse_sequence(x, index, 1, 1), doctest::Contains("time_dim"),
                       ArgumentError);
}

TEST_CASE("unique: values, first positions, inverse and counts") {
  const Tensor x = Tensor::from_values({2, 1, 1, 3, 4, 3});
  const UniqueResult sorted = unique(x);
  CHECK(sorted.values.to_float_vector() == Floats{1, 2, 3, 4});
  CHECK(sorted.first.to_int64_vector() == Integers{1, 0, 3, 4});
  CHECK(sorted.inverse.to_int64_vector() == Integers{1, 0, 0, 2, 3, 2});
  CHECK(sorted.counts.to_int64_vector() == Integers{2, 1, 2, 1});
  const UniqueResult found = unique(x, {.sorted = false});
  CHECK(found.values.to_float_vector() == Floats{2, 1, 3, 4});
  CHECK(found.inverse.to_int64_vector() == Integers{0, 1, 1, 2, 3, 2});
  CHECK(found.counts.to_int64_vector() == Integers{1, 2, 2, 1});
}

TEST_CASE("unique: slices along a dimension") {
  const Tensor x = Tensor::from_values({1, 0, 0, 1, 0, 0, 2, 3, 4}, {3, 3});
  const UniqueResult rows = unique(x, {.dim = 0});
  CHECK(rows.values.to_float_vector() == Floats{1, 0, 0, 2, 3, 4});
  CHECK(rows.inverse.to_int64_vector() == Integers{0, 0, 1});
  const UniqueResult columns = unique(x, {.dim = -1});
  CHECK(columns.values.to_float_vector() == Floats{0, 0, 1, 0, 0, 1, 3, 4, 2});
  CHECK(columns.first.to_int64_vector() == Integers{1, 2, 0});
  CHECK(unique(Tensor::ones({0})).values.numel() == 0);
}

}  // namespace quanta
