#include "quanta/ops/activation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/activation/cpu_softmax_codes.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/lookup.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::codes_of;
using test::for_each_target;
using test::in_layout;
using test::Layout;
using Codes = std::vector<std::int64_t>;

QTensor example_a() {
  return quantize_per_tensor(
      Tensor::from_values({-1.3F, -.55F, -.05F, 0, .05F, .15F, .25F, .35F, 1.95F, 3.2F}), 0.1, 10,
      DType::QUInt8);
}

TEST_CASE("quantized::dropout: the tensor itself comes back") {
  const QTensor x = QTensor::empty({3}, 0.5, 3, DType::QUInt8);
  CHECK(quantized::dropout(x).is_same(x));
  CHECK_THROWS_WITH_AS(quantized::dropout(x, 1.5), doctest::Contains("p: expected 0..1, got 1.5"),
                       ArgumentError);
}

TEST_CASE("activations: torch's printed examples") {
  const QTensor a = example_a();
  CHECK(codes_of(sigmoid(a)) == Codes{69, 91, 128, 128, 128, 141, 141, 153, 225, 246});
  CHECK(codes_of(tanh(a)) == Codes{31, 59, 128, 128, 128, 153, 153, 177, 251, 255});
  CHECK(codes_of(hardsigmoid(a)) == Codes{85, 102, 128, 128, 128, 137, 137, 145, 213, 255});
  CHECK(codes_of(quantized::hardswish(a, .05, 10)) == Codes{3, 5, 10, 10, 10, 12, 12, 15, 43, 74});
  CHECK(codes_of(quantized::elu(a, .05, 30)) == Codes{17, 21, 30, 30, 30, 34, 34, 38, 70, 94});
  CHECK(codes_of(quantized::leaky_relu(a, .1, .05, 10)) ==
        Codes{8, 9, 10, 10, 10, 14, 14, 18, 50, 74});
  CHECK(codes_of(quantized::softmax(a, 0, 1.0 / 256, 0)) ==
        Codes{2, 4, 6, 6, 6, 8, 8, 10, 48, 158});
  CHECK(codes_of(relu6(a)) == Codes{10, 10, 10, 10, 10, 12, 12, 14, 30, 42});
  CHECK(codes_of(clamp(a, -.5, 1)) == Codes{5, 5, 10, 10, 10, 12, 12, 14, 20, 20});
}

TEST_CASE("activations: functions of a fixed range have torch's parameters") {
  const auto parameters = [](const Tensor& x) { return x.as_quantized().quantizer(); };
  const QTensor a = example_a();
  const QTensor b = quantize_per_tensor(dequantize(a), 0.1, -3, DType::QInt8);
  CHECK(parameters(sigmoid(a)) == Quantizer::per_tensor(1.0 / 256, 0));
  CHECK(parameters(sigmoid(b)) == Quantizer::per_tensor(1.0 / 256, -128));
  CHECK(parameters(hardsigmoid(b)) == Quantizer::per_tensor(1.0 / 256, -128));
  CHECK(parameters(tanh(a)) == Quantizer::per_tensor(1.0 / 128, 128));
  CHECK(parameters(tanh(b)) == Quantizer::per_tensor(1.0 / 128, 0));
  CHECK(parameters(relu(b)) == b.quantizer());
  CHECK(parameters(gelu(b)) == b.quantizer());
  CHECK(parameters(elu(b)) == b.quantizer());
  CHECK(parameters(hardswish(b)) == b.quantizer());
}

TEST_CASE("lookup kernel: every instruction set reads every entry at every place") {
  cpu::CodeTable table;
  for (std::size_t i = 0; i < 256; ++i) table[i] = static_cast<std::uint8_t>(i * 167 + 13);
  std::vector<std::uint8_t> codes(256 * 3 + 29);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i * 5 + i / 256);
  for_each_target([&] {
    for (const std::size_t count :
         {codes.size(), std::size_t{0}, std::size_t{7}, std::size_t{65}}) {
      std::vector<std::uint8_t> out(count + 1, 99);
      cpu::lookup(codes.data() + 1, out.data(),
                  static_cast<std::int64_t>(count) - (count == codes.size() ? 1 : 0), table,
                  cpu::Store::Cached);
      for (std::size_t i = 0; i + 1 < count; ++i) REQUIRE(out[i] == table[codes[i + 1]]);
      CHECK(out[count] == 99);
    }
  });
}

