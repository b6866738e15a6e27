#include "quanta/ops/quantize_affine.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "cuda/devices_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "support/test_device.h"

// AIMET's quantizers, forward and backward: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

struct Case {
  Dims sizes;
  Dims scale;
  Dims blocks = {};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {{7}, {1}},
      {{0, 3}, {3}},
      {{2, 3, 5, 4}, {}},
      {{2, 3, 5, 4}, {3, 1, 1}},
      {{2, 3, 5, 4}, {4}},
      {{2, 3, 5, 4}, {2, 1, 5, 1}},
      {{2, 5, 1, 7}, {2, 5, 1, 7}},
      {{17, 48}, {17, 3}, {1, 16}},
      {{6, 4, 3}, {2, 4, 1}, {3, 1, 3}},
      {{4, 6}, {2, 6}, {-1, -1}},
      // Longer than a tile of the kernel, and than the rows that the CPU cuts.
      {{3, 2500}, {3, 1}},
      {{2, 8192}, {1}},
      {{67, 33}, {33}},
  };
  return kCases;
}

using Call = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AffineOptions&);

void check_case(const Case& one, Call call, AffineOptions options, DType dtype, std::uint64_t seed,
                std::uint64_t needed) {
  CAPTURE(one.sizes);
  CAPTURE(one.scale);
  CAPTURE(dtype);
  Generator generator(seed);
  Tensor x = mul_scalar(randn(one.sizes, generator), 2.0).to(dtype);
  if (seed % 3 == 0 && x.dim() == 4) x = x.contiguous(MemoryFormat::ChannelsLast);
  const Tensor scale = Tensor::empty(one.scale);
  const Tensor offset = Tensor::empty(one.scale);
  for (std::int64_t i = 0; i < scale.numel(); ++i) {
    scale.mutable_data<float>()[i] = 0.02F + 0.001F * static_cast<float>(i % 50);
    offset.mutable_data<float>()[i] = static_cast<float>(generator.integer(-30, 30));
    if (i % 4 == 3) offset.mutable_data<float>()[i] += 0.3F;
  }
  options.block_size = one.blocks;
  test::check_devices(
      {x, scale.to(dtype), offset.to(dtype)}, needed,
      [&](const std::vector<Tensor>& in) { return call(in[0], in[1], in[2], options); });
}

}  // namespace

TEST_CASE("cuda affine quantizers: values and sums of gradients for every layout of scales") {
  std::uint64_t seed = 0;
  for (const Case& one : cases()) {
    for (const Call call : {&quantize_affine, &dequantize_affine, &quantize_dequantize_affine}) {
      check_case(one, call, {.qmin = -64, .qmax = 60}, DType::Float32, ++seed, 0b111);
    }
    check_case(one, quantize_dequantize_affine, {.qmin = -64, .qmax = 60}, DType::Float32, ++seed,
               0b001);
  }
}

TEST_CASE("cuda affine quantizers: every dtype, rounding, shift and spike") {
  std::uint64_t seed = 100;
  for (const std::size_t i : {std::size_t{3}, std::size_t{7}}) {
    const Case& one = cases()[i];
    for (const DType dtype : {DType::Float64, DType::Float16, DType::BFloat16}) {
      for (const Call call : {&quantize_affine, &dequantize_affine, &quantize_dequantize_affine}) {
        // A narrow grid is calculated in the dtype itself, a wide one in float32.
        check_case(one, call, {.qmin = -8, .qmax = 7}, dtype, ++seed, 0b111);
        check_case(one, call, {.qmin = 0, .qmax = 255}, dtype, ++seed, 0b111);
      }
    }
    AffineOptions away{.qmin = -64, .qmax = 60};
    away.rounding = AffineRounding::HalfAwayFromZero;
    away.zero_point_shift = 0.5;
    check_case(one, quantize_dequantize_affine, away, DType::Float32, ++seed, 0b111);
    AffineOptions spikes{.qmin = -64, .qmax = 60};
    spikes.spike_epsilon = 0.3;
    spikes.spike_multiplier = 4.0;
    check_case(one, quantize_dequantize_affine, spikes, DType::Float32, ++seed, 0b111);
    check_case(one, quantize_dequantize_affine, spikes, DType::Float64, ++seed, 0b001);
  }
}

TEST_CASE("cuda affine quantizers: NaN stays and the reciprocal is taken where the CPU takes it") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_values({kInfinity, -kInfinity, kNan, 0.273939937F, 0.5F, -0.0F});
  for (const AffineKernel kernel : {AffineKernel::Automatic, AffineKernel::Divide}) {
    AffineOptions options{.qmin = 0, .qmax = 255};
    options.kernel = kernel;
    for (const std::uint64_t needed : {std::uint64_t{0}, std::uint64_t{1}}) {
      test::check_devices({x, Tensor::scalar(0.00214854861), Tensor::scalar(-100.0)}, needed,
                          [&](const std::vector<Tensor>& in) {
                            return quantize_dequantize_affine(in[0], in[1], in[2], options);
                          });
    }
  }
  AffineOptions options;
  options.kernel = AffineKernel::InverseMultiply;
  const Device device = test::test_device();
  CHECK_THROWS_WITH_AS(quantize_dequantize_affine(x.to(device), Tensor::scalar(0.1).to(device),
                                                  Tensor::scalar(0.5).to(device), options),
                       doctest::Contains("kernel: expected what InverseMultiply can do"),
                       ArgumentError);
}

}  // namespace quanta
