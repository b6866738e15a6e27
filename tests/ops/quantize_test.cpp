#include "quanta/ops/quantize.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "elementwise_support.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::codes_of;
using test::for_each_target;
using test::in_layout;
using test::Layout;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// 0.01, 0.02, ...
Tensor rising_scales(std::int64_t count) {
  Tensor scales = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i) {
    scales.mutable_data<float>()[i] = 0.01F * static_cast<float>(i + 1);
  }
  return scales;
}

// Ties, both ends, infinities, NaN, subnormals and random values around the range.
std::vector<float> awkward_values(float scale, Generator& generator) {
  std::vector<float> values = {0.0F,   -0.0F,  kInf,    -kInf,         kNaN,          1e30F,
                               -1e30F, 1e-42F, 3.4e38F, 2147483648.0F, -2147483648.0F};
  for (int i = -300; i <= 300; ++i) values.push_back((static_cast<float>(i) + 0.5F) * scale);
  for (int i = 0; i < 777; ++i) values.push_back(generator.normal() * 150.0F * scale);
  return values;
}

TEST_CASE("quantize_per_tensor: ties round to even before the zero point is added") {
  const Tensor x = Tensor::from_values({0.05F, 0.15F, 0.25F, 0.35F});
  CHECK(codes_of(quantize_per_tensor(x, 0.1, 10, DType::QUInt8)) ==
        std::vector<std::int64_t>{10, 12, 12, 14});
  // The product with the reciprocal, not the quotient.
  CHECK(codes_of(quantize_per_tensor(Tensor::from_values({0.273939937F}), 0.00214854861, 0,
                                     DType::QUInt8)) == std::vector<std::int64_t>{128});
}

TEST_CASE("quantize_per_tensor: infinities saturate and NaN gives torch's code") {
  const Tensor x = Tensor::from_values({kInf, -kInf, kNaN, 16777217.0F});
  CHECK(codes_of(quantize_per_tensor(x, 1.0, 3, DType::QUInt8)) ==
        std::vector<std::int64_t>{255, 0, 255, 255});
  CHECK(codes_of(quantize_per_tensor(x, 1.0, 3, DType::QInt8)) ==
        std::vector<std::int64_t>{127, -128, 127, 127});
  CHECK(codes_of(quantize_per_tensor(x, 1.0, 0, DType::QInt32)) ==
        std::vector<std::int64_t>{2147483647, -2147483648, -2147483648, 16777216});
}

TEST_CASE("quantize_per_tensor: sub-byte codes are packed lowest index first") {
  const Tensor x = Tensor::from_values({1, 2, 3, 20, -3});
  const QTensor four = quantize_per_tensor(x, 1.0, 0, DType::QUInt4x2);
  CHECK(codes_of(int_repr(four)) == std::vector<std::int64_t>{33, 243, 0});
  CHECK(dequantize(four).to_float_vector() == std::vector<float>{1, 2, 3, 15, 0});
  const QTensor two = quantize_per_tensor(x, 1.0, 0, DType::QUInt2x4);
  CHECK(dequantize(two).to_float_vector() == std::vector<float>{1, 2, 3, 3, 0});
}

TEST_CASE("quantize kernel: every instruction set gives the scalar function's codes") {
  Generator generator(1);
  for (const float scale : {0.1F, 1.0F, 0.00392157F, 1e-30F, 3e30F}) {
    for (const std::int32_t zero_point : {0, 3, 128, 255}) {
      const std::vector<float> x = awkward_values(scale, generator);
      const cpu::QuantizeArgs args{math::inverse_scale(scale), zero_point, 0, 255, 255};
      const cpu::QuantizeArgs signed_args{math::inverse_scale(scale), zero_point - 128, -128, 127,
                                          0};
      for_each_target([&] {
        // Odd counts reach the tails; an offset of one makes all addresses unaligned.
        for (const std::size_t count :
             {x.size(), std::size_t{0}, std::size_t{1}, std::size_t{33}}) {
          const std::size_t skip = count == x.size() ? 0 : 1;
          std::vector<std::uint8_t> codes(count);
          std::vector<std::int8_t> signed_codes(count);
          const auto length = static_cast<std::int64_t>(count);
          cpu::quantize(x.data() + skip, codes.data(), length, args, cpu::Store::Cached);
          cpu::quantize(x.data() + skip, signed_codes.data(), length, signed_args,
                        cpu::Store::Cached);
          for (std::size_t i = 0; i < count; ++i) {
            CAPTURE(x[i + skip]);
            REQUIRE(codes[i] ==
                    math::quantize(x[i + skip], args.inv_scale, zero_point, 0, 255, 255));
            REQUIRE(signed_codes[i] ==
                    math::quantize(x[i + skip], args.inv_scale, zero_point - 128, -128, 127, 0));
          }
        }
      });
    }
  }
}

