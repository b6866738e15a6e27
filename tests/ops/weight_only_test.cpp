#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "instruction_sets.h"
#include "quanta/ops/linear_weight_only.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::for_each_code;

struct Exact {
  std::vector<double> sums;
  std::vector<double> magnitudes;  // the sums of absolute values, which bound what rounding does
};

/// x [rows, K] times the dequantized weight, in double.
Exact reference(const std::vector<float>& x, const WeightOnlyPackedParams& packed) {
  const std::vector<std::int64_t> codes = packed.codes().to_int64_vector();
  const std::vector<float> scales = packed.scales().to_float_vector();
  std::vector<std::int64_t> zero_points(scales.size());
  if (packed.zero_points().defined()) zero_points = packed.zero_points().to_int64_vector();
  const auto n = static_cast<std::size_t>(packed.out_features());
  const auto k = static_cast<std::size_t>(packed.in_features());
  const std::size_t groups = scales.size() / n;
  Exact result;
  for (std::size_t row = 0; row < x.size() / k; ++row) {
    for (std::size_t c = 0; c < n; ++c) {
      double sum = packed.bias().defined() ? packed.bias().data<float>()[c] : 0.0;
      double magnitude = std::abs(sum);
      for (std::size_t i = 0; i < k; ++i) {
        const std::size_t group = c * groups + i / (k / groups);
        const double weight =
            static_cast<double>(codes[c * k + i] - zero_points[group]) * scales[group];
        sum += x[row * k + i] * weight;
        // With zero points, codes and zero point are summed apart: each is at most 2^bits steps.
        magnitude += std::abs(x[row * k + i]) *
                     (zero_points[group] == 0
                          ? std::abs(weight)
                          : static_cast<double>(1 << packed.options().bits) * scales[group]);
      }
      result.sums.push_back(sum);
      result.magnitudes.push_back(magnitude);
    }
  }
  return result;
}

/// Rounding of K float32 sums in any order, far from what a wrong code or scale would do.
void check_close(const Tensor& got, const Exact& expected, std::int64_t k) {
  const std::vector<float> values = got.to_float_vector();
  REQUIRE(values.size() == expected.sums.size());
  const double steps = 8.0 + std::sqrt(static_cast<double>(k));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double allowed = steps * 6.0e-8 * expected.magnitudes[i] + 1e-30;
    // The result itself is rounded to eight bits.
    if (got.dtype() == DType::BFloat16) allowed += std::abs(expected.sums[i]) / 256.0;
    if (!(std::abs(values[i] - expected.sums[i]) <= allowed)) {
      if (wrong++ == 0) {
        MESSAGE("element ", i, ": got ", values[i], ", expected ", expected.sums[i], " +- ",
                allowed);
      }
    }
  }
  CHECK(wrong == 0);
}

WeightOnlyOptions random_options(Generator& generator, std::int64_t& k) {
  WeightOnlyOptions options;
  options.bits = generator.integer(0, 1) == 0 ? 8 : 4;
  options.symmetric = generator.integer(0, 1) == 0;
  const std::int64_t group = std::int64_t{16} << generator.integer(0, 4);
  if (generator.integer(0, 2) > 0) {
    options.group_size = group;
    k = group * generator.integer(1, 5);
  }
  return options;
}

}  // namespace

TEST_CASE("linear_weight_only: random layers agree with a sum in double on each instruction set") {
  Generator generator(3);
  const test::Threads threads(1);
  for (int i = 0; i < 120; ++i) {
    std::int64_t k = generator.integer(1, 300);
    const WeightOnlyOptions options = random_options(generator, k);
    const std::int64_t n = generator.integer(1, 100);
    const std::int64_t rows =
        generator.integer(0, 3) == 0 ? generator.integer(25, 110) : generator.integer(1, 24);
    const Tensor bias = generator.integer(0, 1) == 0 ? randn({n}, generator) : Tensor();
    const auto packed = quantize_weight_only(randn({n, k}, generator), bias, options);
    Tensor x = randn({rows, k}, generator);
    if (generator.integer(0, 2) == 0) x = x.to(DType::BFloat16);
    CAPTURE(i);
    CAPTURE(to_string(Dims{rows, k, n}));
    CAPTURE(options.bits);
    CAPTURE(options.group_size);
    CAPTURE(options.symmetric);
    const Exact expected = reference(x.to_float_vector(), packed);
    for_each_code([&] {
      set_num_threads(1);
      const Tensor one = linear_weight_only(x, packed);
      CHECK(one.dtype() == x.dtype());
      check_close(one, expected, k);
      set_num_threads(2);
      CHECK(linear_weight_only(x, packed).equal(one));
    });
  }
}

