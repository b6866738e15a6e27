#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quanta/ops/interpolate.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<float>;

Tensor random_tensor(const Dims& sizes, std::uint64_t seed) {
  Generator generator(seed);
  Floats values(static_cast<std::size_t>(product(sizes)));
  for (float& value : values) value = generator.normal();
  return Tensor::from_values(values, sizes);
}

// What ONNX's specification says of one dimension, written down without tables: the value at a
// position between the elements of `line`.
double sampled(const std::vector<double>& line, double position, const ResampleOptions& options) {
  const auto length = static_cast<std::int64_t>(line.size());
  const auto element = [&](std::int64_t i) {
    return line[static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, length - 1))];
  };
  if (options.mode == ResampleMode::Nearest) {
    double source = position;
    if (options.rounding == ResampleRounding::Floor) source = std::floor(position);
    if (options.rounding == ResampleRounding::Ceil) source = std::ceil(position);
    if (options.rounding == ResampleRounding::RoundPreferFloor) {
      source = std::ceil(position - 0.5);
    }
    if (options.rounding == ResampleRounding::RoundPreferCeil) {
      source = std::floor(position + 0.5);
    }
    return element(static_cast<std::int64_t>(source));
  }
  const auto base = static_cast<std::int64_t>(std::floor(position));
  const double t = position - static_cast<double>(base);
  if (options.mode == ResampleMode::Linear) return (1 - t) * element(base) + t * element(base + 1);
  const double a = options.cubic_coeff_a;
  double sum = 0.0;
  double weights = 0.0;
  for (std::int64_t i = base - 1; i <= base + 2; ++i) {
    const double d = std::fabs(position - static_cast<double>(i));
    double weight = d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1
                           : a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a;
    if (options.exclude_outside && (i < 0 || i >= length)) weight = 0.0;
    sum += weight * element(i);
    weights += weight;
  }
  return options.exclude_outside ? sum / weights : sum;
}

double position_of(ResamplePosition kind, double o, double input, double output) {
  const double scale = output / input;
  switch (kind) {
    case ResamplePosition::HalfPixel:
    case ResamplePosition::HalfPixelSymmetric:  // the same where the size follows from the scale
      return (o + 0.5) / scale - 0.5;
    case ResamplePosition::PytorchHalfPixel:
      return output > 1 ? (o + 0.5) / scale - 0.5 : 0.0;
    case ResamplePosition::AlignCorners:
      return output > 1 ? o * (input - 1) / (output - 1) : 0.0;
    case ResamplePosition::Asymmetric:
      return o / scale;
    case ResamplePosition::HalfPixelNearest:
      return (o + 0.5) / scale;
    case ResamplePosition::CropAndResize:
      break;
  }
  return 0.0;
}

Tensor resampled_dimension(const Tensor& x, std::int64_t dim, const ResampleOptions& options) {
  const std::int64_t output = options.size[static_cast<std::size_t>(dim)];
  if (output == x.size(dim)) return x;
  const Tensor lines = x.transpose(dim, -1).clone(MemoryFormat::Contiguous);
  const std::int64_t length = lines.size(-1);
  const Floats values = lines.to_float_vector();
  Dims sizes = lines.sizes();
  sizes[sizes.size() - 1] = output;
  Floats result;
  for (std::int64_t start = 0; start < lines.numel(); start += length) {
    const std::vector<double> line(values.begin() + start, values.begin() + start + length);
    for (std::int64_t o = 0; o < output; ++o) {
      const double position = position_of(options.position, static_cast<double>(o),
                                          static_cast<double>(length), static_cast<double>(output));
      result.push_back(static_cast<float>(sampled(line, position, options)));
    }
  }
  return Tensor::from_values(result, sizes).transpose(dim, -1);
}

Tensor reference(const Tensor& x, const ResampleOptions& options) {
  Tensor result = x;
  for (std::int64_t d = 0; d < x.dim(); ++d) result = resampled_dimension(result, d, options);
  return result;
}

void check_close(const Tensor& got, const Tensor& want) {
  REQUIRE(got.sizes() == want.sizes());
  const Floats a = got.to_float_vector();
  const Floats b = want.to_float_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(a[i] - b[i]) <= 2e-5F * (1.0F + std::fabs(b[i])));
  }
}

}  // namespace

