#include "quanta/ops/tensor_quant.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/detail/element_format.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/quantizer_meta.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/block_math.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/gradcheck.h"
#include "support/compare.h"

namespace quanta {
namespace {

using test::check_same;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor random_tensor(std::mt19937& rng, const Dims& sizes, float spread = 3.0F) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(static_cast<std::size_t>(product(sizes)));
  for (float& value : values) value = normal(rng);
  return Tensor::from_values(values, sizes);
}

Tensor max_magnitude(const Tensor& x) { return max(abs(x)); }

Tensor random_amax(std::mt19937& rng, const Dims& sizes) {
  std::uniform_real_distribution<float> uniform(0.1F, 5.0F);
  std::vector<float> values(static_cast<std::size_t>(product(sizes)));
  for (float& value : values) value = uniform(rng);
  return Tensor::from_values(values, sizes);
}

struct Shapes {
  Dims x, amax;
};
// One amax, channels first, in the middle and last, blocks, lengths that fill no vector, no
// elements.
const Shapes kShapes[] = {{{7}, {}},
                          {{1}, {1}},
                          {{3, 37}, {3, 1}},
                          {{5, 19}, {19}},
                          {{2, 3, 17}, {3, 1}},
                          {{4, 6, 16}, {4, 6, 1}},
                          {{2, 5, 3}, {2, 1, 3}},
                          {{0, 4}, {}},
                          {{40000}, {}}};

TEST_CASE("tensor quantizers: vectors give the scalar functions' numbers bit for bit") {
  std::mt19937 rng(11);
  for (const Shapes& shapes : kShapes) {
    Tensor x = random_tensor(rng, shapes.x);
    if (x.numel() > 3) {
      x.mutable_data<float>()[0] = kNan;
      x.mutable_data<float>()[1] = kInfinity;
      x.mutable_data<float>()[2] = -0.0F;
    }
    const Tensor amax = random_amax(rng, shapes.amax);
    const std::vector<float> each = amax.expand(shapes.x).to_float_vector();
    const std::vector<float> values = x.to_float_vector();
    const math::AmaxGrid grid = math::amax_grid(4, false, false);
    std::vector<float> fake, fp8, fp4;
    for (std::size_t i = 0; i < values.size(); ++i) {
      fake.push_back(math::fake_tensor_quant(values[i], each[i], grid));
      fp8.push_back(math::scaled_e4m3(values[i], each[i]));
      fp4.push_back(math::static_fp4(values[i], each[i] / 6.0F));
    }
    check_same(fake_tensor_quant(x, amax, {{4, false, false}}), fake);
    check_same(scaled_e4m3(x, amax), fp8);
    StaticFp4Options options;
    options.scale.quantize_block_scales = false;
    check_same(static_fp4(x, amax, options), fp4);
  }
}

TEST_CASE("tensor_quant: codes are whole numbers within their range and scale gives values back") {
  std::mt19937 rng(12);
  for (const std::int64_t bits : {2, 3, 8, 16}) {
    for (const bool narrow : {false, true}) {
      const Tensor x = random_tensor(rng, {9, 21});
      const Tensor amax = random_amax(rng, {9, 1});
      const TensorQuantResult result = tensor_quant(x, amax, {bits, false, narrow});
      const double high = std::ldexp(1.0, static_cast<int>(bits - 1)) - 1.0;
      CHECK(max(result.values).item() <= high);
      CHECK(min(result.values).item() >= -high - (narrow ? 0.0 : 1.0));
      for (const float code : result.values.to_float_vector()) CHECK(code == std::nearbyint(code));
      const std::vector<float> again =
          legacy_fake_tensor_quant(x, amax, {bits, false, narrow}).to_float_vector();
      check_same(fake_tensor_quant(x, amax, {{bits, false, narrow}}), again);
    }
  }
}

TEST_CASE("dynamic_block_quant: blocks longer than a row are the row") {
  std::mt19937 rng(5);
  const Tensor x = random_tensor(rng, {3, 17});
  const auto blocks_of = [&](std::int64_t size) {
    return dynamic_block_quant(x, {}, {.block_size = size});
  };
  CHECK(blocks_of(std::numeric_limits<std::int64_t>::max()).equal(blocks_of(17)));
}

TEST_CASE("fake_tensor_quant: quantizing twice changes nothing") {
  std::mt19937 rng(13);
  const Tensor x = random_tensor(rng, {33, 65});
  const Tensor amax = random_amax(rng, {33, 1});
  const Tensor once = fake_tensor_quant(x, amax);
  check_same(fake_tensor_quant(once, amax), once.to_float_vector());
  const Tensor fp8 = scaled_e4m3(x, Tensor::scalar(448.0));
  check_same(scaled_e4m3(fp8, Tensor::scalar(448.0)), fp8.to_float_vector());
}

TEST_CASE("fake_tensor_quant: an amax that counts as 0 gives zeros and an infinite one NaN") {
  const Tensor x = Tensor::from_values({1.0F, -2.0F, 0.0F});
  check_same(fake_tensor_quant(x, Tensor::scalar(0.0)), {0.0F, -0.0F, 0.0F});
  check_same(fake_tensor_quant(x, Tensor::scalar(std::ldexp(1.0, -24))), {0.0F, -0.0F, 0.0F});
  check_same(fake_tensor_quant(x, Tensor::from_values({kInfinity})), {kNan, kNan, kNan});
}

TEST_CASE("tensor quantizers: permuted and strided inputs give the numbers of dense ones") {
  std::mt19937 rng(14);
  const Tensor x = random_tensor(rng, {6, 5, 8});
  const Tensor view = x.permute({2, 0, 1}).slice(0, 1, 8, 2);
  const Tensor amax = random_amax(rng, {1, 6, 1});
  check_same(fake_tensor_quant(view, amax),
             fake_tensor_quant(view.contiguous(), amax).to_float_vector());
  const Tensor images = random_tensor(rng, {2, 3, 4, 5}).contiguous(MemoryFormat::ChannelsLast);
  const Tensor channels = random_amax(rng, {3, 1, 1});
  const Tensor y = fake_tensor_quant(images, channels);
  CHECK(y.is_contiguous(MemoryFormat::ChannelsLast));
  check_same(y, fake_tensor_quant(images.contiguous(), channels).to_float_vector());
}

TEST_CASE("tensor quantizers: half types are rounded once in the current form") {
  std::mt19937 rng(15);
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float64}) {
    const Tensor x = random_tensor(rng, {50}).to(dtype);
    const Tensor amax = Tensor::scalar(4.0);
    const Tensor y = fake_tensor_quant(x, amax);
    CHECK(y.dtype() == dtype);
    check_same(y, fake_tensor_quant(x.to(DType::Float32), amax).to(dtype).to_float_vector());
    CHECK(legacy_fake_tensor_quant(x, amax).dtype() == dtype);
    CHECK(scaled_e4m3(x, amax).dtype() == dtype);
    CHECK(dynamic_block_quant(x).dtype() == dtype);
  }
}

