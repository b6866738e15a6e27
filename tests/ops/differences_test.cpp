// Where Quanta is not what PyTorch is, on purpose or because a kernel of PyTorch is wrong: a test
// against plain scalar code for each entry of docs/differences.md that concerns ops.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "conv_reference.h"
#include "elementwise_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using testing::Codes;
using testing::OutputQParams;
using testing::random_activation;
using testing::random_weight;
using testing::reference_codes;
using testing::spreading_scale;
using testing::WeightKind;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kScale = 0.05;

Tensor small_bias(std::int64_t channels, Generator& generator) {
  return mul_scalar(randn({channels}, generator), 0.1);
}

// Compares with the sums of plain loops, exactly; results stay away from both ends of the range for
// the most part, so that a wrapped or saturated sum shows.
void check_conv(const Dims& x_sizes, const Dims& weight_sizes, const ConvTransposeOptions& options,
                bool is_transposed, const WeightKind& kind, Codes codes) {
  CAPTURE(to_string(x_sizes));
  CAPTURE(to_string(weight_sizes));
  Generator generator(41);
  const QTensor x = random_activation(x_sizes, 0.02, 3, generator, codes);
  const QTensor weight = random_weight(weight_sizes, kind, generator);
  const std::int64_t channels = is_transposed ? weight_sizes[1] * options.groups : weight_sizes[0];
  const Tensor bias = small_bias(channels, generator);
  const auto spatial = static_cast<std::int64_t>(x_sizes.size()) - 2;
  const std::int64_t terms = product(weight_sizes) / channels;
  const double spread = codes == Codes::Extreme ? 8.0 : 1.0;
  const OutputQParams out{spread * spreading_scale(x, weight, terms), 128};
  const auto packed =
      is_transposed
          ? quantized::ConvPackedParams::transposed(weight, bias, options, spatial)
          : quantized::ConvPackedParams(
                weight, bias, {options.stride, options.padding, options.dilation, options.groups},
                spatial);
  const QTensor y = quantized::conv(x, packed, out.scale, out.zero_point);
  const std::vector<std::int64_t> codes_of_y = test::codes_of(y);
  CHECK(codes_of_y == reference_codes(x, weight, bias, options, is_transposed, out));
  const auto inside =
      std::ranges::count_if(codes_of_y, [](std::int64_t code) { return code > 0 && code < 255; });
  CHECK(3 * inside > static_cast<std::int64_t>(codes_of_y.size()));
}

TEST_CASE("depthwise conv: pairs of products beyond 16 bits are summed exactly") {
  for (const std::int64_t axis : {-1, 0}) {
    for (const Codes codes : {Codes::Uniform, Codes::Extreme}) {
      const WeightKind kind{.channel_axis = axis, .codes = codes};
      for (const std::int64_t channels : {8, 17, 32}) {
        const ConvTransposeOptions options{.padding = {1}, .groups = channels};
        check_conv({2, channels, 9, 7}, {channels, 1, 3, 3}, options, false, kind, codes);
        check_conv({1, channels, 4, 5, 6}, {channels, 1, 3, 3, 3}, options, false, kind, codes);
      }
    }
  }
}

TEST_CASE("conv_transpose2d: input and output channels may differ") {
  for (const auto& [in, out] : {std::pair{4, 12}, {12, 4}, {16, 40}, {40, 16}}) {
    check_conv({2, in, 5, 6}, {in, out, 3, 3}, {.stride = {2}, .padding = {1}}, true,
               {.channel_axis = 1}, Codes::Uniform);
    check_conv({2, in, 5, 6}, {in, out / 4, 3, 3}, {.stride = {2}, .groups = 4}, true, {},
               Codes::Uniform);
  }
}

