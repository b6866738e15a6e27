#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "quanta/ops/arithmetic_quantized.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "schedule_scope.h"
#include "support/device_guide.h"
#include "support/test_device.h"

// Convolutions and linear layers of codes: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

using cuda::emulation::Schedule;
using test::ScheduleScope;

const Device kDevice = test::test_device();

QTensor random_codes(const Dims& sizes, DType dtype, std::int64_t zero_point,
                     Generator& generator) {
  return quantize_per_tensor(randn(sizes, generator), 0.02, zero_point, dtype);
}

QTensor random_weight(const Dims& sizes, std::int64_t axis, Generator& generator) {
  const Tensor values = randn(sizes, generator);
  const bool with_zero_points = generator.integer(0, 2) == 0;
  const std::int64_t channels = sizes[static_cast<std::size_t>(axis)];
  if (generator.integer(0, 1) == 0) {
    return quantize_per_tensor(values, 0.03, with_zero_points ? generator.integer(-20, 20) : 0,
                               DType::QInt8);
  }
  const Tensor scales = Tensor::empty({channels});
  const Tensor zero_points = Tensor::zeros({channels}, DType::Int64);
  for (std::int64_t n = 0; n < channels; ++n) {
    scales.mutable_data<float>()[n] = 0.01F + 0.001F * static_cast<float>(n % 7);
    if (with_zero_points)
      zero_points.mutable_data<std::int64_t>()[n] = generator.integer(-128, 127);
  }
  return quantize_per_channel(values, scales, zero_points, axis, DType::QInt8);
}

template <typename T, std::size_t kCount>
T pick(Generator& generator, const T (&values)[kCount]) {
  return values[static_cast<std::size_t>(
      generator.integer(0, static_cast<std::int64_t>(kCount) - 1))];
}

// Any convolution: rank, groups, strides, dilations, paddings, zero points, transposed or not.
void check_random_conv(Generator& generator) {
  const std::int64_t spatial = pick(generator, {1, 2, 2, 2, 3});
  const bool transposed = generator.integer(0, 4) == 0;
  const std::int64_t channels[] = {1, 2, 3, 4, 5, 8, 13, 16, 17, 24, 32, 40, 48};
  std::int64_t in = pick(generator, channels);
  std::int64_t out = pick(generator, channels);
  std::int64_t groups = 1;
  const std::int64_t kind = generator.integer(0, 3);
  if (kind == 0) groups = out = in;  // depthwise
  if (kind == 1) {
    groups = generator.integer(2, 4);
    in = groups * pick(generator, {1, 4, 5, 8, 16});
    out = groups * generator.integer(1, 9);
  }
  ConvTransposeOptions options;
  options.groups = groups;
  Dims sizes{generator.integer(1, 2), in};
  Dims weight_sizes = transposed ? Dims{in, out / groups} : Dims{out, in / groups};
  Dims stride, padding, dilation;
  for (std::int64_t d = 0; d < spatial; ++d) {
    const std::int64_t kernel = generator.integer(1, 4);
    weight_sizes.push_back(kernel);
    stride.push_back(generator.integer(1, 3));
    dilation.push_back(generator.integer(1, 2));
    padding.push_back(generator.integer(0, kernel / 2));
    sizes.push_back(generator.integer((kernel - 1) * dilation.back() + 1, 11));
  }
  options.stride = stride;
  options.padding = padding;
  options.dilation = dilation;
  if (transposed && groups > 1) {
    weight_sizes[1] = out / groups;
  }
  QTensor x = random_codes(sizes, DType::QUInt8, generator.integer(0, 255), generator);
  const QTensor weight = transposed && groups > 1
                             ? random_codes(weight_sizes, DType::QInt8, 0, generator)
                             : random_weight(weight_sizes, transposed ? 1 : 0, generator);
  const Tensor bias = generator.integer(0, 2) == 0 ? Tensor() : randn({out}, generator);
  const auto packed =
      transposed ? quantized::ConvPackedParams::transposed(weight, bias, options, spatial)
                 : quantized::ConvPackedParams(weight, bias,
                                               ConvOptions{options.stride, options.padding,
                                                           options.dilation, options.groups},
                                               spatial);
  const bool relu = generator.integer(0, 1) == 0;
  const std::int64_t zero_point = generator.integer(0, 255);
  const auto call = [&](const QTensor& input) {
    return relu ? quantized::conv_relu(input, packed, 0.05, zero_point)
                : quantized::conv(input, packed, 0.05, zero_point);
  };
  const QTensor expected = call(x);
  CAPTURE(sizes);
  CAPTURE(weight_sizes);
  CAPTURE(groups);
  CAPTURE(transposed);
  CHECK(call(QTensor(x.to(kDevice))).cpu().equal(expected));
  if (transposed) return;
  const QTensor addend =
      random_codes(expected.sizes(), DType::QUInt8, generator.integer(0, 255), generator);
  const auto added = [&](const QTensor& input, const QTensor& other) {
    return relu ? quantized::conv_add_relu(input, other, packed, 0.05, zero_point)
                : quantized::conv_add(input, other, packed, 0.05, zero_point);
  };
  CHECK(added(QTensor(x.to(kDevice)), QTensor(addend.to(kDevice))).cpu().equal(added(x, addend)));
}