// Gradients
// -----------------------------------------------------------------------------------------

std::vector<float> gradient_of(const Tensor& x, const Tensor& y, const Tensor& gradient) {
  y.backward(gradient);
  return x.grad().to_float_vector();
}

TEST_CASE("tensor quantizers: gradients are 0 beyond amax and pass everywhere if asked") {
  const Tensor values = Tensor::from_values({-3.0F, -2.0F, 0.5F, 2.0F, 2.5F, kNan});
  const Tensor upstream = Tensor::from_values({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
  const std::vector<float> clipped = {0.0F, 2.0F, 3.0F, 4.0F, 0.0F, 0.0F};
  const Tensor amax = Tensor::scalar(2.0);
  const auto leaf = [&] {
    Tensor x = values.clone();
    x.set_requires_grad();
    return x;
  };
  Tensor x = leaf();
  CHECK(gradient_of(x, tensor_quant(x, amax).values, upstream) == clipped);
  x = leaf();
  CHECK(gradient_of(x, legacy_fake_tensor_quant(x, amax), upstream) == clipped);
  x = leaf();
  CHECK(gradient_of(x, pytorch_quantization::fake_tensor_quant(x, amax), upstream) == clipped);
  x = leaf();
  CHECK(gradient_of(x, fake_tensor_quant(x, amax), upstream) == clipped);
  x = leaf();
  CHECK(gradient_of(x, scaled_e4m3(x, amax), upstream) == clipped);
  x = leaf();
  CHECK(gradient_of(x, static_fp4(x, amax), upstream) == clipped);
  constexpr GradientRule kPass = GradientRule::PassThrough;
  x = leaf();
  CHECK(gradient_of(x, fake_tensor_quant(x, amax, {{}, kPass}), upstream) ==
        upstream.to_float_vector());
  x = leaf();
  CHECK(gradient_of(x, pytorch_quantization::fake_tensor_quant(x, amax, {}, kPass), upstream) ==
        upstream.to_float_vector());
  x = leaf();
  CHECK(gradient_of(x, scaled_e4m3(x, amax, {kPass}), upstream) == upstream.to_float_vector());
  x = leaf();
  CHECK(gradient_of(x, scaled_e4m3(x), upstream) == upstream.to_float_vector());
  x = leaf();
  DynamicBlockOptions blocks;
  blocks.gradient = GradientRule::Clip;
  CHECK(gradient_of(x, dynamic_block_quant(x, amax, blocks), upstream) == clipped);
  x = leaf();
  CHECK(gradient_of(x, dynamic_block_quant(x), upstream) == upstream.to_float_vector());
  x = leaf();
  CHECK(gradient_of(x, fp4_cast_ste(x * Tensor::scalar(3.0)), upstream) ==
        std::vector<float>{0.0F, 6.0F, 9.0F, 12.0F, 0.0F, 0.0F});
  x = leaf();
  CHECK(gradient_of(x, fake_affine_tensor_quant(x, Tensor::scalar(-2.0), amax), upstream) ==
        clipped);
  x = leaf();
  CHECK(gradient_of(x, int_cast_ste(x, {2, false, false}), upstream) ==
        std::vector<float>{0.0F, 2.0F, 3.0F, 0.0F, 0.0F, 0.0F});
}

TEST_CASE("tensor quantizers: a learned amax gets what the elements beyond it lose") {
  std::mt19937 rng(18);
  using Call = Tensor (*)(const Tensor&, const Tensor&);
  const Call calls[] = {
      [](const Tensor& x, const Tensor& amax) { return fake_tensor_quant(x, amax); },
      [](const Tensor& x, const Tensor& amax) { return legacy_fake_tensor_quant(x, amax); },
      [](const Tensor& x, const Tensor& amax) { return scaled_e4m3(x, amax); },
      [](const Tensor& x, const Tensor& amax) { return static_fp4(x, amax); }};
  for (const Call call : calls) {
    for (const Shapes& shapes : kShapes) {
      const Tensor x = random_tensor(rng, shapes.x);
      Tensor amax = random_amax(rng, shapes.amax);
      const std::vector<float> each = amax.expand(shapes.x).to_float_vector();
      amax.set_requires_grad();
      const Tensor upstream = random_tensor(rng, shapes.x);
      call(x, amax).backward(upstream);
      std::vector<float> wanted;
      const std::vector<float> values = x.to_float_vector();
      const std::vector<float> grads = upstream.to_float_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float sign = values[i] > each[i] ? 1.0F : values[i] < -each[i] ? -1.0F : 0.0F;
        wanted.push_back(sign * grads[i]);
      }
      const Tensor sums = autograd::sum_to_size(Tensor::from_values(wanted, shapes.x), shapes.amax);
      CHECK(amax.grad().sizes() == shapes.amax);
      CHECK(amax.grad().equal(sums));
    }
  }
  // An infinite gradient within the range changes nothing, nor does NaN.
  Tensor amax = Tensor::scalar(1.0, DType::Float64);
  amax.set_requires_grad();
  const Tensor x = Tensor::from_values({0.5F, kNan, 4.0F, -1.0F});
  fake_tensor_quant(x, amax).backward(Tensor::from_values({kInfinity, 3.0F, 0.25F, kInfinity}));
  CHECK(amax.grad().dtype() == DType::Float64);
  CHECK(amax.grad().item() == 0.25);
}

TEST_CASE("tensor_quant: codes come as Int32 or Float32 where they are asked for") {
  std::mt19937 rng(19);
  for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16, DType::Float64}) {
    Tensor x = random_tensor(rng, {7, 5}).to(dtype);
    const Tensor amax = random_amax(rng, {7, 1});
    const TensorQuantOptions options{.num_bits = 6};
    const Tensor plain = tensor_quant(x, amax, options).values;
    const TensorQuantResult whole = tensor_quant(x, amax, options, DType::Int32);
    CHECK(whole.values.dtype() == DType::Int32);
    CHECK(whole.scale.dtype() == dtype);
    CHECK(whole.values.to_float_vector() == plain.to_float_vector());
    x.set_requires_grad();
    CHECK(!tensor_quant(x, amax, options, DType::Int32).values.requires_grad());
    const Tensor wide = tensor_quant(x, amax, options, DType::Float32).values;
    CHECK(wide.dtype() == DType::Float32);
    CHECK(wide.detach().to_float_vector() == plain.to_float_vector());
    wide.backward(Tensor::ones({7, 5}));
    CHECK(x.grad().dtype() == dtype);
  }
  const Tensor edge = Tensor::from_values({kNan, kInfinity, -kInfinity, 1.0F});
  CHECK(tensor_quant(edge, Tensor::scalar(1.0), {25}, DType::Int32).values.to_int64_vector() ==
        std::vector<std::int64_t>{0, 16777215, -16777215, 16777215});
}

