#include "quanta/ops/reduce.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/quant_math.h"

namespace quanta {
namespace {

using test::codes_of;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;
using Codes = std::vector<std::int64_t>;

constexpr DType kQuantized[] = {DType::QUInt8, DType::QInt8, DType::QInt32};

// The elements that go into each element of the result, in logical order.
template <typename T>
std::vector<std::vector<T>> groups_of(const std::vector<T>& values, const Dims& sizes,
                                      const Dims& dims) {
  std::vector<bool> is_reduced(sizes.size(), dims.empty());
  for (const std::int64_t d : dims) is_reduced[static_cast<std::size_t>(d)] = true;
  std::int64_t count = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) count *= is_reduced[d] ? 1 : sizes[d];
  std::vector<std::vector<T>> groups(static_cast<std::size_t>(count));
  for (std::int64_t flat = 0; flat < static_cast<std::int64_t>(values.size()); ++flat) {
    std::int64_t rest = flat;
    std::int64_t at = 0;
    std::int64_t step = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (!is_reduced[d]) {
        at += rest % sizes[d] * step;
        step *= sizes[d];
      }
      rest /= sizes[d];
    }
    groups[static_cast<std::size_t>(at)].push_back(values[static_cast<std::size_t>(flat)]);
  }
  return groups;
}

std::int64_t quantized(const QTensor& x, float value) {
  const float inverse = math::inverse_scale(static_cast<float>(x.q_scale()));
  if (x.dtype() == DType::QInt32) return math::quantize_qint32(value, inverse, x.q_zero_point());
  const IntRange range = quant_range(x.dtype());
  return math::quantize(value, inverse, static_cast<std::int32_t>(x.q_zero_point()),
                        static_cast<std::int32_t>(range.min), static_cast<std::int32_t>(range.max));
}

}  // namespace

TEST_CASE("reductions: the examples of torch's documentation") {
  const Tensor a = Tensor::from_values({-1.2360F, -0.2942F, -0.1222F, 0.8475F,   //
                                        1.1949F, -1.1127F, -2.2379F, -0.6702F,   //
                                        1.5717F, -0.9207F, 0.1297F, -1.8768F,    //
                                        -0.6172F, 1.0036F, -0.6060F, -0.2432F},  //
                                       {4, 4});
  const auto [values, indices] = max(a, 1);
  CHECK(values.to_float_vector() == std::vector<float>{0.8475F, 1.1949F, 1.5717F, 1.0036F});
  CHECK(indices.to_int64_vector() == Codes{3, 0, 0, 1});
  CHECK(argmax(a, 1).equal(indices));
  CHECK(argmax(a).to_int64_vector() == Codes{8});
  CHECK(min(a).item() == doctest::Approx(-2.2379));

  const Tensor b = Tensor::from_values({0.2035F, 1.2959F, 1.8101F, -0.4644F,    //
                                        1.5027F, -0.3270F, 0.5905F, 0.6538F,    //
                                        -1.5745F, 1.3330F, -0.5596F, -0.6548F,  //
                                        0.1264F, -0.5080F, 1.6420F, 0.1992F},   //
                                       {4, 4});
  const Tensor deviation = std(b, {1}, {.keepdim = true});
  CHECK(deviation.sizes() == Dims{4, 1});
  const std::vector<float> expected{1.0311F, 0.7477F, 1.2204F, 0.9087F};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(deviation.to_float_vector()[i] == doctest::Approx(expected[i]).epsilon(1e-4));
  }
  CHECK(var(b, {0}).to_float_vector()[0] ==
        doctest::Approx(std::pow(std(b, {0}).to_float_vector()[0], 2.0F)));
  CHECK(mean(Tensor::from_values({0.2294F, -0.5481F, 1.3288F})).item() ==
        doctest::Approx(0.3367).epsilon(1e-4));
  CHECK(sum(Tensor::arange(16).view({4, 2, 2}), {2, 1}).to_float_vector() ==
        std::vector<float>{6, 22, 38, 54});
  CHECK(sum(Tensor::ones({3}, DType::Bool)).to_int64_vector() == Codes{3});
}