TEST_CASE("resample: every mode and position agrees with the formulas in any memory order") {
  const Tensor x = random_tensor({2, 3, 5, 4}, 1);
  for (const Dims& size :
       {Dims{2, 3, 10, 8}, Dims{2, 3, 3, 7}, Dims{2, 6, 5, 8}, Dims{3, 3, 1, 2}}) {
    for (const ResampleMode mode :
         {ResampleMode::Nearest, ResampleMode::Linear, ResampleMode::Cubic}) {
      for (const ResamplePosition position :
           {ResamplePosition::HalfPixel, ResamplePosition::HalfPixelSymmetric,
            ResamplePosition::PytorchHalfPixel, ResamplePosition::AlignCorners,
            ResamplePosition::Asymmetric}) {
        ResampleOptions options{.size = size, .mode = mode, .position = position};
        // Positions at ties depend on rounding: the tests of Nearest below have exact ones.
        if (mode == ResampleMode::Nearest) options.rounding = ResampleRounding::RoundPreferFloor;
        CAPTURE(static_cast<int>(mode));
        CAPTURE(static_cast<int>(position));
        CAPTURE(size);
        const Tensor want = reference(x, options);
        if (mode != ResampleMode::Nearest || size == Dims{2, 3, 10, 8}) {
          check_close(resample(x, options), want);
          check_close(resample(x.clone(MemoryFormat::ChannelsLast), options), want);
          check_close(resample(x.to(DType::Float64), options), want);
        }
        options.exclude_outside = true;
        if (mode == ResampleMode::Cubic) check_close(resample(x, options), reference(x, options));
      }
    }
  }
}

