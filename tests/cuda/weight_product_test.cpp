#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cuda/check_same.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/linear_weight_only.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Linear layers of floats whose weight has fewer bits. Float16 weights give the CPU's floats. Sums
// with quantized weights have another order on the CPU, which depends on the instruction set: they
// are compared with doubles.

namespace quanta {
namespace {

const Device kDevice = test::test_device();

// x times what the weight stands for, in double, and how far a float32 sum may be from it: one
// rounding a product and a sum, of numbers no larger than the sum of all magnitudes.
void check_close(const Tensor& x, const WeightOnlyPackedParams& packed, const Tensor& got) {
  const Tensor weight = packed.dequantize();
  const std::int64_t depth = packed.in_features();
  const std::int64_t columns = packed.out_features();
  const bool is_bfloat16 = x.dtype() == DType::BFloat16;
  const Tensor rows = x.to(DType::Float32).reshape({-1, depth});
  const Tensor results = got.to(DType::Float32).reshape({-1, columns});
  const double unit = std::ldexp(1.0, -24);
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    for (std::int64_t n = 0; n < columns; ++n) {
      double sum = packed.bias().defined() ? packed.bias().data<float>()[n] : 0.0;
      double magnitude = std::fabs(sum);
      for (std::int64_t k = 0; k < depth; ++k) {
        const double product = static_cast<double>(rows.data<float>()[r * depth + k]) *
                               static_cast<double>(weight.data<float>()[n * depth + k]);
        sum += product;
        magnitude += std::fabs(product);
      }
      const double allowed =
          unit * static_cast<double>(depth + 4) * magnitude +
          (is_bfloat16 ? std::ldexp(std::fabs(sum) + magnitude * unit, -8) : 0.0);
      const double value = results.data<float>()[r * columns + n];
      INFO("row ", r, " column ", n, ": expected ", sum, " within ", allowed, ", got ", value);
      CHECK(std::fabs(value - sum) <= allowed);
    }
  }
}

struct Layer {
  WeightOnlyPackedParams packed;
  std::int64_t in, out;

  Layer(Generator& generator, int bits, bool symmetric) {
    const std::int64_t groups[] = {0, 16, 32, 64, 128, 256};
    const std::int64_t group = groups[static_cast<std::size_t>(generator.integer(0, 5))];
    in = group == 0 ? generator.integer(1, 300) : group * generator.integer(1, group > 64 ? 2 : 9);
    out = generator.integer(1, 100);
    const Tensor bias = generator.integer(0, 2) == 0 ? Tensor() : randn({out}, generator);
    packed = quantize_weight_only(randn({out, in}, generator), bias,
                                  {.bits = bits, .group_size = group, .symmetric = symmetric});
  }
};

}  // namespace

TEST_CASE("weight-only layers on a device: the sums in float32 of any rows and groups") {
  Generator generator(41);
  for (int round = 0; round < 48; ++round) {
    const Layer layer(generator, round % 2 == 0 ? 8 : 4, round % 4 < 2);
    const std::int64_t row_counts[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 70};
    const std::int64_t rows = row_counts[static_cast<std::size_t>(generator.integer(0, 9))];
    CAPTURE(rows);
    CAPTURE(layer.in);
    CAPTURE(layer.out);
    CAPTURE(layer.packed.options().group_size);
    const DType dtype = generator.integer(0, 2) == 0 ? DType::BFloat16 : DType::Float32;
    const Tensor x = randn({rows, layer.in}, generator).to(dtype);
    const Tensor got = linear_weight_only(x.to(kDevice), layer.packed);
    CHECK(got.dtype() == dtype);
    check_close(x, layer.packed, got.cpu());
  }
}

TEST_CASE("weight-only layers on a device: a row's results do not depend on other rows") {
  Generator generator(42);
  for (int round = 0; round < 8; ++round) {
    const Layer layer(generator, round % 2 == 0 ? 8 : 4, round % 4 < 2);
    const Tensor x = randn({70, layer.in}, generator);
    const Tensor all = linear_weight_only(x.to(kDevice), layer.packed).cpu();
    for (const std::int64_t rows : {1, 2, 4, 7, 16, 17}) {
      const Tensor some =
          linear_weight_only(x.narrow(0, 70 - rows, rows).to(kDevice), layer.packed);
      CHECK(some.cpu().equal(all.narrow(0, 70 - rows, rows)));
    }
  }
}