void check_conv(const QTensor& x, const quantized::ConvPackedParams& packed, double scale,
                std::int64_t zero_point) {
  CHECK(quantized::conv(QTensor(x.to(kDevice)), packed, scale, zero_point)
            .cpu()
            .equal(quantized::conv(x, packed, scale, zero_point)));
}

}  // namespace

TEST_CASE("products on a device: the largest weights that zero points leave") {
  Generator generator(4);
  for (const std::int64_t zero_point : {-128, -127, 127}) {
    const Tensor values = Tensor::full({3, 20}, zero_point < 0 ? 1000.0 : -1000.0);
    const QTensor weight = quantize_per_tensor(values, 0.01, zero_point, DType::QInt8);
    const quantized::LinearPackedParams packed(weight, Tensor());
    const QTensor x = random_codes({5, 20}, DType::QUInt8, 100, generator);
    CHECK(quantized::linear(QTensor(x.to(kDevice)), packed, 0.5, 90)
              .cpu()
              .equal(quantized::linear(x, packed, 0.5, 90)));
    const quantized::ConvPackedParams few(QTensor(weight.reshape({3, 1, 4, 5})), Tensor(), {}, 2);
    const QTensor image = random_codes({1, 1, 6, 7}, DType::QUInt8, 3, generator);
    CHECK(quantized::conv(QTensor(image.to(kDevice)), few, 0.5, 90)
              .cpu()
              .equal(quantized::conv(image, few, 0.5, 90)));
  }
}

TEST_CASE("cuda products: depthwise convolutions of few and of many channels") {
  Generator generator(31);
  for (const std::int64_t channels : {4, 60, 64, 68, 144, 66}) {
    for (const std::int64_t kernel : {3, 5}) {
      CAPTURE(channels);
      CAPTURE(kernel);
      const QTensor x = random_codes({2, channels, 11, 9}, DType::QUInt8, 77, generator);
      const QTensor weight = random_weight({channels, 1, kernel, kernel}, 0, generator);
      for (const std::int64_t stride : {1, 2}) {
        const quantized::ConvPackedParams packed(
            weight, randn({channels}, generator),
            ConvOptions{.stride = {stride}, .padding = {kernel / 2}, .groups = channels}, 2);
        const QTensor expected = quantized::conv_relu(x, packed, 0.05, 12);
        CHECK(quantized::conv_relu(QTensor(x.to(kDevice)), packed, 0.05, 12).cpu().equal(expected));
        const QTensor addend = random_codes(expected.sizes(), DType::QUInt8, 9, generator);
        CHECK(quantized::conv_add(QTensor(x.to(kDevice)), QTensor(addend.to(kDevice)), packed, 0.05,
                                  12)
                  .cpu()
                  .equal(quantized::conv_add(x, addend, packed, 0.05, 12)));
      }
    }
  }
}

TEST_CASE("cuda products: any convolution, in several orders of threads") {
  Generator generator(2026);
  for (int round = 0; round < 40; ++round) {
    const ScheduleScope scope(round % 2 == 0 ? Schedule::Lockstep : Schedule::Greedy,
                              static_cast<std::uint64_t>(round / 2));
    check_random_conv(generator);
  }
}

TEST_CASE("cuda products: several tiles of rows and columns") {
  Generator generator(7);
  const QTensor x = random_codes({2, 32, 9, 11}, DType::QUInt8, 100, generator);
  const QTensor weight = random_weight({130, 32, 3, 3}, 0, generator);
  const quantized::ConvPackedParams packed(weight, randn({130}, generator),
                                           ConvOptions{.padding = {1}}, 2);
  cuda::emulation::reset_counters();
  const QTensor got = quantized::conv(QTensor(x.to(kDevice)), packed, 0.1, 20);
  CHECK(got.cpu().equal(quantized::conv(x, packed, 0.1, 20)));
  if (!kDevice.is_emulated()) return;
  // No two rows of a matrix in one bank.
  const auto counters = cuda::emulation::counters();
  CHECK(counters.matrix_loads > 0);
  CHECK(counters.matrix_passes == counters.matrix_loads);
}