TEST_CASE("relu and clamp: all codes on every instruction set") {
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const std::int64_t shift = dtype == DType::QUInt8 ? 0 : -128;
    Tensor all = Tensor::empty({300}, int_repr_dtype(dtype));
    for (std::int64_t i = 0; i < 300; ++i) {
      static_cast<std::uint8_t*>(all.data_ptr())[i] = static_cast<std::uint8_t>(i);
    }
    const std::int64_t zero = shift + 100;
    const QTensor x = QTensor::from_int_repr(all, Quantizer::per_tensor(0.1, zero));
    const Codes codes = codes_of(x);
    for_each_target([&] {
      const Codes positive = codes_of(relu(x));
      const Codes six = codes_of(relu6(x));
      const Codes bounded = codes_of(clamp(x, -2.0, 3.0));
      const Codes upper_wins = codes_of(hardtanh(x, 3.0, -2.0));
      for (std::size_t i = 0; i < codes.size(); ++i) {
        REQUIRE(positive[i] == std::max(codes[i], zero));
        REQUIRE(six[i] == std::clamp(codes[i], zero, zero + 60));
        REQUIRE(bounded[i] == std::clamp(codes[i], zero - 20, zero + 30));
        REQUIRE(upper_wins[i] == zero - 20);
      }
    });
  }
}

TEST_CASE("relu and clamp: NaN stays NaN in float") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for_each_target([&] {
    std::vector<float> values;
    for (int i = 0; i < 37; ++i) values.push_back(i % 3 == 0 ? kNaN : static_cast<float>(i - 18));
    const Tensor x = Tensor::from_values(values, {37});
    const std::vector<float> y = relu(x).to_float_vector();
    const std::vector<float> z = clamp(x, {}, 4.0).to_float_vector();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        REQUIRE(std::isnan(y[i]));
        REQUIRE(std::isnan(z[i]));
      } else {
        REQUIRE(y[i] == std::max(values[i], 0.0F));
        REQUIRE(z[i] == std::min(values[i], 4.0F));
      }
    }
  });
}

struct Named {
  const char* name;
  std::function<Tensor(const Tensor&)> op;
};

TEST_CASE("activations: any memory layout and dtype gives the contiguous tensor's values") {
  const std::vector<Named> ops = {
      {"relu", relu},
      {"relu6", relu6},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.3, 0.4); }},
      {"threshold", [](const Tensor& x) { return threshold(x, 0.1, 0.7); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }},
      {"hardsigmoid", hardsigmoid},
      {"sigmoid", sigmoid},
      {"tanh", tanh},
      {"hardswish", hardswish},
      {"elu", [](const Tensor& x) { return elu(x, 0.8); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::Tanh); }},
  };
  Generator generator(20);
  for (const Layout layout : test::kLayouts) {
    const Tensor x =
        in_layout(layout, 5, 3, 7, [&](const Dims& sizes) { return randn(sizes, generator); });
    for (const Named& named : ops) {
      CAPTURE(named.name);
      const Tensor y = named.op(x);
      CHECK(y.sizes() == x.sizes());
      CHECK(y.suggested_format() == x.suggested_format());
      CHECK(y.to_float_vector() == named.op(x.contiguous()).to_float_vector());
      for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
        const Tensor q = in_layout(layout, 5, 3, 7, [&](const Dims& sizes) {
          return test::random_codes(sizes, dtype, 0.03, 40, generator);
        });
        CHECK(named.op(q).equal(named.op(q.contiguous())));
        CHECK(named.op(q).suggested_format() == q.suggested_format());
      }
    }
  }
}

