#include "quanta/ops/cpu/gemm/conv_exact.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "instruction_sets.h"
#include "quanta/ops/conv/cpu_depthwise.h"
#include "quanta/runtime/quant_math.h"
#include "support/threads.h"

namespace quanta::cpu {
namespace {

/// Runs `body` with every instruction set, with one thread and with two.
template <typename Body>
void for_each_target(const Body& body) {
  test::for_each_instruction_set([&] {
    for (const int count : {1, 2}) {
      CAPTURE(count);
      const test::Threads guard(count);
      body();
    }
  });
}

enum class Values { Any, Extreme };

struct Case {
  ConvShape shape;
  std::int32_t src_zero_point = 0;
  std::vector<std::int64_t> zero_points;
  std::vector<std::uint8_t> src;
  std::vector<std::int8_t> weight;
  std::vector<float> bias, multiplier;
  RequantizeParams requantize;
};

std::int64_t volume(const std::int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

/// Fills in shape.out; transposed convolutions get `output_padding` more.
void set_out(ConvShape& shape, std::int64_t output_padding) {
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t extent = shape.dilation[d] * (shape.kernel[d] - 1);
    if (shape.transposed) {
      const std::int64_t extra = std::min(output_padding, shape.stride[d] - 1);
      shape.out[d] =
          (shape.in[d] - 1) * shape.stride[d] - 2 * shape.padding[d] + extent + 1 + extra;
    } else {
      shape.out[d] = (shape.in[d] + 2 * shape.padding[d] - extent - 1) / shape.stride[d] + 1;
    }
  }
}

Case make_case(const ConvShape& shape, Values values, std::mt19937& random) {
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Case result;
  result.shape = shape;
  result.src.resize(static_cast<std::size_t>(shape.batch * volume(shape.in) * shape.in_channels));
  result.weight.resize(static_cast<std::size_t>(shape.out_channels * shape.in_channels /
                                                shape.groups * volume(shape.kernel)));
  const bool extreme = values == Values::Extreme;
  for (auto& x : result.src) x = static_cast<std::uint8_t>(extreme ? 255 : uniform(0, 255));
  for (auto& w : result.weight) w = static_cast<std::int8_t>(extreme ? 127 : uniform(-128, 127));
  result.src_zero_point = extreme ? 0 : uniform(0, 255);
  const int kind = extreme ? 2 : uniform(0, 2);
  const std::int64_t entries = kind == 0 ? 1 : shape.out_channels;
  for (std::int64_t i = 0; i < entries; ++i) {
    result.zero_points.push_back(kind == 0 ? 0 : extreme ? -128 : uniform(-128, 127));
  }
  const auto products = static_cast<float>(shape.in_channels / shape.groups * volume(shape.kernel));
  for (std::int64_t i = 0; i < shape.out_channels; ++i) {
    result.bias.push_back(static_cast<float>(uniform(-30000, 30000)) * 0.37F);
    // About a third of the results saturate.
    result.multiplier.push_back(static_cast<float>(uniform(50, 150)) * 1e-4F /
                                std::max(std::sqrt(products), 1.0F));
  }
  result.requantize.zero_point = uniform(0, 255);
  if (uniform(0, 1) == 1) {
    result.requantize.min = result.requantize.zero_point;
  } else {
    result.requantize.max = uniform(result.requantize.zero_point, 255);
  }
  return result;
}

RequantizeParams params(const Case& c) {
  RequantizeParams result = c.requantize;
  result.bias = c.bias.data();
  result.multiplier = c.multiplier.data();
  return result;
}

std::vector<std::int32_t> naive_sums(const Case& c) {
  const ConvShape& s = c.shape;
  const std::int64_t in_group = s.in_channels / s.groups;
  const std::int64_t out_group = s.out_channels / s.groups;
  std::vector<std::int64_t> sums(
      static_cast<std::size_t>(s.batch * volume(s.out) * s.out_channels));
  // Every pair of positions that a tap connects, in the order of the kernel: `big` is strided over,
  // the input of a convolution and the output of a transposed one.
  const std::int64_t(&small)[3] = s.transposed ? s.in : s.out;
  const std::int64_t(&big)[3] = s.transposed ? s.out : s.in;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t p = 0; p < volume(small); ++p) {
      for (std::int64_t k = 0; k < volume(s.kernel); ++k) {
        const std::int64_t at[3] = {p / (small[1] * small[2]), p / small[2] % small[1],
                                    p % small[2]};
        const std::int64_t tap[3] = {k / (s.kernel[1] * s.kernel[2]), k / s.kernel[2] % s.kernel[1],
                                     k % s.kernel[2]};
        std::int64_t q = 0;
        bool inside = true;
        for (std::size_t d = 0; d < 3; ++d) {
          const std::int64_t x = at[d] * s.stride[d] - s.padding[d] + tap[d] * s.dilation[d];
          inside = inside && x >= 0 && x < big[d];
          q = q * big[d] + x;
        }
        if (!inside) continue;
        const std::int64_t in_pixel = n * volume(s.in) + (s.transposed ? p : q);
        const std::int64_t out_pixel = n * volume(s.out) + (s.transposed ? q : p);
        for (std::int64_t o = 0; o < s.out_channels; ++o) {
          const std::int64_t group = o / out_group;
          const std::int64_t zero_point =
              c.zero_points[c.zero_points.size() == 1 ? 0 : static_cast<std::size_t>(o)];
          for (std::int64_t i = 0; i < in_group; ++i) {
            const std::int64_t filter = s.transposed
                                            ? (group * in_group + i) * out_group + o % out_group
                                            : o * in_group + i;
            const std::int64_t x =
                c.src[static_cast<std::size_t>(in_pixel * s.in_channels + group * in_group + i)];
            const std::int64_t w =
                c.weight[static_cast<std::size_t>(filter * volume(s.kernel) + k)];
            sums[static_cast<std::size_t>(out_pixel * s.out_channels + o)] +=
                (x - c.src_zero_point) * (w - zero_point);
          }
        }
      }
    }
  }
  std::vector<std::int32_t> result;
  for (const std::int64_t sum : sums) {
    REQUIRE(std::abs(sum) <= std::numeric_limits<std::int32_t>::max());
    result.push_back(static_cast<std::int32_t>(sum));
  }
  return result;
}

