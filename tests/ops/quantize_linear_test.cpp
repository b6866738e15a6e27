#include "quanta/ops/quantize_linear.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quanta/ops/mean_of_codes.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"

using namespace quanta;

namespace {

std::vector<std::int64_t> integers(const Tensor& x) { return x.to_int64_vector(); }

}  // namespace

TEST_CASE("quantize_linear divides, where torch multiplies by the reciprocal") {
  const Tensor x = Tensor::from_values({0.273939937F});
  const Tensor scale = Tensor::scalar(0.00214854861);
  CHECK(integers(quantize_linear(x, scale, {}))[0] == 127);
  CHECK(integers(quantized::quantize_linear(x, 0.00214854861, 0, DType::QUInt8))[0] == 127);
}

TEST_CASE("quantize_linear rounds to even, saturates and takes NaN as the least") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from_values(
      {0.5F, 1.5F, -2.5F, 300.0F, -300.0F, infinity, -infinity, std::nanf(""), 1e30F, -1e30F});
  const Tensor one = Tensor::scalar(1.0);
  const Tensor zero = Tensor::full({}, 10.0, DType::UInt8);
  CHECK(integers(quantize_linear(x, one, zero)) ==
        std::vector<std::int64_t>{10, 12, 8, 255, 0, 255, 0, 0, 255, 0});
  const Tensor signed_zero = Tensor::full({}, -3.0, DType::Int8);
  CHECK(integers(quantize_linear(x, one, signed_zero, {.dtype = DType::Int8})) ==
        std::vector<std::int64_t>{-3, -1, -5, 127, -128, 127, -128, -128, 127, -128});
  CHECK(integers(quantize_linear(x, one, {}, {.dtype = DType::Int8, .bits = 4})) ==
        std::vector<std::int64_t>{0, 2, -2, 7, -8, 7, -8, -8, 7, -8});
  CHECK(integers(quantize_linear(x, one, {}, {.dtype = DType::UInt16}))[3] == 300);
}

TEST_CASE("quantize_linear: whole vectors are as single elements") {
  const Tensor x = sample_tensor({3, 1001});
  const Tensor scale = Tensor::scalar(0.0123);
  const Tensor zero = Tensor::full({}, 77.0, DType::UInt8);
  const std::vector<std::int64_t> all = integers(quantize_linear(x, scale, zero));
  const std::vector<std::int64_t> carried =
      integers(quantized::quantize_linear(x, static_cast<double>(0.0123F), 77, DType::QUInt8));
  const std::vector<float> values = x.to_float_vector();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double code = std::nearbyint(values[i] / 0.0123F) + 77.0;
    REQUIRE(all[i] == static_cast<std::int64_t>(std::min(255.0, std::max(0.0, code))));
    REQUIRE(all[i] == carried[i]);
  }
}

TEST_CASE("quantize_linear: NaN is the least code in whole vectors too") {
  const Tensor x = Tensor::full({100}, std::nan(""));
  const Tensor scale = Tensor::scalar(0.5);
  for (const DType dtype : {DType::UInt8, DType::Int8, DType::UInt16, DType::Int16}) {
    const std::int64_t least = dtype == DType::Int8 ? -128 : dtype == DType::Int16 ? -32768 : 0;
    const Tensor zero = Tensor::full({}, 3.0, dtype);
    CHECK(integers(quantize_linear(x, scale, zero, {.dtype = dtype})) ==
          std::vector<std::int64_t>(100, least));
  }
}

TEST_CASE("quantize_linear and dequantize_linear by channels and by blocks") {
  const Tensor x = Tensor::from_values({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5});
  const Tensor scales = Tensor::from_values({1.0F, 2.0F});
  const Tensor zeros = Tensor::from_int64(std::vector<std::int64_t>{0, 5}).to(DType::UInt8);
  const Tensor rows = quantize_linear(x, scales, zeros, {.axis = -2});
  CHECK(integers(rows) == std::vector<std::int64_t>{1, 2, 3, 4, 5, 8, 9, 9, 9, 10});
  CHECK(dequantize_linear(rows, scales, zeros, {.axis = 0}).to_float_vector() ==
        std::vector<float>{1, 2, 3, 4, 5, 6, 8, 8, 8, 10});

  const Tensor blocks = Tensor::from_values({1.0F, 2.0F, 4.0F, 0.5F}, {2, 2});
  const Tensor coded =
      quantize_linear(x, blocks, {}, {.axis = 1, .block_size = 3, .dtype = DType::Int8});
  CHECK(integers(coded) == std::vector<std::int64_t>{1, 2, 3, 2, 2, 2, 2, 2, 18, 20});
  CHECK(dequantize_linear(coded, blocks, {}, {.axis = 1, .block_size = 3}).to_float_vector() ==
        std::vector<float>{1, 2, 3, 4, 4, 8, 8, 8, 9, 10});
  CHECK_THROWS_AS(quantize_linear(x, scales, zeros, {.axis = 1}), ArgumentError);
  CHECK_THROWS_AS(quantize_linear(x, scales, scales, {.axis = 0}), ArgumentError);
  CHECK_THROWS_AS(quantize_linear(x, scales, {}, {.axis = 2}), ArgumentError);
  CHECK_THROWS_AS(quantize_linear(x, blocks, {}, {.axis = 1, .block_size = 2}), ArgumentError);

  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const Tensor whole = Tensor::from_values({1.0F, 2.0F}, {2, 1});
  CHECK(quantize_linear(x, whole, {}, {.axis = 1, .block_size = kLargest}).to_float_vector() ==
        quantize_linear(x, whole, {}, {.axis = 1, .block_size = 5}).to_float_vector());
  CHECK_THROWS_AS(dequantize_linear(coded, blocks, {}, {.axis = 1, .block_size = kLargest}),
                  ArgumentError);
}