TEST_CASE("max and min: quantized results agree with a search over the codes in any layout") {
  Generator generator(11);
  for (const DType dtype : kQuantized) {
    for (const Layout layout : kLayouts) {
      const QTensor x(in_layout(layout, 17, 3, 5, [&](const Dims& sizes) {
        return Tensor(random_codes(sizes, dtype, 0.05, 3, generator));
      }));
      const Codes codes = codes_of(x);
      CHECK(codes_of(max(x)) == Codes{*std::max_element(codes.begin(), codes.end())});
      CHECK(codes_of(min(x)) == Codes{*std::min_element(codes.begin(), codes.end())});
      CHECK(QTensor(max(x)).quantizer() == x.quantizer());
      for (std::int64_t dim = 0; dim < 4; ++dim) {
        const ValuesIndices highest = max(x, dim - 4);
        const ValuesIndices lowest = min(x, dim, {.keepdim = true});
        CHECK(QTensor(highest.values).quantizer() == x.quantizer());
        CHECK(lowest.values.size(dim) == 1);
        const auto groups = groups_of(codes, x.sizes(), {dim});
        for (std::size_t i = 0; i < groups.size(); ++i) {
          const auto best = std::max_element(groups[i].begin(), groups[i].end());
          const auto least = std::min_element(groups[i].begin(), groups[i].end());
          REQUIRE(codes_of(highest.values)[i] == *best);
          REQUIRE(highest.indices.to_int64_vector()[i] == best - groups[i].begin());
          REQUIRE(codes_of(lowest.values)[i] == *least);
          REQUIRE(lowest.indices.to_int64_vector()[i] == least - groups[i].begin());
        }
      }
    }
  }
}

TEST_CASE("max and min: NaN wins and the first one is named") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_values({1, nan, 3, nan, 5, 6, 7, 8}, {2, 4});
  CHECK(std::isnan(max(x).item()));
  CHECK(std::isnan(min(x).item()));
  CHECK(max(x, 1).indices.to_int64_vector() == Codes{1, 3});
  CHECK(min(x, 0).indices.to_int64_vector() == Codes{0, 0, 0, 0});
  CHECK(min(x, 1).indices.to_int64_vector() == Codes{1, 0});
}

TEST_CASE("max and min: infinities and a NaN at any place of a long row") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < 100; i += 9) {
    const Tensor x = Tensor::arange(100);
    x.select(0, i).fill_(-infinity);
    CHECK(min(x).item() == -infinity);
    CHECK(max(x).item() == (i == 99 ? 98.0 : 99.0));
    CHECK(min(x, 0).indices.item() == static_cast<double>(i));
    x.select(0, i).fill_(std::numeric_limits<double>::quiet_NaN());
    CHECK(std::isnan(max(x).item()));
    CHECK(min(x, 0).indices.item() == static_cast<double>(i));
  }
}

TEST_CASE("max: a long tensor is searched whole") {
  const Tensor x = Tensor::arange(200001, DType::Int32);
  CHECK(max(x).item() == 200000);
  CHECK(min(x).item() == 0);
  CHECK(mean(Tensor::arange(200001)).item() == doctest::Approx(100000.0));
}

TEST_CASE("mean and std: quantized results follow torch's two ways of rounding") {
  Generator generator(12);
  for (const DType dtype : kQuantized) {
    for (const Layout layout : kLayouts) {
      const QTensor x(in_layout(layout, 5, 3, 7, [&](const Dims& sizes) {
        return Tensor(random_codes(sizes, dtype, 0.037, 3, generator));
      }));
      const Codes codes = codes_of(x);
      const std::vector<float> values = x.to_float_vector();
      for (const Dims& dims : {Dims{}, Dims{2, 3}, Dims{3}, Dims{1}, Dims{0, 1}, Dims{0, 2},
                               Dims{1, 2, 3}, Dims{0, 1, 2, 3}}) {
        const bool innermost = x.is_contiguous() && (dims.empty() || dims.back() == 3);
        const auto by_code = groups_of(codes, x.sizes(), dims);
        const auto by_value = groups_of(values, x.sizes(), dims);
        const Codes means = codes_of(mean(x, dims));
        const Codes deviations = codes_of(std(x, dims, {.correction = 0}));
        REQUIRE(means.size() == by_code.size());
        for (std::size_t i = 0; i < by_code.size(); ++i) {
          const auto count = static_cast<double>(by_code[i].size());
          double code_sum = 0;
          double value_sum = 0;
          for (const std::int64_t code : by_code[i]) code_sum += static_cast<double>(code);
          for (const float value : by_value[i]) value_sum += static_cast<double>(value);
          const auto float_count = static_cast<float>(count);
          REQUIRE(means[i] == (innermost
                                   ? std::llrint(static_cast<float>(code_sum) / float_count)
                                   : quantized(x, static_cast<float>(value_sum) / float_count)));
          double squares = 0;
          for (const float value : by_value[i]) {
            squares += std::pow(static_cast<double>(value) - value_sum / count, 2.0);
          }
          const auto expected = quantized(x, static_cast<float>(std::sqrt(squares / count)));
          // The deviation of the codes times the scale differs in its last bits.
          REQUIRE(std::abs(deviations[i] - expected) <= (innermost ? 1 : 0));
        }
      }
    }
  }
}

