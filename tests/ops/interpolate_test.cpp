#include "quanta/ops/interpolate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::codes_of;
using test::for_each_target;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;

std::vector<std::int64_t> row(const Tensor& x, std::int64_t h) {
  return codes_of(x.select(0, 0).select(0, 0).select(0, h));
}

// Bilinear in double with half pixels.
std::vector<double> naive_bilinear(const Tensor& x, std::int64_t out_h, std::int64_t out_w,
                                   bool align_corners) {
  const std::vector<float> values = x.to_float_vector();
  const std::int64_t height = x.size(2);
  const std::int64_t width = x.size(3);
  const auto source = [&](std::int64_t o, std::int64_t in, std::int64_t out) {
    if (align_corners) {
      return out == 1 ? 0.0
                      : static_cast<double>(o) * static_cast<double>(in - 1) /
                            static_cast<double>(out - 1);
    }
    return std::max(
        0.0,
        (static_cast<double>(o) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5);
  };
  std::vector<double> result;
  for (std::int64_t plane = 0; plane < x.size(0) * x.size(1); ++plane) {
    const auto at = [&](std::int64_t h, std::int64_t w) {
      return static_cast<double>(
          values[static_cast<std::size_t>((plane * height + h) * width + w)]);
    };
    for (std::int64_t oh = 0; oh < out_h; ++oh) {
      for (std::int64_t ow = 0; ow < out_w; ++ow) {
        const double h = source(oh, height, out_h);
        const double w = source(ow, width, out_w);
        const auto h0 = std::min(static_cast<std::int64_t>(h), height - 1);
        const auto w0 = std::min(static_cast<std::int64_t>(w), width - 1);
        const std::int64_t h1 = std::min(h0 + 1, height - 1);
        const std::int64_t w1 = std::min(w0 + 1, width - 1);
        const double fh = h - static_cast<double>(h0);
        const double fw = w - static_cast<double>(w0);
        result.push_back((1 - fh) * ((1 - fw) * at(h0, w0) + fw * at(h0, w1)) +
                         fh * ((1 - fw) * at(h1, w0) + fw * at(h1, w1)));
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("interpolate: the specification's bilinear example comes out") {
  const Tensor codes = Tensor::from_values(
      {0, 1, 3, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 28, 30, 32}, {1, 1, 4, 4});
  const QTensor x = QTensor::from_int_repr(codes.to(DType::UInt8), Quantizer::per_tensor(0.05, 11));
  const Tensor y = interpolate(x, {.size = {6}, .mode = InterpolateMode::Bilinear});
  CHECK(row(y, 0) == std::vector<std::int64_t>{0, 1, 1, 3, 5, 6});
  CHECK(row(y, 5) == std::vector<std::int64_t>{25, 27, 28, 30, 31, 32});
  CHECK(y.as_quantized().q_zero_point() == 11);
}

TEST_CASE("interpolate: the nearest modes copy the documented positions in every layout") {
  Generator generator(51);
  for (const Layout layout : kLayouts) {
    const Tensor x = in_layout(layout, 3, 5, 7, [&](const Dims& sizes) {
      return Tensor(random_codes(sizes, DType::QInt8, 0.1, 3, generator));
    });
    for (const bool exact : {false, true}) {
      const Tensor y = interpolate(
          x, {.size = {8, 3},
              .mode = exact ? InterpolateMode::NearestExact : InterpolateMode::Nearest});
      CHECK(y.suggested_format() == x.suggested_format());
      for (std::int64_t h = 0; h < 8; ++h) {
        for (std::int64_t w = 0; w < 3; ++w) {
          const float shift = exact ? 0.5F : 0.0F;
          const auto from_h = static_cast<std::int64_t>((static_cast<float>(h) + shift) * 5 / 8);
          const auto from_w = static_cast<std::int64_t>((static_cast<float>(w) + shift) * 7 / 3);
          CHECK(codes_of(y.select(3, w).select(2, h)) ==
                codes_of(x.select(3, from_w).select(2, from_h)));
        }
      }
    }
  }
}

TEST_CASE("interpolate: bilinear agrees with plain loops in every layout") {
  Generator generator(52);
  for (const Layout layout : kLayouts) {
    for (const bool align_corners : {false, true}) {
      const InterpolateOptions options{
          .size = {9, 4}, .mode = InterpolateMode::Bilinear, .align_corners = align_corners};
      const Tensor f =
          in_layout(layout, 3, 5, 7, [&](const Dims& sizes) { return randn(sizes, generator); });
      const std::vector<float> floats = interpolate(f, options).to_float_vector();
      const std::vector<double> want = naive_bilinear(f, 9, 4, align_corners);
      double worst = 0.0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(floats[i]) - want[i]));
      }
      CHECK(worst < 1e-5);

      const QTensor q = in_layout(layout, 3, 5, 7, [&](const Dims& sizes) {
                          return Tensor(random_codes(sizes, DType::QUInt8, 1.0, 101, generator));
                        }).as_quantized();
      const std::vector<float> codes = interpolate(q, options).to_float_vector();
      const std::vector<double> exact = naive_bilinear(q, 9, 4, align_corners);
      worst = 0.0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(codes[i]) - exact[i]));
      }
      CHECK(worst < 0.5001);
    }
  }
}