TEST_CASE("dequantize kernel: every instruction set gives the scalar function's floats") {
  std::array<std::uint8_t, 256 + 37> codes;
  std::array<std::int8_t, 256 + 37> signed_codes;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>(i);
    signed_codes[i] = static_cast<std::int8_t>(codes[i]);
  }
  for_each_target([&] {
    std::array<float, 256 + 37> out;
    const auto count = static_cast<std::int64_t>(out.size());
    cpu::dequantize(codes.data(), out.data(), count, 0.1F, 77, cpu::Store::Cached);
    for (std::size_t i = 0; i < out.size(); ++i) {
      REQUIRE(out[i] == math::dequantize(codes[i], 0.1F, 77));
    }
    cpu::dequantize(signed_codes.data(), out.data(), count, 0.1F, -77, cpu::Store::Cached);
    for (std::size_t i = 0; i < out.size(); ++i) {
      REQUIRE(out[i] == math::dequantize(signed_codes[i], 0.1F, -77));
    }
  });
}

TEST_CASE("quantize and dequantize: results past the caches equal those of a part") {
  // Above the size from which results are streamed.
  const std::int64_t count = (std::int64_t{33} << 20) + 17;
  Tensor x = Tensor::empty({count});
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1021) * 0.3F - 100.0F;
  const QTensor q = quantize_per_tensor(x, 0.7, 130, DType::QUInt8);
  const Tensor back = dequantize(q);
  const auto* codes = q.data<std::uint8_t>();
  const auto* floats = back.data<float>();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto code = math::quantize(values[i], math::inverse_scale(0.7F), 130, 0, 255);
    if (codes[i] != code || floats[i] != math::dequantize(code, 0.7F, 130)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("quantize_per_tensor: any memory layout gives the codes of the contiguous tensor") {
  Generator generator(2);
  for (const Layout layout : test::kLayouts) {
    const Tensor x =
        in_layout(layout, 5, 3, 7, [&](const Dims& sizes) { return randn(sizes, generator); });
    for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
      const QTensor q = quantize_per_tensor(x, 0.02, 4, dtype);
      CHECK(q.suggested_format() == x.suggested_format());
      CHECK(codes_of(q) == codes_of(quantize_per_tensor(x.contiguous(), 0.02, 4, dtype)));
      const Tensor view = in_layout(layout, 5, 3, 7, [&](const Dims& sizes) {
        return test::random_codes(sizes, dtype, 0.02, 4, generator);
      });
      CHECK(dequantize(view).to_float_vector() == dequantize(view.contiguous()).to_float_vector());
      CHECK(codes_of(int_repr(QTensor(view))) == codes_of(view));
    }
  }
}

TEST_CASE("quantize_per_tensor: an empty tensor gives an empty one") {
  const QTensor q = quantize_per_tensor(Tensor::empty({2, 0, 3}), 0.1, 0, DType::QUInt8);
  CHECK(q.sizes() == Dims{2, 0, 3});
  CHECK(dequantize(q).sizes() == Dims{2, 0, 3});
}

