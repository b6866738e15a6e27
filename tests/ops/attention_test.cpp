// The kernels of attention beside plain loops in double, over shapes that fill no vector.

#include "quanta/ops/attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "instruction_sets.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Problem {
  Tensor query, key, value;  // [heads, rows, features]
  Tensor mask;               // numbers, [queries, keys], [1, keys] or [heads, queries, 1]
  AttentionOptions options;
};

double element(const Tensor& x, std::int64_t i, std::int64_t j, std::int64_t k) {
  const Dims& strides = x.strides();
  return static_cast<double>(
      static_cast<const float*>(x.data_ptr())[i * strides[0] + j * strides[1] + k * strides[2]]);
}

std::vector<double> reference(const Problem& problem) {
  const std::int64_t heads = problem.query.size(0);
  const std::int64_t queries = problem.query.size(1);
  const std::int64_t keys = problem.key.size(1);
  const std::int64_t features = problem.query.size(2);
  const double scale = static_cast<double>(static_cast<float>(
      problem.options.scale.value_or(1.0 / std::sqrt(static_cast<double>(features)))));
  const Tensor mask =
      problem.mask.defined() ? problem.mask.expand({heads, queries, keys}) : Tensor();
  std::vector<double> out;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      std::vector<double> scores;
      for (std::int64_t j = 0; j < keys; ++j) {
        double score = 0.0;
        for (std::int64_t e = 0; e < features; ++e) {
          score += element(problem.query, h, i, e) * element(problem.key, h, j, e);
        }
        score *= scale;
        if (mask.defined()) score += element(mask, h, i, j);
        if (problem.options.is_causal && j > i) score = -kInfinity;
        scores.push_back(score);
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      double sum = 0.0;
      for (double& score : scores) {
        score = top == -kInfinity ? 0.0 : std::exp(score - top);
        sum += score;
      }
      for (std::int64_t e = 0; e < problem.value.size(2); ++e) {
        double total = 0.0;
        for (std::int64_t j = 0; j < keys && sum > 0.0; ++j) {
          total += scores[static_cast<std::size_t>(j)] / sum * element(problem.value, h, j, e);
        }
        out.push_back(total);
      }
    }
  }
  return out;
}

Tensor attend(const Problem& problem) {
  return scaled_dot_product_attention(problem.query, problem.key, problem.value, problem.mask,
                                      problem.options);
}

Problem random_problem(int i, Generator& generator) {
  // Up to several blocks of queries and of keys.
  const std::int64_t most = i % 8 == 0 ? 300 : 50;
  const std::int64_t heads = generator.integer(1, 3);
  // Few queries have a kernel of their own.
  const std::int64_t queries = generator.integer(1, i % 3 == 0 ? 8 : most);
  const std::int64_t keys = generator.integer(1, most);
  const std::int64_t features = generator.integer(1, 80);
  Problem problem{randn({queries, heads, features}, generator).transpose(0, 1),
                  randn({keys, heads, features}, generator).transpose(0, 1),
                  randn({heads, keys, generator.integer(1, 80)}, generator),
                  {},
                  {}};
  switch (i % 5) {
    case 1:
      problem.options.is_causal = true;
      break;
    case 2:
      problem.mask = randn({queries, keys}, generator);
      break;
    case 3:
      problem.mask = randn({heads, 1, keys}, generator);
      // Some keys are left out for all, and with them perhaps every key there is.
      for (std::int64_t k = 0; k < problem.mask.numel(); k += 3) {
        problem.mask.mutable_data<float>()[k] = -std::numeric_limits<float>::infinity();
      }
      break;
    case 4:
      problem.mask = randn({heads, queries, 1}, generator);
      problem.options.scale = 0.3;
      break;
    default:
      break;
  }
  return problem;
}

TEST_CASE("scaled_dot_product_attention: near the exact numbers for shapes that fill no vector") {
  Generator generator(71);
  for (int i = 0; i < 80; ++i) {
    const Problem problem = random_problem(i, generator);
    CAPTURE(to_string(problem.query.sizes()));
    CAPTURE(to_string(problem.value.sizes()));
    CAPTURE(i % 5);
    const std::vector<double> want = reference(problem);
    const std::vector<float> got = attend(problem).to_float_vector();
    for (std::size_t k = 0; k < want.size(); ++k) {
      REQUIRE(std::abs(static_cast<double>(got[k]) - want[k]) <= 4e-6);
    }
  }
}