TEST_CASE("fake_affine_tensor_quant: plain numbers are the ends of the range as tensors are") {
  std::mt19937 rng(20);
  const Tensor x = random_tensor(rng, {40});
  CHECK(fake_affine_tensor_quant(x, -1.0, 2.5, 6)
            .equal(fake_affine_tensor_quant(x, Tensor::scalar(-1.0), Tensor::scalar(2.5), 6)));
  CHECK_THROWS_WITH_AS(fake_affine_tensor_quant(x, 1.0, 1.0), doctest::Contains("max_range"),
                       ArgumentError);
}

TEST_CASE("quantizer meta: sizes and dtype are the function's and need neither memory nor work") {
  const Dims huge{std::int64_t{1} << 30, std::int64_t{1} << 20};
  const Tensor x = meta::empty(huge, DType::Float16);
  const Tensor amax = meta::empty({huge[0], 1});
  CHECK(meta::fake_tensor_quant(x, amax).sizes() == huge);
  CHECK(scaled_e4m3_abstract(x, amax).dtype() == DType::Float16);
  CHECK(scaled_e4m3_abstract(x).sizes() == huge);
  std::mt19937 rng(21);
  const Tensor small = random_tensor(rng, {3, 32}).to(DType::BFloat16);
  const Tensor rows = random_amax(rng, {3, 1});
  const auto check = [](const Tensor& got, const Tensor& wanted) {
    CHECK(got.sizes() == wanted.sizes());
    CHECK(got.dtype() == wanted.dtype());
  };
  check(meta::fake_tensor_quant(small, rows), fake_tensor_quant(small, rows));
  check(meta::legacy_fake_tensor_quant(small, rows), legacy_fake_tensor_quant(small, rows));
  check(meta::fake_affine_tensor_quant(small), fake_affine_tensor_quant(small, -1.0, 1.0));
  check(meta::scaled_e4m3(small, rows), scaled_e4m3(small, rows));
  check(meta::static_fp4(small, rows), static_fp4(small, rows));
  check(meta::dynamic_block_quant(small), dynamic_block_quant(small));
  const TensorQuantResult codes = tensor_quant(small, rows, {}, DType::Int32);
  check(meta::tensor_quant(small, rows, {}, DType::Int32).values, codes.values);
  check(meta::tensor_quant(small, rows, {}, DType::Int32).scale, codes.scale);
  CHECK_THROWS_WITH_AS(meta::fake_tensor_quant(x, meta::empty({7})),
                       doctest::Contains("fake_tensor_quant: amax: expected sizes"), ArgumentError);
}

