#include "quanta/ops/pooling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "elementwise_support.h"
#include "quanta/runtime/error.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::codes_of;
using test::for_each_target;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;

// The image of the specification's examples.
QTensor spec_image(MemoryFormat format = MemoryFormat::Contiguous) {
  const Tensor codes = Tensor::from_values(
      {0, 1, 3, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 28, 30, 32}, {1, 1, 4, 4});
  return QTensor(QTensor::from_int_repr(codes.to(DType::UInt8), Quantizer::per_tensor(0.05, 11))
                     .contiguous(format));
}

enum class Kind { Max, Average, AdaptiveAverage };

struct Case {
  Kind kind = Kind::Max;
  std::int64_t kernel = 2, stride = 2, padding = 0, dilation = 1;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor{};
  std::int64_t output = 1;
};

Tensor run(const Tensor& x, const Case& c) {
  switch (c.kind) {
    case Kind::Max:
      return max_pool2d(x, {{c.kernel}, {c.stride}, {c.padding}, {c.dilation}, c.ceil_mode});
    case Kind::Average:
      return avg_pool2d(
          x, {{c.kernel}, {c.stride}, {c.padding}, c.ceil_mode, c.count_include_pad, c.divisor});
    case Kind::AdaptiveAverage:
      return adaptive_avg_pool2d(x, {c.output});
  }
  return {};
}

// One output code, written from the specification with plain loops over all positions.
double naive(const Tensor& x, const std::vector<double>& values, const Case& c, std::int64_t plane,
             std::int64_t oh, std::int64_t ow, std::int64_t out_h, std::int64_t out_w,
             bool channels_last) {
  const std::int64_t height = x.size(2);
  const std::int64_t width = x.size(3);
  const auto zero_point =
      x.is_quantized() ? static_cast<double>(x.impl()->quantizer.zero_point) : 0.0;
  double best = x.is_quantized() ? static_cast<double>(quant_range(x.dtype()).min)
                                 : -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  std::int64_t count = 0;
  std::int64_t padded = 0;
  for (std::int64_t h = -c.padding; h < height + c.padding; ++h) {
    for (std::int64_t w = -c.padding; w < width + c.padding; ++w) {
      bool inside = false;
      if (c.kind == Kind::AdaptiveAverage) {
        inside = h >= oh * height / out_h && h * out_h < (oh + 1) * height &&
                 w >= ow * width / out_w && w * out_w < (ow + 1) * width;
      } else {
        const std::int64_t dh = h - (oh * c.stride - c.padding);
        const std::int64_t dw = w - (ow * c.stride - c.padding);
        inside = dh >= 0 && dw >= 0 && dh % c.dilation == 0 && dw % c.dilation == 0 &&
                 dh / c.dilation < c.kernel && dw / c.dilation < c.kernel;
      }
      if (!inside) continue;
      ++padded;
      if (h < 0 || h >= height || w < 0 || w >= width) continue;
      ++count;
      const double value = values[static_cast<std::size_t>((plane * height + h) * width + w)];
      best = std::max(best, value);
      sum += value;
    }
  }
  if (c.kind == Kind::Max) return best;
  std::int64_t divisor = c.count_include_pad ? padded : count;
  if (c.divisor) divisor = *c.divisor;
  if (!x.is_quantized()) return sum / static_cast<double>(divisor);
  const float inverse = 1.0F / static_cast<float>(divisor);
  const auto centred = static_cast<float>(sum - static_cast<double>(count) * zero_point);
  double code = std::nearbyint(centred * inverse) + zero_point;
  if (!channels_last) {
    code = c.kind == Kind::AdaptiveAverage
               ? std::nearbyint(static_cast<float>(sum) * inverse)
               : std::nearbyint(static_cast<float>(zero_point) + centred * inverse);
  }
  const IntRange range = quant_range(x.dtype());
  return std::min(std::max(code, static_cast<double>(range.min)), static_cast<double>(range.max));
}