TEST_CASE("linear_weight_only: a layer large enough for two threads gives the bits of one") {
  Generator generator(5);
  const test::Threads threads(1);
  const Tensor weight = randn({517, 1056}, generator);
  for (const WeightOnlyOptions& options :
       {WeightOnlyOptions{}, WeightOnlyOptions{4, 32, true}, WeightOnlyOptions{4, 32, false}}) {
    const auto packed = quantize_weight_only(weight, {}, options);
    for (const std::int64_t rows : {1, 3, 12, 13, 40, 200}) {
      const Tensor x = randn({rows, 1056}, generator);
      set_num_threads(1);
      const Tensor one = linear_weight_only(x, packed);
      check_close(one, reference(x.to_float_vector(), packed), 1056);
      set_num_threads(2);
      CHECK(linear_weight_only(x, packed).equal(one));
    }
  }
}

TEST_CASE("linear_weight_only: leading dimensions and strides of x do not change the rows") {
  Generator generator(7);
  const auto packed = quantize_weight_only(randn({9, 32}, generator), randn({9}, generator));
  const Tensor x = randn({2, 3, 32}, generator);
  const Tensor out = linear_weight_only(x, packed);
  CHECK(out.sizes() == Dims{2, 3, 9});
  const Tensor strided = x.transpose(0, 2).contiguous().transpose(0, 2);
  CHECK(linear_weight_only(strided, packed).equal(out));
  CHECK(linear_weight_only(x[0][1], packed).sizes() == Dims{9});
  CHECK(linear_weight_only(Tensor::empty({0, 32}), packed).sizes() == Dims{0, 9});
}

TEST_CASE("linear_weight_only: NaN and infinities stay in their rows") {
  Generator generator(9);
  const auto packed = quantize_weight_only(randn({40, 48}, generator), {}, {4, 16, false});
  for (const std::int64_t rows : {2, 30}) {
    const Tensor x = randn({rows, 48}, generator);
    const std::vector<float> clean = linear_weight_only(x, packed).to_float_vector();
    x.mutable_data<float>()[7] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> got = linear_weight_only(x, packed).to_float_vector();
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(std::isnan(got[i]) == (i < 40));
      if (i >= 40) CHECK(got[i] == clean[i]);
    }
  }
}

TEST_CASE("quantize_weight_only: scales and codes are those of the formula") {
  const Tensor weight =
      Tensor::from_values({-1.5F, 0.3F, 0.0F, 0.75F, 0.2F, 0.4F, 0.1F, 3.0F}, {2, 4});
  const auto symmetric = quantize_weight_only(weight, {}, {4, 0, true});
  CHECK(symmetric.scales().to_float_vector() == std::vector<float>{1.5F / 7.5F, 3.0F / 7.5F});
  CHECK(symmetric.codes().dtype() == DType::Int8);
  // 0.3 / 0.2 is 1.5 and 0.75 / 0.2 is 3.75; 3.0 / 0.4 is 7.5, which the highest code cuts.
  CHECK(symmetric.codes().to_int64_vector() == std::vector<std::int64_t>{-8, 2, 0, 4, 0, 1, 0, 7});
  CHECK(!symmetric.zero_points().defined());

  const auto asymmetric = quantize_weight_only(weight, {}, {8, 0, false});
  CHECK(asymmetric.scales().to_float_vector() == std::vector<float>{2.25F / 255, 3.0F / 255});
  CHECK(asymmetric.zero_points().to_int64_vector() == std::vector<std::int64_t>{170, 0});
  CHECK(asymmetric.codes().dtype() == DType::UInt8);
  CHECK(asymmetric.codes().to_int64_vector() ==
        std::vector<std::int64_t>{0, 204, 170, 255, 17, 34, 8, 255});

  const auto zero = quantize_weight_only(Tensor::zeros({1, 16}), {}, {4, 16, true});
  CHECK(zero.scales().to_float_vector() == std::vector<float>{1.1920928955078125e-07F});
  CHECK(zero.dequantize().equal(Tensor::zeros({1, 16})));
}