TEST_CASE("scaled_dot_product_attention: the same floats on every machine and for any threads") {
  Generator generator(72);
  const int threads = get_num_threads();
  for (int i = 0; i < 40; ++i) {
    const Problem problem = random_problem(i, generator);
    CAPTURE(to_string(problem.query.sizes()));
    CAPTURE(to_string(problem.value.sizes()));
    const Tensor want = attend(problem);
    test::for_each_code([&] {
      for (const int count : {1, 2, 5}) {
        set_num_threads(count);
        CHECK(test::same_bits(attend(problem), want));
      }
      set_num_threads(threads);
    });
  }
}

TEST_CASE("scaled_dot_product_attention: weights are exponentials to the last digits") {
  constexpr double kMaxError = 2e-7;  // of a weight's size
  Generator generator(75);
  for (const std::int64_t keys : {2, 7, 16, 63, 64, 65, 128, 200}) {
    // The products are 0, so that the mask alone counts. The first key's exponential is 1, the sum
    // as well, and values that are a unit matrix give the weights themselves.
    const Tensor zeros = Tensor::zeros({1, keys, 1});
    const Tensor values = Tensor::zeros({1, keys, keys});
    const Tensor mask = Tensor::empty({1, keys});
    for (std::int64_t i = 0; i < keys; ++i) {
      values.mutable_data<float>()[i * keys + i] = 1.0F;
      mask.mutable_data<float>()[i] = i == 0 ? 40.0F : generator.uniform() * 78.0F - 60.0F;
    }
    test::for_each_code([&] {
      const std::vector<float> weights =
          scaled_dot_product_attention(zeros.slice(1, 0, 1), zeros, values, mask).to_float_vector();
      CHECK(weights[0] == 1.0F);
      for (std::size_t i = 1; i < weights.size(); ++i) {
        const float shifted = mask.data<float>()[i] - 40.0F;
        const double want = shifted < -87.0F ? 0.0 : std::exp(static_cast<double>(shifted));
        CHECK(std::abs(static_cast<double>(weights[i]) - want) <= kMaxError * want);
      }
    });
  }
}

TEST_CASE("scaled_dot_product_attention: a query has the same floats beside any others") {
  Generator generator(73);
  const Tensor q = randn({2, 150, 40}, generator);
  const Tensor k = randn({2, 90, 40}, generator);
  const Tensor v = randn({2, 90, 33}, generator);
  const Tensor all = scaled_dot_product_attention(q, k, v);
  for (const std::int64_t first : {0, 1, 63, 64, 149}) {
    for (const std::int64_t count : {1, 5, 17, 70}) {
      const std::int64_t end = std::min<std::int64_t>(first + count, 150);
      CHECK(test::same_bits(scaled_dot_product_attention(q.slice(1, first, end), k, v).contiguous(),
                            all.slice(1, first, end).contiguous()));
    }
  }
}

TEST_CASE("scaled_dot_product_attention: NaN and infinity stay in their query") {
  test::for_each_code([] {
    Generator generator(74);
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), kInfinity}) {
      for (const std::int64_t place : {0, 20, 36}) {
        const Tensor q = randn({1, 37, 8}, generator);
        const Tensor k = randn({1, 19, 8}, generator);
        const Tensor v = randn({1, 19, 5}, generator);
        const Tensor before = scaled_dot_product_attention(q, k, v);
        const Tensor mask = Tensor::zeros({37, 19});
        mask.select(0, place).slice(0, 7, 8).fill_(bad);
        const Tensor y = scaled_dot_product_attention(q, k, v, mask);
        for (std::int64_t i = 0; i < 37; ++i) {
          const std::vector<float> row = y.select(1, i).to_float_vector();
          if (i == place) {
            for (const float value : row) CHECK(std::isnan(value));
          } else {
            CHECK(test::same_bits(row, before.select(1, i).to_float_vector()));
          }
        }
      }
    }
  });
}

