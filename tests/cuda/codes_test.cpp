#include <doctest/doctest.h>

#include <limits>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/arithmetic_quantized.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/random.h"
#include "support/device_guide.h"
#include "support/test_device.h"

// Operations on codes: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

const Device kDevice = test::test_device();

// The same call on both; whether all operations ran on the device.
template <typename Call>
void check_same(Call&& call) {
  const Tensor expected = call();
  test::DeviceGuide guide(kDevice);
  Tensor got;
  {
    const GuideScope scope(&guide);
    got = call();
  }
  CHECK(guide.take_count() > 0);
  CHECK(got.equal(expected));
  CHECK(got.strides() == expected.strides());
}

QTensor codes(const Dims& sizes, double scale, std::int64_t zero_point, DType dtype,
              std::uint64_t seed) {
  Generator generator(seed);
  return quantize_per_tensor(randn(sizes, generator), scale, zero_point, dtype);
}

}  // namespace

TEST_CASE("cuda codes: quantize and dequantize") {
  Generator generator(3);
  const Tensor x = randn({3, 5, 7, 2}, generator);
  float* const values = x.mutable_data<float>();
  values[0] = std::numeric_limits<float>::quiet_NaN();
  values[1] = std::numeric_limits<float>::infinity();
  values[2] = -std::numeric_limits<float>::infinity();
  values[3] = 1e30F;
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const std::int64_t zero_point : {0, 3, 127}) {
      check_same([&] { return quantize_per_tensor(x, 0.037, zero_point, dtype); });
      check_same([&] {
        return quantize_per_tensor(x.contiguous(MemoryFormat::ChannelsLast), 0.01, zero_point,
                                   dtype);
      });
      const QTensor quantized = quantize_per_tensor(x, 0.037, zero_point, dtype);
      check_same([&] { return dequantize(quantized); });
    }
    const Tensor scales = Tensor::from_values({0.1F, 0.02F, 0.3F, 0.01F, 0.5F});
    const Tensor zero_points = Tensor::from_values({1, 2, 3, 100, 0}).to(DType::Int64);
    check_same([&] { return quantize_per_channel(x, scales, zero_points, 1, dtype); });
    check_same([&] {
      return quantize_per_channel(x.contiguous(MemoryFormat::ChannelsLast), scales, zero_points, 1,
                                  dtype);
    });
    const QTensor channels = quantize_per_channel(x, scales, zero_points, 1, dtype);
    check_same([&] { return dequantize(channels); });
    const Tensor float_zero_points = Tensor::from_values({1.5F, 2, 3.25F, 100, 0});
    check_same([&] { return quantize_per_channel(x, scales, float_zero_points, 1, dtype); });
    const QTensor between = quantize_per_channel(x, scales, float_zero_points, 1, dtype);
    check_same([&] { return dequantize(between); });
    check_same([&] { return int_repr(channels); });
  }
}

TEST_CASE("cuda codes: functions of one code are tables") {
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const QTensor x = codes({2, 3, 17}, 0.04, 50, dtype, 5);
    check_same([&] { return relu(x); });
    check_same([&] { return sigmoid(x); });
    check_same([&] { return tanh(x); });
    check_same([&] { return leaky_relu(x, 0.1); });
    check_same([&] { return quantized::hardswish(x, 0.03, 20); });
    check_same([&] { return quantized::add_scalar(x, 0.7); });
    check_same([&] { return quantized::mul_scalar_relu(x, -1.7); });
    // Read with other strides than written.
    check_same([&] { return relu(QTensor(x.slice(2, 0, 17, 2))); });
  }
}

TEST_CASE("cuda codes: sums and products, broadcast and not") {
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    for (const std::int64_t zero_point : {0, 7, 100}) {
      const QTensor a = codes({2, 3, 5, 4}, 0.03, zero_point, dtype, 5);
      const QTensor b = codes({2, 3, 5, 4}, 0.05, 127 - zero_point, dtype, 6);
      const QTensor row = codes({3, 1, 4}, 0.02, 11, dtype, 7);
      for (const QTensor& other : {b, row}) {
        check_same([&] { return quantized::add(a, other, 0.06, 90); });
        check_same([&] { return quantized::add(other, a, 0.06, 90); });
        check_same([&] { return quantized::add_relu(a, other, 0.06, 30); });
        check_same([&] { return quantized::mul(a, other, 0.04, 10); });
        check_same([&] { return quantized::mul_relu(a, other, 0.04, 10); });
        check_same([&] { return quantized::sub(a, other, 0.06, 90); });
        check_same([&] { return quantized::sub(other, a, 0.06, 90); });
      }
      const QTensor last(a.contiguous(MemoryFormat::ChannelsLast));
      check_same([&] { return quantized::add(last, b, 0.06, 90); });
    }
  }
}

TEST_CASE("cuda codes: cat, with and without new parameters") {
  const QTensor a = codes({2, 3, 5}, 0.03, 7, DType::QUInt8, 5);
  const QTensor b = codes({2, 4, 5}, 0.05, 90, DType::QUInt8, 6);
  const std::vector<QTensor> both{a, b};
  check_same([&] { return quantized::cat(both, 1); });
  check_same([&] { return quantized::cat(both, 1, 0.04, 30); });
  check_same([&] { return quantized::cat_relu(both, 1, 0.04, 30); });
  const std::vector<Tensor> floats{sample_tensor({2, 3}), sample_tensor({2, 2})};
  check_same([&] { return cat(floats, 1); });
}

TEST_CASE("cuda codes: nothing to do") {
  const QTensor none = codes({0, 3}, 0.03, 7, DType::QUInt8, 5);
  CHECK(relu(none.to(kDevice)).sizes() == Dims{0, 3});
  CHECK(dequantize(none.to(kDevice)).device() == kDevice);
}

TEST_CASE("cuda codes: several in a byte, per tensor and per channel") {
  Generator generator(15);
  for (const DType dtype : {DType::QUInt4x2, DType::QUInt2x4}) {
    for (const Dims& sizes : {Dims{1}, Dims{7}, Dims{3, 5}, Dims{2, 3, 4, 9}, Dims{33, 31}}) {
      const Tensor x = randn(sizes, generator);
      x.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      const QTensor per_tensor = quantize_per_tensor(x, 0.4, 2, dtype);
      check_same([&] { return quantize_per_tensor(x, 0.4, 2, dtype); });
      check_same([&] { return dequantize(per_tensor); });
      CHECK(per_tensor.to(kDevice).clone().equal(per_tensor));
      if (sizes.size() < 2) continue;
      const auto axis = static_cast<std::int64_t>(sizes.size()) - 2;
      Tensor scales = randn({x.size(axis)}, generator);
      scales = add_scalar(mul(scales, scales), 0.1);
      const Tensor zero_points = randn({x.size(axis)}, generator);
      const QTensor channels = quantize_per_channel(x, scales, zero_points, axis, dtype);
      check_same([&] { return quantize_per_channel(x, scales, zero_points, axis, dtype); });
      check_same([&] { return dequantize(channels); });
    }
  }
  // Bits behind the last code are 0, as on the CPU.
  const Tensor ones = Tensor::ones({3}).to(kDevice);
  const QTensor packed = quantize_per_tensor(ones, 1.0, 0, DType::QUInt4x2);
  const Tensor copy = packed.cpu();
  const auto* const bytes = static_cast<const std::uint8_t*>(copy.data_ptr());
  CHECK(bytes[0] == 0x11);
  CHECK(bytes[1] == 0x01);
}

}  // namespace quanta