TEST_CASE("quantize_weight_only: no weight is further than half a step from its code") {
  Generator generator(11);
  for (int i = 0; i < 60; ++i) {
    std::int64_t k = generator.integer(1, 200);
    const WeightOnlyOptions options = random_options(generator, k);
    const std::int64_t n = generator.integer(1, 70);
    const Tensor weight = randn({n, k}, generator);
    const auto packed = quantize_weight_only(weight, {}, options);
    const std::vector<float> scales = packed.scales().to_float_vector();
    const std::vector<float> before = weight.to_float_vector();
    const std::vector<float> after = packed.dequantize().to_float_vector();
    const std::int64_t group = options.group_size == 0 ? k : options.group_size;
    // Asymmetric: the zero point was rounded too, which can push an end out of the range.
    const double bound = options.symmetric ? 0.5001 : 1.0001;
    std::size_t wrong = 0;
    for (std::size_t e = 0; e < before.size(); ++e) {
      const double scale = scales[e / static_cast<std::size_t>(group)];
      if (!(std::abs(static_cast<double>(before[e]) - after[e]) <= bound * scale)) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("WeightOnlyPackedParams: codes and bytes come back and make the same layer") {
  Generator generator(13);
  for (int i = 0; i < 60; ++i) {
    std::int64_t k = generator.integer(1, 200);
    const WeightOnlyOptions options = random_options(generator, k);
    const std::int64_t n = generator.integer(1, 70);
    const auto packed =
        quantize_weight_only(randn({n, k}, generator), randn({n}, generator), options);
    const Tensor bytes = packed.bytes();
    CHECK(bytes.sizes() == Dims{n, (k * options.bits + 7) / 8});
    const WeightOnlyPackedParams copies[] = {
        {packed.codes(), packed.scales(), packed.zero_points(), packed.bias(), options},
        WeightOnlyPackedParams::from_bytes(bytes, packed.scales(), packed.zero_points(),
                                           packed.bias(), k, options)};
    const Tensor x = randn({2, k}, generator);
    for (const WeightOnlyPackedParams& copy : copies) {
      CHECK(copy.codes().equal(packed.codes()));
      CHECK(copy.scales().equal(packed.scales()));
      CHECK(copy.dequantize().equal(packed.dequantize()));
      CHECK(linear_weight_only(x, copy).equal(linear_weight_only(x, packed)));
    }
  }
}

TEST_CASE("WeightOnlyPackedParams: dequantize gives the formula's floats on each instruction set") {
  Generator generator(17);
  for (const int bits : {8, 4}) {
    const auto packed = quantize_weight_only(randn({37, 96}, generator), {}, {bits, 32, false});
    const std::vector<std::int64_t> codes = packed.codes().to_int64_vector();
    const std::vector<std::int64_t> zero_points = packed.zero_points().to_int64_vector();
    const std::vector<float> scales = packed.scales().to_float_vector();
    std::vector<float> expected;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      expected.push_back(static_cast<float>(codes[i] - zero_points[i / 32]) * scales[i / 32]);
    }
    for_each_code([&] { CHECK(packed.dequantize().to_float_vector() == expected); });
  }
}

TEST_CASE("WeightOnlyPackedParams: four bits take half the bytes of eight") {
  const Tensor weight = test::random_tensor({64, 256}, 19);
  CHECK(quantize_weight_only(weight, {}).nbytes() == 64 * 256 + 64 * 4);
  CHECK(quantize_weight_only(weight, {}, {4, 64, true}).nbytes() == 64 * 128 + 64 * 4 * 4);
  CHECK(quantize_weight_only(weight, {}, {4, 64, false}).nbytes() == 64 * 128 + 64 * 4 * 5);
}

TEST_CASE("linear_weight_only: one packed weight serves several threads at once") {
  Generator generator(23);
  const auto packed = quantize_weight_only(randn({70, 64}, generator), {}, {4, 32, false});
  const Tensor x = randn({20, 64}, generator);
  const Tensor expected = linear_weight_only(x, packed);
  std::vector<int> equal(4);
  std::vector<std::thread> threads;
  for (int& result : equal) {
    threads.emplace_back([&] {
      bool all = true;
      for (int i = 0; i < 50; ++i) all = linear_weight_only(x, packed).equal(expected) && all;
      result = all ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == std::vector<int>{1, 1, 1, 1});
}

TEST_CASE("quantize_weight_only: bad weights and options are refused by name") {
  const Tensor weight = Tensor::ones({4, 96});
  const auto quantize = [&](int bits, std::int64_t group) {
    return quantize_weight_only(weight, {}, {bits, group, true});
  };
  CHECK_THROWS_WITH_AS(quantize(4, 64),
                       doctest::Contains("group_size: expected one that divides the 96 input "
                                         "features, got 64"),
                       ArgumentError);
  for (const std::int64_t group : {-32, 1, 8, 48, 96}) {
    CHECK_THROWS_WITH_AS(quantize(4, group), doctest::Contains("power of two >= 16"),
                         ArgumentError);
  }
  for (const int bits : {-4, 0, 2, 16}) {
    CHECK_THROWS_WITH_AS(quantize(bits, 32), doctest::Contains("bits: expected 8 or 4"),
                         ArgumentError);
  }
  CHECK_THROWS_WITH_AS(quantize_weight_only(Tensor(), {}), doctest::Contains("undefined"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_weight_only(weight.to(DType::BFloat16), {}),
                       doctest::Contains("weight: expected Float32, got BFloat16"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_weight_only(Tensor::ones({4}), {}),
                       doctest::Contains("two sizes of 1 or more"), ArgumentError);
  CHECK_THROWS_AS(quantize_weight_only(Tensor::ones({0, 4}), {}), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_weight_only(weight, Tensor::ones({5})),
                       doctest::Contains("bias: expected Float32 [4]"), ArgumentError);
  for (const double value :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_WITH_AS(quantize_weight_only(Tensor::full({4, 16}, value), {}),
                         doctest::Contains("weight: expected finite numbers"), ArgumentError);
  }
}

TEST_CASE("WeightOnlyPackedParams: bad parts are refused by name") {
  const auto good = quantize_weight_only(Tensor::ones({4, 32}), {}, {4, 16, false});
  const Tensor codes = good.codes();
  const Tensor scales = good.scales();
  const Tensor zero_points = good.zero_points();
  const WeightOnlyOptions options = good.options();
  const auto refuse = [](const auto& make, const char* text) {
    CHECK_THROWS_WITH_AS(make(), doctest::Contains(text), ArgumentError);
  };
  using Packed = WeightOnlyPackedParams;
  refuse([&] { return Packed(codes.bit_cast(DType::Int8), scales, zero_points, {}, options); },
         "codes: expected UInt8, got Int8");
  refuse(
      [&] {
        return Packed(Tensor::full({4, 32}, 16, DType::UInt8), scales, zero_points, {}, options);
      },
      "codes: expected 0..15, got 16 at element 0");
  refuse(
      [&] {
        return Packed(codes, Tensor::ones({4, 1}), zero_points, {}, options);
      },
      "scales: expected sizes [4, 2], got [4, 1]");
  refuse(
      [&] {
        return Packed(codes, Tensor::zeros({4, 2}), zero_points, {}, options);
      },
      "scales: expected finite numbers > 0, got 0");
  refuse([&] { return Packed(codes, Tensor(), zero_points, {}, options); }, "undefined");
  refuse([&] { return Packed(codes, scales, {}, {}, options); }, "zero_points: expected a tensor");
  refuse(
      [&] {
        return Packed(codes, scales, Tensor::full({4, 2}, 16, DType::UInt8), {}, options);
      },
      "zero_points: expected 0..15, got 16");
  refuse(
      [&] {
        return Packed(Tensor::zeros({4, 32}, DType::Int8), scales, zero_points, {}, {4, 16, true});
      },
      "zero_points: expected none for symmetric codes");
  refuse(
      [&] {
        return Packed(codes, scales, zero_points, {}, {5, 16, false});
      },
      "bits: expected 8 or 4, got 5");
  const Tensor bytes = good.bytes();
  for (const std::int64_t k : {-1, 0, 30, 33}) {
    refuse([&] { return Packed::from_bytes(bytes, scales, zero_points, {}, k, options); },
           "bytes: expected rows of");
  }
  refuse(
      [&] {
        return Packed::from_bytes(codes.bit_cast(DType::Int8), scales, zero_points, {}, 32,
                                  options);
      },
      "bytes: expected UInt8");
}

TEST_CASE("linear_weight_only: bad input is refused by name") {
  const auto packed = quantize_weight_only(Tensor::ones({4, 32}), {});
  CHECK_THROWS_WITH_AS(linear_weight_only(Tensor(), packed), doctest::Contains("x: expected"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(linear_weight_only(Tensor::ones({2, 31}), packed),
                       doctest::Contains("x: expected a last dimension of 32 features, got sizes "
                                         "[2, 31]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(linear_weight_only(Tensor::ones({2, 32}, DType::Float16), packed),
                       doctest::Contains("expected Float32 or BFloat16, got Float16"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(linear_weight_only(QTensor::empty({2, 32}, 0.1, 0, DType::QUInt8), packed),
                       doctest::Contains("is a DeQuantStub missing?"), ArgumentError);
  CHECK_THROWS_WITH_AS(linear_weight_only(Tensor::ones({2, 32}), {}),
                       doctest::Contains("packed: expected packed parameters"), ArgumentError);
}

}  // namespace quanta