TEST_CASE("fake_tensor_quant: the gradient's mask looks at x without its bias") {
  Tensor x = Tensor::from_values({3.0F, 0.0F});
  x.set_requires_grad();
  FakeTensorQuantOptions options;
  options.bias = Tensor::from_values({2.5F});
  const Tensor y = fake_tensor_quant(x, Tensor::scalar(1.0), options);
  CHECK(gradient_of(x, y, Tensor::ones({2})) == std::vector<float>{1.0F, 0.0F});
}

TEST_CASE("clip: gradients of x and both bounds are those of finite differences") {
  std::mt19937 rng(16);
  for (const Dims& sizes : {Dims{}, Dims{7}, Dims{3, 5}}) {
    const Tensor x = random_tensor(rng, sizes).to(DType::Float64);
    const Tensor low = Tensor::scalar(-1.0, DType::Float64);
    const Tensor high = Tensor::full({1}, 1.25, DType::Float64);
    for (const Tensor& input : {x, low, high}) input.set_requires_grad();
    CHECK(autograd::gradcheck([](std::span<const Tensor> in) { return clip(in[0], in[1], in[2]); },
                              {x, low, high}));
  }
  // Bounds of each row and of each column.
  const Tensor x = random_tensor(rng, {3, 5}).to(DType::Float64);
  const Tensor low = Tensor::full({3, 1}, -0.75, DType::Float64);
  const Tensor high = Tensor::full({5}, 0.5, DType::Float64);
  for (const Tensor& input : {x, low, high}) input.set_requires_grad();
  CHECK(autograd::gradcheck([](std::span<const Tensor> in) { return clip(in[0], in[1], in[2]); },
                            {x, low, high}));
}