void check_against_naive(const Tensor& x, const Case& c) {
  CAPTURE(to_string(x.sizes()));
  CAPTURE(static_cast<int>(c.kind));
  CAPTURE(c.kernel);
  CAPTURE(c.stride);
  CAPTURE(c.padding);
  CAPTURE(c.dilation);
  std::vector<double> values;
  if (x.is_quantized()) {
    for (const std::int64_t code : codes_of(x)) values.push_back(static_cast<double>(code));
  } else {
    for (const float value : x.to_float_vector()) values.push_back(static_cast<double>(value));
  }
  const Tensor y = run(x, c);
  CHECK(y.is_contiguous(x.suggested_format()));
  const std::vector<std::int64_t> codes =
      y.is_quantized() ? codes_of(y) : std::vector<std::int64_t>();
  const std::vector<float> floats = y.is_quantized() ? std::vector<float>() : y.to_float_vector();
  const bool channels_last = x.is_contiguous(MemoryFormat::ChannelsLast);
  std::size_t i = 0;
  std::size_t wrong = 0;
  for (std::int64_t plane = 0; plane < y.size(0) * y.size(1); ++plane) {
    for (std::int64_t h = 0; h < y.size(2); ++h) {
      for (std::int64_t w = 0; w < y.size(3); ++w, ++i) {
        const double want = naive(x, values, c, plane, h, w, y.size(2), y.size(3), channels_last);
        const double got =
            y.is_quantized() ? static_cast<double>(codes[i]) : static_cast<double>(floats[i]);
        const double tolerance = y.is_quantized() ? 0.0 : 1e-5;
        if (!(got == want || std::abs(got - want) <= tolerance)) {
          if (wrong++ == 0) {
            CAPTURE(i);
            CHECK(got == want);
          }
        }
      }
    }
  }
  CHECK(wrong == 0);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Kind kind : {Kind::Max, Kind::Average}) {
    for (const bool ceil_mode : {false, true}) {
      all.push_back({.kind = kind, .kernel = 3, .stride = 2, .padding = 1, .ceil_mode = ceil_mode});
      all.push_back({.kind = kind, .kernel = 2, .stride = 3, .padding = 0, .ceil_mode = ceil_mode});
    }
  }
  all.push_back({.kind = Kind::Max, .kernel = 3, .stride = 1, .padding = 1, .dilation = 2});
  all.push_back({.kind = Kind::Average, .kernel = 3, .padding = 1, .count_include_pad = false});
  all.push_back({.kind = Kind::Average, .kernel = 2, .divisor = 3});
  for (const std::int64_t output : {1, 3, 8}) {
    all.push_back({.kind = Kind::AdaptiveAverage, .output = output});
  }
  return all;
}

}  // namespace

TEST_CASE("pooling: the specification's examples come out in both memory orders") {
  const AvgPoolOptions options{.kernel_size = {3}, .stride = {1}, .padding = {1}};
  const std::vector<std::int64_t> average{8,  7,  9,  10, 10, 10, 12, 12,
                                          16, 19, 21, 18, 16, 19, 21, 18};
  const std::vector<std::int64_t> adaptive{5, 7, 9, 13, 15, 17, 22, 25, 27};
  CHECK(codes_of(avg_pool2d(spec_image(), options)) == average);
  CHECK(codes_of(adaptive_avg_pool2d(spec_image(), {3})) == adaptive);
  const QTensor y = avg_pool2d(spec_image(), options).as_quantized();
  CHECK(y.q_scale() == 0.05);
  CHECK(y.q_zero_point() == 11);
}

TEST_CASE("pooling: every layout and instruction set gives the codes of the plain loops") {
  Generator generator(31);
  for_each_target([&] {
    for (const Layout layout : kLayouts) {
      for (const std::int64_t channels : {1, 3, 17}) {
        for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
          const Tensor x = in_layout(layout, channels, 8, 7, [&](const Dims& sizes) {
            return Tensor(
                random_codes(sizes, dtype, 0.1, dtype == DType::QUInt8 ? 131 : -7, generator));
          });
          for (const Case& c : cases()) check_against_naive(x, c);
        }
        const Tensor x = in_layout(layout, channels, 8, 7,
                                   [&](const Dims& sizes) { return randn(sizes, generator); });
        for (const Case& c : cases()) check_against_naive(x, c);
      }
    }
  });
}

TEST_CASE("pooling: vectors of every width and their remainders agree with the plain loops") {
  Generator generator(32);
  for_each_target([&] {
    for (const std::int64_t channels : {8, 16, 31, 64, 65, 80, 100, 127, 150, 259}) {
      for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
        const Tensor x = random_codes({1, channels, 5, 5}, dtype, 0.1, 3, generator)
                             .contiguous(MemoryFormat::ChannelsLast);
        check_against_naive(x, {.kind = Kind::Max, .kernel = 3, .padding = 1});
        check_against_naive(x, {.kind = Kind::Average, .kernel = 3, .padding = 1});
        check_against_naive(x, {.kind = Kind::AdaptiveAverage, .output = 1});
      }
      const Tensor x = randn({1, channels, 5, 5}, generator).contiguous(MemoryFormat::ChannelsLast);
      check_against_naive(x, {.kind = Kind::Max, .kernel = 3, .padding = 1});
      check_against_naive(x, {.kind = Kind::AdaptiveAverage, .output = 1});
    }
  });
}