std::vector<std::uint8_t> naive_codes(const std::vector<std::int32_t>& sums,
                                      const RequantizeParams& p, std::size_t channels) {
  std::vector<std::uint8_t> result;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t n = i % channels;
    const float bias = p.bias != nullptr ? p.bias[n] : 0.0F;
    result.push_back(static_cast<std::uint8_t>(math::requantize(
        sums[i], bias, p.bias_factor, p.multiplier[n], p.zero_point, p.min, p.max)));
  }
  return result;
}

template <typename T>
void check_equal(const std::vector<T>& got, const std::vector<T>& expected) {
  REQUIRE(got.size() == expected.size());
  const auto [g, e] = std::mismatch(got.begin(), got.end(), expected.begin());
  if (g == got.end()) return;
  const auto index = g - got.begin();
  FAIL_CHECK("first difference at ", index, " of ", got.size(), ": got ", +*g, ", expected ", +*e);
}

std::string describe(const ConvShape& s) {
  std::string text = s.transposed ? "transposed" : "convolution";
  const auto add = [&](const char* name, const std::int64_t(&v)[3]) {
    text += std::string(" ") + name;
    for (const std::int64_t x : v) text += " " + std::to_string(x);
  };
  text += " batch " + std::to_string(s.batch) + " channels " + std::to_string(s.in_channels) +
          " -> " + std::to_string(s.out_channels) + " groups " + std::to_string(s.groups);
  add("in", s.in);
  add("out", s.out);
  add("kernel", s.kernel);
  add("stride", s.stride);
  add("padding", s.padding);
  add("dilation", s.dilation);
  return text;
}