TEST_CASE("conv_transpose2d: a kernel of two by two with multiples of eight channels is right") {
  for (const std::int64_t channels : {8, 16, 24, 64}) {
    check_conv({1, channels, 6, 5}, {channels, channels, 2, 2}, {.stride = {2}}, true, {},
               Codes::Uniform);
    check_conv({1, channels, 6, 5}, {channels, channels, 2, 2}, {.stride = {1}}, true, {},
               Codes::Extreme);
  }
}

TEST_CASE("conv_transpose3d: results are those of the definition") {
  check_conv({1, 6, 3, 4, 5}, {6, 10, 3, 2, 3},
             {.stride = {2}, .padding = {1}, .output_padding = {1, 0, 1}}, true, {},
             Codes::Uniform);
}

TEST_CASE("conv2d: an image without a batch dimension is a batch of one") {
  Generator generator(6);
  const QTensor x = random_activation({1, 4, 6, 5}, 0.02, 3, generator);
  const quantized::ConvPackedParams packed(random_weight({8, 4, 3, 3}, {}, generator), {}, {}, 2);
  CHECK(test::codes_of(quantized::conv(QTensor(x[0]), packed, 0.1, 9)) ==
        test::codes_of(quantized::conv(x, packed, 0.1, 9)[0]));
}

TEST_CASE("linear: one packed weight serves all fused forms in any order") {
  Generator generator(5);
  const QTensor x = random_activation({3, 24}, 0.02, 100, generator);
  const QTensor weight = random_weight({10, 24}, {.channel_axis = 0}, generator);
  const Tensor bias = small_bias(10, generator);
  const quantized::LinearPackedParams packed(weight, bias);
  const auto fresh = [&] { return quantized::LinearPackedParams(weight, bias); };
  for (int round = 0; round < 2; ++round) {
    CHECK(quantized::linear(x, packed, 0.1, 120).equal(quantized::linear(x, fresh(), 0.1, 120)));
    CHECK(quantized::linear_relu(x, packed, 0.1, 120)
              .equal(quantized::linear_relu(x, fresh(), 0.1, 120)));
    for (const double slope : {0.1, 0.5}) {
      CHECK(quantized::linear_leaky_relu(x, packed, 0.1, 120, slope)
                .equal(quantized::linear_leaky_relu(x, fresh(), 0.1, 120, slope)));
    }
    CHECK(quantized::linear(x, packed, 0.2, 30).equal(quantized::linear(x, fresh(), 0.2, 30)));
  }
}

TEST_CASE("quantize: an infinity is the end of the range in every scheme") {
  const Tensor x = Tensor::from_values({kInf, -kInf, 3e9F, -3e9F});
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    CAPTURE(to_string(dtype));
    const IntRange range = quant_range(dtype);
    const std::vector<std::int64_t> want{range.max, range.min, range.max, range.min};
    CHECK(test::codes_of(quantize_per_tensor(x, 1.0, 0, dtype)) == want);
    CHECK(test::codes_of(quantize_per_channel(x, Tensor::ones({4}),
                                              Tensor::zeros({4}, DType::Int64), 0, dtype)) == want);
  }
  // Float zero points: torch's conversion to int32 wraps (0, 0, 0 and 255).
  CHECK(test::codes_of(
            quantize_per_channel(x, Tensor::ones({4}), Tensor::zeros({4}), 0, DType::QUInt8)) ==
        std::vector<std::int64_t>{255, 0, 255, 0});
}

QTensor per_channel(const Dims& sizes, std::int64_t axis) {
  Generator generator(3);
  std::vector<double> scales;
  std::vector<std::int64_t> zero_points;
  for (std::int64_t c = 0; c < sizes[static_cast<std::size_t>(axis)]; ++c) {
    scales.push_back(0.1 * static_cast<double>(c + 1));
    zero_points.push_back(c);
  }
  return QTensor::from_int_repr(randint(-128, 128, sizes, DType::Int8, generator),
                                Quantizer::per_channel(scales, zero_points, axis));
}

