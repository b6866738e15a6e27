#include "quanta/ops/linear_dynamic.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "conv_reference.h"
#include "instruction_sets.h"
#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/half.h"
#include "support/compare.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::same_bits;

using quantized::LinearPackedParams;
using quantized::LinearPackedParamsFp16;
using quantized::ReduceRange;
using testing::Codes;

using test::for_each_instruction_set;

/// One float32 operation after the other, as the header says.
std::vector<float> reference(const Tensor& x, const QTensor& weight, const Tensor& bias,
                             ReduceRange reduce_range, bool relu) {
  const std::vector<float> values = x.to_float_vector();
  float low = values[0];
  float high = values[0];
  for (const float value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const math::QParams qparams =
      math::choose_qparams(low, high, 0, 255, {.reduce_range = reduce_range == ReduceRange::Yes});
  const auto scale = static_cast<float>(qparams.scale);
  const auto zero_point = static_cast<std::int32_t>(qparams.zero_point);
  const std::vector<double> centred = testing::centred(weight);
  const auto n = static_cast<std::size_t>(weight.size(0));
  const auto k = static_cast<std::size_t>(weight.size(1));
  const std::vector<float> biases = bias.defined() ? bias.to_float_vector() : std::vector<float>{};
  std::vector<float> result(values.size() / k * n);
  for (std::size_t i = 0; i < result.size(); ++i) {
    double sum = 0.0;
    for (std::size_t c = 0; c < k; ++c) {
      const std::int32_t code =
          math::quantize(values[i / n * k + c], math::inverse_scale(scale), zero_point, 0, 255);
      sum += (code - zero_point) * centred[i % n * k + c];
    }
    const auto weight_scale = static_cast<float>(
        weight.is_per_channel() ? weight.quantizer().channel->scales[i % n] : weight.q_scale());
    float y = static_cast<float>(static_cast<std::int32_t>(sum)) * (scale * weight_scale);
    if (bias.defined()) y += biases[i % n];
    result[i] = relu ? std::max(y, 0.0F) : y;
  }
  return result;
}

Tensor dynamic(const Tensor& x, const LinearPackedParams& packed, ReduceRange range, bool relu) {
  return relu ? quantized::linear_relu_dynamic(x, packed, range)
              : quantized::linear_dynamic(x, packed, range);
}

/// Of any rank, range and sign; some of them with a tie at an end.
Tensor random_input(const Dims& sizes, Generator& generator) {
  Tensor x = randn(sizes, generator);
  auto* values = x.mutable_data<float>();
  const std::int64_t kind = generator.integer(0, 5);
  const float factor = kind == 0 ? 1e-6F : kind == 1 ? 1e4F : 1.0F;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] *= factor;
    if (kind == 2) values[i] = std::fabs(values[i]);
    if (kind == 3) values[i] = -std::fabs(values[i]);
    if (kind == 4) values[i] = 0.0F;
  }
  if (kind == 5 && x.numel() > 1) {
    // 51.5 and 75.5 steps of 1 / 64: both codes round up and add up to 128 with reduced range.
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      values[i] = i % 2 == 0 ? -51.5F / 64.0F : 75.5F / 64.0F;
    }
  }
  return x;
}

}  // namespace

TEST_CASE("linear_dynamic: random layers give the floats of the scalar reference bit by bit") {
  Generator generator(51);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t k =
        generator.integer(1, 5) == 1 ? generator.integer(500, 1100) : generator.integer(1, 140);
    const std::int64_t n = generator.integer(1, 90);
    const std::int64_t rows = generator.integer(1, 24);
    const Codes codes = generator.integer(0, 3) == 0 ? Codes::Extreme : Codes::Uniform;
    const QTensor weight = testing::random_weight(
        {n, k}, {generator.integer(-1, 0), generator.integer(0, 3) == 0, codes}, generator);
    const Tensor bias = generator.integer(0, 2) > 0 ? randn({n}, generator) : Tensor();
    const Tensor x = random_input({rows, k}, generator);
    const ReduceRange range = generator.integer(0, 1) == 0 ? ReduceRange::No : ReduceRange::Yes;
    const bool relu = generator.integer(0, 1) == 0;
    CAPTURE(i);
    CAPTURE(to_string(x.sizes()));
    CAPTURE(to_string(weight.sizes()));
    const Tensor expected = Tensor::from_values(reference(x, weight, bias, range, relu), {rows, n});
    const LinearPackedParams packed(weight, bias);
    for (const int count : {1, 3}) {
      const test::Threads guard(count);
      CHECK(same_bits(dynamic(x, packed, range, relu), expected));
    }
    if (i % 5 == 0) {
      for_each_instruction_set(
          [&] { CHECK(same_bits(dynamic(x, packed, range, relu), expected)); });
    }
  }
}

