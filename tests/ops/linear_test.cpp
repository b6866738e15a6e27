#include "quanta/ops/linear.h"

#include <doctest/doctest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "conv_reference.h"
#include "elementwise_support.h"
#include "quanta/ops/activation.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "support/threads.h"

namespace quanta {
namespace {

using testing::Codes;
using testing::OutputQParams;

/// Exact sums [rows, N] of (x - zx) * (w - zw).
std::vector<double> reference_sums(const QTensor& x, const QTensor& weight) {
  const std::vector<double> left = testing::centred(x);
  const std::vector<double> right = testing::centred(weight);
  const auto k = static_cast<std::size_t>(weight.sizes()[1]);
  const auto n = static_cast<std::size_t>(weight.sizes()[0]);
  std::vector<double> sums(left.size() / k * n);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (std::size_t c = 0; c < k; ++c) sums[i] += left[i / n * k + c] * right[i % n * k + c];
  }
  return sums;
}

std::vector<std::int64_t> reference_codes(const QTensor& x, const QTensor& weight,
                                          const Tensor& bias, const OutputQParams& out) {
  const std::vector<double> sums = reference_sums(x, weight);
  const auto n = static_cast<std::size_t>(weight.sizes()[0]);
  std::vector<std::int64_t> codes;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    codes.push_back(testing::reference_code(sums[i], static_cast<std::int64_t>(i % n),
                                            x.quantizer().scale, weight, bias, out));
  }
  return codes;
}

}  // namespace

TEST_CASE("quantized::linear: random layers give the integers of the scalar reference") {
  Generator generator(7);
  for (int i = 0; i < 150; ++i) {
    const std::int64_t k =
        generator.integer(1, 5) == 1 ? generator.integer(500, 1100) : generator.integer(1, 130);
    const std::int64_t n = generator.integer(1, 70);
    const std::int64_t rows = generator.integer(1, 40);
    const std::int64_t zero_point = generator.integer(0, 2) == 0 ? 0 : generator.integer(1, 255);
    const Codes codes = generator.integer(0, 3) == 0 ? Codes::Extreme : Codes::Uniform;
    const QTensor x = testing::random_activation({rows, k}, 0.02, zero_point, generator, codes);
    const QTensor weight = testing::random_weight(
        {n, k}, {generator.integer(-1, 0), generator.integer(0, 4) == 0, codes}, generator);
    const Tensor bias = generator.integer(0, 2) > 0 ? randn({n}, generator) : Tensor();
    OutputQParams out;
    out.scale = testing::spreading_scale(x, weight, k);
    if (generator.integer(0, 4) == 0) out.scale *= 1e-3;
    out.zero_point = generator.integer(0, 1) == 0 ? 0 : generator.integer(1, 255);
    out.relu = generator.integer(0, 1) == 0;
    CAPTURE(i);
    CAPTURE(to_string(x.sizes()));
    CAPTURE(to_string(weight.sizes()));
    CAPTURE(zero_point);
    const std::vector<std::int64_t> expected = reference_codes(x, weight, bias, out);
    const quantized::LinearPackedParams packed(weight, bias);
    for (const int count : {1, 2}) {
      const test::Threads guard(count);
      for (int repeat = 0; repeat < 2; ++repeat) {
        const QTensor got = out.relu ? quantized::linear_relu(x, packed, out.scale, out.zero_point)
                                     : quantized::linear(x, packed, out.scale, out.zero_point);
        CHECK(got.to_int64_vector() == expected);
      }
    }
  }
}

TEST_CASE(
    "quantized::linear: a layer large enough for two threads gives the reference's integers") {
  Generator generator(41);
  const QTensor weight = testing::random_weight({130, 515}, {0}, generator);
  const Tensor bias = randn({130}, generator);
  const quantized::LinearPackedParams packed(weight, bias);
  for (const std::int64_t zero_point : {0, 99}) {
    const QTensor x = testing::random_activation({67, 515}, 0.02, zero_point, generator);
    const OutputQParams out{testing::spreading_scale(x, weight, 515), zero_point, false};
    const std::vector<std::int64_t> expected = reference_codes(x, weight, bias, out);
    for (const int count : {1, 2}) {
      const test::Threads guard(count);
      CHECK(quantized::linear(x, packed, out.scale, out.zero_point).to_int64_vector() == expected);
    }
  }
}