TEST_CASE("cuda products: depthwise strips, at every end of a row") {
  Generator generator(32);
  for (const std::int64_t kernel : {3, 5}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t width : {1, 2, 4, 5, 7, 8, 13, 16}) {
        CAPTURE(kernel);
        CAPTURE(stride);
        CAPTURE(width);
        const Dims sizes{generator.integer(1, 3), 68, generator.integer(1, 9), width};
        const std::int64_t padding = generator.integer(kernel / 2, kernel - 1);
        const QTensor x = random_codes(sizes, DType::QUInt8, 200, generator);
        const QTensor weight =
            quantize_per_tensor(randn({68, 1, kernel, kernel}, generator), 0.02, 0, DType::QInt8);
        const quantized::ConvPackedParams packed(
            weight, randn({68}, generator),
            ConvOptions{.stride = {stride}, .padding = {padding}, .groups = 68}, 2);
        check_conv(x, packed, 0.05, 12);
      }
    }
  }
}

TEST_CASE("cuda products: depthwise strips, several of each thread") {
  Generator generator(35);
  const QTensor x = random_codes({3, 68, 61, 63}, DType::QUInt8, 40, generator);
  const quantized::ConvPackedParams packed(
      quantize_per_tensor(randn({68, 1, 3, 3}, generator), 0.02, 0, DType::QInt8),
      randn({68}, generator), ConvOptions{.padding = {1}, .groups = 68}, 2);
  check_conv(x, packed, 0.05, 12);
}

TEST_CASE("cuda products: every tile, with rows, columns and depth that end within one") {
  Generator generator(33);
  struct Shape {
    const char* kernel;  // where there are two multiprocessors
    std::int64_t rows, depth, columns;
  };
  constexpr const char* kSmall = "multiply_codes";
  constexpr const char* kWide = "multiply_codes_wide";
  constexpr const char* kDeep = "multiply_codes_deep";
  const auto check_kernel = [](const char* kernel) {
    if (kDevice.is_emulated()) CHECK(cuda::emulation::counters().last_kernel == kernel);
  };
  // The widest tile is taken where each multiprocessor gets one.
  const std::int64_t many = 128 * (cuda::driver(kDevice).multiprocessors() - 1) + 2;
  for (const Shape& shape : {Shape{kWide, many, 80, 128},
                             {kWide, many, 208, 250},
                             {kSmall, 129, 96, 64},
                             {kSmall, 257, 320, 40},
                             {kSmall, 130, 48, 190},
                             {kDeep, 33, 592, 40},
                             {kDeep, 1, 256, 10},
                             {kDeep, 64, 4112, 64},
                             {kSmall, 100, 64, 64},
                             {kSmall, 5, 192, 20},
                             {kSmall, 70, 16, 16}}) {
    CAPTURE(shape.kernel);
    CAPTURE(shape.rows);
    const QTensor x = random_codes({shape.rows, shape.depth}, DType::QUInt8, 131, generator);
    const Dims sizes{shape.columns, shape.depth};
    const Tensor values = randn(sizes, generator);
    const Tensor bias = randn({shape.columns}, generator);
    const auto check_weight = [&](const QTensor& weight, const auto& check_chosen) {
      const quantized::LinearPackedParams packed(weight, bias);
      const QTensor got = quantized::linear(QTensor(x.to(kDevice)), packed, 0.3, 97);
      check_chosen();
      CHECK(got.cpu().equal(quantized::linear(x, packed, 0.3, 97)));
      const Tensor floats = dequantize(x);
      const Tensor dynamic = quantized::linear_dynamic(floats.to(kDevice), packed);
      check_chosen();
      CHECK(dynamic.cpu().equal(quantized::linear_dynamic(floats, packed)));
    };
    check_weight(quantize_per_tensor(values, 0.03, 0, DType::QInt8),
                 [&] { check_kernel(shape.kernel); });
    // One with zero points is two parts, for whose depth another tile may be chosen.
    check_weight(random_weight(sizes, 0, generator), [] {});
  }
  for (const std::int64_t channels : {16, 48, 64, 80, 128}) {
    for (const std::int64_t columns : {40, 128}) {
      for (const std::int64_t side : {3, 7, 16}) {
        CAPTURE(channels);
        CAPTURE(columns);
        CAPTURE(side);
        const ScheduleScope scope(Schedule::Greedy, static_cast<std::uint64_t>(channels + side));
        const QTensor x = random_codes({1, channels, side, side + 1}, DType::QUInt8, 3, generator);
        const quantized::ConvPackedParams packed(
            random_weight({columns, channels, 3, 3}, 0, generator), randn({columns}, generator),
            ConvOptions{.stride = {1}, .padding = {1}}, 2);
        const QTensor got = quantized::conv_relu(QTensor(x.to(kDevice)), packed, 0.3, 97);
        if (columns == 40 && side < 8 && channels > 16) check_kernel(kDeep);
        if (columns == 128 && side == 16) check_kernel(kWide);
        CHECK(got.cpu().equal(quantized::conv_relu(x, packed, 0.3, 97)));
      }
    }
  }
}