TEST_CASE("gemv_int8: every instruction set and kind of products gives the same integers") {
  Generator generator(52);
  for (const std::int64_t k : {1, 31, 32, 64, 65, 130, 1000}) {
    for (const std::int64_t n : {1, 3, 4, 9, 37, 150}) {
      const std::int64_t rows = generator.integer(1, 14);
      const std::int64_t stride =
          (k + cpu::kCodeRowAlignment - 1) / cpu::kCodeRowAlignment * cpu::kCodeRowAlignment;
      const QTensor weight = testing::random_weight({n, k}, {-1, false, Codes::Extreme}, generator);
      const auto* w = static_cast<const std::int8_t*>(weight.data_ptr());
      for (const bool seven : {false, true}) {
        std::vector<std::uint8_t> storage(static_cast<std::size_t>(rows * stride) + 64, 0);
        // Rows have to be aligned.
        std::uint8_t* src =
            storage.data() + (64 - reinterpret_cast<std::uintptr_t>(storage.data()) % 64) % 64;
        std::vector<std::int32_t> expected(static_cast<std::size_t>(rows * n), 0);
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t c = 0; c < k; ++c) {
            src[row * stride + c] = static_cast<std::uint8_t>(
                testing::random_code(generator, 0, seven ? 128 : 255, Codes::Extreme));
          }
          for (std::int64_t i = 0; i < n * k; ++i) {
            expected[static_cast<std::size_t>(row * n + i / k)] += src[row * stride + i % k] * w[i];
          }
        }
        const cpu::CodeBits bits = seven ? cpu::CodeBits::Seven : cpu::CodeBits::Eight;
        const cpu::GemvInt8 call{.src = src,
                                 .rows = rows,
                                 .src_stride = stride,
                                 .code_bits = bits,
                                 .weight = w,
                                 .out_features = n,
                                 .in_features = k};
        for_each_instruction_set([&] {
          std::vector<std::int32_t> sums(expected.size(), -1);
          const std::int64_t middle = n / 3;
          cpu::gemv_int8(call, 0, middle, sums.data());
          cpu::gemv_int8(call, middle, n, sums.data());
          CHECK(sums == expected);
          // In panels, and rows that start anywhere.
          const cpu::CodePanels panels = cpu::pack_code_panels(w, n, k);
          std::vector<std::uint8_t> shifted(static_cast<std::size_t>(rows * stride) + 1);
          std::copy_n(src, rows * stride, shifted.data() + 1);
          const cpu::PanelProduct packed{shifted.data() + 1, rows, stride, bits, &panels};
          std::fill(sums.begin(), sums.end(), -1);
          const std::int64_t middle_panel = panels.count() / 2;
          cpu::gemv_int8_panels(packed, 0, middle_panel, sums.data());
          cpu::gemv_int8_panels(packed, middle_panel, panels.count(), sums.data());
          CHECK(sums == expected);
        });
      }
    }
  }
}

TEST_CASE("linear_dynamic: rows of a batch share one scale") {
  Generator generator(53);
  const LinearPackedParams packed(testing::random_weight({5, 16}, {}, generator), Tensor());
  Tensor x = randn({2, 16}, generator);
  const Tensor alone = quantized::linear_dynamic(x.slice(0, 0, 1), packed);
  x.mutable_data<float>()[16] = 1000.0F;
  CHECK(!same_bits(quantized::linear_dynamic(x, packed).slice(0, 0, 1).contiguous(), alone));
}