TEST_CASE("pooling: sums of large windows do not overflow 16 bits") {
  for_each_target([&] {
    for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
      for (const std::int64_t value : {quant_range(dtype).min, quant_range(dtype).max}) {
        const Tensor codes =
            Tensor::full({1, 33, 65, 70}, static_cast<double>(value), int_repr_dtype(dtype));
        const Tensor x = QTensor::from_int_repr(codes, Quantizer::per_tensor(0.1, 5))
                             .contiguous(MemoryFormat::ChannelsLast);
        for (const std::int64_t code : codes_of(adaptive_avg_pool2d(x, {1}))) CHECK(code == value);
      }
    }
  });
}

TEST_CASE("pooling: every number of channels agrees with the plain loops") {
  Generator generator(35);
  for_each_target([&] {
    for (std::int64_t channels = 1; channels <= 130; ++channels) {
      const DType dtype = channels % 2 == 0 ? DType::QUInt8 : DType::QInt8;
      // The second image of two, so that it begins anywhere.
      const Tensor x = random_codes({2, channels, 4, 3}, dtype, 0.1, 3, generator)
                           .contiguous(MemoryFormat::ChannelsLast)
                           .slice(0, 1, 2);
      check_against_naive(x, {.kind = Kind::Average, .kernel = 2, .stride = 1, .padding = 1});
      check_against_naive(x, {.kind = Kind::Average,
                              .kernel = 3,
                              .stride = 2,
                              .padding = 1,
                              .ceil_mode = true,
                              .count_include_pad = false});
      check_against_naive(x, {.kind = Kind::AdaptiveAverage, .output = 1});
      check_against_naive(x, {.kind = Kind::AdaptiveAverage, .output = 2});
      check_against_naive(x, {.kind = Kind::Max, .kernel = 3, .stride = 2, .padding = 1});
      check_against_naive(
          x, {.kind = Kind::Max, .kernel = 2, .stride = 1, .padding = 1, .ceil_mode = true});
    }
  });
}

TEST_CASE("pooling: planes of every width agree with the plain loops") {
  Generator generator(36);
  for_each_target([&] {
    for (std::int64_t width = 3; width <= 140; width += width < 70 ? 1 : 13) {
      const DType dtype = width % 2 == 0 ? DType::QUInt8 : DType::QInt8;
      const Tensor x = random_codes({1, 2, 4, width}, dtype, 0.1, 3, generator);
      for (const std::int64_t stride : {1, 2, 3}) {
        check_against_naive(x, {.kind = Kind::Max, .kernel = 3, .stride = stride, .padding = 1});
        check_against_naive(x, {.kind = Kind::Average,
                                .kernel = 3,
                                .stride = stride,
                                .padding = 1,
                                .ceil_mode = stride == 2,
                                .count_include_pad = stride != 3});
      }
      check_against_naive(x, {.kind = Kind::AdaptiveAverage, .output = 3});
      check_against_naive(x, {.kind = Kind::Max, .kernel = 2, .stride = 1, .dilation = 2});
    }
  });
}

TEST_CASE("pooling: any number of threads gives the same result") {
  Generator generator(33);
  const Tensor x = random_codes({2, 300, 40, 41}, DType::QUInt8, 0.1, 77, generator)
                       .contiguous(MemoryFormat::ChannelsLast);
  const Tensor f = randn({2, 300, 40, 41}, generator).contiguous(MemoryFormat::ChannelsLast);
  std::vector<Tensor> first;
  for (const int count : {1, 2, 3}) {
    const test::Threads guard(count);
    const std::vector<Tensor> results{max_pool2d(x, {{3}, {2}, {1}}), adaptive_avg_pool2d(x, {1}),
                                      avg_pool2d(f, {{3}, {2}, {1}}), adaptive_avg_pool2d(f, {1})};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) CHECK(results[i].equal(first[i]));
  }
}