TEST_CASE("quantized activations: the table holds what the float function gives") {
  Generator generator(21);
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const QTensor x = test::random_codes({2000}, dtype, 0.05, 17, generator);
    const Tensor values = dequantize(x);
    const std::vector<std::pair<QTensor, Tensor>> pairs = {
        {quantized::hardswish(x, 0.07, 9), hardswish(values)},
        {quantized::silu(x, 0.07, 9), silu(values)},
        {quantized::elu(x, 0.07, 9, 1.5), elu(values, 1.5)},
        {quantized::celu(x, 0.07, 9, 0.7), celu(values, 0.7)},
        {quantized::gelu(x, 0.07, 9), gelu(values)},
        {quantized::gelu(x, 0.07, 9, GeluApproximation::Tanh),
         gelu(values, GeluApproximation::Tanh)},
        {quantized::softplus(x, 0.07, 9, 1.5, 2.0), softplus(values, 1.5, 2.0)},
        {quantized::softplus(x, 0.07, 9, 0.5, 2.0), softplus(values, 0.5, 2.0)},
        {quantized::mish(x, 0.07, 9), mish(values)},
        {quantized::selu(x, 0.07, 9), selu(values)},
        {quantized::logsigmoid(x, 0.07, 99), logsigmoid(values)},
        {quantized::softsign(x, 0.008, 3), softsign(values)},
        {quantized::sigmoid(x, 0.004, 3), sigmoid(values)},
        {quantized::tanh(x, 0.008, 3), tanh(values)},
        {quantized::leaky_relu(x, 0.3, 0.07, 9), leaky_relu(values, 0.3)},
    };
    for (const auto& [got, floats] : pairs) {
      const Codes codes = codes_of(got);
      const Codes expected =
          codes_of(quantize_per_tensor(floats, got.q_scale(), got.q_zero_point(), dtype));
      std::size_t different = 0;
      for (std::size_t i = 0; i < codes.size(); ++i) {
        // A fused dequantize may land on the other side of a tie.
        REQUIRE(std::abs(codes[i] - expected[i]) <= 1);
        different += codes[i] != expected[i] ? 1 : 0;
      }
      CHECK(different <= codes.size() / 50);
    }
  }
}

TEST_CASE("quantized log_softmax: the codes of the float function along any dimension and layout") {
  Generator generator(22);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Layout layout : test::kLayouts) {
      const QTensor x(in_layout(layout, 5, 3, 7, [&](const Dims& sizes) {
        return test::random_codes(sizes, dtype, 0.05, 17, generator);
      }));
      for (const std::int64_t dim : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}}) {
        const QTensor got = quantized::log_softmax(x, dim, 0.07, 99);
        CHECK(got.equal(quantize_per_tensor(log_softmax(dequantize(x), dim), 0.07, 99, dtype)));
      }
    }
  }
  CHECK_THROWS_WITH_AS(quantized::log_softmax(example_a(), 1, 0.1, 0),
                       doctest::Contains("quantized::log_softmax: dim"), ArgumentError);
}

TEST_CASE("quantized activations: a table is not reused for other parameters") {
  const QTensor a = example_a();
  const Codes first = codes_of(quantized::leaky_relu(a, .1, .05, 10));
  for (int i = 0; i < 400; ++i) {
    const double slope = 0.01 * (i + 1);
    static_cast<void>(quantized::leaky_relu(a, slope, .05, 10));
  }
  CHECK(codes_of(quantized::leaky_relu(a, .1, .05, 10)) == first);
  CHECK_FALSE(codes_of(quantized::leaky_relu(a, .1, .05, 11)) == first);
}

