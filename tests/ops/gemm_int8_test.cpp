#include "quanta/ops/cpu/gemm/gemm_int8.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "instruction_sets.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/gelu.h"
#include "quanta/ops/cpu/gemm/code_sums.h"
#include "quanta/ops/linear/dynamic_fused.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/threads.h"

namespace quanta::cpu {
namespace {

using test::for_each_instruction_set;
using test::same_bits;

/// Random operands of one product; rows of codes are readable as gemm_int8.h says.
struct Problem {
  std::int64_t rows, depth, channels, stride;
  std::vector<std::uint8_t> codes;
  std::vector<std::int8_t> weight;
  CodePanels panels;
  std::vector<float> scales, bias, addend;
  std::vector<std::int32_t> sums;

  Problem(std::int64_t rows_, std::int64_t depth_, std::int64_t channels_, int highest,
          std::mt19937& random)
      : rows(rows_), depth(depth_), channels(channels_), stride((depth_ + 3) / 4 * 4) {
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const std::int64_t readable = (rows + kGemmRowAlignment - 1) / kGemmRowAlignment;
    codes.resize(static_cast<std::size_t>(readable * kGemmRowAlignment * stride));
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(pick(0, highest));
    weight.resize(static_cast<std::size_t>(channels * depth));
    for (std::int8_t& code : weight) {
      code = static_cast<std::int8_t>(pick(0, 3) == 0 ? -128 : pick(-128, 127));
    }
    panels = pack_code_panels(weight.data(), channels, depth);
    for (std::int64_t n = 0; n < channels; ++n) {
      scales.push_back(static_cast<float>(pick(1, 999)) * 1e-4F);
      bias.push_back(static_cast<float>(pick(-999, 999)) * 1e-2F);
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += weight[static_cast<std::size_t>(n * depth + k)];
      }
      sums.push_back(sum);
    }
    for (std::int64_t i = 0; i < rows * channels; ++i) {
      addend.push_back(static_cast<float>(pick(-999, 999)) * 1e-2F);
    }
  }

  PanelProduct call(CodeBits bits) const {
    return {.src = codes.data(),
            .rows = rows,
            .src_stride = stride,
            .code_bits = bits,
            .weight = &panels};
  }
  GemmOutput output(GemmEnd end, bool biased, bool added, float* dst) const {
    const SumsToFloats terms{
        0.0123F, 57, scales.data(), sums.data(), nullptr, 0, biased ? bias.data() : nullptr, false};
    return {terms, end, added ? addend.data() : nullptr, dst};
  }

  /// One float32 operation after the other.
  std::vector<float> reference(GemmEnd end, bool biased, bool added) const {
    std::vector<float> result;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < channels; ++n) {
        const auto channel = static_cast<std::size_t>(n);
        std::int32_t sum = -57 * sums[channel];
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += codes[static_cast<std::size_t>(r * stride + k)] *
                 weight[static_cast<std::size_t>(n * depth + k)];
        }
        float y = static_cast<float>(sum) * (0.0123F * scales[channel]);
        if (biased) y += bias[channel];
        if (end == GemmEnd::ReLU) y = std::max(y, 0.0F);
        if (end == GemmEnd::Gelu) gelu_row(GeluKind::Erf, &y, 1, &y);
        if (added) y += addend[static_cast<std::size_t>(r * channels + n)];
        result.push_back(y);
      }
    }
    return result;
  }
};

struct Ending {
  GemmEnd end;
  bool biased, added;
};
constexpr Ending kEndings[] = {{GemmEnd::None, true, false},
                               {GemmEnd::None, false, true},
                               {GemmEnd::ReLU, true, false},
                               {GemmEnd::Gelu, true, true}};

TEST_CASE("gemm_int8: every instruction set gives the reference's floats") {
  std::mt19937 random(11);
  struct Sizes {
    std::int64_t rows, depth, channels;
  };
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{13, 64, 70}, Sizes{25, 67, 16}, Sizes{9, 130, 33},
                         Sizes{40, 16, 95}}) {
    CAPTURE(s.rows);
    for (const int highest : {128, 255}) {
      const Problem problem(s.rows, s.depth, s.channels, highest, random);
      const PanelProduct call = problem.call(highest == 255 ? CodeBits::Eight : CodeBits::Seven);
      const std::int64_t panels = problem.panels.count();
      for (const Ending& e : kEndings) {
        for_each_instruction_set([&] {
          std::vector<float> out(static_cast<std::size_t>(s.rows * s.channels), -1.0F);
          const GemmOutput output = problem.output(e.end, e.biased, e.added, out.data());
          gemm_int8_simd(call, output, 0, panels / 2);
          gemm_int8_simd(call, output, panels / 2, panels);
          CHECK(same_bits(out, problem.reference(e.end, e.biased, e.added)));
        });
      }
    }
  }
}

TEST_CASE("gemm_int8: tiles give the reference's floats") {
  if (!features().tiles) {
    MESSAGE("skipped: this machine has no AMX");
    return;
  }
  std::mt19937 random(12);
  for (const std::int64_t rows : {1, 16, 17, 33, 128}) {
    for (const std::int64_t depth : {64, 192, 320}) {
      for (const std::int64_t channels : {1, 16, 40, 96}) {
        CAPTURE(rows);
        CAPTURE(depth);
        CAPTURE(channels);
        const Problem problem(rows, depth, channels, 255, random);
        const std::int64_t panels = problem.panels.count();
        const Ending& e = kEndings[(rows + depth / 64 + channels) % 4];
        std::vector<float> out(static_cast<std::size_t>(rows * channels), -1.0F);
        gemm_int8_tiles(problem.call(CodeBits::Eight),
                        problem.output(e.end, e.biased, e.added, out.data()), 0, panels);
        CHECK(same_bits(out, problem.reference(e.end, e.biased, e.added)));
      }
    }
  }
}