// --- attention_dtype QInt8 ---------------------------------------------------------------------

/// round(x / scale) with one scale for these `count` numbers, `step` apart.
double to_codes(double* x, std::int64_t count, std::int64_t step) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i * step]));
  const auto scale = static_cast<double>(static_cast<float>(largest) / 127.0F);
  for (std::int64_t i = 0; i < count && scale > 0.0; ++i) {
    x[i * step] = std::nearbyint(x[i * step] / scale);
  }
  return scale;
}

std::vector<double> doubles_of(const Tensor& x) {
  const std::vector<float> values = x.to_float_vector();
  return {values.begin(), values.end()};
}

/// The formula of ops/attention.h, exponentials in double.
std::vector<double> int8_reference(const Problem& problem) {
  const std::int64_t heads = problem.query.size(0);
  const std::int64_t queries = problem.query.size(1);
  const std::int64_t keys = problem.key.size(1);
  const std::int64_t features = problem.query.size(2);
  const std::int64_t width = problem.value.size(2);
  std::vector<double> q = doubles_of(problem.query);
  std::vector<double> k = doubles_of(problem.key);
  std::vector<double> v = doubles_of(problem.value);
  const double scale =
      problem.options.scale.value_or(1.0 / std::sqrt(static_cast<double>(features)));
  const Tensor mask =
      problem.mask.defined() ? problem.mask.expand({heads, queries, keys}) : Tensor();
  std::vector<double> out;
  for (std::int64_t h = 0; h < heads; ++h) {
    double* key = k.data() + h * keys * features;
    double* value = v.data() + h * keys * width;
    std::vector<double> key_scales;
    std::vector<double> value_scales;
    for (std::int64_t j = 0; j < keys; ++j) {
      key_scales.push_back(to_codes(key + j * features, features, 1));
    }
    for (std::int64_t e = 0; e < width; ++e)
      value_scales.push_back(to_codes(value + e, keys, width));
    for (std::int64_t i = 0; i < queries; ++i) {
      double* query = q.data() + (h * queries + i) * features;
      const double query_scale = to_codes(query, features, 1);
      std::vector<double> scores;
      for (std::int64_t j = 0; j < keys; ++j) {
        double sum = 0.0;
        for (std::int64_t e = 0; e < features; ++e) sum += query[e] * key[j * features + e];
        double score = sum * key_scales[static_cast<std::size_t>(j)] * query_scale * scale;
        if (mask.defined()) score += element(mask, h, i, j);
        scores.push_back(problem.options.is_causal && j > i ? -kInfinity : score);
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      double total = 0.0;
      for (double& score : scores) {
        score = top == -kInfinity ? 0.0 : std::nearbyint(255.0 * std::exp(score - top));
        total += score;
      }
      for (std::int64_t e = 0; e < width; ++e) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < keys; ++j) {
          sum += scores[static_cast<std::size_t>(j)] * value[j * width + e];
        }
        out.push_back(total == 0.0 ? 0.0 : sum * value_scales[static_cast<std::size_t>(e)] / total);
      }
    }
  }
  return out;
}

TEST_CASE("scaled_dot_product_attention: int8 products are those of the formula") {
  Generator generator(76);
  for (int i = 0; i < 80; ++i) {
    Problem problem = random_problem(i, generator);
    problem.options.attention_dtype = DType::QInt8;
    CAPTURE(to_string(problem.query.sizes()));
    CAPTURE(to_string(problem.value.sizes()));
    CAPTURE(i % 5);
    const std::vector<double> want = int8_reference(problem);
    const std::vector<float> got = attend(problem).to_float_vector();
    const double largest = 5.0;  // of the values
    for (std::size_t k = 0; k < want.size(); ++k) {
      // A code of a weight that lies between two may be the other one.
      REQUIRE(std::abs(static_cast<double>(got[k]) - want[k]) <= largest / 255 + 1e-5);
    }
    std::size_t equal = 0;
    for (std::size_t k = 0; k < want.size(); ++k) {
      equal += std::abs(static_cast<double>(got[k]) - want[k]) <= 1e-5 ? 1 : 0;
    }
    CHECK(equal * 10 >= want.size() * 9);
  }
}

