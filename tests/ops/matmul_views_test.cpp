#include <doctest/doctest.h>

#include <cstdint>

#include "quanta/ops/matmul.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::test {
namespace {

/// Views whose elements share memory or lie in an order of their own, [M, K] of a tensor.
Tensor windows(const Tensor& x, std::int64_t rows, std::int64_t inner, const Dims& strides) {
  return x.as_strided({rows, inner}, strides, 0);
}

}  // namespace

TEST_CASE("matmul: views that share elements give what their copies do") {
  Generator generator(3);
  const Tensor x = randn({64}, generator);
  const Tensor weight = randn({4, 3}, generator);
  for (const Dims& strides :
       {Dims{1, 1}, Dims{2, 1}, Dims{3, 1}, Dims{1, 2}, Dims{1, 3}, Dims{2, 3}, Dims{0, 1},
        Dims{1, 0}, Dims{0, 0}, Dims{4, 1}, Dims{1, 5}}) {
    CAPTURE(strides);
    for (const std::int64_t rows : {1, 2, 5}) {
      const Tensor view = windows(x, rows, 4, strides);
      const Tensor want = matmul(view.clone(), weight);
      CHECK(largest_difference(matmul(view, weight), want) < 1e-5);
      const Tensor turned = matmul(weight.transpose(0, 1), view.transpose(0, 1));
      const Tensor turned_want = matmul(weight.transpose(0, 1), view.clone().transpose(0, 1));
      CHECK(largest_difference(turned, turned_want) < 1e-5);
      const Tensor column = windows(x, 4, rows, strides);  // sizes [4, 1] among them
      CHECK(largest_difference(matmul(weight.transpose(0, 1), column),
                               matmul(weight.transpose(0, 1), column.clone())) < 1e-5);
    }
  }
}

TEST_CASE("bmm: batches of windows of unfold and as_strided give what their copies do") {
  Generator generator(4);
  const Tensor x = randn({40}, generator);
  const Tensor other = randn({3, 4, 2}, generator);
  const Tensor unfolded = unfold(randn({3, 9}, generator), 1, 4, 1);  // [3, 6, 4], windows of 4
  CHECK(largest_difference(bmm(unfolded, other), bmm(unfolded.clone(), other)) < 1e-5);
  for (const Dims& strides :
       {Dims{1, 4, 1}, Dims{2, 4, 1}, Dims{1, 1, 1}, Dims{0, 4, 1}, Dims{7, 1, 2}, Dims{3, 2, 1}}) {
    CAPTURE(strides);
    const Tensor view = x.as_strided({3, 5, 4}, strides, 1);
    CHECK(largest_difference(bmm(view, other), bmm(view.clone(), other)) < 1e-5);
    const Tensor single = x.as_strided({1, 5, 4}, strides, 1);
    const Tensor half = other.narrow(0, 0, 1);
    CHECK(largest_difference(bmm(single, half), bmm(single.clone(), half)) < 1e-5);
  }
}

}  // namespace quanta::test