TEST_CASE("weight-only layers on a device: codes of somebody else, exact where sums are") {
  // Small integers: every order of the sums gives the same float.
  Generator generator(43);
  for (const int bits : {8, 4}) {
    for (const bool symmetric : {true, false}) {
      const std::int64_t top = std::int64_t{1} << bits;
      const DType dtype = symmetric ? DType::Int8 : DType::UInt8;
      const Tensor codes = Tensor::empty({37, 160}, DType::Int32);
      for (std::int64_t i = 0; i < codes.numel(); ++i) {
        codes.mutable_data<std::int32_t>()[i] =
            static_cast<std::int32_t>(generator.integer(0, top - 1) - (symmetric ? top / 2 : 0));
      }
      const Tensor scales = Tensor::empty({37, 5});
      const Tensor zero_points = Tensor::empty({37, 5}, DType::Int32);
      for (std::int64_t i = 0; i < scales.numel(); ++i) {
        scales.mutable_data<float>()[i] = std::ldexp(1.0F, static_cast<int>(i % 4) - 2);
        zero_points.mutable_data<std::int32_t>()[i] =
            static_cast<std::int32_t>(generator.integer(0, top - 1));
      }
      const WeightOnlyPackedParams packed(
          codes.to(dtype), scales, symmetric ? Tensor() : zero_points.to(DType::UInt8), Tensor(),
          {.bits = bits, .group_size = 32, .symmetric = symmetric});
      for (const std::int64_t rows : {1, 3, 8, 20}) {
        const Tensor x = Tensor::empty({rows, 160});
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          x.mutable_data<float>()[i] = static_cast<float>(generator.integer(-8, 8));
        }
        CHECK(linear_weight_only(x.to(kDevice), packed).cpu().equal(linear_weight_only(x, packed)));
      }
    }
  }
}

TEST_CASE("Float16 weights on a device: the CPU's floats") {
  Generator generator(44);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t in = generator.integer(1, 400);
    const std::int64_t out = generator.integer(1, 90);
    const std::int64_t row_counts[] = {1, 2, 4, 7, 16, 17, 70};
    const std::int64_t rows = row_counts[static_cast<std::size_t>(generator.integer(0, 6))];
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    const Tensor bias = generator.integer(0, 2) == 0 ? Tensor() : randn({out}, generator);
    const quantized::LinearPackedParamsFp16 packed(randn({out, in}, generator), bias);
    const Tensor x = randn({rows, in}, generator);
    test::check_same([&] { return quantized::linear_dynamic_fp16(x, packed); });
    test::check_same([&] { return quantized::linear_relu_dynamic_fp16(x, packed); });
  }
  // More than one round of the warps.
  const quantized::LinearPackedParamsFp16 deep(randn({33, 2100}, generator), Tensor());
  for (const std::int64_t rows : {1, 8, 20}) {
    const Tensor x = randn({rows, 2100}, generator);
    test::check_same([&] { return quantized::linear_dynamic_fp16(x, deep); });
  }
}

TEST_CASE("Float16 weights on a device: NaN and infinity and subnormal weights") {
  const Tensor weight =
      Tensor::from_values({1.0F, -2.0F, 6e-8F, 65504.0F, 1e-5F, 0.0F, 3.0F, 1e6F}, {2, 4});
  const quantized::LinearPackedParamsFp16 packed(weight, Tensor());
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float special : {infinity, -infinity, nan, 0.0F}) {
    const Tensor x = Tensor::from_values({1.0F, 2.0F, special, 0.5F}, {1, 4});
    const Tensor got = quantized::linear_dynamic_fp16(x.to(kDevice), packed).cpu();
    const Tensor expected = quantized::linear_dynamic_fp16(x, packed);
    for (std::int64_t n = 0; n < 2; ++n) {
      const float a = got.data<float>()[n];
      const float b = expected.data<float>()[n];
      CHECK((a == b || (std::isnan(a) && std::isnan(b))));
    }
    CHECK(quantized::linear_relu_dynamic_fp16(x.to(kDevice), packed)
              .cpu()
              .equal(quantized::linear_relu_dynamic_fp16(x, packed)));
  }
}

TEST_CASE("float activations times small weights on a device: strides and no rows") {
  Generator generator(45);
  const quantized::LinearPackedParamsFp16 packed(randn({5, 12}, generator), Tensor());
  const WeightOnlyPackedParams small = quantize_weight_only(randn({5, 12}, generator), Tensor());
  const Tensor turned = randn({12, 3, 2}, generator).permute({1, 2, 0});
  test::check_same([&] { return quantized::linear_dynamic_fp16(turned, packed); });
  check_close(turned.contiguous(), small, linear_weight_only(turned.to(kDevice), small).cpu());
  const Tensor none = Tensor::empty({0, 12}).to(kDevice);
  CHECK(quantized::linear_dynamic_fp16(none, packed).sizes() == Dims{0, 5});
  CHECK(linear_weight_only(none, small).sizes() == Dims{0, 5});
  const Tensor halves = randn({2, 12}, generator).to(DType::Float16).to(kDevice);
  CHECK_THROWS_AS(linear_weight_only(halves, small), ArgumentError);
  // What ran on the device still runs on the CPU.
  CHECK(linear_weight_only(turned, small).device() == Device::cpu());
}

}  // namespace quanta