TEST_CASE("linear_dynamic: any rank and any strides of x and an empty x") {
  Generator generator(54);
  const LinearPackedParams packed(testing::random_weight({6, 10}, {}, generator),
                                  randn({6}, generator));
  const Tensor x = randn({3, 4, 10}, generator);
  const Tensor y = quantized::linear_dynamic(x, packed);
  CHECK(y.sizes() == Dims{3, 4, 6});
  const Tensor turned = x.permute({1, 0, 2});
  CHECK(same_bits(quantized::linear_dynamic(turned, packed), y.permute({1, 0, 2}).contiguous()));
  CHECK(quantized::linear_dynamic(x.view({12, 10}).slice(0, 0, 1).view({10}), packed).sizes() ==
        Dims{6});
  CHECK(quantized::linear_dynamic(Tensor::empty({0, 10}), packed).sizes() == Dims{0, 6});
  const LinearPackedParamsFp16 half(randn({6, 10}, generator), Tensor());
  CHECK(quantized::linear_dynamic_fp16(Tensor::empty({0, 10}), half).sizes() == Dims{0, 6});
}

TEST_CASE("linear_dynamic: a few rows of a large weight with an odd depth") {
  Generator generator(52);
  const QTensor weight = testing::random_weight({1100, 517}, {0}, generator);
  const LinearPackedParams packed(weight, {});
  for (const std::int64_t rows : {1, 5, 8, 9}) {
    CAPTURE(rows);
    const Tensor x = randn({rows, 517}, generator);
    const Tensor expected =
        Tensor::from_values(reference(x, weight, {}, ReduceRange::No, false), {rows, 1100});
    CHECK(same_bits(dynamic(x, packed, ReduceRange::No, false), expected));
  }
}