TEST_CASE("quantize_per_tensor: tensors as scale and zero point give what numbers give") {
  const Tensor x = Tensor::from_values({-1, 0, 1, 2});
  const std::array<std::int64_t, 2> zero_points = {10, 20};
  const Tensor scales = Tensor::from_values({0.1F, 0.5F});
  const Tensor zeros = Tensor::from_int64(zero_points);
  const std::array<Tensor, 2> list = {x, x};
  const std::vector<QTensor> results = quantize_per_tensor(list, scales, zeros, DType::QUInt8);
  REQUIRE(results.size() == 2);
  CHECK(results[1].equal(quantize_per_tensor(x, 0.5, 20, DType::QUInt8)));
  CHECK(results[0].equal(
      quantize_per_tensor(x, scales.select(0, 0), zeros.select(0, 0), DType::QUInt8)));
}

TEST_CASE("quantize_per_tensor: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({2});
  CHECK_THROWS_WITH_AS(
      quantize_per_tensor(x, 0.1, 300, DType::QUInt8),
      doctest::Contains("quantize_per_tensor: zero_point: expected 0..255 for QUInt8, got 300"),
      ArgumentError);
  for (const double scale : {0.0, -1.0, static_cast<double>(kNaN), static_cast<double>(kInf)}) {
    CHECK_THROWS_WITH_AS(quantize_per_tensor(x, scale, 0, DType::QUInt8),
                         doctest::Contains("quantize_per_tensor: scale: expected"), ArgumentError);
  }
  CHECK_THROWS_WITH_AS(quantize_per_tensor(x, 0.1, 0, DType::Int8),
                       doctest::Contains("dtype: expected a quantized dtype, got Int8"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_per_tensor(Tensor::ones({2}, DType::Int32), 0.1, 0, DType::QInt8),
                       doctest::Contains("x: expected Float32, got Int32"), ArgumentError);
  const QTensor q = quantize_per_tensor(x, 0.1, 0, DType::QUInt8);
  CHECK_THROWS_WITH_AS(quantize_per_tensor(q, 0.1, 0, DType::QUInt8),
                       doctest::Contains("x: expected Float32, got QUInt8"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_per_tensor(Tensor(), 0.1, 0, DType::QUInt8),
                       doctest::Contains("undefined"), ArgumentError);
}

TEST_CASE("quantize_per_channel: each channel follows its own parameters in any layout") {
  Generator generator(3);
  for (const Layout layout : test::kLayouts) {
    const Tensor x =
        in_layout(layout, 3, 5, 4, [&](const Dims& sizes) { return randn(sizes, generator); });
    for (std::int64_t axis = 0; axis < 4; ++axis) {
      const std::int64_t channels = x.size(axis);
      const Tensor scales = rising_scales(channels);
      std::vector<std::int64_t> zeros;
      for (std::int64_t c = 0; c < channels; ++c) zeros.push_back(c * 7);
      const QTensor q =
          quantize_per_channel(x, scales, Tensor::from_int64(zeros), axis, DType::QUInt8);
      CHECK(q.q_per_channel_axis() == axis);
      const Tensor back = dequantize(q);
      for (std::int64_t c = 0; c < channels; ++c) {
        const double scale = static_cast<double>(scales.select(0, c).item());
        const Tensor part = x.select(axis, c).contiguous();
        const QTensor expected =
            quantize_per_tensor(part, scale, zeros[static_cast<std::size_t>(c)], DType::QUInt8);
        const Tensor codes = q.int_repr_view().select(axis, c);
        CHECK(codes_of(codes) == codes_of(expected));
        std::vector<float> floats;
        for (const std::int64_t code : codes_of(codes)) {
          floats.push_back(math::dequantize_per_channel(static_cast<std::int32_t>(code), scale,
                                                        zeros[static_cast<std::size_t>(c)]));
        }
        CHECK(back.select(axis, c).to_float_vector() == floats);
      }
    }
  }
}

TEST_CASE("quantize_per_channel: rows of any number of channels on every instruction set") {
  Generator generator(17);
  std::vector<std::int64_t> counts = {1024, 1031};
  for (std::int64_t channels = 1; channels <= 130; ++channels) counts.push_back(channels);
  test::for_each_target([&] {
    for (const std::int64_t channels : counts) {
      CAPTURE(channels);
      const DType dtype = channels % 2 == 0 ? DType::QUInt8 : DType::QInt8;
      const IntRange range = quant_range(dtype);
      const Tensor x = randn({5, channels}, generator);
      const std::array<float, 6> odd = {kNaN, kInf, -kInf, 3e9F, -3e9F, 1e30F};
      for (std::size_t i = 0; i < odd.size() && static_cast<std::int64_t>(i) < channels; ++i) {
        x.mutable_data<float>()[i] = odd[i];
      }
      const Tensor scales = rising_scales(channels);
      std::vector<std::int64_t> zeros;
      for (std::int64_t c = 0; c < channels; ++c) zeros.push_back(range.min + c * 7 % 256);
      const QTensor q = quantize_per_channel(x, scales, Tensor::from_int64(zeros), 1, dtype);
      const auto codes = codes_of(q);
      const auto values = x.to_float_vector();
      const auto back = dequantize(q).to_float_vector();
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const std::size_t c = i % zeros.size();
        const auto scale = q.quantizer().channel->scales[c];
        REQUIRE(codes[i] == math::quantize(values[i],
                                           math::inverse_scale(static_cast<float>(scale)),
                                           static_cast<std::int32_t>(zeros[c]),
                                           static_cast<std::int32_t>(range.min),
                                           static_cast<std::int32_t>(range.max), 0));
        REQUIRE(back[i] ==
                math::dequantize_per_channel(static_cast<std::int32_t>(codes[i]), scale, zeros[c]));
      }
    }
  });
}

TEST_CASE("quantize_per_channel: NaN gives code 0 and infinities saturate") {
  const Tensor x = Tensor::from_values({kNaN, kInf, -kInf, kNaN}, {1, 4});
  const std::array<std::int64_t, 1> zero = {5};
  CHECK(codes_of(quantize_per_channel(x, Tensor::from_values({1.0F}), Tensor::from_int64(zero), 0,
                                      DType::QUInt8)) == std::vector<std::int64_t>{0, 255, 0, 0});
}

TEST_CASE("quantize_per_channel: a floating zero point is added before rounding") {
  const Tensor x = Tensor::from_values({0.5F, 1.0F, -3.0F, 1e30F}, {1, 4});
  const QTensor q = quantize_per_channel(x, Tensor::from_values({1.0F}),
                                         Tensor::from_values({0.75F}), 0, DType::QUInt8);
  CHECK(q.qscheme() == QScheme::PerChannelAffineFloatQParams);
  CHECK(codes_of(q) == std::vector<std::int64_t>{1, 2, 0, 255});
  CHECK(dequantize(q).to_float_vector() == std::vector<float>{0.25F, 1.25F, -0.75F, 254.25F});
}

TEST_CASE("quantize_per_channel: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({2, 3});
  const Tensor scales = Tensor::ones({3});
  const Tensor zeros = Tensor::zeros({3}, DType::Int64);
  CHECK_THROWS_WITH_AS(quantize_per_channel(x, scales, zeros, -1, DType::QInt8),
                       doctest::Contains("axis: expected 0..1, got -1"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_per_channel(x, scales, zeros, 0, DType::QInt8),
                       doctest::Contains("scales: expected [2]"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      quantize_per_channel(x, scales, Tensor::zeros({2}, DType::Int64), 1, DType::QInt8),
      doctest::Contains("zero_points: expected [3]"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_per_channel(x, zeros, zeros, 1, DType::QInt8),
                       doctest::Contains("scales: expected a floating tensor, got Int64"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_per_channel(x, Tensor::zeros({3}), zeros, 1, DType::QInt8),
                       doctest::Contains("scale: expected a finite number > 0"), ArgumentError);
  CHECK_THROWS_AS(quantize_per_channel(x, scales, zeros, 1, DType::QUInt4x2), UnsupportedError);
}

TEST_CASE("quantize_per_tensor_dynamic: parameters are those torch chooses") {
  const Tensor x = Tensor::from_values({-1, 0, 0.5F, 2});
  const QTensor signed_codes = quantize_per_tensor_dynamic(x, DType::QInt8, false).as_quantized();
  CHECK(signed_codes.q_scale() == doctest::Approx(0.011764706).epsilon(1e-7));
  CHECK(signed_codes.q_zero_point() == -43);
  const QTensor reduced = quantize_per_tensor_dynamic(x, DType::QUInt8, true).as_quantized();
  CHECK(reduced.q_scale() == doctest::Approx(0.023622047).epsilon(1e-7));
  CHECK(reduced.q_zero_point() == 42);
  CHECK(quantize_per_tensor_dynamic(x, DType::QInt8, true).as_quantized().q_zero_point() == -22);
  CHECK(quantize_per_tensor_dynamic(x, DType::Float16, false).dtype() == DType::Float16);
}

TEST_CASE("choose_qparams_per_tensor: no range gives a scale of 0.1") {
  for (const Tensor& x : {Tensor::zeros({4}), Tensor::empty({0})}) {
    const math::QParams qparams = choose_qparams_per_tensor(x);
    CHECK(qparams.scale == 0.1);
    CHECK(qparams.zero_point == 0);
  }
  CHECK(choose_qparams(0.0F, 0.0F, {-128, 127}, false).zero_point == 127);
  CHECK(choose_qparams(0.0F, 0.0F, {-128, 127}, true).zero_point == 63);
}

TEST_CASE("choose_qparams: what cannot be a range is refused") {
  CHECK_THROWS_WITH_AS(choose_qparams(1.0F, -1.0F, {0, 255}, false),
                       doctest::Contains("min: expected min <= max"), ArgumentError);
  for (const auto& [low, high] : {std::pair{-kInf, 1.0F}, {0.0F, kInf}, {-kInf, kInf}}) {
    CHECK_THROWS_WITH_AS(choose_qparams(low, high, {0, 255}, false),
                         doctest::Contains("min: expected a finite range"), ArgumentError);
    // What reaches the formula another way gets codes that there are.
    CHECK(math::choose_qparams(low, high, -7, 255).zero_point >= -7);
    CHECK(math::choose_qparams(low, high, -7, 255).zero_point <= 255);
  }
  CHECK_THROWS_WITH_AS(choose_qparams_per_tensor(Tensor::from_values({1.0F, kNaN})),
                       doctest::Contains("x: expected finite values"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_per_tensor_dynamic(Tensor::ones({1}), DType::QInt32, false),
                       doctest::Contains("dtype: expected QUInt8, QInt8 or Float16, got QInt32"),
                       ArgumentError);
}

TEST_CASE("float_range kernel: smallest and largest at any place and NaN is not lost") {
  Generator generator(4);
  for_each_target([&] {
    for (const std::size_t count : {1U, 5U, 16U, 31U, 100U}) {
      std::vector<float> x(count);
      for (float& value : x) value = generator.normal();
      for (std::size_t i = 0; i < count; ++i) {
        const float before = x[i];
        x[i] = -50.0F;
        CHECK(cpu::float_range(x.data(), static_cast<std::int64_t>(count)).min == -50.0F);
        x[i] = 50.0F;
        CHECK(cpu::float_range(x.data(), static_cast<std::int64_t>(count)).max == 50.0F);
        x[i] = kNaN;
        CHECK(std::isnan(cpu::float_range(x.data(), static_cast<std::int64_t>(count)).min));
        x[i] = before;
      }
    }
  });
}

TEST_CASE("dequantize: floating tensors become Float32 and integers are refused") {
  const Tensor x = Tensor::from_values({1, 2});
  CHECK(dequantize(x).is_same(x));
  CHECK(dequantize(x.to(DType::Float16)).dtype() == DType::Float32);
  CHECK_THROWS_WITH_AS(dequantize(Tensor::ones({2}, DType::Int64)),
                       doctest::Contains("dequantize: x: expected a quantized or floating tensor"),
                       ArgumentError);
}

}  // namespace
}  // namespace quanta
