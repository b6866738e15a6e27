#include "quanta/ops/fake_quantize.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "cuda/devices_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "support/test_device.h"

// Fake quantization, forward and backward: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Numbers within and beyond the codes of scale 0.02, infinities and NaN.
Tensor values(const Dims& sizes, std::uint64_t seed, DType dtype = DType::Float32) {
  Generator generator(seed);
  const Tensor x = mul_scalar(randn(sizes, generator), 2.0);
  if (x.numel() > 4) {
    float* data = x.mutable_data<float>();
    data[0] = kInfinity;
    data[1] = -kInfinity;
    data[2] = kNan;
    data[3] = 0.01F;  // half of a step
  }
  return x.to(dtype);
}

}  // namespace

TEST_CASE("cuda fake_quantize per tensor: values and gradients of any length and layout") {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16}) {
    CAPTURE(dtype);
    std::uint64_t seed = 1;
    for (const Dims& sizes : {Dims{}, Dims{1}, Dims{7}, Dims{8}, Dims{0, 3}, Dims{2, 3, 5, 4},
                              Dims{3, 17}, Dims{1, 64, 33}}) {
      CAPTURE(sizes);
      const Tensor x = values(sizes, ++seed, dtype);
      test::check_devices({x}, 1, [](const std::vector<Tensor>& in) {
        return fake_quantize_per_tensor_affine(in[0], 0.02, 117, 0, 255);
      });
      test::check_devices({x}, 0, [](const std::vector<Tensor>& in) {
        return fake_quantize_per_tensor_affine(in[0], 0.3, -3, -8, 7);
      });
    }
  }
  const Tensor image = values({2, 5, 6, 3}, 3);
  for (const Tensor& x : {image.contiguous(MemoryFormat::ChannelsLast), image.permute({0, 2, 3, 1}),
                          image.narrow(3, 1, 2), image.narrow(0, 1, 1)}) {
    test::check_devices({x}, 1, [](const std::vector<Tensor>& in) {
      return fake_quantize_per_tensor_affine(in[0], 0.02, 117, 0, 255);
    });
  }
}

TEST_CASE("cuda fake_quantize per tensor: tensors as parameters are not checked") {
  const Tensor x = values({5, 9}, 4);
  for (const float scale : {0.02F, 0.0F, kNan, -1.0F}) {
    test::check_devices(
        {x, Tensor::from_values({scale}), Tensor::from_int64(std::vector<std::int64_t>{300})}, 1,
        [](const std::vector<Tensor>& in) {
          return fake_quantize_per_tensor_affine(in[0], in[1], in[2], 0, 255);
        });
  }
  // Without need for a gradient of x, or with the switch off, nothing is there to go back through.
  const Tensor there = x.to(test::test_device());
  const Tensor one = Tensor::ones({1}).to(there.device());
  const Tensor off = Tensor::zeros({1}).to(there.device());
  CHECK(fake_quantize_per_tensor_affine(there, one, one, off, 0, 255).device_ptr() ==
        there.device_ptr());
}