TEST_CASE("hardshrink: values up to lambd become zero and NaN stays") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x =
      Tensor::from_values({-infinity, -0.75F, -0.5F, -0.25F, 0.0F, 0.5F, 0.50001F, 2.0F, nan});
  std::vector<float> y = hardshrink(x).to_float_vector();
  CHECK(std::isnan(y.back()));
  y.pop_back();
  CHECK(y == std::vector<float>{-infinity, -0.75F, 0.0F, 0.0F, 0.0F, 0.0F, 0.50001F, 2.0F});
  CHECK(hardshrink(x, 0.25).to_float_vector()[2] == -0.5F);
  // As in torch, nothing lies between 1 and -1.
  CHECK(hardshrink(x, -1.0).to_float_vector()[3] == -0.25F);
  CHECK_THROWS_WITH_AS(hardshrink(example_a()),
                       doctest::Contains("hardshrink: x: expected Float32"), UnsupportedError);
}

TEST_CASE("relu_: works through views and refuses elements with two addresses") {
  const Tensor x = Tensor::from_values({-1, 2, -3, -4, 5, -6}, {2, 3});
  relu_(x.slice(1, 0, 2));
  CHECK(x.to_float_vector() == std::vector<float>{0, 2, -3, 0, 5, -6});
  CHECK(relu_(x).is_same(x));
  CHECK(x.to_float_vector() == std::vector<float>{0, 2, 0, 0, 5, 0});
  const QTensor a = example_a();
  relu_(a.slice(0, 0, 10, 3));
  CHECK(codes_of(a) == Codes{10, 4, 10, 10, 10, 12, 12, 14, 30, 42});
  CHECK_THROWS_WITH_AS(
      relu_(Tensor::ones({2, 1}).expand({2, 3})),
      doctest::Contains("relu_: x: expected each element at an address of its own"), ArgumentError);
}

TEST_CASE("prelu: one slope or one for each channel") {
  const Tensor x = Tensor::from_values({-1, 2, -3, 4, -5, 6, -7, 8}, {2, 2, 2});
  CHECK(prelu(x, Tensor::from_values({0.5F})).to_float_vector() ==
        std::vector<float>{-.5F, 2, -1.5F, 4, -2.5F, 6, -3.5F, 8});
  CHECK(prelu(x, Tensor::from_values({0.5F, 2.0F})).to_float_vector() ==
        std::vector<float>{-.5F, 2, -6, 4, -2.5F, 6, -14, 8});
  CHECK_THROWS_WITH_AS(prelu(x, Tensor::ones({3})),
                       doctest::Contains("prelu: weight: expected 1 value or 2"), ArgumentError);
}

TEST_CASE("quantized::prelu: any number of channels gives the rule's codes everywhere") {
  Generator generator(51);
  test::for_each_target([&] {
    for (std::int64_t channels = 1; channels <= 130; ++channels) {
      CAPTURE(channels);
      const DType dtype = channels % 2 == 0 ? DType::QUInt8 : DType::QInt8;
      const MemoryFormat format =
          channels % 3 == 0 ? MemoryFormat::Contiguous : MemoryFormat::ChannelsLast;
      const QTensor x(
          test::random_codes({2, channels, 3, 2}, dtype, 0.1, 7, generator).contiguous(format));
      const QTensor weight = test::random_codes({channels}, dtype, 0.03, 4, generator);
      const IntRange range = quant_range(dtype);
      const std::int64_t one = std::min<std::int64_t>(range.max, 33 + 4) - 4;
      const float multiplier = 0.1F * 0.03F * math::inverse_scale(0.02F);
      const auto codes = test::codes_of(x);
      const auto slopes = test::codes_of(weight);
      const auto got = test::codes_of(quantized::prelu(x, weight, 0.02, 11));
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::int64_t difference = codes[i] - 7;
        const std::int64_t slope =
            difference > 0 ? one : slopes[i / 6 % static_cast<std::size_t>(channels)] - 4;
        REQUIRE(got[i] == math::quantize(static_cast<float>(difference * slope), multiplier, 11,
                                         static_cast<std::int32_t>(range.min),
                                         static_cast<std::int32_t>(range.max)));
      }
    }
  });
}

