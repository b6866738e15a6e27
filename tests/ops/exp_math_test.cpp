#include "quanta/runtime/detail/exp_math.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "instruction_sets.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/cpu/gelu.h"
#include "quanta/ops/cpu/softmax.h"
#include "quanta/ops/elementwise/cpu_math.h"
#include "quanta/runtime/detail/gelu_math.h"
#include "quanta/runtime/tensor.h"

// The CPU's vector code against the scalar arithmetic that CUDA kernels share with it.

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Floats of every size and sign, those between the pieces of the functions, and what is no number.
std::vector<float> many_floats() {
  std::vector<float> all;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += 16381) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (x == x) all.push_back(x);
  }
  for (int i = -40000; i <= 40000; ++i) all.push_back(static_cast<float>(i) * 0.005F);
  for (const float edge : {0.0F, 0.2F, 0.6F, 1.0F, 2.0F, 6.0F, 12.0F, 87.0F, 88.722839F, 103.97F,
                           129.0F, 150.0F, kInfinity, kNan}) {
    for (const float x : {edge, std::nextafter(edge, 0.0F), std::nextafter(edge, kInfinity)}) {
      all.push_back(x);
      all.push_back(-x);
    }
  }
  return all;
}

bool same(float a, float b) {
  return a != a ? b != b : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Rows are `function` of each float, on each instruction set and from any place on.
template <typename Rows, typename Function>
void check_rows(const Rows& rows, const Function& function) {
  const std::vector<float> x = many_floats();
  test::for_each_code([&] {
    for (const std::size_t first : {std::size_t{0}, x.size() - 5}) {
      std::vector<float> y(x.size() - first);
      rows(x.data() + first, static_cast<std::int64_t>(y.size()), y.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const float want = function(x[first + i]);
        if (same(y[i], want)) continue;
        if (wrong++ == 0) {
          CAPTURE(x[first + i]);
          CHECK(y[i] == want);
        }
      }
      CHECK(wrong == 0);
    }
  });
}

template <typename Function>
double worst_units(const Function& function, double (*exact)(double), float from, float to) {
  double worst = 0.0;
  for (float x = from; x < to; x += 0.00037F) {
    const double want = exact(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(function(x)) - want) / unit);
  }
  return worst;
}

}  // namespace

TEST_CASE("exp_math: exp in vectors is exp_float") {
  check_rows([](const float* src, std::int64_t count,
                float* dst) { cpu::math_row(cpu::MathFunction::Exp, src, count, dst); },
             math::exp_float);
}

TEST_CASE("exp_math: erf in vectors is erf_float") {
  check_rows([](const float* src, std::int64_t count,
                float* dst) { cpu::math_row(cpu::MathFunction::Erf, src, count, dst); },
             math::erf_float);
}

TEST_CASE("exp_math: gelu in vectors is gelu_float and gelu_tanh_float") {
  check_rows([](const float* src, std::int64_t count,
                float* dst) { cpu::gelu_row(cpu::GeluKind::Erf, src, count, dst); },
             math::gelu_float);
  check_rows([](const float* src, std::int64_t count,
                float* dst) { cpu::gelu_row(cpu::GeluKind::Tanh, src, count, dst); },
             math::gelu_tanh_float);
}

TEST_CASE("exp_math: softmax in vectors takes exp_float and sums in sixteen parts") {
  test::for_each_code([] {
    for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 100U, 1000U}) {
      std::vector<float> x(count);
      for (std::size_t i = 0; i < count; ++i) {
        x[i] = static_cast<float>(i * 7919U % 1009U) * 0.11F - 3.0F;
      }
      const float largest = *std::max_element(x.begin(), x.end());
      float sums[16] = {};
      for (std::size_t i = 0; i < count; ++i) sums[i % 16] += math::exp_float(x[i] - largest);
      for (std::size_t width = 8; width > 0; width /= 2) {
        for (std::size_t k = 0; k < width; ++k) sums[k] += sums[k + width];
      }
      std::vector<float> y(count);
      cpu::softmax_row(x.data(), static_cast<std::int64_t>(count), y.data());
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(same(y[i], math::exp_float(x[i] - largest) / sums[0]));
      }
    }
  });
}

TEST_CASE("exp_math: attention takes exp_normal") {
  // Two keys whose products with the query are 0 and x; the values are 0 and 1.
  test::for_each_code([] {
    for (const float x :
         {0.0F, -1e-8F, -0.3F, -1.0F, -20.0F, -86.9F, -87.0F, -87.1F, -1e30F, -kInfinity, kNan}) {
      const Tensor query = Tensor::full({7, 1}, 1.0);
      const Tensor key = Tensor::zeros({2, 1});
      key.mutable_data<float>()[1] = x;
      const Tensor value = Tensor::zeros({2, 1});
      value.mutable_data<float>()[1] = 1.0F;
      const Tensor y = scaled_dot_product_attention(query, key, value, Tensor(), {.scale = 1.0});
      const float weight = math::exp_normal(x);
      CAPTURE(x);
      for (const float got : y.to_float_vector()) {
        CHECK(same(got, weight * (1.0F / (1.0F + weight))));
      }
    }
  });
}

TEST_CASE("exp_math: each exp is within some units of the exact one") {
  CHECK(worst_units(math::exp_float, std::exp, -87.0F, 88.0F) < 1.0);
  CHECK(worst_units([](float x) { return math::exp_of_minus_size(x); }, std::exp, -87.0F, 0.0F) <
        1.0);
  CHECK(worst_units(math::exp_normal, std::exp, -87.0F, 0.0F) < 1.5);
  CHECK(math::exp_of_minus_size(3.0F) == math::exp_of_minus_size(-3.0F));
  for (const float x : {kNan, -kNan}) {
    CHECK(std::isnan(math::exp_float(x)));
    CHECK(std::isnan(math::exp_of_minus_size(x)));
    CHECK(std::isnan(math::exp_normal(x)));
    CHECK(std::isnan(math::log_float(x)));
  }
  CHECK(math::exp_float(-kInfinity) == 0.0F);
  CHECK(math::exp_float(kInfinity) == kInfinity);
  CHECK(math::exp_of_minus_size(kInfinity) == 0.0F);
  CHECK(math::exp_normal(-kInfinity) == 0.0F);
  CHECK(math::log_float(0.0F) == -kInfinity);
}

}  // namespace quanta