TEST_CASE("pooling: one and three dimensions follow the same rules") {
  const Tensor line =
      QTensor::from_int_repr(Tensor::from_values({1, 9, 4, 4, 8, 2}, {1, 1, 6}).to(DType::UInt8),
                             Quantizer::per_tensor(0.5, 1));
  CHECK(codes_of(max_pool1d(line, {{2}})) == std::vector<std::int64_t>{9, 4, 8});
  CHECK(codes_of(avg_pool1d(line, {{3}})) == std::vector<std::int64_t>{5, 5});
  CHECK(codes_of(adaptive_avg_pool1d(line, {2})) == std::vector<std::int64_t>{5, 5});
  const Tensor cube = Tensor::arange(27).view({1, 1, 3, 3, 3});
  CHECK(max_pool3d(cube, {{2}}).to_float_vector() == std::vector<float>{13});
  CHECK(avg_pool3d(cube, {{3}}).to_float_vector() == std::vector<float>{13});
  CHECK(adaptive_avg_pool3d(cube, {1, 1, -1}).to_float_vector() == std::vector<float>{12, 13, 14});
  CHECK(max_pool3d(cube.contiguous(MemoryFormat::ChannelsLast), {{1, 2, 3}}).sizes() ==
        Dims{1, 1, 3, 1, 1});
}

TEST_CASE("pooling: inputs without a batch or with an empty one keep that shape") {
  CHECK(max_pool2d(Tensor::ones({3, 6, 6}), {{2}}).sizes() == Dims{3, 3, 3});
  CHECK(adaptive_avg_pool1d(Tensor::ones({3, 6}), {2}).sizes() == Dims{3, 2});
  CHECK(max_pool2d(Tensor::ones({0, 3, 6, 6}), {{2}}).sizes() == Dims{0, 3, 3, 3});
  CHECK(adaptive_avg_pool2d(Tensor::ones({0, 3, 6, 6}), {1}).sizes() == Dims{0, 3, 1, 1});
}

TEST_CASE("max_pool2d: NaN wins and a window without any element gives the lowest value") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    std::vector<float> values(17 * 4, 1.0F);
    values[5] = nan;
    const Tensor x = Tensor::from_values(values, {1, 17, 2, 2}).contiguous(format);
    const std::vector<float> y = max_pool2d(x, {{2}}).to_float_vector();
    CHECK(std::isnan(y[1]));
    CHECK(y[0] == 1.0F);
  }
  // Taps at -1 and 1 of an input of size 1.
  const Tensor one = Tensor::ones({1, 2, 1, 1});
  CHECK(max_pool2d(one, {{2}, {1}, {1}, {2}}).to_float_vector()[0] ==
        -std::numeric_limits<float>::infinity());
}

TEST_CASE("max_pool2d: QInt32 codes are compared as integers") {
  Generator generator(34);
  for_each_target([&] {
    for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
      const Tensor x =
          random_codes({2, 19, 6, 5}, DType::QInt32, 0.1, 0, generator).contiguous(format);
      check_against_naive(x, {.kind = Kind::Max, .kernel = 3, .padding = 1});
    }
  });
}

TEST_CASE("pooling: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({1, 2, 4, 4});
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  refused("max_pool2d: kernel_size: expected 1..", [&] { max_pool2d(x, {{0}}); });
  refused("max_pool2d: kernel_size: expected 1 or 2 numbers", [&] { max_pool2d(x, {{1, 2, 3}}); });
  refused("max_pool2d: stride: expected 1..", [&] { max_pool2d(x, {{2}, {0}}); });
  refused("max_pool2d: dilation: expected 1..", [&] { max_pool2d(x, {{2}, {2}, {0}, {0}}); });
  refused("avg_pool2d: padding: expected 0 to half", [&] { avg_pool2d(x, {{3}, {3}, {2}}); });
  refused("avg_pool2d: divisor_override: expected another number, got 0",
          [&] { avg_pool2d(x, {.kernel_size = {2}, .divisor_override = 0}); });
  refused("max_pool2d: x: expected at least one window", [&] { max_pool2d(x, {{5}}); });
  refused("max_pool2d: x: expected 3 or 4 dimensions, got [2, 2]", [&] {
    max_pool2d(Tensor::ones({2, 2}), {{2}});
  });
  refused("max_pool2d: x: expected channels and spatial sizes > 0", [&] {
    max_pool2d(Tensor::ones({1, 2, 0, 4}), {{1}});
  });
  refused("adaptive_avg_pool2d: output_size: expected 1..", [&] { adaptive_avg_pool2d(x, {0}); });
  refused("max_pool2d: x: expected a tensor", [&] { max_pool2d(Tensor(), {{2}}); });
  CHECK_THROWS_WITH_AS(avg_pool2d(x.to(DType::Float16), {{2}}),
                       doctest::Contains("avg_pool2d: x: expected Float32"), UnsupportedError);
}

}  // namespace quanta