// Dynamic blocks
// ------------------------------------------------------------------------------------

const NumBits kElements[] = {
    NumBits::integer(8),     NumBits::integer(4),     NumBits::integer(2),
    NumBits::integer(3),     NumBits::floating(4, 3), NumBits::floating(5, 2),
    NumBits::floating(3, 2), NumBits::floating(2, 3), NumBits::floating(2, 1),
    NumBits::floating(1, 2), NumBits::floating(0, 3), NumBits::floating(3, 0)};

TEST_CASE("dynamic_block_quant: every element is the nearest number of its block's grid") {
  std::mt19937 rng(17);
  for (const NumBits& bits : kElements) {
    for (const std::int64_t block : {4, 16, 32}) {
      const Tensor x = random_tensor(rng, {3, 45});
      DynamicBlockOptions options{bits, NumBits::floating(8, 0), block};
      const BlockQuantized result = dynamic_block_quant_with_scales(x, {}, options);
      check_same(dynamic_block_quant(x, {}, options), result.values.to_float_vector());
      const std::int64_t blocks = (45 + block - 1) / block;
      REQUIRE(result.scales.sizes() == Dims{3, blocks});
      for (std::int64_t row = 0; row < 3; ++row) {
        for (std::int64_t i = 0; i < 45; ++i) {
          const auto scale = static_cast<float>(result.scales[row][i / block].item());
          CHECK(std::log2(scale) == std::nearbyint(std::log2(scale)));
          // Values within the block's largest, so nothing saturates and the error stays within half
          // a step of the widest binade.
          const double error = std::fabs(x[row][i].item() - result.values[row][i].item());
          const double amax = std::fabs(x[row][i].item());
          CHECK(error <= std::max(amax * 0.5, 0.51 * static_cast<double>(scale)));
        }
      }
      // The same again: what is on the grid stays.
      check_same(dynamic_block_quant(result.values, {}, options), result.values.to_float_vector());
    }
  }
}

