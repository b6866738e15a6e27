#include "quanta/ops/tensor_quant.h"

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <vector>

#include "cuda/devices_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/block_quant.h"
#include "quanta/runtime/error.h"
#include "support/test_device.h"

// Quantizers that are described by amax: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const Device kDevice = test::test_device();

struct Case {
  Dims sizes;
  Dims amax;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{{{7}, {}},           {{0, 3}, {3}},
                                        {{2, 3, 5, 4}, {1}}, {{2, 3, 5, 4}, {3, 1, 1}},
                                        {{2, 5, 1, 7}, {7}}, {{17, 3, 16}, {17, 3, 1}},
                                        {{3, 1100}, {3, 1}}};
  return kCases;
}

Tensor values(const Dims& sizes, std::uint64_t seed, DType dtype) {
  Generator generator(seed);
  const Tensor x = mul_scalar(randn(sizes, generator), 2.0);
  if (x.numel() > 4) {
    float* data = x.mutable_data<float>();
    data[0] = kInfinity;
    data[1] = -kInfinity;
    data[2] = kNan;
    data[3] = -0.0F;
  }
  return x.to(dtype);
}

Tensor maxima(const Dims& sizes, std::uint64_t seed, DType dtype) {
  Generator generator(seed);
  Tensor amax = Tensor::empty(sizes);
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    // Some count as 0.
    amax.mutable_data<float>()[i] =
        generator.integer(0, 9) == 0 ? 0.0F : 0.25F * static_cast<float>(generator.integer(1, 20));
  }
  return amax.to(dtype);
}

// call(x, amax) for each kind of x and amax.
template <typename Call>
void check_all(std::uint64_t needed, Call&& call) {
  std::uint64_t seed = 1;
  for (const Case& one : cases()) {
    CAPTURE(one.sizes);
    for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16, DType::Float64}) {
      CAPTURE(dtype);
      Tensor x = values(one.sizes, ++seed, dtype);
      if (x.dim() == 4 && seed % 2 == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
      test::check_devices({x, maxima(one.amax, seed, dtype)}, needed,
                          [&](const std::vector<Tensor>& in) { return call(in[0], in[1]); });
    }
  }
}

}  // namespace

TEST_CASE("cuda tensor_quant: codes and what they are divided by") {
  for (const TensorQuantOptions& options :
       {TensorQuantOptions{}, TensorQuantOptions{.num_bits = 4, .narrow_range = false}}) {
    check_all(1, [&](const Tensor& x, const Tensor& amax) {
      return tensor_quant(x, amax, options).values;
    });
    check_all(0, [&](const Tensor& x, const Tensor& amax) {
      return tensor_quant(x, amax, options).scale;
    });
    check_all(0, [&](const Tensor& x, const Tensor& amax) {
      return tensor_quant(x, amax, options, DType::Int32).values;
    });
    check_all(1, [&](const Tensor& x, const Tensor& amax) {
      return legacy_fake_tensor_quant(x, amax, options);
    });
  }
}

TEST_CASE("cuda tensor quantizers: a learned amax gets the gradient it gets on the CPU") {
  check_all(3, [](const Tensor& x, const Tensor& amax) { return fake_tensor_quant(x, amax); });
  check_all(3,
            [](const Tensor& x, const Tensor& amax) { return legacy_fake_tensor_quant(x, amax); });
  check_all(2, [](const Tensor& x, const Tensor& amax) { return scaled_e4m3(x, amax); });
  check_all(3, [](const Tensor& x, const Tensor& amax) { return static_fp4(x, amax); });
}

TEST_CASE("cuda fake_tensor_quant: with and without bias and clipped gradients") {
  for (const GradientRule rule : {GradientRule::Clip, GradientRule::PassThrough}) {
    check_all(1, [&](const Tensor& x, const Tensor& amax) {
      return fake_tensor_quant(x, amax, {.codes = {.num_bits = 6}, .gradient = rule});
    });
    check_all(1, [&](const Tensor& x, const Tensor& amax) {
      const Tensor bias = Tensor::full({x.size(-1)}, 0.125, x.dtype()).to(x.device());
      return fake_tensor_quant(x, amax, {.gradient = rule, .bias = bias});
    });
  }
}

