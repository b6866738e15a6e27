#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/functional.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

namespace F = quantized::functional;

QTensor input(const Dims& sizes) {
  return quantize_per_tensor(randn(sizes), 0.04, 100, DType::QUInt8);
}

QTensor weight(const Dims& sizes) {
  return quantize_per_tensor(randn(sizes), 0.02, 0, DType::QInt8);
}

// The value of each element against `f` of the input's, within half a step and float error.
void check_elementwise(const Tensor& got, const Tensor& x, const std::function<double(double)>& f) {
  const double scale = got.as_quantized().q_scale();
  const std::int64_t zero_point = got.as_quantized().q_zero_point();
  const std::vector<float> results = got.to_float_vector();
  const std::vector<float> values = x.to_float_vector();
  REQUIRE(results.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double low = static_cast<double>(-zero_point) * scale;
    const double want = std::min(std::max(f(values[i]), low), low + 255 * scale);
    CAPTURE(values[i]);
    CHECK(std::abs(results[i] - want) <= 0.5 * scale + 1e-6);
  }
}

TEST_CASE("functional conv1d and conv2d and conv3d: as the modules with the same weight") {
  manual_seed(1);
  const ConvOptions options{.stride = {2}, .padding = {1}, .groups = 2};
  const F::ConvArguments arguments{
      .stride = {2}, .padding = {1}, .groups = 2, .scale = 0.1, .zero_point = 60};
  const Tensor bias = randn({6});
  const QTensor line = input({2, 4, 9});
  const QTensor line_weight = weight({6, 2, 3});
  CHECK(F::conv1d(line, line_weight, bias, arguments)
            .equal(quantized::Conv1d(options, line_weight, bias, 0.1, 60)(line)));
  const QTensor image = input({2, 4, 9, 7});
  const QTensor image_weight = weight({6, 2, 3, 3});
  const Tensor y = F::conv2d(image, image_weight, bias, arguments);
  CHECK(y.equal(quantized::Conv2d(options, image_weight, bias, 0.1, 60)(image)));
  CHECK(y.as_quantized().q_zero_point() == 60);
  const QTensor volume = input({4, 5, 9, 7});
  const QTensor volume_weight = weight({6, 2, 3, 3, 3});
  CHECK(F::conv3d(volume, volume_weight, {}, arguments)
            .equal(quantized::Conv3d(options, volume_weight, {}, 0.1, 60)(volume)));
}