// low * a + high * b as the kernel for codes whose channels lie last has it, in whole groups of eight
// channels and for the others; `channels` 0: rounded after each operation.
float joined(std::int64_t c, std::int64_t channels, float low, float a, float high, float b) {
  if (channels == 0) return low * a + high * b;
  return c < channels / 8 * 8 ? std::fma(high, b, low * a) : std::fma(low, a, high * b);
}

// The operations of the kernel one by one, on [1, C, H, W] with align_corners.
std::vector<float> plain_bilinear(const Tensor& x, std::int64_t out_h, std::int64_t out_w,
                                  float zero_point, float min, float max, bool fused = false) {
  const std::int64_t fused_channels = fused ? x.size(1) : 0;
  const std::vector<float> values = x.to_float_vector();
  const std::int64_t height = x.size(2);
  const std::int64_t width = x.size(3);
  const auto position = [](std::int64_t o, std::int64_t in, std::int64_t out) {
    return out > 1
               ? static_cast<float>(in - 1) / static_cast<float>(out - 1) * static_cast<float>(o)
               : 0.0F;
  };
  std::vector<float> result;
  for (std::int64_t c = 0; c < x.size(1); ++c) {
    for (std::int64_t oh = 0; oh < out_h; ++oh) {
      const float h = position(oh, height, out_h);
      const auto h0 = static_cast<std::int64_t>(h);
      const float high_h = h - static_cast<float>(h0);
      for (std::int64_t ow = 0; ow < out_w; ++ow) {
        const float w = position(ow, width, out_w);
        const auto w0 = static_cast<std::int64_t>(w);
        const float high_w = w - static_cast<float>(w0);
        const auto line = [&](std::int64_t row) {
          const auto at = static_cast<std::size_t>((c * height + row) * width);
          const auto left = at + static_cast<std::size_t>(w0);
          const auto right = at + static_cast<std::size_t>(std::min(w0 + 1, width - 1));
          return joined(c, fused_channels, 1.0F - high_w, values[left], high_w, values[right]);
        };
        const float value = joined(c, fused_channels, 1.0F - high_h, line(h0), high_h,
                                   line(std::min(h0 + 1, height - 1)));
        result.push_back(
            min == max ? value
                       : std::clamp(std::nearbyint(value - zero_point) + zero_point, min, max));
      }
    }
  }
  return result;
}

TEST_CASE("interpolate: every instruction set agrees with plain float32 loops bit by bit") {
  Generator generator(53);
  for_each_target([&] {
    for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
      for (const std::int64_t channels : {1, 3, 4, 7, 8, 17, 37}) {
        const Dims sizes{1, channels, 6, 9};
        for (const Dims& out : {Dims{13, 20}, Dims{4, 5}, Dims{1, 33}}) {
          const InterpolateOptions options{
              .size = {out[0], out[1]}, .mode = InterpolateMode::Bilinear, .align_corners = true};
          CAPTURE(channels);
          const Tensor f = randn(sizes, generator).contiguous(format);
          CHECK(interpolate(f, options).to_float_vector() ==
                plain_bilinear(f, out[0], out[1], 0.0F, 0.0F, 0.0F));
          for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
            const Tensor q =
                Tensor(random_codes(sizes, dtype, 1.0, 7, generator)).contiguous(format);
            const float min = dtype == DType::QUInt8 ? 0.0F : -128.0F;
            const Tensor y = interpolate(q, options);
            const Tensor codes = int_repr(q.as_quantized());
            CHECK(int_repr(y.as_quantized()).to_float_vector() ==
                  plain_bilinear(codes, out[0], out[1], 7.0F, min, min + 255.0F,
                                 q.is_contiguous(MemoryFormat::ChannelsLast)));
          }
        }
      }
    }
  });
}