// Alike up to the last bits: one channel taken out is a per-tensor quantized tensor, whose product
// with the scale is in float32 and not in double.
bool near(const Tensor& a, const Tensor& b) {
  const std::vector<float> lhs = a.to_float_vector();
  const std::vector<float> rhs = b.to_float_vector();
  return a.sizes() == b.sizes() && std::ranges::equal(lhs, rhs, [](float x, float y) {
           return std::abs(x - y) <= 1e-6F * std::abs(y);
         });
}

TEST_CASE("per-channel views: the channel axis follows the elements") {
  const Dims sizes{2, 3, 4, 5};
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    CAPTURE(axis);
    const QTensor x = per_channel(sizes, axis);
    const Tensor values = dequantize(x);
    for (std::int64_t d = 0; d < 4; ++d) {
      CAPTURE(d);
      CHECK(near(dequantize(x.select(d, 1)), values.select(d, 1)));
      CHECK(near(dequantize(x.slice(d, 1, 4, 2)), values.slice(d, 1, 4, 2)));
      CHECK(dequantize(x.unsqueeze(d)).equal(values.unsqueeze(d)));
      CHECK(dequantize(x.transpose(0, d)).equal(values.transpose(0, d)));
    }
    CHECK(dequantize(x.permute({3, 1, 0, 2})).equal(values.permute({3, 1, 0, 2})));
    CHECK(dequantize(x.contiguous(MemoryFormat::ChannelsLast)).equal(values));
  }
}

TEST_CASE("per-channel views: one that merges or tears the channel axis is refused") {
  const QTensor x = per_channel({2, 3, 4}, 1);
  CHECK_THROWS_WITH_AS(x.view({6, 4}), doctest::Contains("channel axis"), ArgumentError);
  CHECK_THROWS_WITH_AS(x.flatten(), doctest::Contains("channel axis"), ArgumentError);
  CHECK(QTensor(x.view({2, 3, 2, 2})).q_per_channel_axis() == 1);
}

TEST_CASE("quantize_per_channel: channels-last input may have its axis anywhere") {
  const Tensor x = test::random_tensor({2, 3, 4, 5}, 8);
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    const std::int64_t count = x.size(axis);
    const Tensor scales = Tensor::full({count}, kScale);
    const Tensor zero_points = Tensor::zeros({count}, DType::Int64);
    CHECK(test::codes_of(quantize_per_channel(x.contiguous(MemoryFormat::ChannelsLast), scales,
                                              zero_points, axis, DType::QInt8)) ==
          test::codes_of(quantize_per_channel(x, scales, zero_points, axis, DType::QInt8)));
  }
}

TEST_CASE("quantize: scales that are not positive and finite are refused") {
  const Tensor x = Tensor::ones({2});
  for (const double scale : {0.0, -0.1, static_cast<double>(kInf), std::nan("")}) {
    CHECK_THROWS_WITH_AS(quantize_per_tensor(x, scale, 0, DType::QUInt8),
                         doctest::Contains("quantize_per_tensor: scale: expected"), ArgumentError);
    CHECK_THROWS_AS(quantize_per_channel(x, Tensor::full({2}, scale),
                                         Tensor::zeros({2}, DType::Int64), 0, DType::QUInt8),
                    ArgumentError);
  }
}

