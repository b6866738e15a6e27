#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/activation.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

struct Smooth {
  const char* name;
  std::function<Tensor(const Tensor&)> op;
  std::function<double(double)> exact;
};

double exact_softplus(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }

const std::vector<Smooth>& all() {
  static const std::vector<Smooth> functions{
      {"softplus", [](const Tensor& x) { return softplus(x); }, exact_softplus},
      {"softplus of another beta", [](const Tensor& x) { return softplus(x, 0.5, 30.0); },
       [](double x) { return exact_softplus(0.5 * x) / 0.5; }},
      {"mish", mish, [](double x) { return x * std::tanh(exact_softplus(x)); }},
      {"selu", selu,
       [](double x) {
         return 1.0507009873554805 * (x > 0.0 ? x : 1.6732632423543772 * std::expm1(x));
       }},
      {"logsigmoid", logsigmoid, [](double x) { return -exact_softplus(-x); }},
      {"softsign", softsign, [](double x) { return x / (1.0 + std::abs(x)); }}};
  return functions;
}

TEST_CASE("smooth activations: as in double in any layout") {
  Generator generator(21);
  for (const Smooth& smooth : all()) {
    CAPTURE(smooth.name);
    for (const test::Layout layout : test::kLayouts) {
      const Tensor x = test::in_layout(layout, 3, 5, 7, [&](const Dims& sizes) {
        Tensor values = randn(sizes, generator);
        auto* data = values.mutable_data<float>();
        for (std::int64_t i = 0; i < values.numel(); ++i) data[i] *= 6.0F;
        return values;
      });
      const Tensor y = smooth.op(x);
      REQUIRE(y.sizes() == x.sizes());
      const std::vector<float> values = x.to_float_vector();
      const std::vector<float> results = y.to_float_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double want = smooth.exact(static_cast<double>(values[i]));
        CHECK(std::abs(static_cast<double>(results[i]) - want) <= 4e-7 * std::abs(want) + 1e-7);
      }
    }
  }
}

TEST_CASE("smooth activations: large numbers and NaN do not break") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x =
      Tensor::from_values({200.0F, -200.0F, infinity, std::numeric_limits<float>::quiet_NaN()});
  for (const Smooth& smooth : all()) {
    CAPTURE(smooth.name);
    const std::vector<float> results = smooth.op(x).to_float_vector();
    CHECK(std::isfinite(results[0]));
    CHECK(std::isfinite(results[1]));
    CHECK(std::isnan(results[3]));
  }
  CHECK(softplus(x).to_float_vector()[0] == 200.0F);
  CHECK(logsigmoid(x).to_float_vector()[1] == -200.0F);
  CHECK(logsigmoid(x).to_float_vector()[2] == 0.0F);
}

TEST_CASE("log_softmax: the logarithm of softmax along any dimension and layout") {
  Generator generator(22);
  for (const test::Layout layout : test::kLayouts) {
    const Tensor x = test::in_layout(layout, 3, 5, 7,
                                     [&](const Dims& sizes) { return randn(sizes, generator); });
    for (std::int64_t dim = -4; dim < 4; ++dim) {
      const std::vector<float> logs = log_softmax(x, dim).to_float_vector();
      const std::vector<float> shares = softmax(x, dim).to_float_vector();
      for (std::size_t i = 0; i < logs.size(); ++i) {
        CHECK(std::exp(logs[i]) == doctest::Approx(shares[i]).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("log_softmax: far apart elements keep their distance") {
  const std::vector<float> y =
      log_softmax(Tensor::from_values({1000.0F, 0.0F, 1000.0F}), 0).to_float_vector();
  CHECK(y[0] == doctest::Approx(-std::log(2.0)));
  CHECK(y[1] == doctest::Approx(-1000.0 - std::log(2.0)));
  CHECK(log_softmax(Tensor::empty({0, 3}), 1).numel() == 0);
  CHECK(log_softmax(Tensor::scalar(3.0), 0).item() == 0.0);
}

TEST_CASE("smooth activations: bad input is refused by name") {
  CHECK_THROWS_WITH_AS(softplus(Tensor::ones({2}), 0.0),
                       doctest::Contains("softplus: beta: expected"), ArgumentError);
  CHECK_THROWS_WITH_AS(mish(Tensor::ones({2}, DType::Int64)),
                       doctest::Contains("mish: x: expected Float32"), UnsupportedError);
  CHECK_THROWS_WITH_AS(log_softmax(Tensor::ones({2}), 1), doctest::Contains("log_softmax: dim"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(selu(Tensor()), doctest::Contains("selu: x: expected a Float32 tensor"),
                       ArgumentError);
}

}  // namespace
}  // namespace quanta
