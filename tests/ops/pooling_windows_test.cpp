// Padding that differs before and behind, dilated averages, positions of maxima, lp_pool: against
// plain loops.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

struct Axis {
  std::int64_t kernel, stride, dilation, begin, end;
  bool ceil_mode;

  std::int64_t outputs(std::int64_t size) const {
    const std::int64_t span = size + begin + end - dilation * (kernel - 1) - 1;
    std::int64_t count = span / stride + 1;
    if (ceil_mode && span % stride != 0 && count * stride < size + begin) ++count;
    return count;
  }
};

/// What one window of a plane sees.
struct Seen {
  double max = -std::numeric_limits<double>::infinity();
  std::int64_t at = -1;
  double sum = 0.0, powers = 0.0;
  std::int64_t valid = 0, padded = 0;
};

Seen look(const float* plane, std::array<std::int64_t, 2> sizes, std::array<Axis, 2> axes,
          std::int64_t oh, std::int64_t ow, double p) {
  Seen seen;
  for (std::int64_t i = 0; i < axes[0].kernel; ++i) {
    for (std::int64_t j = 0; j < axes[1].kernel; ++j) {
      const std::int64_t h = oh * axes[0].stride - axes[0].begin + i * axes[0].dilation;
      const std::int64_t w = ow * axes[1].stride - axes[1].begin + j * axes[1].dilation;
      if (h >= sizes[0] + axes[0].end || w >= sizes[1] + axes[1].end) continue;
      ++seen.padded;
      if (h < 0 || w < 0 || h >= sizes[0] || w >= sizes[1]) continue;
      const double value = plane[h * sizes[1] + w];
      if (seen.at < 0 || value > seen.max) seen.at = h * sizes[1] + w;
      seen.max = std::max(seen.max, value);
      seen.sum += value;
      seen.powers += std::pow(std::abs(value), p);
      ++seen.valid;
    }
  }
  return seen;
}

template <typename Options>
Options options_of(std::array<Axis, 2> axes) {
  Options options;
  options.kernel_size = {axes[0].kernel, axes[1].kernel};
  options.stride = {axes[0].stride, axes[1].stride};
  options.dilation = {axes[0].dilation, axes[1].dilation};
  options.padding = {axes[0].begin, axes[1].begin};
  options.padding_end = {axes[0].end, axes[1].end};
  options.ceil_mode = axes[0].ceil_mode;
  return options;
}

TEST_CASE("pooling: uneven padding and dilation give what plain loops give in any memory order") {
  Generator generator(11);
  for (int round = 0; round < 120; ++round) {
    CAPTURE(round);
    const bool ceil_mode = generator.integer(0, 1) == 1;
    std::array<Axis, 2> axes{};
    for (Axis& axis : axes) {
      axis.kernel = generator.integer(1, 4);
      axis.stride = generator.integer(1, 3);
      axis.dilation = generator.integer(1, 2);
      const std::int64_t reach = axis.dilation * (axis.kernel - 1);
      axis.begin = generator.integer(0, reach);
      axis.end = generator.integer(0, reach);
      axis.ceil_mode = ceil_mode;
    }
    const std::array<std::int64_t, 2> sizes{generator.integer(7, 12), generator.integer(7, 12)};
    const std::int64_t channels = generator.integer(1, 19);
    const Tensor plain = randn({2, channels, sizes[0], sizes[1]}, generator);
    const Tensor x = round % 2 == 0 ? plain : plain.contiguous(MemoryFormat::ChannelsLast);

    const double p = round % 3 == 0 ? 1.0 : round % 3 == 1 ? 2.0 : 2.5;
    auto lp = options_of<LpPoolOptions>(axes);
    lp.p = p;
    auto average = options_of<AvgPoolOptions>(axes);
    const Tensor max = max_pool2d(x, options_of<MaxPoolOptions>(axes)).contiguous();
    const Tensor rows = max_pool_indices(x, options_of<MaxPoolOptions>(axes), 2);
    const Tensor columns =
        max_pool_indices(x, options_of<MaxPoolOptions>(axes), 2, IndexOrder::ColumnMajor);
    const Tensor with_padding = avg_pool2d(x, average).contiguous();
    average.count_include_pad = false;
    const Tensor without = avg_pool2d(x, average).contiguous();
    const Tensor norms = lp_pool(x, lp, 2);

    const std::int64_t out_h = axes[0].outputs(sizes[0]);
    const std::int64_t out_w = axes[1].outputs(sizes[1]);
    REQUIRE(max.sizes() == Dims{2, channels, out_h, out_w});
    for (std::int64_t i = 0; i < max.numel(); ++i) {
      const std::int64_t plane = i / (out_h * out_w) * sizes[0] * sizes[1];
      const Seen seen =
          look(plain.data<float>() + plane, sizes, axes, i / out_w % out_h, i % out_w, p);
      if (seen.valid == 0) {
        CHECK(rows.data<std::int64_t>()[i] == -1);
        continue;
      }
      CHECK(double{max.data<float>()[i]} == seen.max);
      CHECK(rows.data<std::int64_t>()[i] == plane + seen.at);
      CHECK(columns.data<std::int64_t>()[i] ==
            plane + seen.at / sizes[1] + seen.at % sizes[1] * sizes[0]);
      CHECK(with_padding.data<float>()[i] ==
            doctest::Approx(seen.sum / static_cast<double>(seen.padded)).epsilon(1e-5));
      CHECK(without.data<float>()[i] ==
            doctest::Approx(seen.sum / static_cast<double>(seen.valid)).epsilon(1e-5));
      CHECK(norms.data<float>()[i] ==
            doctest::Approx(std::pow(seen.powers, 1.0 / p)).epsilon(1e-5));
    }
  }
}