TEST_CASE("dynamic_block_quant: without scale_bits a block's largest element comes back exactly") {
  std::mt19937 rng(22);
  for (const NumBits& bits : kElements) {
    for (const std::int64_t block : {5, 16, 70}) {
      const Tensor x = random_tensor(rng, {4, 53});
      const DynamicBlockOptions options{bits, std::nullopt, block};
      const BlockQuantized result = dynamic_block_quant_with_scales(x, {}, options);
      math::BlockFormat format;
      format.element = *detail::element_format(bits);
      format.kind = math::BlockScaleKind::Unrounded;
      const float max = format.element.max();
      for (std::int64_t row = 0; row < 4; ++row) {
        for (std::int64_t begin = 0; begin < 53; begin += block) {
          const std::int64_t end = std::min<std::int64_t>(begin + block, 53);
          const std::vector<float> values = x[row].slice(0, begin, end).to_float_vector();
          float amax = 0.0F;
          for (const float each : values) amax = std::max(amax, std::fabs(each));
          CHECK(result.scales[row][begin / block].item() == static_cast<double>(amax / max));
          std::vector<float> wanted;
          for (const float each : values) {
            wanted.push_back(math::round_block_element(each * (max / amax), format.element) *
                             (amax / max));
          }
          const Tensor got = result.values[row].slice(0, begin, end).contiguous();
          check_same(got, wanted);
          const Tensor largest = max_magnitude(got);
          CHECK(largest.item() == doctest::Approx(static_cast<double>(amax)).epsilon(1e-6));
        }
      }
    }
  }
  // Scales beyond float32 make the block 0.
  const Tensor tiny = Tensor::from_values({1e-45F, -1e-45F, 0.0F, 1e-45F});
  check_same(dynamic_block_quant(tiny, {}, {NumBits::integer(8), std::nullopt, 4}),
             {0.0F, -0.0F, 0.0F, 0.0F});
}

TEST_CASE("dynamic_block_quant: blocks of zeros and of infinities keep scale 1") {
  const Tensor x = Tensor::from_values({0.0F, 0.0F, kInfinity, 1.3F, kNan, 0.3F}, {3, 2});
  for (const NumBits& scale_bits : {NumBits::floating(8, 0), NumBits::floating(4, 3)}) {
    const DynamicBlockOptions options{NumBits::floating(2, 1), scale_bits, 2};
    const BlockQuantized result = dynamic_block_quant_with_scales(x, {}, options);
    check_same(result.scales, {1.0F, 1.0F, 1.0F});
    check_same(result.values, {0.0F, 0.0F, 6.0F, 1.5F, 6.0F, 0.5F});
  }
}

TEST_CASE("dynamic_block_quant: a scale that rounds to 0 makes the block 0") {
  const Tensor x = Tensor::from_values({1e-12F, -1e-12F, 1.0F, 0.5F}, {2, 2});
  const DynamicBlockOptions options{NumBits::floating(2, 1), NumBits::floating(4, 3), 2};
  const BlockQuantized result = dynamic_block_quant_with_scales(x, Tensor::scalar(1.0), options);
  CHECK(result.values[0][0].item() == 0.0);
  CHECK(result.values[0][1].item() == 0.0);
  CHECK(result.values[1][0].item() == doctest::Approx(1.0));
}