TEST_CASE("quantized::prelu: a slope of 1.0 that saturates scales the positive side too") {
  const QTensor x = quantize_per_tensor(Tensor::from_values({2.0F}), 0.1, 10, DType::QUInt8);
  const QTensor weight = quantize_per_tensor(Tensor::from_values({0.25F}), 0.002, 0, DType::QUInt8);
  // 255 * 0.002 is 0.51.
  CHECK(dequantize(quantized::prelu(x, weight, 0.01, 0)).item() == doctest::Approx(1.02));
}

TEST_CASE("softmax: rows sum to one along any dimension and layout") {
  Generator generator(22);
  for (const Layout layout : test::kLayouts) {
    const Tensor x =
        in_layout(layout, 5, 3, 7, [&](const Dims& sizes) { return randn(sizes, generator); });
    for (std::int64_t dim = -4; dim < 4; ++dim) {
      const Tensor y = softmax(x, dim);
      CHECK(y.to_float_vector() == softmax(x.contiguous(), dim).to_float_vector());
      const std::int64_t d = dim < 0 ? dim + 4 : dim;
      const std::vector<float> all = y.select(d, 0).to_float_vector();
      std::vector<float> sums(all.size(), 0.0F);
      for (std::int64_t i = 0; i < y.size(d); ++i) {
        const std::vector<float> part = y.select(d, i).to_float_vector();
        for (std::size_t k = 0; k < part.size(); ++k) sums[k] += part[k];
      }
      for (const float sum : sums) REQUIRE(sum == doctest::Approx(1.0).epsilon(1e-5));
    }
  }
  CHECK_THROWS_AS(softmax(Tensor::ones({2}), 1), ArgumentError);
}

TEST_CASE("softmax: every instruction set gives the same floats near the exact ones") {
  Generator generator(23);
  for (const std::int64_t length : {1, 2, 8, 15, 16, 17, 33, 100, 1000}) {
    // Exponentials from 1 down to denormal numbers and 0.
    const Tensor x = mul(randn({3, length}, generator), Tensor::from_values({30}, {1}));
    std::vector<float> first;
    for_each_target([&] {
      const std::vector<float> got = softmax(x, 1).to_float_vector();
      if (first.empty()) first = got;
      CHECK(got == first);
    });
    const std::vector<float> values = x.to_float_vector();
    for (std::size_t row = 0; row < 3; ++row) {
      const auto count = static_cast<std::size_t>(length);
      const float* from = values.data() + row * count;
      const auto largest = static_cast<double>(*std::max_element(from, from + count));
      double sum = 0.0;
      for (std::size_t i = 0; i < count; ++i) {
        sum += std::exp(static_cast<double>(from[i]) - largest);
      }
      for (std::size_t i = 0; i < count; ++i) {
        const double want = std::exp(static_cast<double>(from[i]) - largest) / sum;
        // The difference from the largest is rounded to float32 before exp.
        const double error = std::abs(static_cast<double>(first[row * count + i]) - want);
        const double difference = largest - static_cast<double>(from[i]);
        REQUIRE(error <= (1e-6 + 6e-8 * difference) * want + 1e-44);
      }
    }
  }
}

TEST_CASE("softmax: infinities and NaN come out as in torch on every instruction set") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for_each_target([&] {
    for (const std::int64_t length : {3, 16, 21, 40}) {
      for (const std::int64_t place : {std::int64_t{0}, std::int64_t{2}, length - 1}) {
        const Tensor x = Tensor::zeros({length});
        x.slice(0, place, place + 1).fill_(-static_cast<double>(kInfinity));
        const std::vector<float> without = softmax(x, 0).to_float_vector();
        for (std::int64_t i = 0; i < length; ++i) {
          CHECK(without[static_cast<std::size_t>(i)] ==
                (i == place ? 0.0F : 1.0F / static_cast<float>(length - 1)));
        }
        for (const float value : {kInfinity, kNaN}) {
          x.slice(0, place, place + 1).fill_(static_cast<double>(value));
          for (const float y : softmax(x, 0).to_float_vector()) CHECK(std::isnan(y));
        }
        x.fill_(-static_cast<double>(kInfinity));
        for (const float y : softmax(x, 0).to_float_vector()) CHECK(std::isnan(y));
      }
    }
  });
}