TEST_CASE("cuda fake_quantize per channel: every axis and layout") {
  Generator generator(6);
  for (int i = 0; i < 30; ++i) {
    const Dims sizes{generator.integer(1, 4), generator.integer(1, 48), generator.integer(1, 7),
                     generator.integer(1, 5)};
    CAPTURE(sizes);
    const std::int64_t axis = generator.integer(0, 3);
    const std::int64_t channels = sizes[static_cast<std::size_t>(axis)];
    Tensor x = values(sizes, static_cast<std::uint64_t>(i));
    if (i % 3 == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    const Tensor scale = Tensor::empty({channels});
    std::vector<std::int64_t> zero_points;
    for (std::int64_t c = 0; c < channels; ++c) {
      scale.mutable_data<float>()[c] = 0.01F + 0.013F * static_cast<float>(c);
      zero_points.push_back(generator.integer(-16, 15));
    }
    Tensor zero_point = Tensor::from_int64(zero_points);
    // A floating one is added before rounding.
    if (i % 2 == 0) zero_point = zero_point.to(DType::Float32);
    if (i % 4 == 0) zero_point.mutable_data<float>()[0] = 0.37F;
    test::check_devices({x, scale, zero_point}, 1, [&](const std::vector<Tensor>& in) {
      return fake_quantize_per_channel_affine(in[0], in[1], in[2], axis, -16, 15);
    });
  }
  const Tensor x = values({2, 3}, 7).to(test::test_device());
  const Tensor scale = Tensor::ones({3}).to(x.device());
  const Tensor zero_point = Tensor::full({3}, 16.0, DType::Int64).to(x.device());
  CHECK_THROWS_WITH_AS(fake_quantize_per_channel_affine(x, scale, zero_point, 1, -16, 15),
                       doctest::Contains("zero_point: expected -16..15, got 16"), ArgumentError);
  CHECK_THROWS_WITH_AS(fake_quantize_per_channel_affine(x, scale.cpu(), zero_point, 1, -16, 15),
                       doctest::Contains("expected all on one device"), ArgumentError);
}

TEST_CASE("cuda fake_quantize_learnable: sums of one scale are the CPU's") {
  std::uint64_t seed = 10;
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16}) {
    CAPTURE(dtype);
    // The CPU cuts longer tensors into blocks of 32768.
    for (const Dims& sizes :
         {Dims{1}, Dims{15}, Dims{33}, Dims{0, 2}, Dims{2, 3, 5, 4}, Dims{3, 431}, Dims{5, 8191}}) {
      CAPTURE(sizes);
      // Without infinities: sums of them say nothing.
      Generator generator(++seed);
      const Tensor x = mul_scalar(randn(sizes, generator), 2.0).to(dtype);
      for (const double zero_point : {117.3, -1.3, 300.0}) {
        test::check_devices({x, Tensor::full({1}, 0.02), Tensor::full({1}, zero_point)}, 0b111,
                            [](const std::vector<Tensor>& in) {
                              return fake_quantize_learnable_per_tensor_affine(in[0], in[1], in[2],
                                                                               -7, 255, 0.37);
                            });
        if (sizes.size() > 1) break;
      }
    }
  }
}

TEST_CASE("cuda fake_quantize_learnable: sums of channels are the CPU's") {
  Generator generator(16);
  for (int i = 0; i < 24; ++i) {
    const Dims sizes{generator.integer(1, 4), generator.integer(1, 48), generator.integer(1, 17),
                     generator.integer(1, 9)};
    CAPTURE(sizes);
    const std::int64_t axis = generator.integer(0, 3);
    const std::int64_t channels = sizes[static_cast<std::size_t>(axis)];
    Tensor x = mul_scalar(randn(sizes, generator), 2.0);
    if (i % 3 == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    if (i % 5 == 0) x = x.to(DType::Float64);
    const Tensor scale = Tensor::empty({channels});
    const Tensor zero_point = Tensor::empty({channels});
    for (std::int64_t c = 0; c < channels; ++c) {
      scale.mutable_data<float>()[c] = 0.01F + 0.013F * static_cast<float>(c);
      zero_point.mutable_data<float>()[c] = static_cast<float>(generator.integer(-20, 20)) + 0.4F;
    }
    test::check_devices({x, scale, zero_point}, i % 2 == 0 ? 0b111 : 0b010,
                        [&](const std::vector<Tensor>& in) {
                          return fake_quantize_learnable_per_channel_affine(in[0], in[1], in[2],
                                                                            axis, -16, 15, 0.5);
                        });
  }
  // NaN in the upstream gradient counts where it is.
  const Tensor x = values({3, 20}, 3);
  test::check_devices(
      {x, Tensor::full({3}, 0.02), Tensor::zeros({3})}, 0b111, [](const std::vector<Tensor>& in) {
        return fake_quantize_learnable_per_channel_affine(in[0], in[1], in[2], 0, -16, 15);
      });
}

}  // namespace quanta