TEST_CASE("round_block_element: ties go to the even mantissa and away from zero in E3M0") {
  const auto rounded = [](float x, const math::FloatFormat& format) {
    return math::round_block_element(x, format);
  };
  const float ties[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  const float even[] = {0.0F, 1.0F, 1.0F, 2.0F, 2.0F, 4.0F, 4.0F};
  for (std::size_t i = 0; i < 7; ++i) CHECK(rounded(-ties[i], math::kE2M1) == -even[i]);
  const float points[] = {0.125F, 0.375F, 0.75F, 1.5F, 3.0F, 6.0F, 12.0F};
  const float away[] = {0.25F, 0.5F, 1.0F, 2.0F, 4.0F, 8.0F, 16.0F};
  for (std::size_t i = 0; i < 7; ++i) CHECK(rounded(points[i], math::kE3M0) == away[i]);
  CHECK(rounded(kInfinity, math::kE2M3) == 7.5F);
  CHECK(rounded(-1e30F, math::kE3M2) == -28.0F);
  CHECK(rounded(127.6F, math::kBlockInt8) == 127.0F);
}

TEST_CASE(
    "tensor quantizers: vectors round like the scalar functions for every upper half of a float") {
  std::vector<float> all;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    // Both a short significand and one just above it, so that ties are met and missed.
    all.push_back(std::bit_cast<float>(upper << 16));
    all.push_back(std::bit_cast<float>(upper << 16 | 1U));
  }
  const Tensor x = Tensor::from_values(all, {static_cast<std::int64_t>(all.size())});
  std::vector<float> fp8, fp4;
  for (const float value : all) {
    fp8.push_back(math::scaled_e4m3(value, 448.0F));
    fp4.push_back(math::static_fp4(value, 1.0F));
  }
  check_same(scaled_e4m3(x), fp8);
  check_same(fp4_cast_ste(x), fp4);
}

// Bad input
// -----------------------------------------------------------------------------------------

TEST_CASE("tensor quantizers: what does not suit is refused by field and value") {
  const Tensor x = Tensor::from_values({-0.5F, 1.0F});
  const Tensor amax = Tensor::scalar(1.0);
  CHECK_THROWS_WITH_AS(tensor_quant(x, amax, {8, true}), doctest::Contains("got -0.5"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(x, Tensor::scalar(-2.0)),
                       doctest::Contains("amax: expected no negative values, got -2"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(x, amax, {{1}}),
                       doctest::Contains("num_bits: expected 2..32, got 1"), ArgumentError);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(x, Tensor::ones({3})),
                       doctest::Contains("broadcast to [2], got [3]"), ArgumentError);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(x, {}), doctest::Contains("amax"), ArgumentError);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(x.to(DType::Int32), amax), doctest::Contains("got Int32"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(tensor_quant(x.to(DType::Float16), Tensor::scalar(1e-4)),
                       doctest::Contains("at most 65504"), ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_e4m3(x, amax, {GradientRule::Clip, {}, 5, 2}),
                       doctest::Contains("got E5M2"), UnsupportedError);
  CHECK_THROWS_WITH_AS(fake_affine_tensor_quant(x, amax, amax), doctest::Contains("max_range"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(tensor_quant(x, amax, {}, DType::Int8),
                       doctest::Contains("output_dtype: expected Int32 or Float32, got Int8"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(tensor_quant(x, amax, {26}, DType::Int32),
                       doctest::Contains("at most 25 with output_dtype Int32, got 26"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(dynamic_block_quant(x, {}, {NumBits::integer(9)}),
                       doctest::Contains("expected 2..8"), UnsupportedError);
  CHECK_THROWS_WITH_AS(dynamic_block_quant(x, {}, {NumBits::floating(4, 4)}),
                       doctest::Contains("got (4, 4)"), UnsupportedError);
  CHECK_THROWS_WITH_AS(
      dynamic_block_quant(x, {}, {NumBits::floating(2, 1), NumBits::floating(8, 0), 0}),
      doctest::Contains("block_size: expected at least 1, got 0"), ArgumentError);
  CHECK_THROWS_AS(dynamic_block_quant(Tensor::scalar(1.0)), ArgumentError);
  CHECK_THROWS_WITH_AS(compute_fp4_scales(amax, {}, {true, 500.0}), doctest::Contains("got 500"),
                       ArgumentError);
  const Tensor learned = Tensor::scalar(1.0);
  learned.set_requires_grad();
  CHECK_THROWS_AS(fake_tensor_quant(x, learned, {{}, GradientRule::PassThrough}), UnsupportedError);
  CHECK_THROWS_AS(tensor_quant(x, learned), UnsupportedError);
  CHECK_THROWS_AS(dynamic_block_quant(x, learned), UnsupportedError);
}

}  // namespace
}  // namespace quanta