TEST_CASE("cuda tensor_quant: what the CPU refuses is refused") {
  const Tensor x = Tensor::from_values({1.0F, kNan, -2.0F}).to(kDevice);
  const Tensor one = Tensor::scalar(1.0).to(kDevice);
  const TensorQuantOptions codes{.is_unsigned = true};
  CHECK_THROWS_WITH_AS(
      fake_tensor_quant(Tensor::from_values({1.0F, -2.0F}).to(kDevice), one, {.codes = codes}),
      doctest::Contains("no negative values for unsigned codes, got -2"), ArgumentError);
  CHECK_NOTHROW(
      fake_tensor_quant(Tensor::from_values({1.0F, 2.0F}).to(kDevice), one, {.codes = codes}));
  // A NaN beside it hides no negative amax.
  CHECK_THROWS_WITH_AS(fake_tensor_quant(x, x), doctest::Contains("amax: expected no negative"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(tensor_quant(Tensor::ones({2}).to(DType::Float16).to(kDevice),
                                    Tensor::scalar(1e-6).to(DType::Float32).to(kDevice)),
                       doctest::Contains("expected scales within Float16"), ArgumentError);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(x, one.cpu()),
                       doctest::Contains("expected all on one device"), ArgumentError);
}

TEST_CASE("cuda affine grids and casts: values and gradients within the range") {
  check_all(1, [](const Tensor& x, const Tensor&) {
    const Tensor low = Tensor::scalar(-1.0).to(x.device());
    return fake_affine_tensor_quant(x, low, Tensor::scalar(2.5).to(x.device()), 6);
  });
  check_all(
      1, [](const Tensor& x, const Tensor&) { return fake_affine_tensor_quant(x, -1.0, 2.5, 6); });
  check_all(1, [](const Tensor& x, const Tensor&) { return int_cast_ste(x, {.num_bits = 2}); });
  check_all(1, [](const Tensor& x, const Tensor&) { return fp4_cast_ste(x); });
}

TEST_CASE("cuda float formats: scaled_e4m3 and static_fp4") {
  for (const GradientRule rule : {GradientRule::Clip, GradientRule::PassThrough}) {
    check_all(1, [&](const Tensor& x, const Tensor& amax) {
      return scaled_e4m3(x, amax, {.gradient = rule});
    });
    check_all(1, [&](const Tensor& x, const Tensor& amax) {
      return static_fp4(x, amax, {.gradient = rule});
    });
  }
  check_all(1, [](const Tensor& x, const Tensor&) { return scaled_e4m3(x); });
  check_all(0, [](const Tensor& x, const Tensor& amax) {
    const Tensor global = Tensor::scalar(3.5).to(x.device());
    StaticFp4Options options{.global_amax = global};
    options.scale.fp8_max = 256.0;
    return static_fp4(x, amax, options);
  });
}

TEST_CASE("cuda dynamic_block_quant: every format and length of blocks") {
  const std::vector<NumBits> formats{
      NumBits::integer(8),     NumBits::integer(4),     NumBits::integer(3),
      NumBits::floating(4, 3), NumBits::floating(5, 2), NumBits::floating(3, 2),
      NumBits::floating(2, 3), NumBits::floating(2, 1), NumBits::floating(1, 2),
      NumBits::floating(0, 3), NumBits::floating(3, 0)};
  const std::vector<std::optional<NumBits>> scales{NumBits::floating(8, 0), NumBits::floating(4, 3),
                                                   std::nullopt};
  std::uint64_t seed = 1;
  for (const NumBits& format : formats) {
    for (const std::optional<NumBits>& scale : scales) {
      for (const std::int64_t block : {1, 15, 16, 32, 100}) {
        for (const bool has_amax : {false, true}) {
          DynamicBlockOptions options;
          options.num_bits = format;
          options.scale_bits = scale;
          options.block_size = block;
          options.gradient = GradientRule::Clip;
          const DType dtype = seed % 4 == 0 ? DType::BFloat16 : DType::Float32;
          const Tensor x = values({3, 2, 41}, ++seed, dtype);
          const Tensor amax = has_amax ? Tensor::from_values({1.5F, 3.0F}) : Tensor();
          test::check_devices({x, amax}, 1, [&](const std::vector<Tensor>& in) {
            return dynamic_block_quant(in[0], in[1], options);
          });
          if (block != 16) continue;
          test::check_devices({x, amax}, 0, [&](const std::vector<Tensor>& in) {
            return dynamic_block_quant_with_scales(in[0], in[1], options).scales;
          });
        }
      }
    }
  }
  // Blocks of zeros, and a tensor without elements.
  test::check_devices({Tensor::zeros({2, 32})}, 1,
                      [](const std::vector<Tensor>& in) { return dynamic_block_quant(in[0]); });
  test::check_devices({Tensor::zeros({0, 32})}, 0,
                      [](const std::vector<Tensor>& in) { return dynamic_block_quant(in[0]); });
}

}  // namespace quanta