TEST_CASE("resample: nearest rounds as it is told and takes any dtype") {
  const Tensor x = Tensor::arange(4, DType::Int64).view({1, 4});
  const auto sources = [&](std::int64_t size, ResamplePosition position,
                           ResampleRounding rounding) {
    return resample(x, {.size = {1, size}, .position = position, .rounding = rounding})
        .to_int64_vector();
  };
  using Position = ResamplePosition;
  using Rounding = ResampleRounding;
  CHECK(sources(8, Position::Asymmetric, Rounding::Floor) == Integers{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(sources(8, Position::Asymmetric, Rounding::Ceil) == Integers{0, 1, 1, 2, 2, 3, 3, 3});
  CHECK(sources(8, Position::Asymmetric, Rounding::RoundPreferFloor) ==
        Integers{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(sources(8, Position::Asymmetric, Rounding::RoundPreferCeil) ==
        Integers{0, 1, 1, 2, 2, 3, 3, 3});
  CHECK(sources(2, Position::HalfPixel, Rounding::RoundPreferFloor) == Integers{0, 2});
  CHECK(sources(2, Position::HalfPixel, Rounding::RoundPreferCeil) == Integers{1, 3});
  CHECK(sources(3, Position::Asymmetric, Rounding::FloorOrCeil) == Integers{0, 2, 3});
  CHECK(sources(8, Position::Asymmetric, Rounding::FloorOrCeil) ==
        Integers{0, 0, 1, 1, 2, 2, 3, 3});
  for (const DType dtype : {DType::UInt8, DType::Int64, DType::Float16, DType::Bool}) {
    const Tensor y = random_tensor({1, 2, 3, 3}, 3).to(dtype);
    const ResampleOptions twice{
        .size = {1, 2, 6, 6}, .position = Position::Asymmetric, .rounding = Rounding::Floor};
    const Tensor result = resample(y, twice);
    for (std::int64_t i = 0; i < 6; ++i) {
      CHECK(result.select(2, i).select(2, 5).equal(y.select(2, i / 2).select(2, 2)));
    }
  }
}

TEST_CASE("resample: more than three dimensions change one after the other") {
  const Tensor x = random_tensor({2, 3, 2, 3, 2}, 4);
  for (const ResampleMode mode :
       {ResampleMode::Nearest, ResampleMode::Linear, ResampleMode::Cubic}) {
    const ResampleOptions options{.size = {4, 6, 4, 6, 4}, .mode = mode};
    check_close(resample(x, options), reference(x, options));
  }
}

TEST_CASE("resample: plain integers lose their fraction and saturate") {
  const Tensor x = Tensor::from_values({0, 1, 2, 255}, {1, 1, 1, 4});
  const ResampleOptions linear{.size = {1, 1, 1, 7},
                               .mode = ResampleMode::Linear,
                               .position = ResamplePosition::AlignCorners};
  for (const DType dtype : {DType::UInt8, DType::Int16, DType::Int32, DType::Int64}) {
    CHECK(resample(x.to(dtype), linear).to_int64_vector() == Integers{0, 0, 1, 1, 2, 128, 255});
  }
  const Tensor below = Tensor::from_values({-1, -2, 5}, {1, 1, 1, 3}).to(DType::Int8);
  ResampleOptions five = linear;
  five.size = {1, 1, 1, 5};
  CHECK(resample(below, five).to_int64_vector() == Integers{-1, -1, -2, 1, 5});
  // Cubic overshoots.
  const Tensor steps = Tensor::from_values({0, 0, 255, 255}, {1, 1, 1, 4}).to(DType::UInt8);
  const Integers codes =
      resample(steps, {.size = {1, 1, 1, 8}, .mode = ResampleMode::Cubic}).to_int64_vector();
  CHECK(*std::ranges::max_element(codes) == 255);
  CHECK(*std::ranges::min_element(codes) == 0);
}

TEST_CASE("resample: codes keep their parameters") {
  const Tensor x = quantize_per_tensor(random_tensor({1, 4, 6, 6}, 5), 0.05, 3, DType::QInt8);
  const ResampleOptions nearest{.size = {1, 4, 12, 12}};
  const Tensor result = resample(x, nearest);
  CHECK(result.impl()->quantizer == x.impl()->quantizer);
  CHECK(dequantize(result.as_quantized()).equal(resample(dequantize(x.as_quantized()), nearest)));
  const ResampleOptions linear{.size = {1, 4, 12, 12}, .mode = ResampleMode::Linear};
  const Floats got = dequantize(resample(x, linear).as_quantized()).to_float_vector();
  const Floats want = resample(dequantize(x.as_quantized()), linear).to_float_vector();
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::fabs(got[i] - want[i]) <= 0.0251F);
}

TEST_CASE("resample: antialiasing averages what falls together") {
  const Tensor x = Tensor::from_values({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 1, 8});
  const ResampleOptions options{.size = {1, 1, 1, 4},
                                .mode = ResampleMode::Linear,
                                .exclude_outside = true,
                                .antialias = true};
  const Floats got = resample(x, options).to_float_vector();
  // Triangles of width 4 around 0.5, 2.5, ...: weights 1, 3, 3, 1.
  CHECK(got[1] == doctest::Approx((2.0 + 3 * 3 + 3 * 4 + 5) / 8));
  CHECK(got[2] == doctest::Approx((4.0 + 3 * 5 + 3 * 6 + 7) / 8));
  CHECK(got[0] == doctest::Approx((3.0 * 1 + 3 * 2 + 3) / 7));
}

TEST_CASE("resample: corners meet when a dimension grows by a factor that does not come out even") {
  const Tensor x = Tensor::from_values({0, 1, 2, 3}, {4});
  const Tensor result = resample(x, {.size = {6},
                                     .scale = {1.7},
                                     .mode = ResampleMode::Linear,
                                     .position = ResamplePosition::AlignCorners});
  CHECK(result.to_float_vector().back() == 3.0F);
  CHECK(result.to_float_vector()[1] == doctest::Approx(0.6));
}

TEST_CASE("resample: a region that is cropped, and what lies outside of it") {
  const Tensor x = Tensor::arange(16).view({4, 4});
  const ResampleOptions options{.size = {3, 3},
                                .mode = ResampleMode::Linear,
                                .position = ResamplePosition::CropAndResize,
                                .roi = {0.0, 0.0, 1.0, 2.0},
                                .extrapolation_value = -1.0};
  CHECK(resample(x, options).to_float_vector() == Floats{0, 3, -1, 6, 9, -1, 12, 15, -1});
}

TEST_CASE("resample: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({1, 1, 2, 2});
  CHECK_THROWS_WITH_AS(resample(x, {.size = {2, 2}}), doctest::Contains("size: expected 4"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(resample(x, {.size = {1, 1, -1, 2}}), doctest::Contains("size"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(resample(x, {.size = {1, 1, 4, 4}, .scale = {1, 1, 0, 2}}),
                       doctest::Contains("scale"), ArgumentError);
  CHECK_THROWS_WITH_AS(resample(x, {.size = {1, 1, 4, 4}, .roi = {1, 1}}), doctest::Contains("roi"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(resample(Tensor::ones({0, 2}), {.size = {1, 2}}), doctest::Contains("x"),
                       ArgumentError);
  CHECK_THROWS_AS(resample(x.to(DType::Bool), {.size = {1, 1, 4, 4}, .mode = ResampleMode::Cubic}),
                  UnsupportedError);
  CHECK(resample(x, {.size = {1, 1, 0, 2}}).numel() == 0);
}

}  // namespace quanta
