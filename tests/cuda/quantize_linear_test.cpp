#include <doctest/doctest.h>

#include <limits>

#include "cuda/check_same.h"
#include "quanta/ops/mean_of_codes.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/quantize_linear.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Quantization as ONNX has it, and codes that become others: on the device as on the CPU, to the
// last bit.

namespace quanta {
namespace {

using test::check_same;

const Device kDevice = test::test_device();

Tensor random_integers(const Dims& sizes, DType dtype, std::int64_t low, std::int64_t high,
                       Generator& generator) {
  const Tensor values = Tensor::empty(sizes, DType::Int32);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data<std::int32_t>()[i] =
        static_cast<std::int32_t>(generator.integer(low, high));
  }
  return values.to(dtype);
}

struct Range {
  std::int64_t low, high;
};
Range range_of(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
      return {0, 255};
    case DType::Int8:
      return {-128, 127};
    case DType::UInt16:
      return {0, 65535};
    case DType::Int16:
      return {-32768, 32767};
    default:
      return {-2147483647, 2147483647};
  }
}

Tensor random_scales(const Dims& sizes, Generator& generator) {
  const Tensor scales = Tensor::empty(sizes);
  for (std::int64_t i = 0; i < scales.numel(); ++i) {
    scales.mutable_data<float>()[i] = 0.001F * static_cast<float>(generator.integer(1, 99));
  }
  return scales;
}

// With ties, NaN and infinities.
Tensor random_values(const Dims& sizes, Generator& generator) {
  const Tensor x = randn(sizes, generator);
  float* const values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); i += 5) {
    values[i] = 0.5F * static_cast<float>(generator.integer(-9, 9));
  }
  if (x.numel() > 9) {
    values[3] = std::numeric_limits<float>::quiet_NaN();
    values[4] = std::numeric_limits<float>::infinity();
    values[6] = -std::numeric_limits<float>::infinity();
    values[7] = 3e38F;
  }
  return x;
}

QTensor random_codes(const Dims& sizes, std::int64_t zero_point, Generator& generator) {
  return quantize_per_tensor(randn(sizes, generator), 0.02, zero_point, DType::QUInt8);
}

}  // namespace

TEST_CASE("cuda quantize_linear: one scale and one each index and blocks") {
  Generator generator(51);
  const Dims sizes{3, 10, 7};
  for (const DType dtype : {DType::UInt8, DType::Int8, DType::UInt16, DType::Int16}) {
    const auto [low, high] = range_of(dtype);
    const Tensor x = random_values(sizes, generator);
    for (const std::int64_t bits : {0, 4, 2}) {
      const QuantizeLinearOptions one{.dtype = dtype, .bits = bits};
      check_same([&] { return quantize_linear(x, Tensor::scalar(0.25), Tensor(), one); });
      const Tensor zero = random_integers({1}, dtype, low, high, generator);
      check_same([&] { return quantize_linear(x, Tensor::scalar(0.013), zero, one); });
      for (const std::int64_t axis : {0, 1, -1}) {
        const std::int64_t length = x.size(axis);
        const Tensor scales = random_scales({length}, generator);
        const Tensor zeros = random_integers({length}, dtype, low, high, generator);
        check_same([&] {
          return quantize_linear(x, scales, zeros, {.axis = axis, .dtype = dtype, .bits = bits});
        });
      }
      for (const std::int64_t block : {2, 4, 10}) {
        const Dims groups{3, (10 + block - 1) / block, 7};
        const Tensor scales = random_scales(groups, generator);
        const Tensor zeros = random_integers(groups, dtype, low, high, generator);
        check_same([&] {
          return quantize_linear(x, scales, zeros,
                                 {.axis = 1, .block_size = block, .dtype = dtype, .bits = bits});
        });
      }
    }
  }
}

TEST_CASE("cuda quantize_linear: any layout and codes that carry their scale") {
  Generator generator(52);
  const Tensor x = random_values({2, 3, 5, 7}, generator);
  const Tensor last = x.contiguous(MemoryFormat::ChannelsLast);
  const Tensor turned = x.permute({0, 3, 1, 2});
  const Tensor part = x.narrow(3, 1, 5);
  for (const Tensor& given : {x, last, turned, part}) {
    check_same([&] { return quantize_linear(given, Tensor::scalar(0.02), Tensor(), {}); });
    check_same([&] {
      return quantize_linear(given, random_scales({given.size(1)}, generator).fill_(0.3), Tensor(),
                             {.dtype = DType::Int8});
    });
    check_same([&] { return dynamic_quantize_linear(given).codes; });
    for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
      check_same([&] { return quantized::quantize_linear(given, 0.037, 11, dtype); });
    }
  }
}

