// Normalizations without a mean, and statistics of rows: against plain loops in double.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/norm.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

TEST_CASE("rms_norm: rows are divided by the root of their mean square") {
  Generator generator(31);
  for (const std::int64_t width : {1, 7, 8, 33}) {
    for (const bool strided : {false, true}) {
      Tensor x = strided ? randn({width, 5}, generator).t() : randn({5, width}, generator);
      const Tensor weight = randn({width}, generator);
      const Tensor y = rms_norm(x, {width}, weight, 1e-3);
      const Tensor plain = rms_norm(x, {width}, {}, 1e-3);
      x = x.contiguous();
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        double squares = 0.0;
        for (std::int64_t k = 0; k < width; ++k) {
          squares += std::pow(double{x.data<float>()[i / width * width + k]}, 2.0);
        }
        const double wanted =
            double{x.data<float>()[i]} / std::sqrt(squares / static_cast<double>(width) + 1e-3);
        CHECK(plain.data<float>()[i] == doctest::Approx(wanted).epsilon(1e-5));
        CHECK(y.data<float>()[i] ==
              doctest::Approx(wanted * double{weight.data<float>()[i % width]}).epsilon(1e-5));
      }
    }
  }
  CHECK(rms_norm(Tensor::zeros({0, 3}), {3}).numel() == 0);
  CHECK_THROWS_WITH_AS(rms_norm(Tensor::zeros({2, 3}), {2}),
                       doctest::Contains("normalized_shape: expected the last sizes"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(rms_norm(Tensor::zeros({2, 3}), {3}, Tensor::zeros({2})),
                       doctest::Contains("weight: expected Float32 [3]"), ArgumentError);
}

TEST_CASE("row_statistics: layer_norm is what they make of x") {
  Generator generator(32);
  const Tensor x = add_scalar(randn({4, 3, 5}, generator), 3.0);
  for (const std::int64_t dims : {0, 1, 2, 3}) {
    const RowStatistics statistics = row_statistics(x, dims, 1e-5);
    Dims shape, kept;
    for (std::int64_t d = 0; d < 3; ++d) {
      kept.push_back(d < 3 - dims ? x.size(d) : 1);
      if (d >= 3 - dims) shape.push_back(x.size(d));
    }
    CHECK(statistics.mean.sizes() == kept);
    const Tensor by_hand = mul(sub(x, statistics.mean), statistics.inv_std);
    if (dims == 0) continue;
    const Tensor whole = layer_norm(x, shape, {}, {}, 1e-5);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      CHECK(by_hand.data<float>()[i] == doctest::Approx(whole.data<float>()[i]).epsilon(1e-4));
    }
  }
  CHECK_THROWS_WITH_AS(row_statistics(x, 4), doctest::Contains("dims: expected 0..3, got 4"),
                       ArgumentError);
}

TEST_CASE("lp_normalize: lines along any dimension have norm 1 and zeros stay zeros") {
  Generator generator(33);
  const Tensor x = randn({3, 4, 5}, generator);
  x.select(0, 1).fill_(0.0);
  for (const double p : {1.0, 2.0, 3.0}) {
    for (const std::int64_t dim : {-3, -2, -1, 0, 1, 2}) {
      const Tensor y = lp_normalize(x, dim, p);
      const std::int64_t line = x.size(dim);
      const Tensor lines = y.transpose(dim, -1).contiguous();
      const Tensor before = x.transpose(dim, -1).contiguous();
      for (std::int64_t row = 0; row < x.numel() / line; ++row) {
        double norm = 0.0, given = 0.0;
        for (std::int64_t i = 0; i < line; ++i) {
          norm += std::pow(std::abs(double{lines.data<float>()[row * line + i]}), p);
          given += std::pow(std::abs(double{before.data<float>()[row * line + i]}), p);
        }
        CHECK(norm == doctest::Approx(given == 0.0 ? 0.0 : 1.0).epsilon(1e-5));
      }
    }
  }
  CHECK_THROWS_WITH_AS(lp_normalize(x, 3), doctest::Contains("dim: expected -3..2, got 3"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lp_normalize(x, 0, -1.0), doctest::Contains("p: expected"), ArgumentError);
}

TEST_CASE("local_response_norm: the window is longer behind where its size is even") {
  Generator generator(34);
  const Tensor x = randn({2, 6, 3, 2}, generator);
  for (const std::int64_t size : {1, 2, 3, 4, 9}) {
    const LocalResponseNormOptions options{.size = size, .alpha = 0.5, .beta = 0.6, .bias = 1.5};
    const Tensor y = local_response_norm(x, options);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const std::int64_t channel = i / 6 % 6;
      double squares = 0.0;
      for (std::int64_t c = channel - (size - 1) / 2; c <= channel + size / 2; ++c) {
        if (c < 0 || c >= 6) continue;
        squares += std::pow(double{x.data<float>()[i + (c - channel) * 6]}, 2.0);
      }
      const double wanted = double{x.data<float>()[i]} /
                            std::pow(1.5 + 0.5 / static_cast<double>(size) * squares, 0.6);
      CHECK(y.data<float>()[i] == doctest::Approx(wanted).epsilon(1e-5));
    }
  }
  CHECK_THROWS_WITH_AS(local_response_norm(x, {.size = 0}), doctest::Contains("size: expected"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(local_response_norm(Tensor::zeros({3})),
                       doctest::Contains("x: expected [N, C, ...]"), ArgumentError);
}

}  // namespace
}  // namespace quanta