TEST_CASE("dynamic_quantize_linear: the example of ONNX") {
  const DynamicCodes codes =
      dynamic_quantize_linear(Tensor::from_values({0.0F, 2.0F, -3.0F, -2.5F, 1.34F, 0.5F}));
  CHECK(codes.scale.item() == doctest::Approx(0.0196078438));
  CHECK(codes.zero_point.item() == 153.0);
  CHECK(integers(codes.codes) == std::vector<std::int64_t>{153, 255, 0, 26, 221, 179});
  const DynamicCodes nothing = dynamic_quantize_linear(Tensor::zeros({3}));
  CHECK(nothing.scale.item() == 1.0);
  CHECK(integers(nothing.codes) == std::vector<std::int64_t>{0, 0, 0});
}

TEST_CASE("unpack_bits takes the lowest bits first") {
  const Tensor bytes = Tensor::from_int64(std::vector<std::int64_t>{0x21, 0xE4}).to(DType::UInt8);
  CHECK(integers(unpack_bits(bytes, 4)) == std::vector<std::int64_t>{1, 2, 4, 14});
  CHECK(integers(unpack_bits(bytes, 2)) == std::vector<std::int64_t>{1, 0, 2, 0, 0, 1, 2, 3});
  CHECK_THROWS_AS(unpack_bits(bytes, 3), ArgumentError);
}

TEST_CASE("from_codes and to_codes: signed codes and unsigned ones stand for the same numbers") {
  const Tensor codes =
      Tensor::from_int64(std::vector<std::int64_t>{-128, -1, 0, 5, 127}).to(DType::Int8);
  const QTensor x = quantized::from_codes(codes, 0.5, 128 + 3);
  CHECK(dequantize_linear(codes, Tensor::scalar(0.5), Tensor::full({}, 3.0, DType::Int8))
            .to_float_vector() == x.to_float_vector());
  CHECK(quantized::to_codes(x, DType::Int8).equal(codes));
  CHECK(integers(quantized::to_codes(x, DType::UInt8)) ==
        std::vector<std::int64_t>{0, 127, 128, 133, 255});
}

TEST_CASE("map_codes and map_codes_to_float look each code up") {
  ByteTable bytes{};
  FloatTable floats{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(255 - i);
    floats[i] = 0.25F * static_cast<float>(i);
  }
  const Tensor codes = Tensor::arange(256).to(DType::UInt8);
  const QTensor x = quantized::from_codes(codes, 1.0, 0);
  CHECK(integers(quantized::map_codes(x, bytes, 0.5, 7))[3] == 252);
  CHECK(quantized::map_codes(x, bytes, 0.5, 7).quantizer().scale == 0.5);
  CHECK(quantized::map_codes_to_float(x, floats).to_float_vector()[9] == 2.25F);
}

TEST_CASE("global_mean_to_float: means of exact sums") {
  const Tensor codes = quantize_linear(sample_tensor({2, 5, 7, 3}), Tensor::scalar(0.02),
                                       Tensor::full({}, 128.0, DType::UInt8));
  const Tensor means = quantized::global_mean_to_float(quantized::from_codes(codes, 0.5, 100));
  REQUIRE(means.sizes() == Dims{2, 5, 1, 1});
  const std::vector<std::int64_t> all = integers(codes);
  const std::vector<float> got = means.to_float_vector();
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::int64_t sum = 0;
    for (std::size_t p = 0; p < 21; ++p) sum += all[i * 21 + p] - 100;
    CHECK(got[i] == static_cast<float>(static_cast<double>(sum) * 0.5 / 21.0));
  }
  CHECK_THROWS_AS(quantized::global_mean_to_float(quantized::from_codes(codes[0][0], 0.5, 0)),
                  ArgumentError);
}