TEST_CASE("scaled_dot_product_attention: int8 products give the same floats everywhere") {
  Generator generator(77);
  const int threads = get_num_threads();
  for (int i = 0; i < 40; ++i) {
    Problem problem = random_problem(i, generator);
    problem.options.attention_dtype = DType::QInt8;
    CAPTURE(to_string(problem.query.sizes()));
    CAPTURE(to_string(problem.value.sizes()));
    const Tensor want = attend(problem);
    test::for_each_instruction_set([&] {
      for (const int count : {1, 2, 7}) {
        set_num_threads(count);
        CHECK(test::same_bits(attend(problem), want));
      }
      set_num_threads(threads);
    });
  }
}

TEST_CASE("scaled_dot_product_attention: int8 products stay near float ones") {
  Generator generator(78);
  for (const std::int64_t tokens : {16, 128, 512}) {
    for (const double spread : {0.5, 1.0, 3.0}) {
      const Tensor q = mul_scalar(randn({12, tokens, 64}, generator), spread);
      const Tensor k = randn({12, tokens, 64}, generator);
      const Tensor v = randn({12, tokens, 64}, generator);
      const double db = test::sqnr_db(
          scaled_dot_product_attention(q, k, v),
          scaled_dot_product_attention(q, k, v, {}, {.attention_dtype = DType::QInt8}));
      CAPTURE(tokens);
      CAPTURE(spread);
      // Where one key has nearly all the weight, what is left of the others falls below a step.
      CHECK(db >= (spread > 1.0 ? 27.0 : 35.0));
    }
  }
}

TEST_CASE("scaled_dot_product_attention: what int8 products cannot take is refused by name") {
  constexpr AttentionOptions kInt8{.attention_dtype = DType::QInt8};
  const Tensor x = Tensor::ones({2, 3, 4});
  const auto bad = [&] {
    const Tensor y = x.clone();
    y.select(0, 1).select(0, 2).slice(0, 1, 2).fill_(kInfinity);
    return y;
  }();
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(bad, x, x, {}, kInt8),
                       doctest::Contains("query: expected finite numbers"), ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, bad, x, {}, kInt8),
                       doctest::Contains("key: expected finite numbers"), ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, x, bad, {}, kInt8),
                       doctest::Contains("value: expected finite numbers"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      scaled_dot_product_attention(x, x, x, {}, {.attention_dtype = DType::Float16}),
      doctest::Contains("attention_dtype: expected Float32 or QInt8, got Float16"), ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(
                           x, x, x, {}, {.dropout_p = 0.5, .attention_dtype = DType::QInt8}),
                       doctest::Contains("dropout_p: expected 0 with attention_dtype QInt8"),
                       ArgumentError);
  const Tensor wide = x.to(DType::Float64);
  CHECK_THROWS_AS(scaled_dot_product_attention(wide, wide, wide, {}, kInt8), UnsupportedError);
  const Tensor many = Tensor::zeros({1, 66312, 1});
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x.slice(2, 0, 1), many, many, {}, kInt8),
                       doctest::Contains("key: expected at most 66311 rows"), UnsupportedError);
  // A query without any key gives zeros, NaN in the mask gives NaN in its row alone.
  const Tensor mask = Tensor::zeros({3, 3});
  mask.select(0, 0).fill_(-kInfinity);
  mask.select(0, 2).slice(0, 1, 2).fill_(std::numeric_limits<double>::quiet_NaN());
  const Tensor y = scaled_dot_product_attention(x, x, x, mask, kInt8);
  for (const float value : y.select(1, 0).to_float_vector()) CHECK(value == 0.0F);
  for (const float value : y.select(1, 1).to_float_vector()) CHECK(value == doctest::Approx(1.0));
  for (const float value : y.select(1, 2).to_float_vector()) CHECK(std::isnan(value));
}

}  // namespace
}  // namespace quanta