TEST_CASE("cuda dequantize_linear: every dtype and layout of scales") {
  Generator generator(53);
  for (const DType dtype : {DType::UInt8, DType::Int8, DType::UInt16, DType::Int16, DType::Int32}) {
    const auto [low, high] = range_of(dtype);
    const Tensor q = random_integers({3, 10, 7}, dtype, low, high, generator);
    const auto zeros = [&, low = low, high = high](const Dims& sizes) {
      return random_integers(sizes, dtype, low, high, generator);
    };
    const Tensor one = zeros({});
    check_same([&] { return dequantize_linear(q, Tensor::scalar(0.03), one); });
    check_same([&] { return dequantize_linear(q, Tensor::scalar(0.03), Tensor()); });
    for (const std::int64_t axis : {0, 1, 2}) {
      const Tensor scales = random_scales({q.size(axis)}, generator);
      const Tensor each = zeros({q.size(axis)});
      check_same([&] { return dequantize_linear(q, scales, each, {.axis = axis}); });
    }
    const Tensor scales = random_scales({3, 4, 7}, generator);
    const Tensor each = zeros({3, 4, 7});
    check_same([&] { return dequantize_linear(q, scales, each, {.axis = 1, .block_size = 3}); });
  }
}

TEST_CASE("cuda dynamic_quantize_linear: codes and scale and zero point stay on the device") {
  Generator generator(54);
  for (const std::int64_t count : {0, 1, 3, 64, 9000}) {
    for (const float shift : {0.0F, 5.0F, -5.0F}) {
      const Tensor x = randn({count}, generator);
      for (std::int64_t i = 0; i < count; ++i) x.mutable_data<float>()[i] += shift;
      const DynamicCodes expected = dynamic_quantize_linear(x);
      const DynamicCodes got = dynamic_quantize_linear(x.to(kDevice));
      CHECK(got.codes.device() == kDevice);
      CHECK(got.codes.cpu().equal(expected.codes));
      CHECK(got.scale.cpu().equal(expected.scale));
      CHECK(got.zero_point.cpu().equal(expected.zero_point));
    }
  }
  const Tensor same = Tensor::zeros({5});
  CHECK(dynamic_quantize_linear(same.to(kDevice)).scale.item() == 1.0);
}

TEST_CASE("cuda codes: turned and mapped and unpacked") {
  Generator generator(55);
  ByteTable bytes{};
  FloatTable floats{};
  for (std::size_t i = 0; i < 256; ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 7 + 3);
    floats[i] = 0.25F * static_cast<float>(i) - 9.0F;
  }
  for (const Dims& sizes : {Dims{1}, Dims{5, 3}, Dims{2, 3, 7, 5}, Dims{1031}}) {
    const QTensor x = random_codes(sizes, 100, generator);
    check_same([&] { return quantized::to_codes(x, DType::UInt8); });
    check_same([&] { return quantized::to_codes(x, DType::Int8); });
    check_same([&] { return quantized::map_codes(x, bytes, 0.4, 7); });
    check_same([&] { return quantized::map_codes_to_float(x, floats); });
    const Tensor plain = random_integers(sizes, DType::UInt8, 0, 255, generator);
    const Tensor with_sign = random_integers(sizes, DType::Int8, -128, 127, generator);
    check_same([&] { return quantized::from_codes(plain, 0.1, 3); });
    check_same([&] { return quantized::from_codes(with_sign, 0.1, 200); });
    check_same([&] { return unpack_bits(plain, 4); });
    check_same([&] { return unpack_bits(plain, 2); });
  }
  const QTensor x = random_codes({2, 6, 4, 5}, 9, generator);
  check_same([&] {
    return quantized::map_codes_to_float(QTensor(x.permute({0, 2, 3, 1})), floats);
  });
  check_same([&] { return quantized::to_codes(QTensor(x.narrow(2, 1, 2)), DType::Int8); });
  check_same([&] { return unpack_bits(quantized::to_codes(x, DType::UInt8).transpose(1, 3), 4); });
}

TEST_CASE("cuda global_mean_to_float: images of any size") {
  Generator generator(56);
  for (int round = 0; round < 20; ++round) {
    Dims sizes{generator.integer(1, 3), generator.integer(1, 48)};
    const std::int64_t spatial = generator.integer(1, 3);
    for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(generator.integer(1, 9));
    const QTensor x = random_codes(sizes, generator.integer(0, 255), generator);
    check_same([&] { return quantized::global_mean_to_float(x); });
  }
}

TEST_CASE("cuda quantize_linear: nothing to do and what is refused") {
  const Tensor none = Tensor::empty({0, 3}).to(kDevice);
  const Tensor scale = Tensor::scalar(0.5).to(kDevice);
  CHECK(quantize_linear(none, scale, Tensor(), {}).sizes() == Dims{0, 3});
  CHECK(quantized::quantize_linear(none, 0.5, 3, DType::QUInt8).sizes() == Dims{0, 3});
  const Tensor x = Tensor::ones({2, 3}).to(kDevice);
  CHECK_THROWS_AS(quantize_linear(x, Tensor::scalar(0.5), Tensor(), {}), ArgumentError);
  CHECK_THROWS_AS(quantize_linear(x, scale, Tensor(), {.dtype = DType::Int32}), ArgumentError);
}

}  // namespace quanta