TEST_CASE("linear_dynamic: calls from many threads give what one gives") {
  Generator generator(55);
  const LinearPackedParams packed(testing::random_weight({64, 100}, {}, generator), Tensor());
  for (const std::int64_t rows : {1, 20}) {
    const Tensor x = randn({rows, 100}, generator);
    const Tensor expected = quantized::linear_dynamic(x, packed);
    std::vector<int> failures(4, 0);
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < failures.size(); ++t) {
      workers.emplace_back([&, t] {
        for (int i = 0; i < 30; ++i) {
          if (!same_bits(quantized::linear_dynamic(x, packed), expected)) ++failures[t];
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    CHECK(failures == std::vector<int>(4, 0));
  }
}

TEST_CASE("linear_dynamic_fp16: sums match doubles and are equal for any rows and target") {
  Generator generator(56);
  for (int i = 0; i < 60; ++i) {
    // Every tenth weight is too large for a copy in floats: its blocks are converted.
    const bool large = i % 10 == 9;
    const std::int64_t k = large        ? generator.integer(500, 700)
                           : i % 4 == 0 ? 128 * generator.integer(1, 4)
                                        : generator.integer(1, 300);
    const std::int64_t n = large ? generator.integer(280, 330) : generator.integer(1, 150);
    const std::int64_t rows = generator.integer(large ? 9 : 1, 40);
    const Tensor weight = randn({n, k}, generator);
    const Tensor bias = generator.integer(0, 1) == 0 ? randn({n}, generator) : Tensor();
    const Tensor x = randn({rows, k}, generator);
    const LinearPackedParamsFp16 packed(weight, bias);
    CAPTURE(to_string(x.sizes()));
    CAPTURE(n);
    const Tensor y = quantized::linear_dynamic_fp16(x, packed);
    const Tensor relu = quantized::linear_relu_dynamic_fp16(x, packed);
    const std::vector<float> w = packed.weight().to(DType::Float32).to_float_vector();
    const std::vector<float> values = x.to_float_vector();
    const std::vector<float> got = y.to_float_vector();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = bias.defined()
                         ? static_cast<double>(bias.to_float_vector()[static_cast<std::size_t>(c)])
                         : 0.0;
        double size = std::fabs(sum);
        for (std::int64_t j = 0; j < k; ++j) {
          const double product = static_cast<double>(values[static_cast<std::size_t>(r * k + j)]) *
                                 static_cast<double>(w[static_cast<std::size_t>(c * k + j)]);
          sum += product;
          size += std::fabs(product);
        }
        const float value = got[static_cast<std::size_t>(r * n + c)];
        CHECK(std::fabs(static_cast<double>(value) - sum) <= 1e-6 * size);
        CHECK(relu.to_float_vector()[static_cast<std::size_t>(r * n + c)] == std::max(value, 0.0F));
        if (c > 2) c = n - 1;
      }
    }
    const Tensor first = x.slice(0, 0, 1).contiguous();
    const Tensor first_y = y.slice(0, 0, 1).contiguous();
    for_each_instruction_set([&] {
      CHECK(same_bits(quantized::linear_dynamic_fp16(x, packed), y));
      CHECK(same_bits(quantized::linear_dynamic_fp16(first, packed), first_y));
    });
  }
}

TEST_CASE("LinearPackedParamsFp16: weights saturate and round to nearest even") {
  const Tensor weight = Tensor::from_values(
      {1e6F, -1e6F, 65519.0F, 1.0F + 1.0F / 2048.0F, 1.0F + 3.0F / 2048.0F, 1e-8F}, {2, 3});
  const LinearPackedParamsFp16 packed(weight, Tensor());
  CHECK(packed.weight().dtype() == DType::Float16);
  CHECK(packed.weight().to(DType::Float32).to_float_vector() ==
        std::vector<float>{65504.0F, -65504.0F, 65504.0F, 1.0F, 1.0F + 2.0F / 1024.0F, 0.0F});
  CHECK(!packed.bias().defined());
  // The packed weight is a copy.
  const Tensor half = packed.weight().clone();
  const LinearPackedParamsFp16 again(half, Tensor());
  half.copy_(Tensor::zeros({2, 3}, DType::Float16));
  CHECK(same_bits(again.weight().to(DType::Float32), packed.weight().to(DType::Float32)));
}

TEST_CASE("linear_dynamic: bad input is refused by name") {
  Generator generator(57);
  const LinearPackedParams packed(testing::random_weight({5, 16}, {}, generator), Tensor());
  const LinearPackedParamsFp16 half(randn({5, 16}, generator), Tensor());
  const Tensor x = randn({2, 16}, generator);
  CHECK_THROWS_WITH_AS(quantized::linear_dynamic(Tensor(), packed),
                       doctest::Contains("linear_dynamic: x: expected a tensor"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::linear_dynamic(x.to(DType::Float64), packed),
                       doctest::Contains("x: expected Float32, got Float64"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      quantized::linear_relu_dynamic(quantize_per_tensor(x, 0.1, 0, DType::QUInt8), packed),
      doctest::Contains("linear_relu_dynamic: x: expected Float32, got QUInt8"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::linear_dynamic(randn({2, 15}, generator), packed),
                       doctest::Contains("x: expected a last dimension of 16 features"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::linear_dynamic(x, LinearPackedParams()),
                       doctest::Contains("packed: expected packed parameters"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::linear_dynamic_fp16(x, LinearPackedParamsFp16()),
                       doctest::Contains("packed: expected packed parameters"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::linear_dynamic_fp16(randn({16, 2}, generator), half),
                       doctest::Contains("linear_dynamic_fp16: x: expected a last dimension of 16"),
                       ArgumentError);
  CHECK_THROWS_AS(LinearPackedParamsFp16(Tensor(), Tensor()), ArgumentError);
  CHECK_THROWS_WITH_AS(LinearPackedParamsFp16(randn({4}, generator), Tensor()),
                       doctest::Contains("weight: expected sizes [N, K]"), ArgumentError);
  CHECK_THROWS_WITH_AS(LinearPackedParamsFp16(randn({4, 2}, generator), randn({3}, generator)),
                       doctest::Contains("bias: expected one number for each of 4"), ArgumentError);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::int64_t position : {0, 21, 31}) {
      Tensor broken = x.clone();
      broken.mutable_data<float>()[position] = bad;
      CHECK_THROWS_WITH_AS(quantized::linear_dynamic(broken, packed),
                           doctest::Contains("x: expected finite values"), ArgumentError);
    }
  }
}

}  // namespace quanta