TEST_CASE("ops: an output zero point outside the dtype's range is refused") {
  const QTensor x = quantize_per_tensor(Tensor::ones({2}), kScale, 0, DType::QUInt8);
  CHECK_THROWS_WITH_AS(quantized::add(x, x, kScale, 300), doctest::Contains("zero_point"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::mul(x, x, kScale, -1), doctest::Contains("zero_point"),
                       ArgumentError);
}

TEST_CASE("copy_: float values may go into a quantized view with gaps") {
  const QTensor x = QTensor::empty({4, 6}, kScale, 10, DType::QUInt8);
  x.fill_(0.0);
  const Tensor values = test::random_tensor({4, 3}, 9);
  x.slice(1, 0, 6, 2).copy_(values);
  CHECK(test::codes_of(x.slice(1, 0, 6, 2)) ==
        test::codes_of(quantize_per_tensor(values, kScale, 10, DType::QUInt8)));
  CHECK(test::codes_of(x.slice(1, 1, 6, 2)) == std::vector<std::int64_t>(12, 10));
}

// The mean of the elements inside the image, or of the whole window, rounded to even around the
// zero point, and then the zero point.
std::vector<std::int64_t> reference_avg_pool(const QTensor& x, std::int64_t kernel,
                                             std::int64_t padding, bool count_include_pad) {
  const std::vector<std::int64_t> codes = test::codes_of(x);
  const std::int64_t zero_point = x.q_zero_point();
  const std::int64_t height = x.size(2);
  const std::int64_t width = x.size(3);
  std::vector<std::int64_t> result;
  for (std::int64_t plane = 0; plane < x.size(0) * x.size(1); ++plane) {
    for (std::int64_t top = -padding; top + kernel <= height + padding; ++top) {
      for (std::int64_t left = -padding; left + kernel <= width + padding; ++left) {
        std::int64_t sum = 0;
        std::int64_t count = 0;
        for (std::int64_t h = std::max<std::int64_t>(top, 0); h < std::min(top + kernel, height);
             ++h) {
          for (std::int64_t w = std::max<std::int64_t>(left, 0); w < std::min(left + kernel, width);
               ++w) {
            sum += codes[static_cast<std::size_t>((plane * height + h) * width + w)] - zero_point;
            ++count;
          }
        }
        if (count_include_pad) count = kernel * kernel;
        const float mean = static_cast<float>(sum) / static_cast<float>(count);
        result.push_back(std::clamp<std::int64_t>(
            zero_point + static_cast<std::int64_t>(math::round_half_even(mean)), 0, 255));
      }
    }
  }
  return result;
}

TEST_CASE("avg_pool2d: count_include_pad and divisor_override are followed") {
  Generator generator(12);
  const QTensor x = random_activation({2, 3, 7, 6}, kScale, 77, generator);
  for (const bool count_include_pad : {false, true}) {
    const AvgPoolOptions options{
        .kernel_size = {3}, .stride = {1}, .padding = {1}, .count_include_pad = count_include_pad};
    const std::vector<std::int64_t> want = reference_avg_pool(x, 3, 1, count_include_pad);
    CHECK(test::codes_of(avg_pool2d(x.contiguous(MemoryFormat::ChannelsLast), options)) == want);
    // Row-major input: the zero point is added before rounding as in torch, so that ties differ.
    const std::vector<std::int64_t> codes = test::codes_of(avg_pool2d(x, options));
    REQUIRE(codes.size() == want.size());
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(codes[i] - want[i]) <= 1);
  }
  const QTensor ones = QTensor(avg_pool2d(
      QTensor::from_int_repr(Tensor::full({1, 1, 2, 2}, 87.0, DType::UInt8), x.quantizer()),
      {.kernel_size = {2}, .divisor_override = 2}));
  CHECK(test::codes_of(ones) == std::vector<std::int64_t>{77 + 20});
}

TEST_CASE("embedding_bag: modes other than the sum are refused") {
  const Tensor packed = quantized::embedding_bag_byte_prepack(test::random_tensor({4, 8}, 2));
  const Tensor indices = Tensor::zeros({2, 2}, DType::Int64);
  for (const auto mode : {quantized::EmbeddingBagMode::Mean, quantized::EmbeddingBagMode::Max}) {
    CHECK_THROWS_WITH_AS(
        quantized::embedding_bag_byte_rowwise_offsets(packed, indices, {.mode = mode}),
        doctest::Contains("mode: expected Sum"), UnsupportedError);
  }
}

}  // namespace
}  // namespace quanta
