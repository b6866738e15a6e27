#include "quanta/ops/sort.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "elementwise_support.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::codes_of;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;
using Codes = std::vector<std::int64_t>;

// Stable order of one line of codes.
Codes order_of(const Codes& line, bool descending) {
  Codes order(line.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const std::int64_t x = line[static_cast<std::size_t>(a)];
    const std::int64_t y = line[static_cast<std::size_t>(b)];
    return descending ? x > y : x < y;
  });
  return order;
}

}  // namespace

TEST_CASE("sort and topk: the examples of torch's documentation") {
  std::vector<float> turns;
  Codes stable;
  for (std::int64_t i = 0; i < 18; ++i) turns.push_back(static_cast<float>(i % 2));
  for (std::int64_t i = 0; i < 18; i += 2) stable.push_back(i);
  for (std::int64_t i = 1; i < 18; i += 2) stable.push_back(i);
  CHECK(sort(Tensor::from_values(turns, {18})).indices.to_int64_vector() == stable);
  const Tensor x = Tensor::from_values({1, 2, 3, 4, 5});
  const auto [values, indices] = topk(x, 3);
  CHECK(values.to_float_vector() == std::vector<float>{5, 4, 3});
  CHECK(indices.to_int64_vector() == Codes{4, 3, 2});
  CHECK(msort(Tensor::from_values({3, 1, 2, 4}, {2, 2})).to_float_vector() ==
        std::vector<float>{2, 1, 3, 4});
}

TEST_CASE("sort and topk: quantized lines are in stable order in any layout") {
  Generator generator(21);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Layout layout : kLayouts) {
      const QTensor x(in_layout(layout, 3, 70, 9, [&](const Dims& sizes) {
        return Tensor(random_codes(sizes, dtype, 0.05, 1, generator));
      }));
      for (std::int64_t dim = 0; dim < 4; ++dim) {
        for (const bool descending : {false, true}) {
          const ValuesIndices sorted = sort(x, {.dim = dim, .descending = descending});
          CHECK(QTensor(sorted.values).quantizer() == x.quantizer());
          CHECK(argsort(x, {.dim = dim - 4, .descending = descending}).equal(sorted.indices));
          const std::int64_t k = std::min<std::int64_t>(2, x.size(dim));
          const ValuesIndices best = topk(x, k, {.dim = dim, .largest = descending});
          CHECK(best.values.equal(sorted.values.narrow(dim, 0, k)));
          CHECK(best.indices.equal(sorted.indices.narrow(dim, 0, k)));
          // One line of each: the last indices of the other dimensions.
          Tensor line = x;
          Tensor order = sorted.indices;
          Tensor values = sorted.values;
          for (std::int64_t d = 3; d >= 0; --d) {
            if (d == dim) continue;
            line = line.select(d, -1);
            order = order.select(d, -1);
            values = values.select(d, -1);
          }
          const Codes expected = order_of(codes_of(line), descending);
          CHECK(order.to_int64_vector() == expected);
          Codes in_order;
          for (const std::int64_t i : expected) {
            in_order.push_back(codes_of(line)[static_cast<std::size_t>(i)]);
          }
          CHECK(codes_of(values) == in_order);
        }
      }
    }
  }
}

TEST_CASE("sort: NaN is the largest number") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from_values({nan, 1, infinity, -infinity, nan, 0});
  CHECK(argsort(x).to_int64_vector() == Codes{3, 5, 1, 2, 0, 4});
  CHECK(argsort(x, {.descending = true}).to_int64_vector() == Codes{0, 4, 2, 1, 5, 3});
  CHECK(topk(x, 3).indices.to_int64_vector() == Codes{0, 4, 2});
}

TEST_CASE("sort: plain dtypes of every width agree with a stable sort") {
  Generator generator(22);
  const Tensor values = randint(-9, 9, {3, 50}, DType::Int64, generator);
  const Tensor expected = argsort(values, {.descending = true});
  for (std::int64_t row = 0; row < 3; ++row) {
    CHECK(expected.select(0, row).to_int64_vector() ==
          order_of(values.select(0, row).to_int64_vector(), true));
  }
  for (const DType dtype :
       {DType::Float32, DType::Float64, DType::Int8, DType::Int16, DType::Int32}) {
    CHECK(argsort(values.to(dtype), {.descending = true}).equal(expected));
    CHECK(argsort(values.to(dtype)).equal(argsort(values)));
  }
  // Both zeros are equal.
  CHECK(argsort(Tensor::from_values({0.0F, -0.0F, -1.0F, 0.0F})).to_int64_vector() ==
        Codes{2, 0, 1, 3});
}

TEST_CASE("sort: empty and 0-d tensors") {
  CHECK(sort(Tensor::empty({0, 3}), {.dim = 0}).values.sizes() == Dims{0, 3});
  CHECK(topk(Tensor::ones({4, 3}), 0).indices.sizes() == Dims{4, 0});
  CHECK(sort(Tensor::scalar(2.0)).values.item() == 2.0);
  CHECK(sort(Tensor::scalar(2.0)).indices.sizes().empty());
  CHECK(topk(Tensor::scalar(2.0), 1).values.item() == 2.0);
}

TEST_CASE("sort and topk: what they cannot do is refused by name") {
  CHECK_THROWS_WITH_AS(topk(Tensor::ones({4, 3}), 4),
                       doctest::Contains("topk: k: expected 0..3 along dim 1 of [4, 3], got 4"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(sort(Tensor::ones({4}), {.dim = 1}),
                       doctest::Contains("sort: dim: expected -1..0, got 1"), ArgumentError);
  const QTensor channels =
      QTensor::empty({2}, DType::QInt8, Quantizer::per_channel({1.0, 2.0}, {0, 0}, 0));
  CHECK_THROWS_WITH_AS(sort(channels),
                       doctest::Contains("sort: x: expected one scale and zero point"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(topk(Tensor::ones({2}, DType::BFloat16), 1),
                       doctest::Contains("topk: x: expected Float32"), UnsupportedError);
}

}  // namespace quanta