void check_exact(const Case& c) {
  CAPTURE(describe(c.shape));
  const std::vector<std::int32_t> sums = naive_sums(c);
  const auto channels = static_cast<std::size_t>(c.shape.out_channels);
  const std::vector<std::uint8_t> codes = naive_codes(sums, params(c), channels);
  RequantizeParams without_bias = params(c);
  without_bias.bias = nullptr;
  const std::vector<std::uint8_t> codes_without_bias = naive_codes(sums, without_bias, channels);
  for_each_target([&] {
    const ExactWeights weights = pack_exact_weights(c.weight.data(), c.zero_points, c.shape);
    std::vector<std::int32_t> got_sums(sums.size(), -1);
    conv_exact_s32(c.src.data(), c.src_zero_point, weights, c.shape, got_sums.data());
    check_equal(got_sums, sums);
    std::vector<std::uint8_t> got(sums.size());
    conv_exact_u8(c.src.data(), c.src_zero_point, weights, c.shape, params(c), got.data());
    check_equal(got, codes);
    conv_exact_u8(c.src.data(), c.src_zero_point, weights, c.shape, without_bias, got.data());
    check_equal(got, codes_without_bias);
  });
}

/// A shape with up to `dims` dimensions of more than one element.
ConvShape random_shape(int dims, std::mt19937& random) {
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  ConvShape s;
  s.batch = uniform(1, 2);
  s.groups = uniform(0, 2) == 0 ? uniform(2, 4) : 1;
  s.in_channels = s.groups * uniform(1, 23);
  s.out_channels = s.groups * uniform(1, s.groups == 1 ? 100 : 37);
  for (std::size_t d = static_cast<std::size_t>(3 - dims); d < 3; ++d) {
    s.kernel[d] = uniform(1, 4);
    s.stride[d] = uniform(1, 3);
    s.dilation[d] = uniform(1, 2);
    const auto extent = static_cast<int>(s.dilation[d] * (s.kernel[d] - 1));
    s.padding[d] = uniform(0, std::min(extent, 3));
    s.in[d] =
        std::max<std::int64_t>(extent + 1 - 2 * s.padding[d], 1) + uniform(0, dims == 3 ? 3 : 8);
  }
  return s;
}

TEST_CASE("conv_exact: random convolutions equal the scalar reference on every target") {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    ConvShape shape = random_shape(1 + i % 3, random);
    set_out(shape, 0);
    check_exact(make_case(shape, Values::Any, random));
  }
}

TEST_CASE("conv_exact: random transposed convolutions equal the scalar reference") {
  std::mt19937 random(2);
  for (int i = 0; i < 60; ++i) {
    ConvShape shape = random_shape(1 + i % 3, random);
    shape.transposed = true;
    // Padding that leaves no output is refused before the kernel.
    for (std::size_t d = 0; d < 3; ++d) {
      while ((shape.in[d] - 1) * shape.stride[d] - 2 * shape.padding[d] +
                 shape.dilation[d] * (shape.kernel[d] - 1) + 1 <
             1) {
        --shape.padding[d];
      }
    }
    set_out(shape, i % 3);
    check_exact(make_case(shape, Values::Any, random));
  }
}

TEST_CASE("conv_exact: the largest codes and weights do not saturate") {
  std::mt19937 random(3);
  ConvShape shape;
  shape.in_channels = 300;
  shape.out_channels = 65;
  shape.in[1] = 3;
  shape.in[2] = 4;
  shape.kernel[1] = 3;
  shape.kernel[2] = 3;
  shape.padding[1] = shape.padding[2] = 1;
  set_out(shape, 0);
  check_exact(make_case(shape, Values::Extreme, random));
}