TEST_CASE("quantized::linear: few rows give the reference's integers on every instruction set") {
  Generator generator(43);
  for (const std::int64_t k : {1, 6, 64, 301}) {
    const std::int64_t n = k == 301 ? 1030 : generator.integer(1, 90);
    const QTensor weight = testing::random_weight({n, k}, {0, false, Codes::Extreme}, generator);
    const Tensor bias = randn({n}, generator);
    const quantized::LinearPackedParams packed(weight, bias);
    for (const std::int64_t rows : {1, 2, 3, 5, 8, 9}) {
      CAPTURE(k);
      CAPTURE(rows);
      const QTensor x =
          testing::random_activation({rows, k}, 0.02, rows % 2 * 77, generator, Codes::Extreme);
      const OutputQParams out{testing::spreading_scale(x, weight, k), 12, rows == 2};
      const std::vector<std::int64_t> expected = reference_codes(x, weight, bias, out);
      test::for_each_target([&] {
        for (const int count : {1, 2, 3, 4}) {
          const test::Threads guard(count);
          const QTensor got = out.relu ? quantized::linear_relu(x, packed, out.scale, 12)
                                       : quantized::linear(x, packed, out.scale, 12);
          CHECK(got.to_int64_vector() == expected);
        }
      });
    }
  }
}

TEST_CASE("quantized::linear: sums beyond 2^24 keep the reference's rounding") {
  Generator generator(3);
  const QTensor weight = testing::random_weight({9, 6000}, {-1, false, Codes::Extreme}, generator);
  const QTensor x = testing::random_activation({3, 6000}, 0.1, 3, generator);
  const quantized::LinearPackedParams packed(weight, {});
  CHECK(quantized::linear(x, packed, 5000.0, 7).to_int64_vector() ==
        reference_codes(x, weight, {}, {5000.0, 7, false}));
}

TEST_CASE("quantized::linear: leading dimensions and strides of x do not change the rows") {
  Generator generator(3);
  const QTensor weight = testing::random_weight({9, 12}, {0}, generator);
  const quantized::LinearPackedParams packed(weight, {});
  const QTensor x = testing::random_activation({2, 3, 12}, 0.1, 3, generator);
  const QTensor out = quantized::linear(x, packed, 1.0, 7);
  CHECK(out.sizes() == Dims{2, 3, 9});
  const std::vector<std::int64_t> expected = reference_codes(x, weight, {}, {1.0, 7, false});
  CHECK(out.to_int64_vector() == expected);
  const QTensor strided(x.transpose(0, 2).contiguous().transpose(0, 2));
  CHECK(quantized::linear(strided, packed, 1.0, 7).to_int64_vector() == expected);
  const QTensor row = quantized::linear(QTensor(x[0][1]), packed, 1.0, 7);
  CHECK(row.sizes() == Dims{9});
  const QTensor none = QTensor::empty({0, 12}, 0.1, 3, DType::QUInt8);
  CHECK(quantized::linear(none, packed, 1.0, 7).sizes() == Dims{0, 9});
}

TEST_CASE("quantized::linear: leaky relu and tanh follow the sum in float") {
  Generator generator(9);
  const QTensor weight = testing::random_weight({9, 12}, {0}, generator);
  const Tensor bias = randn({9}, generator);
  const QTensor x = testing::random_activation({20, 12}, 0.02, 60, generator);
  const quantized::LinearPackedParams packed(weight, bias);
  const std::vector<double> sums = reference_sums(x, weight);
  const std::vector<std::int64_t> leaky =
      quantized::linear_leaky_relu(x, packed, 0.05, 100, 0.2).to_int64_vector();
  const std::vector<std::int64_t> squashed =
      quantized::linear_tanh(x, packed, 1.0 / 128, 128).to_int64_vector();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float scale = 0.02F * static_cast<float>(weight.quantizer().channel->scales[i % 9]);
    float value = static_cast<float>(sums[i]) * scale;
    value += bias.data<float>()[i % 9];
    CHECK(leaky[i] ==
          math::quantize(value > 0.0F ? value : value * 0.2F, 1.0F / 0.05F, 100, 0, 255));
    CHECK(squashed[i] == math::quantize(std::tanh(value), 128.0F, 128, 0, 255));
  }
}

