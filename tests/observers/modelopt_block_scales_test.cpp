#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "quanta/observers/modelopt/reduce.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

namespace quanta::modelopt {
namespace {

using test::random_tensor;

void check_equal(const Tensor& got, const Tensor& want) {
  CHECK(got.sizes() == want.sizes());
  CHECK(got.to_float_vector() == want.to_float_vector());
}

TEST_CASE("TensorQuantizer: dynamic blocks without scale_bits keep float scales") {
  const Tensor x = random_tensor({4, 3, 40});
  for (std::int64_t bits = 2; bits <= 8; ++bits) {
    QuantizerConfig config;
    config.num_bits = NumBits::integer(bits);
    config.block_sizes = BlockConfig{{{-1, 32}}, QuantType::Dynamic};
    const Tensor y = TensorQuantizer(config).forward(x);
    check_equal(y, dynamic_block_quant(x, {}, {config.num_bits, std::nullopt, 32}));
    // As integers with the amax of each block, up to the last bit of a product.
    const Tensor block = x.narrow(-1, 0, 32).contiguous().reshape({12, 32});
    const Tensor amax = reduce_amax(block, {0});
    const Tensor wanted = fake_tensor_quant(block, amax, {{bits, false, true}});
    const Tensor got = y.narrow(-1, 0, 32).contiguous().reshape({12, 32});
    CHECK(max(abs(got - wanted)).item() < 1e-6 * max(amax).item());
  }
  QuantizerConfig whole;
  whole.num_bits = NumBits::integer(4);
  whole.block_sizes = BlockConfig{{{-1, std::nullopt}}, QuantType::Dynamic};
  check_equal(TensorQuantizer(whole).forward(x),
              dynamic_block_quant(x, {}, {whole.num_bits, std::nullopt, 40}));
}

TEST_CASE("TensorQuantizer: dynamic blocks may lie along several axes") {
  const Tensor x = random_tensor({5, 3, 14});
  ScaledQuantDescriptor descriptor;
  descriptor.dialect = ScaledQuantDescriptor::Dialect::ModelOpt;
  descriptor.num_bits = NumBits::integer(6);
  for (const auto& scale_bits :
       {std::optional<NumBits>(), std::optional(NumBits::floating(8, 0))}) {
    descriptor.block_sizes = BlockConfig{{{-1, 4}, {0, 2}}, QuantType::Dynamic, scale_bits};
    const Tensor y = TensorQuantizer(descriptor).forward(x);
    REQUIRE(y.sizes() == x.sizes());
    for (std::int64_t row = 0; row < 5; row += 2) {
      for (std::int64_t middle = 0; middle < 3; ++middle) {
        for (std::int64_t column = 0; column < 14; column += 4) {
          const auto part = [&](const Tensor& from) {
            return from.slice(0, row, std::min<std::int64_t>(row + 2, 5))
                .select(1, middle)
                .slice(1, column, std::min<std::int64_t>(column + 4, 14))
                .contiguous()
                .reshape({-1});
          };
          check_equal(part(y),
                      dynamic_block_quant(part(x), {}, {descriptor.num_bits, scale_bits, 8}));
        }
      }
    }
  }
}

TEST_CASE("TensorQuantizer: scale_amax multiplies the amax of each dynamic block") {
  Tensor x = random_tensor({6, 64});
  x.set_requires_grad();
  const Tensor blocks = x.detach().reshape({12, 32});
  const Tensor half = mul_scalar(reduce_amax(blocks, {0}), 0.5);
  ScaledQuantDescriptor descriptor;
  descriptor.dialect = ScaledQuantDescriptor::Dialect::ModelOpt;
  descriptor.block_sizes = BlockConfig{{{-1, 32}}, QuantType::Dynamic};
  const auto passed = [&](const NumBits& bits, std::optional<double> scale) {
    descriptor.num_bits = bits;
    descriptor.scale_amax = scale;
    return TensorQuantizer(descriptor).forward(x);
  };
  const auto check = [&](const NumBits& bits, const Tensor& wanted) {
    check_equal(passed(bits, 0.5).detach().reshape({12, 32}), wanted);
    // Once is as without it, up to the last bit of a product.
    CHECK(max(abs(passed(bits, 1.0).detach() - passed(bits, std::nullopt).detach())).item() < 1e-5);
  };
  check(NumBits::integer(8), fake_tensor_quant(blocks, half, {{8, false, true}}));
  check(NumBits::integer(3), fake_tensor_quant(blocks, half, {{3, false, true}}));
  check(NumBits::floating(4, 3), scaled_e4m3(blocks, half));
  StaticFp4Options plain;
  plain.scale.quantize_block_scales = false;
  check(NumBits::floating(2, 1), static_fp4(blocks, half, plain));
  // Elements beyond half of the largest one get no gradient.
  passed(NumBits::integer(8), 0.5).backward(Tensor::ones({6, 64}));
  const std::vector<float> values = blocks.to_float_vector();
  const std::vector<float> bounds = half.to_float_vector();
  const std::vector<float> gradient = x.grad().to_float_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(gradient[i] == (std::fabs(values[i]) <= bounds[i / 32] ? 1.0F : 0.0F));
  }
  // No shape is fixed, and several axes and other scales do the same.
  descriptor.num_bits = NumBits::integer(6);
  TensorQuantizer free(descriptor);
  free.forward(random_tensor({2, 64}));
  CHECK(free.forward(random_tensor({5, 40})).sizes() == Dims{5, 40});
  descriptor.block_sizes = BlockConfig{{{-1, 4}, {0, 2}}, QuantType::Dynamic};
  const Tensor tile = x.detach().slice(0, 2, 4).slice(1, 8, 12).contiguous().reshape({-1});
  check_equal(passed(NumBits::integer(6), 0.5)
                  .detach()
                  .slice(0, 2, 4)
                  .slice(1, 8, 12)
                  .contiguous()
                  .reshape({-1}),
              fake_tensor_quant(tile, mul_scalar(reduce_amax(tile), 0.5), {{6, false, true}}));
  descriptor.block_sizes = BlockConfig{{{-1, 16}}, QuantType::Dynamic, NumBits::floating(4, 3)};
  check_equal(passed(NumBits::floating(2, 1), 0.5).detach(),
              dynamic_block_quant(x.detach(), mul_scalar(reduce_amax(x.detach()), 0.5)));
  descriptor.block_sizes->scale_bits = NumBits::floating(8, 0);
  CHECK_THROWS_WITH_AS(TensorQuantizer{descriptor},
                       doctest::Contains("scale_amax: expected none in dynamic blocks with "
                                         "scale_bits (8, 0)"),
                       UnsupportedError);
}

TEST_CASE("TensorQuantizer: of two threads one fixes the shape of static blocks") {
  QuantizerConfig config;
  config.block_sizes = BlockConfig{{{-1, 16}}};
  // As many blocks either way, so that the calibrator would take both.
  const std::vector<Tensor> x{random_tensor({256, 2048}), random_tensor({2048, 256})};
  for (int round = 0; round < 10; ++round) {
    TensorQuantizer quantizer(config);
    std::array<bool, 2> passed{};
    std::latch start(2);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        try {
          quantizer.update(x[t]);
          passed[t] = true;
        } catch (const ArgumentError&) {
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(passed[0] != passed[1]);
    quantizer.load_calib_amax();
    check_equal(quantizer.amax(), reduce_amax(x[passed[0] ? 0 : 1].reshape({32768, 16}), {0}));
  }
  // A call that fails leaves the shape to the next one; merging needs one shape.
  TensorQuantizer one(config), other(config);
  CHECK_THROWS_AS(one.forward(x[0]), ArgumentError);
  one.update(x[1]);
  other.update(x[0]);
  CHECK_THROWS_WITH_AS(one.merge(other),
                       doctest::Contains("other: expected one whose blocks were made for the shape "
                                         "[2048, 256], got [256, 2048]"),
                       ArgumentError);
  one.load_calib_amax();
  check_equal(one.amax(), reduce_amax(x[1].reshape({32768, 16}), {0}));
}

TEST_CASE("TensorQuantizer: a global amax acts on float8 scales and is refused elsewhere") {
  const Tensor x = random_tensor({4, 32});
  const Tensor blocks = x.reshape({8, 16});
  const Tensor global = Tensor::scalar(8.0);
  ScaledQuantDescriptor descriptor;
  descriptor.dialect = ScaledQuantDescriptor::Dialect::ModelOpt;
  descriptor.num_bits = NumBits::floating(2, 1);
  descriptor.block_sizes = BlockConfig{{{-1, 16}}, {}, NumBits::floating(4, 3)};
  TensorQuantizer nvfp4(descriptor);
  nvfp4.set_global_amax(global);
  CHECK(nvfp4.compress(x).double_scale.item() == doctest::Approx(8.0 / (6.0 * 448.0)));
  descriptor.scale_amax = 0.5;
  TensorQuantizer half(descriptor);
  half.set_global_amax(global);
  for (TensorQuantizer* each : {&nvfp4, &half}) each->update(x);
  const auto wanted = [&](double scale) {
    StaticFp4Options options;
    options.global_amax = mul_scalar(global, scale);
    return static_fp4(blocks, mul_scalar(reduce_amax(blocks, {0}), scale), options);
  };
  check_equal(nvfp4.forward(x).reshape({8, 16}), wanted(1.0));
  check_equal(half.forward(x).reshape({8, 16}), wanted(0.5));
  CHECK_THROWS_WITH_AS(half.compress(x), doctest::Contains("compress: expected no scale_amax"),
                       UnsupportedError);
  const auto refuse = [&](const QuantizerConfig& config) {
    TensorQuantizer quantizer(config);
    CHECK_THROWS_WITH_AS(quantizer.set_global_amax(global),
                         doctest::Contains("global_amax: expected none"), UnsupportedError);
  };
  QuantizerConfig config;
  refuse(config);
  config.num_bits = NumBits::floating(4, 3);
  refuse(config);
  config.block_sizes = BlockConfig{{{-1, 16}}};
  refuse(config);
  config.block_sizes = BlockConfig{{{-1, 16}}, QuantType::Dynamic, NumBits::floating(4, 3)};
  refuse(config);
}

TEST_CASE("TensorQuantizer: integer scale_bits quantize the scales that compress quantizes") {
  const Tensor x = random_tensor({6, 64});
  QuantizerConfig config;
  config.num_bits = NumBits::integer(4);
  config.block_sizes = BlockConfig{{{-1, 8}}};
  config.type = QuantType::Dynamic;  // the amax of what passes
  config.block_sizes->scale_bits = NumBits::integer(5);
  config.block_sizes->scale_block_sizes = BlockSizes{{-1, 6}};
  const CompressedTensor packed = TensorQuantizer(config).compress(x);
  REQUIRE(packed.kind == CompressedKind::Nf4);
  std::vector<float> scales;
  const std::vector<float> codes = packed.scale.to_float_vector();
  const std::vector<float> factors = packed.double_scale.to_float_vector();
  const auto zero = static_cast<float>(packed.scale_zeros.item());
  for (std::size_t i = 0; i < 48; ++i) scales.push_back(codes[i] / factors[i / 6] + zero);
  const Tensor amax = Tensor::from_values(scales, {48, 1});
  check_equal(TensorQuantizer(config).forward(x).reshape({48, 8}),
              fake_tensor_quant(x.reshape({48, 8}), amax, {{4, false, false}}));
  // One group of all, and each element format.
  config.block_sizes->scale_block_sizes.reset();
  const Tensor blocks = x.reshape({48, 8});
  const Tensor rounded = [&] {
    const std::vector<float> raw = reduce_amax(blocks, {0}).to_float_vector();
    const auto mean_of = static_cast<float>(mean(reduce_amax(blocks, {0})).item());
    float spread = 0.0F;
    for (const float each : raw) spread = std::max(spread, std::fabs(each - mean_of));
    std::vector<float> values;
    for (const float each : raw) {
      const float factor = 15.0F / spread;
      values.push_back(std::nearbyint((each - mean_of) * factor) / factor + mean_of);
    }
    return Tensor::from_values(values, {48, 1});
  }();
  const auto close = [&](const NumBits& bits, const Tensor& wanted) {
    config.num_bits = bits;
    const Tensor got = TensorQuantizer(config).forward(x).reshape({48, 8});
    CHECK(max(abs(got - wanted)).item() < 1e-5);
  };
  close(NumBits::integer(6), fake_tensor_quant(blocks, rounded, {{6, false, false}}));
  close(NumBits::floating(4, 3), scaled_e4m3(blocks, rounded));
  StaticFp4Options plain;
  plain.scale.quantize_block_scales = false;
  close(NumBits::floating(2, 1), static_fp4(blocks, rounded, plain));
  // Dynamic blocks take the amax of what passes, and no shape is fixed.
  config.num_bits = NumBits::integer(6);
  const Tensor before = TensorQuantizer(config).forward(x);
  config.type = QuantType::Static;
  config.block_sizes->type = QuantType::Dynamic;
  TensorQuantizer dynamic(config);
  check_equal(dynamic.forward(x), before);
  CHECK(dynamic.forward(random_tensor({2, 24})).sizes() == Dims{2, 24});
  // compress knows no such form.
  CHECK_THROWS_WITH_AS(dynamic.compress(x), doctest::Contains("num_bits 6"), UnsupportedError);
}

}  // namespace
}  // namespace quanta::modelopt