TEST_CASE("interpolate: one and three dimensions and scale factors work") {
  const Tensor line = Tensor::from_values({0, 2, 4}, {1, 1, 3});
  CHECK(interpolate(line, {.scale_factor = {2.0}}).to_float_vector() ==
        std::vector<float>{0, 0, 2, 2, 4, 4});
  CHECK(interpolate(line, {.size = {5}, .mode = InterpolateMode::Linear, .align_corners = true})
            .to_float_vector() == std::vector<float>{0, 1, 2, 3, 4});
  const Tensor cube = Tensor::arange(8).view({1, 1, 2, 2, 2});
  CHECK(interpolate(cube, {.size = {1}, .mode = InterpolateMode::Trilinear}).to_float_vector() ==
        std::vector<float>{3.5});
  CHECK(interpolate(cube, {.scale_factor = {1.5, 1.0, 2.0}}).sizes() == Dims{1, 1, 3, 2, 4});
  CHECK(interpolate(Tensor::ones({0, 2, 3, 3}), {.size = {6}}).sizes() == Dims{0, 2, 6, 6});
}

TEST_CASE("interpolate: codes of one pixel are spread and codes whose sizes stay are copied") {
  Generator generator(54);
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    const Tensor pixel =
        Tensor(random_codes({2, 5, 1, 1}, DType::QUInt8, 0.1, 3, generator)).contiguous(format);
    for (const InterpolateMode mode : {InterpolateMode::Nearest, InterpolateMode::Bilinear}) {
      const Tensor spread = interpolate(pixel, {.size = {3, 4}, .mode = mode});
      CHECK(codes_of(spread) == codes_of(pixel.expand({2, 5, 3, 4})));
    }
    const Tensor cube =
        Tensor(random_codes({2, 5, 2, 3, 5}, DType::QInt8, 0.1, 3, generator)).contiguous(format);
    const Tensor kept =
        interpolate(cube, {.scale_factor = {1.1}, .mode = InterpolateMode::NearestExact});
    CHECK(codes_of(kept) == codes_of(cube));
  }
}

TEST_CASE("upsample: the older names of interpolate, for floats and codes") {
  Generator generator(55);
  const Tensor floats = randn({1, 2, 3, 4}, generator);
  const Tensor codes = quantize_per_tensor(floats, 0.05, 60, DType::QUInt8);
  for (const Tensor& x : {floats, codes}) {
    const InterpolateOptions nearest{.size = {5, 7}};
    CHECK(upsample(x, nearest).equal(interpolate(x, nearest)));
    CHECK(upsample_nearest(x, {5, 7}).equal(interpolate(x, nearest)));
    CHECK(upsample_nearest(x, {}, {2.0}).sizes() == Dims{1, 2, 6, 8});
    CHECK(upsample_bilinear(x, {5, 7}).equal(interpolate(
        x, {.size = {5, 7}, .mode = InterpolateMode::Bilinear, .align_corners = true})));
  }
  CHECK_THROWS_WITH_AS(upsample_bilinear(Tensor::ones({1, 1, 3}), {5}),
                       doctest::Contains("interpolate: mode"), ArgumentError);
}

TEST_CASE("interpolate: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({1, 2, 4, 4});
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  refused("interpolate: size: expected either size or scale_factor, got none",
          [&] { interpolate(x, {}); });
  refused("interpolate: size: expected either size or scale_factor, got both",
          [&] { interpolate(x, {.size = {2}, .scale_factor = {2.0}}); });
  refused("interpolate: size: expected 1..", [&] { interpolate(x, {.size = {0}}); });
  refused("interpolate: scale_factor: expected an output size",
          [&] { interpolate(x, {.scale_factor = {0.1}}); });
  refused("interpolate: scale_factor: expected a finite number > 0",
          [&] { interpolate(x, {.scale_factor = {-1.0}}); });
  refused("interpolate: align_corners",
          [&] { interpolate(x, {.size = {2}, .align_corners = true}); });
  refused("interpolate: mode",
          [&] { interpolate(x, {.size = {2}, .mode = InterpolateMode::Linear}); });
  refused("interpolate: x: expected 3 to 5 dimensions", [&] {
    interpolate(Tensor::ones({2, 2}), {.size = {2}});
  });
  const QTensor cube = QTensor::empty({1, 1, 2, 2, 2}, 0.1, 0, DType::QUInt8);
  CHECK_THROWS_AS(interpolate(cube, {.size = {3}, .mode = InterpolateMode::Trilinear}),
                  UnsupportedError);
}

}  // namespace quanta