TEST_CASE("conv_exact: a phase of a transposed convolution without taps gives the bias") {
  std::mt19937 random(4);
  ConvShape shape;
  shape.in_channels = 5;
  shape.out_channels = 18;
  shape.in[2] = 4;
  shape.stride[2] = 3;
  shape.transposed = true;
  set_out(shape, 2);
  check_exact(make_case(shape, Values::Any, random));
}

void check_depthwise(const Case& c) {
  CAPTURE(describe(c.shape));
  REQUIRE(is_depthwise(c.shape));
  const std::vector<std::int32_t> sums = naive_sums(c);
  const auto channels = static_cast<std::size_t>(c.shape.out_channels);
  const std::vector<std::uint8_t> codes = naive_codes(sums, params(c), channels);
  RequantizeParams without_bias = params(c);
  without_bias.bias = nullptr;
  const std::vector<std::uint8_t> codes_without_bias = naive_codes(sums, without_bias, channels);
  for_each_target([&] {
    const DepthwiseWeights weights =
        pack_depthwise_weights(c.weight.data(), c.zero_points, c.shape);
    std::vector<std::uint8_t> got(sums.size());
    conv_depthwise_u8(c.src.data(), weights,
                      depthwise_epilogue(weights, c.src_zero_point, params(c)), c.shape,
                      got.data());
    check_equal(got, codes);
    conv_depthwise_u8(c.src.data(), weights,
                      depthwise_epilogue(weights, c.src_zero_point, without_bias), c.shape,
                      got.data());
    check_equal(got, codes_without_bias);
  });
}

ConvShape depthwise_shape(std::int64_t channels, std::int64_t kernel, std::int64_t stride,
                          std::int64_t height, std::int64_t width) {
  ConvShape shape;
  shape.in_channels = shape.out_channels = shape.groups = channels;
  shape.in[1] = height;
  shape.in[2] = width;
  for (const std::size_t d : {std::size_t{1}, std::size_t{2}}) {
    shape.kernel[d] = kernel;
    shape.stride[d] = stride;
    shape.padding[d] = kernel / 2;
  }
  return shape;
}

TEST_CASE("conv_depthwise: any number of channels equals the scalar reference on every target") {
  std::mt19937 random(6);
  for (const std::int64_t channels : {1, 3, 8, 16, 17, 24, 32, 33, 48, 64, 65, 96, 100, 130, 200}) {
    for (const std::int64_t kernel : {3, 5}) {
      for (const std::int64_t stride : {1, 2}) {
        ConvShape shape = depthwise_shape(channels, kernel, stride, 7, 9);
        shape.batch = channels < 40 ? 2 : 1;
        set_out(shape, 0);
        check_depthwise(make_case(shape, Values::Any, random));
      }
    }
  }
}

TEST_CASE("conv_depthwise: many lines on two threads equal the scalar reference") {
  std::mt19937 random(7);
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t channels : {72, 96}) {
      ConvShape shape = depthwise_shape(channels, 3, stride, 41, 39);
      set_out(shape, 0);
      check_depthwise(make_case(shape, Values::Any, random));
    }
  }
}

TEST_CASE("conv_depthwise: random kernels in one to three dimensions equal the scalar reference") {
  std::mt19937 random(8);
  for (int i = 0; i < 120; ++i) {
    ConvShape shape = random_shape(1 + i % 3, random);
    shape.in_channels = shape.out_channels = shape.groups =
        std::uniform_int_distribution<int>(1, 100)(random);
    set_out(shape, 0);
    check_depthwise(make_case(shape, Values::Any, random));
  }
}

