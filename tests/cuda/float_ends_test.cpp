#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/check_same.h"
#include "quanta/ops/conv_dynamic.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Products of codes that end as floats, and codes whose scale the values choose: on the device as on
// the CPU, to the last bit.

namespace quanta {
namespace {

using quantized::ConvPackedParams;
using quantized::LinearPackedParams;
using quantized::ReduceRange;
using test::check_same;

const Device kDevice = test::test_device();

QTensor random_weight(const Dims& sizes, std::int64_t axis, Generator& generator) {
  const Tensor values = randn(sizes, generator);
  const bool with_zero_points = generator.integer(0, 2) == 0;
  if (generator.integer(0, 1) == 0) {
    return quantize_per_tensor(values, 0.03, with_zero_points ? generator.integer(-20, 20) : 0,
                               DType::QInt8);
  }
  const std::int64_t channels = sizes[static_cast<std::size_t>(axis)];
  const Tensor scales = Tensor::empty({channels});
  const Tensor zero_points = Tensor::zeros({channels}, DType::Int64);
  for (std::int64_t n = 0; n < channels; ++n) {
    scales.mutable_data<float>()[n] = 0.01F + 0.001F * static_cast<float>(n % 7);
    if (with_zero_points) {
      zero_points.mutable_data<std::int64_t>()[n] = generator.integer(-128, 127);
    }
  }
  return quantize_per_channel(values, scales, zero_points, axis, DType::QInt8);
}

// None, floats, or integers in units of the sums.
Tensor random_bias(std::int64_t channels, Generator& generator, bool integers) {
  const std::int64_t kind = generator.integer(0, integers ? 2 : 1);
  if (kind == 0) return {};
  const Tensor bias = randn({channels}, generator);
  if (kind == 1) return bias;
  for (std::int64_t n = 0; n < channels; ++n) {
    bias.mutable_data<float>()[n] = static_cast<float>(generator.integer(-3000, 3000));
  }
  return bias.to(DType::Int32);
}

Tensor random_bytes(const Dims& sizes, Generator& generator) {
  const Tensor bytes = Tensor::empty(sizes, DType::UInt8);
  for (std::int64_t i = 0; i < bytes.numel(); ++i) {
    bytes.mutable_data<std::uint8_t>()[i] = static_cast<std::uint8_t>(generator.integer(0, 255));
  }
  return bytes;
}

// Any convolution and an input for it.
struct RandomConv {
  ConvPackedParams packed;
  Dims sizes;

  RandomConv(Generator& generator, bool integer_bias) {
    const std::int64_t spatial = generator.integer(1, 3);
    const bool transposed = generator.integer(0, 3) == 0;
    const std::int64_t groups = generator.integer(0, 2) == 0 ? generator.integer(2, 5) : 1;
    const std::int64_t in = groups * generator.integer(1, groups == 1 ? 48 : 8);
    const std::int64_t out = groups * generator.integer(1, groups == 1 ? 48 : 8);
    ConvTransposeOptions options;
    options.groups = groups;
    sizes = {generator.integer(1, 2), in};
    Dims weight_sizes = transposed ? Dims{in, out / groups} : Dims{out, in / groups};
    Dims stride, padding, dilation;
    for (std::int64_t d = 0; d < spatial; ++d) {
      const std::int64_t kernel = generator.integer(1, 3);
      weight_sizes.push_back(kernel);
      stride.push_back(generator.integer(1, 2));
      padding.push_back(generator.integer(0, kernel - 1));
      dilation.push_back(generator.integer(1, 2));
      sizes.push_back(generator.integer(5, spatial == 3 ? 6 : 9));
    }
    options.stride = stride;
    options.padding = padding;
    options.dilation = dilation;
    const std::int64_t axis = transposed ? 1 : 0;
    const bool per_tensor_only = transposed && groups > 1;
    const QTensor weight = per_tensor_only
                               ? quantize_per_tensor(randn(weight_sizes, generator), 0.03,
                                                     generator.integer(-5, 5), DType::QInt8)
                               : random_weight(weight_sizes, axis, generator);
    const Tensor bias = random_bias(out, generator, integer_bias);
    packed =
        transposed
            ? ConvPackedParams::transposed(weight, bias, options, spatial)
            : ConvPackedParams(
                  weight, bias,
                  {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups},
                  spatial);
  }
};

}  // namespace

TEST_CASE("cuda float ends: linear layers of codes whose results are floats") {
  Generator generator(31);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t rows = generator.integer(1, 70);
    const std::int64_t in = generator.integer(1, 90);
    const std::int64_t out = generator.integer(1, 80);
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    const QTensor weight = random_weight({out, in}, 0, generator);
    const LinearPackedParams packed(weight, random_bias(out, generator, true));
    const QTensor x = quantize_per_tensor(randn({rows, in}, generator), 0.02,
                                          generator.integer(0, 255), DType::QUInt8);
    check_same([&] { return quantized::linear_to_float(x, packed); });
    const LinearPackedParams with_floats(weight, random_bias(out, generator, false));
    const Tensor bytes = random_bytes({rows, in}, generator);
    const Tensor scale = Tensor::scalar(0.001 * static_cast<double>(generator.integer(1, 90)));
    const Tensor zero_point =
        Tensor::scalar(static_cast<double>(generator.integer(0, 255)), DType::UInt8);
    check_same([&] { return quantized::linear_of_codes(bytes, scale, zero_point, with_floats); });
  }
}

