#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "quanta/ops/interpolate.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/on_device.h"
#include "support/tensors.h"

// Resizing on the device: every element as on the CPU, to the last bit.

namespace quanta {
namespace {

using test::check_on_device;

// [batch, channels, spatial...] in either order of memory.
Tensor random_image(Generator& generator, std::int64_t spatial, DType dtype) {
  Dims sizes{generator.integer(1, 2), generator.integer(1, 20)};
  for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(generator.integer(1, 7));
  const Tensor floats = randn(sizes, generator);
  const Tensor x = is_quantized(dtype)
                       ? quantize_per_tensor(floats, 0.03, generator.integer(0, 90), dtype)
                       : floats.to(dtype);
  return generator.integer(0, 1) == 0 ? x : x.contiguous(MemoryFormat::ChannelsLast);
}

InterpolateOptions random_options(Generator& generator, std::int64_t spatial) {
  InterpolateOptions options;
  for (std::int64_t d = 0; d < spatial; ++d) {
    if (generator.integer(0, 1) == 0) {
      options.scale_factor.push_back(0.01 * static_cast<double>(generator.integer(100, 310)));
    }
    options.size.push_back(generator.integer(1, 14));
  }
  if (static_cast<std::int64_t>(options.scale_factor.size()) == spatial) {
    options.size = {};
    options.recompute_scale_factor = generator.integer(0, 1) == 0;
  } else {
    options.scale_factor.clear();
  }
  return options;
}

DType pick(Generator& generator, std::span<const DType> dtypes) {
  return dtypes[static_cast<std::size_t>(
      generator.integer(0, static_cast<std::int64_t>(dtypes.size()) - 1))];
}

}  // namespace

TEST_CASE("cuda interpolate: the nearest modes in one to three dimensions") {
  Generator generator(21);
  constexpr std::array kTypes{DType::Float32, DType::Float64, DType::QUInt8, DType::QInt8};
  for (int round = 0; round < 60; ++round) {
    const std::int64_t spatial = generator.integer(1, 3);
    const Tensor x = random_image(generator, spatial, pick(generator, kTypes));
    InterpolateOptions options = random_options(generator, spatial);
    for (const auto mode : {InterpolateMode::Nearest, InterpolateMode::NearestExact}) {
      options.mode = mode;
      CAPTURE(x.sizes());
      CAPTURE(options.size);
      check_on_device([&](const Tensor& given) { return interpolate(given, options); }, x);
    }
  }
}

TEST_CASE("cuda interpolate: the nearest of a size that is doubled or kept") {
  const Tensor x = sample_tensor({2, 3, 5, 4}, DType::QInt8);
  for (const Dims& size : {Dims{10, 4}, Dims{5, 8}, Dims{10, 8}}) {
    check_on_device([&](const Tensor& given) { return interpolate(given, {.size = size}); }, x);
  }
  check_on_device(
      [&](const Tensor& given) {
        return interpolate(given, {.scale_factor = {2.19, 1.05}});
      },
      x);
}

TEST_CASE("cuda interpolate: linear modes of floats in one to three dimensions") {
  Generator generator(22);
  constexpr std::array kModes{InterpolateMode::Linear, InterpolateMode::Bilinear,
                              InterpolateMode::Trilinear};
  for (int round = 0; round < 60; ++round) {
    const std::int64_t spatial = generator.integer(1, 3);
    const Tensor x = random_image(generator, spatial, DType::Float32);
    if (generator.integer(0, 3) == 0) {
      x.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      x.mutable_data<float>()[x.numel() / 2] = std::numeric_limits<float>::infinity();
    }
    InterpolateOptions options = random_options(generator, spatial);
    options.mode = kModes[static_cast<std::size_t>(spatial - 1)];
    for (const bool aligned : {false, true}) {
      options.align_corners = aligned;
      CAPTURE(x.sizes());
      check_on_device([&](const Tensor& given) { return interpolate(given, options); }, x);
    }
  }
}

TEST_CASE("cuda interpolate: bilinear blends of codes in either order of memory") {
  Generator generator(23);
  constexpr std::array kTypes{DType::QUInt8, DType::QInt8};
  for (int round = 0; round < 80; ++round) {
    const Tensor x = random_image(generator, 2, pick(generator, kTypes));
    InterpolateOptions options = random_options(generator, 2);
    options.mode = InterpolateMode::Bilinear;
    options.align_corners = generator.integer(0, 1) == 0;
    CAPTURE(x.sizes());
    CAPTURE(options.size);
    check_on_device([&](const Tensor& given) { return interpolate(given, options); }, x);
  }
}

TEST_CASE("cuda interpolate: many channels whose addresses are odd") {
  const Tensor x = sample_tensor({2, 48, 5, 6}, DType::QUInt8);
  const InterpolateOptions options{.size = {7, 9}, .mode = InterpolateMode::Bilinear};
  const Tensor last = x.contiguous(MemoryFormat::ChannelsLast);
  check_on_device([&](const Tensor& given) { return interpolate(given, options); }, last);
  // Not dense, so that it is copied first.
  check_on_device([&](const Tensor& given) { return interpolate(given.narrow(1, 3, 32), options); },
                  last);
  // A batch that begins within a word.
  const Tensor odd = sample_tensor({1, 4 * 5 * 6 + 1}, DType::QInt8);
  check_on_device(
      [&](const Tensor& given) {
        return interpolate(
            given.narrow(1, 1, 4 * 5 * 6).as_strided({1, 4, 5, 6}, {120, 1, 24, 4}, 1), options);
      },
      odd);
}

TEST_CASE("cuda interpolate: linear modes of Float64 are refused by name") {
  const Tensor x = test::on_device(test::random_tensor({1, 2, 3, 4}).to(DType::Float64));
  CHECK_THROWS_WITH_AS(interpolate(x, {.size = {5, 5}, .mode = InterpolateMode::Bilinear}),
                       doctest::Contains("interpolate: x: expected Float32, QUInt8"),
                       UnsupportedError);
}

TEST_CASE("cuda resample: every mode, position and rounding") {
  Generator generator(24);
  constexpr std::array kTypes{DType::Float32, DType::Float64, DType::QUInt8, DType::QInt8,
                              DType::UInt8,   DType::Int8,    DType::Int16,  DType::UInt16,
                              DType::Int32,   DType::Int64};
  for (int round = 0; round < 150; ++round) {
    const std::int64_t rank = generator.integer(1, 5);
    ResampleOptions options;
    Dims sizes;
    for (std::int64_t d = 0; d < rank; ++d) {
      sizes.push_back(generator.integer(1, 5));
      options.size.push_back(generator.integer(0, 2) == 0 ? sizes.back() : generator.integer(1, 7));
    }
    options.mode = static_cast<ResampleMode>(generator.integer(0, 2));
    options.position = static_cast<ResamplePosition>(generator.integer(0, 6));
    options.rounding = static_cast<ResampleRounding>(generator.integer(0, 4));
    options.antialias = options.mode != ResampleMode::Nearest && generator.integer(0, 1) == 0;
    options.exclude_outside = generator.integer(0, 1) == 0;
    if (options.position == ResamplePosition::CropAndResize) {
      for (std::int64_t i = 0; i < 2 * rank; ++i) {
        options.roi.push_back(i < rank ? -0.1 * static_cast<double>(generator.integer(0, 2))
                                       : 1.0 + 0.1 * static_cast<double>(generator.integer(0, 2)));
      }
      options.extrapolation_value = 1.0;
    }
    const DType dtype = pick(generator, kTypes);
    Tensor x = sample_tensor(sizes, dtype, static_cast<std::uint64_t>(round) + 1);
    if (rank == 4 && generator.integer(0, 1) == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    if (dtype == DType::Float32) {
      x.mutable_data<float>()[x.numel() / 2] = std::numeric_limits<float>::infinity();
    }
    CAPTURE(sizes);
    CAPTURE(options.size);
    CAPTURE(options.mode);
    CAPTURE(options.position);
    CAPTURE(dtype);
    check_on_device([&](const Tensor& given) { return resample(given, options); }, x);
  }
}

TEST_CASE("cuda resample: the nearest of any dtype, and what is not resized is copied") {
  for (const DType dtype : {DType::BFloat16, DType::Bool, DType::QInt32, DType::Float8E5M2}) {
    const Tensor x = sample_tensor({2, 3, 5, 4}, dtype);
    check_on_device([](const Tensor& given) { return resample(given, {.size = {2, 3, 7, 2}}); }, x);
    check_on_device([](const Tensor& given) { return resample(given, {.size = {2, 3, 5, 4}}); }, x);
  }
}

}  // namespace quanta
