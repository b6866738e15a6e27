#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
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