TEST_CASE("conv_depthwise: small kernels with any border and size equal the scalar reference") {
  std::mt19937 random(10);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 100; ++i) {
    const std::int64_t kernel = uniform(0, 1) == 0 ? 3 : 5;
    ConvShape shape = depthwise_shape(uniform(16, 200), kernel, 1, 1, 1);
    for (const std::size_t d : {std::size_t{1}, std::size_t{2}}) {
      shape.stride[d] = uniform(1, 2);
      shape.padding[d] = uniform(0, static_cast<int>(kernel) - 1);
      shape.in[d] = std::max<std::int64_t>(kernel - 2 * shape.padding[d], 1) + uniform(0, 9);
    }
    set_out(shape, 0);
    Case c = make_case(shape, Values::Any, random);
    // Weights without zero points and results up to 255, as most layers have them.
    if (i % 4 != 0) c.zero_points = {0};
    if (i % 4 != 0) c.requantize.max = 255;
    // Scaled sums beyond int32.
    if (i % 8 == 1) c.multiplier[0] = 1e8F;
    check_depthwise(c);
  }
}

TEST_CASE("conv_depthwise: the largest codes and weights do not saturate") {
  std::mt19937 random(9);
  for (const std::int64_t kernel : {1, 2, 3, 4, 5, 7, 8, -3, -5}) {
    // Below 0: with a stride.
    ConvShape shape = depthwise_shape(19, std::abs(kernel), kernel < 0 ? 2 : 1, 9, 8);
    set_out(shape, 0);
    Case extreme = make_case(shape, Values::Extreme, random);
    extreme.requantize.max = 255;
    check_depthwise(extreme);
    // Weights that fit in int8 take another path.
    extreme.zero_points = {0};
    check_depthwise(extreme);
    std::fill(extreme.weight.begin(), extreme.weight.end(), std::int8_t{-128});
    check_depthwise(extreme);
  }
}

TEST_CASE("requantize_rows: equals the scalar requantize for any number of channels") {
  std::mt19937 random(5);
  for (const std::size_t channels :
       {0U, 1U, 3U, 15U, 16U, 17U, 31U, 33U, 63U, 64U, 65U, 100U, 256U, 1000U}) {
    CAPTURE(channels);
    const std::size_t rows = 70000 / (channels + 1) % 97 + 3;
    std::vector<std::int32_t> acc(rows * channels), compensation(channels);
    std::vector<float> bias(channels), multiplier(channels);
    std::uniform_int_distribution<std::int32_t> any(-2000000, 2000000);
    for (auto& x : acc) x = any(random);
    for (auto& x : compensation) x = any(random) / 10;
    for (auto& x : bias) x = static_cast<float>(any(random)) * 0.1F;
    for (auto& x : multiplier) x = static_cast<float>(any(random)) * 1e-10F;
    if (channels > 2) {
      // Ends of the range, infinities and NaN.
      multiplier[1] = std::numeric_limits<float>::infinity();
      multiplier[2] = std::numeric_limits<float>::quiet_NaN();
      acc[0] = std::numeric_limits<std::int32_t>::max() / 2;
      multiplier[0] = 0.5F;
      acc[channels] = std::numeric_limits<std::int32_t>::min() / 2;
    }
    for (const RequantizeParams& p :
         {RequantizeParams{bias.data(), multiplier.data(), 7, 0, 255},
          RequantizeParams{nullptr, multiplier.data(), 255, 3, 255},
          RequantizeParams{bias.data(), multiplier.data(), 128, 128, 200}}) {
      std::vector<std::int32_t> sums = acc;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += compensation[i % channels];
      const auto expected = naive_codes(sums, p, std::max<std::size_t>(channels, 1));
      const auto expected_plain = naive_codes(acc, p, std::max<std::size_t>(channels, 1));
      for_each_target([&] {
        std::vector<std::uint8_t> got(acc.size());
        requantize_rows(acc.data(), compensation.data(), static_cast<std::int64_t>(rows),
                        static_cast<std::int64_t>(channels), p, got.data());
        check_equal(got, expected);
        requantize_rows(acc.data(), nullptr, static_cast<std::int64_t>(rows),
                        static_cast<std::int64_t>(channels), p, got.data());
        check_equal(got, expected_plain);
      });
    }
  }
}

}  // namespace
}  // namespace quanta::cpu