TEST_CASE("quantized::softmax: the codes of the float function on every instruction set") {
  Generator generator(24);
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const std::int64_t zero_point = dtype == DType::QInt8 ? -128 : 0;
    // Exponentials that nearly all count, that fall off within a few codes, and infinite floats.
    for (const double scale : {0.01, 0.3, 40.0, 3e36}) {
      for (const std::int64_t length : {1, 3, 15, 16, 17, 40, 100, 255, 319, 320, 321, 1000}) {
        const QTensor x = test::random_codes({7, length}, dtype, scale, 13, generator);
        const QTensor want =
            quantize_per_tensor(softmax(dequantize(x), 1), 1.0 / 256, zero_point, dtype);
        const auto* src = static_cast<const std::uint8_t*>(x.data_ptr());
        const auto* codes = static_cast<const std::uint8_t*>(want.data_ptr());
        const cpu::QuantizeArgs out{256.0F, static_cast<std::int32_t>(zero_point),
                                    static_cast<std::int32_t>(zero_point),
                                    static_cast<std::int32_t>(zero_point + 255),
                                    static_cast<std::int32_t>(zero_point + 255)};
        for_each_target([&] {
          CAPTURE(length);
          CAPTURE(scale);
          CHECK(quantized::softmax(x, 1, 1.0 / 256, zero_point).equal(want));
          // Tables of this instruction set: the first rows have none yet.
          cpu::SoftmaxCodes rows({static_cast<float>(scale), 13, dtype == DType::QInt8});
          std::vector<std::uint8_t> got(static_cast<std::size_t>(length));
          for (std::int64_t row = 0; row < 21; ++row) {
            rows.row(src + row % 7 * length, length, out, got.data());
            REQUIRE(std::equal(got.begin(), got.end(), codes + row % 7 * length));
          }
        });
      }
    }
  }
  const QTensor x = test::random_codes({2, 3}, DType::QUInt8, 0.1, 0, generator);
  CHECK(quantized::softmax(x.slice(0, 0, 0).as_quantized(), 1, 1.0 / 256, 0).sizes() == Dims{0, 3});
}

TEST_CASE("activations: empty tensors stay empty") {
  const Tensor x = Tensor::empty({0, 3});
  const QTensor q = quantize_per_tensor(x, 0.1, 0, DType::QUInt8);
  for (const Tensor& empty : {x, Tensor(q)}) {
    CHECK(relu(empty).sizes() == Dims{0, 3});
    CHECK(sigmoid(empty).sizes() == Dims{0, 3});
    CHECK(relu_(empty).sizes() == Dims{0, 3});
  }
  CHECK(softmax(x, 0).sizes() == Dims{0, 3});
}

TEST_CASE("activations: bad input is refused by name") {
  const QTensor channels = quantize_per_channel(Tensor::ones({3}), Tensor::ones({3}),
                                                Tensor::zeros({3}, DType::Int64), 0, DType::QUInt8);
  CHECK_THROWS_WITH_AS(relu(channels), doctest::Contains("relu: x: expected one scale"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(silu(example_a()),
                       doctest::Contains("silu: x: expected Float32, got QUInt8"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(
      sigmoid(Tensor::ones({1}, DType::Int32)),
      doctest::Contains("sigmoid: x: expected Float32, Float64, QUInt8, QInt8 or QInt32 on the"),
      UnsupportedError);
  CHECK_THROWS_WITH_AS(clamp(example_a(), {}, {}),
                       doctest::Contains("clamp: low: expected at least one bound"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::hardswish(example_a(), 0.0, 0),
                       doctest::Contains("quantized::hardswish: scale: expected"), ArgumentError);
  CHECK_THROWS_WITH_AS(celu(Tensor::ones({1}), 0.0), doctest::Contains("celu: alpha"),
                       ArgumentError);
  CHECK_THROWS_AS(relu(Tensor()), ArgumentError);
}

}  // namespace
}  // namespace quanta