TEST_CASE("max_pool: bytes without a scale are compared as codes are") {
  Generator generator(12);
  for (const DType dtype : {DType::UInt8, DType::Int8}) {
    for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
      const std::int64_t low = dtype == DType::UInt8 ? 0 : -128;
      const Tensor x = randint(low, low + 256, {2, 33, 9, 8}, dtype, generator).contiguous(format);
      const MaxPoolOptions options{
          .kernel_size = {3}, .stride = {2}, .padding = {1}, .padding_end = {2}};
      const Tensor wide = max_pool2d(x.to(DType::Float32), options);
      const Tensor narrow = max_pool2d(x, options);
      CHECK(narrow.dtype() == dtype);
      CHECK(narrow.to(DType::Float32).equal(wide));
      CHECK(max_pool_indices(x, options, 2)
                .equal(max_pool_indices(x.to(DType::Float32), options, 2)));
    }
  }
}

TEST_CASE("avg_pool: dilated windows of codes are those of their floats") {
  Generator generator(13);
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    const Tensor codes = randint(0, 256, {2, 35, 11, 10}, DType::UInt8, generator);
    const QTensor x(
        QTensor::from_int_repr(codes, Quantizer::per_tensor(1.0, 0)).contiguous(format));
    const AvgPoolOptions options{.kernel_size = {3, 2},
                                 .stride = {2, 1},
                                 .padding = {1, 0},
                                 .count_include_pad = false,
                                 .dilation = {2, 3},
                                 .padding_end = {2, 3}};
    const Tensor pooled = avg_pool2d(x, options);
    const Tensor floats = avg_pool2d(codes.to(DType::Float32).contiguous(format), options);
    const std::vector<std::int64_t> got = pooled.contiguous().to_int64_vector();
    const std::vector<float> wanted = floats.contiguous().to_float_vector();
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(std::abs(static_cast<float>(got[i]) - wanted[i]) <= 0.501F);
    }
  }
}

TEST_CASE("max_pool_indices: the first of equal elements and a NaN win") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_values({3, 3, 1, nan, 9, 2, -0.0F, 0.0F}, {1, 1, 8});
  const Tensor at = max_pool_indices(x, {.kernel_size = {2}}, 1);
  CHECK(at.to_int64_vector() == std::vector<std::int64_t>{0, 3, 4, 6});
}

TEST_CASE("pooling: with ceil_mode one window may be longer than the input, as in torch") {
  const Tensor x = Tensor::arange(18.0).reshape({1, 2, 3, 3});
  const MaxPoolOptions options{.kernel_size = {4}, .stride = {2}, .ceil_mode = true};
  const AvgPoolOptions averages{.kernel_size = {4}, .stride = {2}, .ceil_mode = true};
  const std::vector<float> largest{8, 17};
  const std::vector<float> means{4, 13};
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    const Tensor laid = x.contiguous(format);
    const Tensor best = max_pool2d(laid, options);
    CHECK(best.sizes() == Dims{1, 2, 1, 1});
    CHECK(best.to_float_vector() == largest);
    CHECK(avg_pool2d(laid, averages).to_float_vector() == means);
    const QTensor codes = quantize_per_tensor(laid, 1.0, 3, DType::QUInt8);
    CHECK(dequantize(max_pool2d(codes, options)).to_float_vector() == largest);
    CHECK(dequantize(avg_pool2d(codes, averages)).to_float_vector() == means);
  }
  CHECK(max_pool_indices(x, options, 2).to_int64_vector() == std::vector<std::int64_t>{8, 17});
  // Two more than there is: none begins within reach.
  CHECK_THROWS_WITH_AS(max_pool2d(x, {.kernel_size = {5}, .stride = {2}, .ceil_mode = true}),
                       doctest::Contains("expected at least one window of 5"), ArgumentError);
}

TEST_CASE("pooling: padding as long as a window and wrong numbers are refused by name") {
  const Tensor x = Tensor::zeros({1, 1, 5, 5});
  CHECK_THROWS_WITH_AS(max_pool2d(x, {.kernel_size = {3}, .padding = {3}, .padding_end = {0}}),
                       doctest::Contains("padding: expected 0..2, got [3, 3]"), ArgumentError);
  CHECK_THROWS_WITH_AS(max_pool2d(x, {.kernel_size = {3}, .padding_end = {-1}}),
                       doctest::Contains("padding_end: expected 0..2"), ArgumentError);
  CHECK_THROWS_WITH_AS(max_pool2d(x, {.kernel_size = {3}, .padding_end = {1, 1, 1}}),
                       doctest::Contains("padding_end: expected 1 or 2 numbers"), ArgumentError);
  CHECK_THROWS_WITH_AS(lp_pool(x, {.kernel_size = {3}, .p = 0.0}, 2),
                       doctest::Contains("p: expected a finite number > 0, got 0"), ArgumentError);
  CHECK_THROWS_WITH_AS(lp_pool(x, {.kernel_size = {3}}, 4),
                       doctest::Contains("spatial: expected 1, 2 or 3, got 4"), ArgumentError);
  CHECK_THROWS_WITH_AS(max_pool_indices(x, {.kernel_size = {6}}, 2),
                       doctest::Contains("expected at least one window of 6"), ArgumentError);
}

}  // namespace
}  // namespace quanta