TEST_CASE("gelu_row: within 5e-7 of the exact value and the same on every instruction set") {
  constexpr double kMaxError = 5e-7;
  std::vector<float> x;
  for (int i = -70000; i <= 70000; ++i) x.push_back(static_cast<float>(i) * 1e-4F);
  for (const float large : {-1e30F, -100.0F, -0.0F, 1e-30F, 100.0F, 1e30F}) x.push_back(large);
  std::vector<float> first;
  for_each_instruction_set([&] {
    std::vector<float> y(x.size());
    gelu_row(GeluKind::Erf, x.data(), static_cast<std::int64_t>(x.size()), y.data());
    double worst = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = 0.5 * x[i] * std::erfc(-x[i] / std::sqrt(2.0));
      worst = std::max(worst, std::abs(y[i] - exact) / std::max(1.0, std::abs(exact) / 5.0));
    }
    CHECK(worst <= kMaxError);
    if (first.empty()) first = y;
    CHECK(same_bits(y, first));
  });
}

TEST_CASE("gelu_row: NaN stays and infinities follow x * Phi(x)") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
  for_each_instruction_set([&] {
    std::vector<float> y(x.size());
    gelu_row(GeluKind::Erf, x.data(), static_cast<std::int64_t>(x.size()), y.data());
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == kInfinity);
    CHECK(std::isnan(y[2]));  // as torch: -infinity * 0
  });
}

// --- Ops ---------------------------------------------------------------------------------------

using quantized::LinearPackedParams;
using quantized::ReduceRange;

LinearPackedParams random_weight(std::int64_t channels, std::int64_t depth, bool zero_points) {
  const Tensor scales = Tensor::full({channels}, 0.02, DType::Float64);
  const Tensor zeros = Tensor::full({channels}, zero_points ? 3.0 : 0.0, DType::Int64);
  return LinearPackedParams(
      quantize_per_channel(randn({channels, depth}), scales, zeros, 0, DType::QInt8),
      randn({channels}));
}

TEST_CASE("linear_dynamic fused: the bits are those of the ops one by one") {
  for (const int count : {1, 2}) {
    const test::Threads guard(count);
    for (const std::int64_t rows : {1, 5, 20, 70}) {
      for (const std::int64_t depth : {64, 130}) {
        for (const bool zero_points : {false, true}) {
          CAPTURE(rows);
          CAPTURE(depth);
          CAPTURE(zero_points);
          const LinearPackedParams first = random_weight(96, depth, zero_points);
          const LinearPackedParams second = random_weight(33, depth, false);
          const Tensor x = randn({rows, depth});
          const Tensor addend = randn({rows, 96});
          for (const ReduceRange range : {ReduceRange::No, ReduceRange::Yes}) {
            const Tensor plain = quantized::linear_dynamic(x, first, range);
            CHECK(same_bits(quantized::detail::linear_gelu_dynamic(x, first, range), gelu(plain)));
            CHECK(same_bits(quantized::detail::linear_add_dynamic(x, first, range, addend),
                            add(addend, plain)));
            const LinearPackedParams* const both[] = {&first, &second};
            const std::vector<Tensor> each = quantized::detail::linear_each_dynamic(x, both, range);
            CHECK(same_bits(each[0], plain));
            CHECK(same_bits(each[1], quantized::linear_dynamic(x, second, range)));
          }
        }
      }
    }
  }
}

TEST_CASE("linear_dynamic fused: an addend gets its gradient and x is refused") {
  const LinearPackedParams packed = random_weight(8, 4, false);
  const Tensor x = randn({3, 4});
  const Tensor addend = randn({3, 8});
  addend.set_requires_grad();
  quantized::detail::linear_add_dynamic(x, packed, {}, addend).backward(Tensor::ones({3, 8}));
  CHECK(addend.grad().equal(Tensor::ones({3, 8})));
  x.set_requires_grad();
  CHECK_THROWS_WITH_AS(quantized::detail::linear_add_dynamic(x, packed, {}, addend),
                       doctest::Contains("linear_add_dynamic: x: expected tensors that require no"),
                       UnsupportedError);
}

TEST_CASE("linear_dynamic fused: wrong operands are refused by name") {
  const LinearPackedParams packed = random_weight(8, 4, false);
  const Tensor x = randn({3, 4});
  CHECK_THROWS_WITH_AS(quantized::detail::linear_add_dynamic(x, packed, {}, randn({3, 7})),
                       doctest::Contains("addend: expected Float32 [3, 8], got"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::detail::linear_gelu_dynamic(randn({3, 5}), packed, {}),
                       doctest::Contains("x: expected a last dimension of 4 features"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::detail::linear_gelu_dynamic(x, {}, {}),
                       doctest::Contains("packed: expected packed parameters"), ArgumentError);
}

}  // namespace
TEST_CASE("code_sums: rows of any length") {
  std::vector<std::int8_t> codes(400);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int8_t>(i * 37 - 128);
  test::for_each_code([&] {
    for (std::size_t count = 0; count <= 200; ++count) {
      const std::int8_t* row = codes.data() + count;
      std::int64_t positive = 0;
      std::int64_t negative = 0;
      for (std::size_t i = 0; i < count; ++i) (row[i] > 0 ? positive : negative) += row[i];
      const CodeSums sums = code_sums(row, static_cast<std::int64_t>(count));
      CHECK(sums.positive == positive);
      CHECK(sums.negative == negative);
    }
  });
}

}  // namespace quanta::cpu