TEST_CASE("functional conv2d: bad arguments are refused by name") {
  const QTensor x = input({2, 4, 9, 7});
  const QTensor w = weight({6, 4, 3, 3});
  CHECK_THROWS_WITH_AS(
      F::conv2d(randn({2, 4, 9, 7}), w, {}),
      doctest::Contains("functional::conv2d: input: expected a quantized tensor, got Float32"),
      ArgumentError);
  CHECK_THROWS_WITH_AS(F::conv2d(w, w, {}), doctest::Contains("input: expected QUInt8 per tensor"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(F::conv2d(x, x, {}), doctest::Contains("weight: expected QInt8, got QUInt8"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(F::conv3d(input({4, 4}), w, {}),
                       doctest::Contains("functional::conv3d: input: expected 4 or 5 dimensions"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(F::conv2d(x, w, {}, {.padding_mode = PaddingMode::Reflect}),
                       doctest::Contains("padding_mode: expected zeros, got reflect"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(F::conv2d(x, w, {}, {.dtype = DType::QInt8}),
                       doctest::Contains("dtype: expected QUInt8, got QInt8"), UnsupportedError);
  CHECK_THROWS_AS(F::conv2d(x, w, {}, {.scale = -1.0}), ArgumentError);
}

TEST_CASE("functional linear: the input's parameters unless others are given") {
  manual_seed(2);
  const QTensor x = input({3, 5});
  const QTensor w = weight({4, 5});
  const Tensor bias = randn({4});
  CHECK(F::linear(x, w, bias).equal(quantized::Linear(w, bias, 0.04, 100)(x)));
  CHECK(F::linear(x, w, {}, 0.1, 50).equal(quantized::Linear(w, {}, 0.1, 50)(x)));
  CHECK(F::linear(x, w, {}, 0.1).as_quantized().q_zero_point() == 100);
  CHECK_THROWS_WITH_AS(F::linear(randn({3, 5}), w), doctest::Contains("functional::linear: input"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(F::linear(x, randn({4, 5})), doctest::Contains("weight: expected QInt8"),
                       ArgumentError);
}

TEST_CASE("functional pooling and resizing: as the ops of the same name") {
  manual_seed(3);
  const QTensor line = input({2, 3, 9});
  const QTensor image = input({2, 3, 6, 8});
  const QTensor volume = input({2, 3, 4, 6, 8});
  CHECK(F::max_pool1d(line, {.kernel_size = {3}}).equal(max_pool1d(line, {.kernel_size = {3}})));
  CHECK(F::max_pool2d(image, {.kernel_size = {2}}).equal(max_pool2d(image, {.kernel_size = {2}})));
  CHECK(F::avg_pool2d(image, {.kernel_size = {2}}).equal(avg_pool2d(image, {.kernel_size = {2}})));
  CHECK(
      F::avg_pool3d(volume, {.kernel_size = {2}}).equal(avg_pool3d(volume, {.kernel_size = {2}})));
  CHECK(F::adaptive_avg_pool2d(image, {2, 3}).equal(adaptive_avg_pool2d(image, {2, 3})));
  CHECK(F::adaptive_avg_pool3d(volume, {2}).equal(adaptive_avg_pool3d(volume, {2})));
  const InterpolateOptions twice{.scale_factor = {2.0}};
  CHECK(F::interpolate(image, twice).equal(interpolate(image, twice)));
  CHECK(F::upsample(image, twice).equal(interpolate(image, twice)));
  CHECK(F::upsample_nearest(image, {}, {2.0}).equal(interpolate(image, twice)));
  const Tensor corners = F::upsample_bilinear(image, {11, 15});
  CHECK(corners.equal(interpolate(
      image, {.size = {11, 15}, .mode = InterpolateMode::Bilinear, .align_corners = true})));
  // Corners are aligned: they keep their codes.
  CHECK(corners[0][0][10][14].to_int64_vector() == image[0][0][5][7].to_int64_vector());
}

TEST_CASE("functional activations: each value is that of the formula") {
  manual_seed(4);
  const QTensor x = input({3, 50});
  check_elementwise(F::leaky_relu(x, 0.1), x, [](double v) { return v > 0 ? v : 0.1 * v; });
  check_elementwise(F::leaky_relu(x, 0.1, 0.03, 20), x,
                    [](double v) { return v > 0 ? v : 0.1 * v; });
  check_elementwise(F::hardswish(x, 0.03, 20), x,
                    [](double v) { return v * std::min(std::max(v + 3.0, 0.0), 6.0) / 6.0; });
  check_elementwise(F::elu(x, 0.03, 40, 0.5), x,
                    [](double v) { return v > 0 ? v : 0.5 * std::expm1(v); });
  check_elementwise(F::celu(x, 0.03, 40, 0.5), x,
                    [](double v) { return v > 0 ? v : 0.5 * std::expm1(v / 0.5); });
  check_elementwise(F::hardsigmoid(x), x,
                    [](double v) { return std::min(std::max(v + 3.0, 0.0), 6.0) / 6.0; });
  check_elementwise(F::relu(x), x, [](double v) { return std::max(v, 0.0); });
  check_elementwise(F::hardtanh(x), x, [](double v) { return std::min(std::max(v, -1.0), 1.0); });
  check_elementwise(F::clamp(x, -0.5, 2.0), x,
                    [](double v) { return std::min(std::max(v, -0.5), 2.0); });
  check_elementwise(F::threshold(x, 0.2, -1.0), x,
                    [](double v) { return v > 0.2 + 1e-6 ? v : -1.0; });
}

TEST_CASE("functional leaky_relu: takes float and scale only with zero point") {
  const Tensor x = Tensor::from_values({-2.0F, 2.0F});
  CHECK(F::leaky_relu(x, 0.5).to_float_vector() == std::vector<float>{-1.0F, 2.0F});
  CHECK_THROWS_WITH_AS(F::leaky_relu(x, 0.5, 0.1, 3),
                       doctest::Contains("functional::leaky_relu: input: expected a quantized"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(F::leaky_relu(input({2}), 0.5, 0.1),
                       doctest::Contains("expected scale and zero_point together"), ArgumentError);
}

TEST_CASE("functional: a float input is refused with the name of the function") {
  const Tensor x = randn({2, 3, 6, 8});
  const std::vector<std::pair<std::string, std::function<Tensor()>>> calls{
      {"relu", [&] { return F::relu(x); }},
      {"max_pool1d", [&] { return F::max_pool1d(x, {.kernel_size = {2}}); }},
      {"max_pool2d", [&] { return F::max_pool2d(x, {.kernel_size = {2}}); }},
      {"avg_pool2d", [&] { return F::avg_pool2d(x, {.kernel_size = {2}}); }},
      {"avg_pool3d", [&] { return F::avg_pool3d(x, {.kernel_size = {2}}); }},
      {"adaptive_avg_pool2d", [&] { return F::adaptive_avg_pool2d(x, {2}); }},
      {"adaptive_avg_pool3d", [&] { return F::adaptive_avg_pool3d(x, {2}); }},
      {"interpolate", [&] { return F::interpolate(x, {.size = {3}}); }},
      {"upsample", [&] { return F::upsample(x, {.size = {3}}); }},
      {"upsample_nearest", [&] { return F::upsample_nearest(x, {3}); }},
      {"upsample_bilinear", [&] { return F::upsample_bilinear(x, {3}); }},
      {"hardtanh", [&] { return F::hardtanh(x); }},
      {"clamp", [&] { return F::clamp(x, 0.0, 1.0); }},
      {"threshold", [&] { return F::threshold(x, 0.0, 1.0); }},
      {"hardsigmoid", [&] { return F::hardsigmoid(x); }},
      {"hardswish", [&] { return F::hardswish(x, 0.1, 0); }},
      {"elu", [&] { return F::elu(x, 0.1, 0); }},
      {"celu", [&] { return F::celu(x, 0.1, 0); }},
  };
  for (const auto& [name, call] : calls) {
    const std::string want =
        "functional::" + name + ": input: expected a quantized tensor, got Float32";
    CHECK_THROWS_WITH_AS(call(), want.c_str(), ArgumentError);
  }
}

}  // namespace
}  // namespace quanta::nn