TEST_CASE("cuda products: what reaches farther than 2^30 is refused by name") {
  Generator generator(36);
  const std::int64_t far = std::int64_t{1} << 29;
  const QTensor x = random_codes({1, 4, 1, 3, 3}, DType::QUInt8, 9, generator);
  const quantized::ConvPackedParams packed(
      random_weight({5, 4, 2, 1, 1}, 0, generator), {},
      ConvOptions{.stride = {far, 1, 1}, .padding = {far, 0, 0}, .dilation = {far, 1, 1}}, 3);
  CHECK_THROWS_WITH_AS(quantized::conv(QTensor(x.to(kDevice)), packed, 0.1, 3),
                       doctest::Contains("expected sizes up to 2^30 on a CUDA device"),
                       UnsupportedError);
}

TEST_CASE("cuda products: images of three channels") {
  Generator generator(34);
  for (const std::int64_t columns : {4, 5, 32, 70}) {
    for (const std::int64_t kernel : {1, 3, 7}) {
      CAPTURE(columns);
      CAPTURE(kernel);
      const QTensor x = random_codes({2, 3, 13, 12}, DType::QUInt8, 114, generator);
      const quantized::ConvPackedParams packed(
          random_weight({columns, 3, kernel, kernel}, 0, generator), randn({columns}, generator),
          ConvOptions{.stride = {2}, .padding = {kernel / 2}}, 2);
      check_conv(x, packed, 0.2, 30);
    }
  }
}

TEST_CASE("cuda products: weights of few channels with zero points") {
  Generator generator(8);
  const QTensor x = random_codes({2, 6, 5, 7}, DType::QUInt8, 90, generator);
  // Codes from -128 to 127, so that what is left of the zero point needs nine bits.
  const QTensor weight =
      quantize_per_tensor(randn({12, 1, 3, 2}, generator), 0.01, 60, DType::QInt8);
  const quantized::ConvPackedParams packed(weight, randn({12}, generator),
                                           ConvOptions{.padding = {1, 0}, .groups = 6}, 2);
  CHECK(quantized::conv(QTensor(x.to(kDevice)), packed, 0.3, 100)
            .cpu()
            .equal(quantized::conv(x, packed, 0.3, 100)));
}

TEST_CASE("cuda products: linear layers and what may follow them") {
  Generator generator(5);
  for (int round = 0; round < 12; ++round) {
    const std::int64_t in = pick(generator, {1, 3, 16, 50, 64, 100});
    const std::int64_t out = pick(generator, {1, 7, 64, 70});
    const QTensor x = random_codes({generator.integer(1, 70), in}, DType::QUInt8,
                                   generator.integer(0, 255), generator);
    const quantized::LinearPackedParams packed(random_weight({out, in}, 0, generator),
                                               randn({out}, generator));
    const QTensor there(x.to(kDevice));
    CHECK(quantized::linear(there, packed, 0.05, 3)
              .cpu()
              .equal(quantized::linear(x, packed, 0.05, 3)));
    CHECK(quantized::linear_relu(there, packed, 0.05, 30)
              .cpu()
              .equal(quantized::linear_relu(x, packed, 0.05, 30)));
    CHECK(quantized::linear_leaky_relu(there, packed, 0.05, 30, 0.2)
              .cpu()
              .equal(quantized::linear_leaky_relu(x, packed, 0.05, 30, 0.2)));
    for (const double scale : {0.0078125, 0.01, 0.001, 0.3}) {
      CHECK(quantized::linear_tanh(there, packed, scale, 128)
                .cpu()
                .equal(quantized::linear_tanh(x, packed, scale, 128)));
    }
  }
}

TEST_CASE("cuda products: nothing to do, and many threads on one weight") {
  Generator generator(5);
  const quantized::LinearPackedParams packed(random_weight({8, 16}, 0, generator), {});
  const QTensor none = random_codes({0, 16}, DType::QUInt8, 3, generator);
  CHECK(quantized::linear(QTensor(none.to(kDevice)), packed, 0.05, 3).sizes() == Dims{0, 8});
  const QTensor x = random_codes({5, 16}, DType::QUInt8, 3, generator);
  const QTensor expected = quantized::linear(x, packed, 0.05, 3);
  std::vector<std::thread> threads;
  std::vector<int> right(8, 0);
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        right[t] += quantized::linear(QTensor(x.to(kDevice)), packed, 0.05, 3).cpu().equal(expected)
                        ? 1
                        : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : right) CHECK(count == 5);
}

}  // namespace quanta
