#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quanta/ops/cuda/range.h"
#include "quanta/ops/linear/dynamic_fused.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Dynamic linear layers: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

using quantized::LinearPackedParams;
using quantized::ReduceRange;

const Device kDevice = test::test_device();

LinearPackedParams random_layer(std::int64_t out, std::int64_t in, Generator& generator) {
  const Tensor values = randn({out, in}, generator);
  const Tensor bias = generator.integer(0, 2) == 0 ? Tensor() : randn({out}, generator);
  const bool with_zero_points = generator.integer(0, 2) == 0;
  if (generator.integer(0, 1) == 0) {
    return {quantize_per_tensor(values, 0.03, with_zero_points ? generator.integer(-20, 20) : 0,
                                DType::QInt8),
            bias};
  }
  const Tensor scales = Tensor::empty({out});
  const Tensor zero_points = Tensor::zeros({out}, DType::Int64);
  for (std::int64_t n = 0; n < out; ++n) {
    scales.mutable_data<float>()[n] = 0.01F + 0.001F * static_cast<float>(n % 7);
    if (with_zero_points) {
      zero_points.mutable_data<std::int64_t>()[n] = generator.integer(-128, 127);
    }
  }
  return {quantize_per_channel(values, scales, zero_points, 0, DType::QInt8), bias};
}

// Floats whose range holds 0 or not, of any size.
Tensor random_rows(const Dims& sizes, Generator& generator) {
  const Tensor x = randn(sizes, generator);
  const auto shift = static_cast<float>(generator.integer(-3, 3));
  const float factor = generator.integer(0, 1) == 0 ? 1.0F : 1e-3F;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    float& value = x.mutable_data<float>()[i];
    value = (value + shift) * factor;
  }
  return x;
}

bool is_all_nan(const Tensor& x) {
  const Tensor here = x.cpu();
  const float* values = here.data<float>();
  return std::all_of(values, values + here.numel(), [](float v) { return std::isnan(v); });
}

}  // namespace

TEST_CASE("dynamic linear layers on a device: the CPU's floats") {
  Generator generator(11);
  for (int round = 0; round < 40; ++round) {
    const std::int64_t rows = generator.integer(1, 70);
    const std::int64_t in = generator.integer(1, 100);
    const std::int64_t out = generator.integer(1, 80);
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    const LinearPackedParams packed = random_layer(out, in, generator);
    const ReduceRange reduce_range =
        generator.integer(0, 1) == 0 ? ReduceRange::Yes : ReduceRange::No;
    const Tensor x = random_rows({rows, in}, generator);
    const Tensor addend = randn({rows, out}, generator);
    const Tensor there = x.to(kDevice);
    CHECK(quantized::linear_dynamic(there, packed, reduce_range)
              .cpu()
              .equal(quantized::linear_dynamic(x, packed, reduce_range)));
    CHECK(quantized::linear_relu_dynamic(there, packed, reduce_range)
              .cpu()
              .equal(quantized::linear_relu_dynamic(x, packed, reduce_range)));
    CHECK(quantized::detail::linear_gelu_dynamic(there, packed, reduce_range)
              .cpu()
              .equal(quantized::detail::linear_gelu_dynamic(x, packed, reduce_range)));
    CHECK(quantized::detail::linear_add_dynamic(there, packed, reduce_range, addend.to(kDevice))
              .cpu()
              .equal(quantized::detail::linear_add_dynamic(x, packed, reduce_range, addend)));
  }
}

TEST_CASE("dynamic linear layers on a device: several weights of one input, in any layout") {
  Generator generator(12);
  const LinearPackedParams first = random_layer(9, 24, generator);
  const LinearPackedParams second = random_layer(65, 24, generator);
  const std::vector<const LinearPackedParams*> both{&first, &second};
  const Tensor x = random_rows({24, 3, 5}, generator).permute({1, 2, 0});
  const auto expected = quantized::detail::linear_each_dynamic(x, both, ReduceRange::No);
  const auto given = quantized::detail::linear_each_dynamic(x.to(kDevice), both, ReduceRange::No);
  REQUIRE(given.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) CHECK(given[i].cpu().equal(expected[i]));
}

TEST_CASE("dynamic linear layers on a device: a range that many blocks look for") {
  Generator generator(13);
  const LinearPackedParams packed = random_layer(2, 513, generator);
  for (const std::int64_t place : {0, 8191, 8192, 513 * 40 - 1}) {
    const Tensor x = randn({40, 513}, generator);
    x.mutable_data<float>()[place] = place % 2 == 0 ? 19.0F : -19.0F;
    CHECK(quantized::linear_dynamic(x.to(kDevice), packed)
              .cpu()
              .equal(quantized::linear_dynamic(x, packed)));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      // The CPU refuses it by name; a device does not wait to look.
      x.mutable_data<float>()[place] = bad;
      CHECK(is_all_nan(quantized::linear_dynamic(x.to(kDevice), packed)));
      CHECK(is_all_nan(quantized::linear_relu_dynamic(x.to(kDevice), packed)));
      CHECK_THROWS_AS(quantized::linear_dynamic(x, packed), ArgumentError);
    }
  }
}

TEST_CASE("dynamic linear layers: NaN passes whatever follows") {
  Generator generator(16);
  const LinearPackedParams packed = random_layer(64, 512, generator);
  const Tensor x = randn({40, 512}, generator);
  x.mutable_data<float>()[7777] = -std::numeric_limits<float>::infinity();
  const Tensor there = x.to(kDevice);
  CHECK(is_all_nan(quantized::linear_dynamic(there, packed)));
  CHECK(is_all_nan(quantized::linear_relu_dynamic(there, packed)));
  CHECK(is_all_nan(quantized::detail::linear_gelu_dynamic(there, packed, ReduceRange::No)));
  const Tensor addend = randn({40, 64}, generator).to(kDevice);
  CHECK(is_all_nan(quantized::detail::linear_add_dynamic(there, packed, ReduceRange::No, addend)));
}

TEST_CASE("the range of floats on a device: a NaN anywhere stays") {
  for (const std::int64_t count : {1, 31, 257, 9000}) {
    const Tensor x = Tensor::full({count}, -2.0);
    x.mutable_data<float>()[count - 1] = 3.0F;
    const auto range_of = [count](const Tensor& floats) {
      const Tensor there = floats.to(kDevice);
      return cuda::range_of(kDevice, reinterpret_cast<const float*>(there.device_ptr()), count);
    };
    CHECK(range_of(x).min == (count == 1 ? 3.0F : -2.0F));
    CHECK(range_of(x).max == 3.0F);
    x.mutable_data<float>()[count / 2] = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(range_of(x).min));
    CHECK(std::isnan(range_of(x).max));
  }
}

TEST_CASE("dynamic linear layers on a device: no rows, and the CPU again") {
  Generator generator(14);
  const LinearPackedParams packed = random_layer(7, 5, generator);
  const Tensor none = Tensor::empty({0, 5});
  CHECK(quantized::linear_dynamic(none.to(kDevice), packed).sizes() == Dims{0, 7});
  const Tensor x = randn({2, 5}, generator).to(kDevice);
  // A layer that ran on the device still runs on the CPU.
  quantized::linear_dynamic(x, packed);
  CHECK(quantized::linear_dynamic(x.cpu(), packed).device() == Device::cpu());
}

}  // namespace quanta