TEST_CASE("quantized::linear: one packed weight serves several threads at once") {
  Generator generator(13);
  const QTensor weight = testing::random_weight({40, 64}, {0}, generator);
  const quantized::LinearPackedParams packed(weight, {});
  std::vector<QTensor> inputs;
  std::vector<std::vector<std::int64_t>> expected;
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(testing::random_activation({i + 1, 64}, 0.02, i * 40, generator));
    expected.push_back(reference_codes(inputs.back(), weight, {}, {0.7, 3, false}));
  }
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> workers;
  for (std::size_t w = 0; w < 4; ++w) {
    workers.emplace_back([&, w] {
      for (std::size_t i = 0; i < 100; ++i) {
        const std::size_t k = (w + i) % 4;
        const QTensor got = quantized::linear(inputs[k], packed, 0.7, 3);
        if (got.to_int64_vector() != expected[k]) ++wrong[w];
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("linear: float layers are near the sum in double") {
  Generator generator(23);
  for (const std::int64_t rows : {1, 3, 64}) {
    const Tensor x = randn({rows, 37}, generator);
    const Tensor weight = randn({21, 37}, generator);
    const Tensor bias = randn({21}, generator);
    const std::vector<float> got = linear(x, weight, bias).to_float_vector();
    const std::vector<float> rectified =
        PackedLinear(weight, bias, Fusion::ReLU)(x).to_float_vector();
    REQUIRE(got.size() == static_cast<std::size_t>(rows * 21));
    for (std::size_t i = 0; i < got.size(); ++i) {
      double sum = static_cast<double>(bias.data<float>()[i % 21]);
      for (std::size_t c = 0; c < 37; ++c) {
        sum += static_cast<double>(x.data<float>()[i / 21 * 37 + c]) *
               static_cast<double>(weight.data<float>()[i % 21 * 37 + c]);
      }
      CHECK(std::abs(static_cast<double>(got[i]) - sum) < 1e-4);
      CHECK(std::abs(static_cast<double>(rectified[i]) - std::max(sum, 0.0)) < 1e-4);
    }
  }
}

TEST_CASE("PackedLinear: the tensors that were packed get their gradients") {
  Generator generator(37);
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    const Tensor values[] = {randn({2, 3, 5}, generator).to(dtype),
                             randn({4, 5}, generator).to(dtype), randn({4}, generator).to(dtype)};
    const auto gradients = [&](auto&& call) {
      std::vector<Tensor> leaves;
      for (const Tensor& value : values) leaves.push_back(value.clone().set_requires_grad());
      const Tensor y = call(leaves);
      y.backward(Tensor::ones(y.sizes(), dtype));
      std::vector<std::vector<float>> result;
      for (const Tensor& leaf : leaves) result.push_back(leaf.grad().to_float_vector());
      return result;
    };
    const auto wanted = gradients([](const std::vector<Tensor>& leaves) {
      return relu(linear(leaves[0], leaves[1], leaves[2]));
    });
    const auto got = gradients([](const std::vector<Tensor>& leaves) {
      return PackedLinear(leaves[1], leaves[2], Fusion::ReLU)(leaves[0], leaves[1], leaves[2]);
    });
    CHECK(got == wanted);
  }
}

TEST_CASE("quantized::linear: bad arguments are refused by name") {
  Generator generator(1);
  const QTensor weight = testing::random_weight({8, 6}, {0}, generator);
  const quantized::LinearPackedParams packed(weight, {});
  const QTensor x = testing::random_activation({2, 6}, 0.1, 3, generator);
  const auto refused = [](auto&& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  refused([&] { quantized::linear(QTensor(x.narrow(1, 0, 5)), packed, 1.0, 0); },
          "linear: x: expected a last dimension of 6 features, got sizes [2, 5]");
  refused(
      [&] {
        quantized::linear(QTensor::empty({2, 6}, 1.0, 0, DType::QInt8), packed, 1.0, 0);
      },
      "linear: x: expected QUInt8, got QInt8");
  refused([&] { quantized::linear(x, packed, -1.0, 0); }, "linear: scale");
  refused([&] { quantized::linear(x, packed, 1.0, 300); },
          "linear: zero_point: expected 0..255 for QUInt8, got 300");
  refused([&] { quantized::linear(x, quantized::LinearPackedParams(), 1.0, 0); },
          "linear: packed: expected packed parameters");
  refused([&] { quantized::linear_leaky_relu(x, packed, 1.0, 0, std::nan("")); },
          "linear_leaky_relu: negative_slope");
  refused([&] { quantized::LinearPackedParams(weight, Tensor::zeros({7})); },
          "linear: bias: expected one number for each of 8 output features, got sizes [7]");
  refused([&] { quantized::LinearPackedParams(weight, Tensor::zeros({8}, DType::Int64)); },
          "linear: bias: expected Float32");
  refused([&] { quantized::LinearPackedParams(x, {}); },
          "linear: weight: expected QInt8, got QUInt8");
  refused(
      [&] {
        quantized::LinearPackedParams(testing::random_weight({8, 6}, {1}, generator), {});
      },
      "linear: weight: expected QInt8 quantized along axis 0, got QInt8 along axis 1");
  refused(
      [&] {
        linear(x, Tensor::zeros({8, 6}));
      },
      "linear: x: expected Float32, got QUInt8 (is a DeQuantStub missing?)");
  refused(
      [&] {
        linear(Tensor::zeros({2, 6}), Tensor::zeros({8, 6, 1}));
      },
      "linear: weight: expected sizes [N, K]");
}

}  // namespace quanta