TEST_CASE("mean: keepdim and negative dimensions give torch's sizes") {
  const Tensor x = Tensor::arange(24).view({2, 3, 4});
  CHECK(mean(x, {-1, 0}, {.keepdim = true}).sizes() == Dims{1, 3, 1});
  CHECK(mean(x, {-1, 0}).to_float_vector() == std::vector<float>{7.5F, 11.5F, 15.5F});
  CHECK(mean(x).sizes().empty());
  CHECK(mean(x.permute({2, 0, 1}), {1}).equal(mean(x, {0}).permute({1, 0})));
  CHECK(std::isnan(mean(Tensor::empty({0, 3})).item()));
  CHECK(mean(Tensor::empty({0, 3}), {1}).sizes() == Dims{0});
  CHECK(std::isnan(std(Tensor::ones({1})).item()));
}

TEST_CASE("std: with too few elements a quantized result is what torch gives for NaN") {
  CHECK(codes_of(std(QTensor::empty({2, 1}, 0.1, 3, DType::QUInt8).fill_(1.0), {1})) ==
        Codes{255, 255});
}

TEST_CASE("max_out and mean_out: fill the caller's tensors and take over parameters") {
  Generator generator(13);
  const QTensor x = random_codes({3, 4}, DType::QUInt8, 0.1, 7, generator);
  const QTensor values = QTensor::empty({3}, 0.5, 0, DType::QUInt8);
  const Tensor indices = Tensor::empty({0}, DType::Int64);
  max_out(values, indices, x, 1);
  CHECK(values.equal(max(x, 1).values));
  CHECK(indices.equal(max(x, 1).indices));
  min_out(values, indices, x, 1);
  CHECK(values.equal(min(x, 1).values));
  const QTensor out = QTensor::empty({4}, 0.5, 0, DType::QUInt8);
  mean_out(out, x, {0});
  CHECK(out.equal(mean(x, {0})));
  std_out(out, x, {0});
  CHECK(out.equal(std(x, {0})));
  const QTensor whole = QTensor::empty({}, 0.5, 0, DType::QUInt8);
  max_out(whole, x);
  CHECK(whole.equal(max(x)));
  CHECK_THROWS_WITH_AS(max_out(Tensor::empty({3}), indices, x, 1),
                       doctest::Contains("max_out: values: expected QUInt8, got Float32"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(mean_out(QTensor::empty({1}, 1.0, 0, DType::QUInt8).expand({4}), x, {0}),
                       doctest::Contains("mean_out: out: expected elements that do not share"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(mean_out(QTensor::empty({3}, 1.0, 0, DType::QUInt8), x, {0}),
                       doctest::Contains("mean_out: out: expected [4] or an empty tensor, got [3]"),
                       ArgumentError);
}

TEST_CASE("reductions: what they cannot do is refused by name") {
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  const auto unsupported = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), UnsupportedError);
  };
  const Tensor x = Tensor::ones({2, 3});
  refused("max: dim: expected -2..1, got 2", [&] { max(x, 2); });
  refused("mean: dim: expected each dimension once, got [0, -2]", [&] { mean(x, {0, -2}); });
  refused("max: x: expected at least one element, got [0]", [&] { max(Tensor::empty({0})); });
  refused("min: dim: expected a dimension with elements, got 1 of [2, 0]", [&] {
    min(Tensor::empty({2, 0}), 1);
  });
  refused("sum: x: expected a tensor, got an undefined one", [] { sum(Tensor()); });
  const QTensor q = QTensor::empty({2, 3}, 0.1, 0, DType::QInt8);
  unsupported("sum: x: expected a plain tensor (dequantize first), got QInt8", [&] { sum(q); });
  unsupported("argmax: x: expected a plain tensor", [&] { argmax(q); });
  unsupported("var: x: expected Float32 or Float64 on the CPU, got QInt8", [&] { var(q); });
  unsupported("mean: x: expected Float32, Float64, QUInt8, QInt8 or QInt32 on the CPU, got Int64",
              [] { mean(Tensor::arange(3, DType::Int64)); });
  const QTensor channels =
      QTensor::empty({2, 3}, DType::QInt8, Quantizer::per_channel({1.0, 2.0}, {0, 0}, 0));
  unsupported("max: x: expected one scale and zero point (PerTensorAffine), got PerChannelAffine",
              [&] { max(channels); });
  unsupported("std: x: expected one scale", [&] { std(channels); });
  unsupported("min: x: expected a whole-byte dtype, got QUInt4x2",
              [] { min(QTensor::empty({2}, 1.0, 0, DType::QUInt4x2)); });
  unsupported("max: x: expected Float32, Float64", [] { max(Tensor::ones({2}, DType::Float16)); });
}

}  // namespace quanta