TEST_CASE("cuda float ends: convolutions of codes whose results are floats") {
  Generator generator(32);
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    const RandomConv conv(generator, true);
    const QTensor x = quantize_per_tensor(randn(conv.sizes, generator), 0.02,
                                          generator.integer(0, 255), DType::QUInt8);
    check_same([&] { return quantized::conv_to_float(x, conv.packed); });
    const Tensor bytes = random_bytes(conv.sizes, generator);
    const Tensor scale = Tensor::scalar(0.001 * static_cast<double>(generator.integer(1, 90)));
    const Tensor zero_point =
        Tensor::scalar(static_cast<double>(generator.integer(0, 255)), DType::UInt8);
    check_same([&] { return quantized::conv_of_codes(bytes, scale, zero_point, conv.packed); });
  }
}

TEST_CASE("cuda float ends: dynamic convolutions") {
  Generator generator(33);
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    const RandomConv conv(generator, true);
    const Tensor x = randn(conv.sizes, generator);
    const auto shift = static_cast<float>(generator.integer(-3, 3));
    for (std::int64_t i = 0; i < x.numel(); ++i) x.mutable_data<float>()[i] += shift;
    const ReduceRange range = generator.integer(0, 1) == 0 ? ReduceRange::Yes : ReduceRange::No;
    check_same([&] { return quantized::conv_dynamic(x, conv.packed, range); });
    if (x.dim() > 3) {
      const Tensor last = x.contiguous(MemoryFormat::ChannelsLast);
      check_same([&] { return quantized::conv_dynamic(last, conv.packed, range); });
    }
    check_same([&] { return quantized::conv_dynamic(x.select(0, 0), conv.packed, range); });
  }
}

TEST_CASE("cuda float ends: a dynamic convolution makes NaN of NaN and infinity") {
  Generator generator(34);
  const ConvPackedParams packed(random_weight({3, 2, 3}, 0, generator), Tensor(), {}, 1);
  const Tensor x = randn({1, 2, 9}, generator);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    x.mutable_data<float>()[7] = bad;
    const Tensor y = quantized::conv_dynamic(x.to(kDevice), packed).cpu();
    CHECK(std::all_of(y.data<float>(), y.data<float>() + y.numel(),
                      [](float v) { return std::isnan(v); }));
    CHECK_THROWS_AS(quantize_per_tensor_dynamic(x.to(kDevice), DType::QUInt8, false),
                    ArgumentError);
  }
  const Tensor none = Tensor::empty({0, 2, 9});
  CHECK(quantized::conv_dynamic(none.to(kDevice), packed).sizes() == Dims{0, 3, 7});
}

TEST_CASE("cuda codes: a scale that the values choose") {
  Generator generator(35);
  for (const std::int64_t count : {1, 255, 5000}) {
    for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::Float16}) {
      for (const bool reduce_range : {false, true}) {
        const Tensor x = randn({count, 3}, generator);
        check_same([&] { return quantize_per_tensor_dynamic(x, dtype, reduce_range); });
        const Tensor turned = randn({3, count, 2}, generator).permute({1, 0, 2});
        check_same([&] { return quantize_per_tensor_dynamic(turned, dtype, reduce_range); });
      }
    }
  }
  const Tensor none = Tensor::empty({0, 3});
  CHECK(QTensor(quantize_per_tensor_dynamic(none.to(kDevice), DType::QUInt8, false))
            .cpu()
            .equal(quantize_per_tensor_dynamic(none, DType::QUInt8, false)));
}

}  // namespace quanta
