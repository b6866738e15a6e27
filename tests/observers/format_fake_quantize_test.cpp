#include "quanta/observers/format_fake_quantize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quanta/observers/format_qconfig.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::random_tensor;

constexpr FormatOptions kFp8{};
constexpr FormatOptions kFp8E5m2{.num_bits = NumBits::floating(5, 2)};
constexpr FormatOptions kMxfp4Channels{.kind = FormatKind::DynamicBlocks,
                                       .num_bits = NumBits::floating(2, 1)};
constexpr FormatOptions kNvfp4Rows{.kind = FormatKind::DynamicBlocks,
                                   .num_bits = NumBits::floating(2, 1),
                                   .scale_bits = NumBits::floating(4, 3),
                                   .block_size = 16,
                                   .block_axis = BlockAxis::Rows};
constexpr FormatOptions kInt4Rows{.kind = FormatKind::IntegerBlocks,
                                  .num_bits = NumBits::integer(4),
                                  .block_size = 32,
                                  .block_axis = BlockAxis::Rows};

TEST_CASE("FormatFakeQuantize: fp8 rounds to multiples of the largest magnitude over all batches") {
  for (const FormatOptions& options : {kFp8, kFp8E5m2}) {
    FormatFakeQuantize fake(options);
    fake.disable_fake_quant();
    const Tensor small = random_tensor({5, 33});
    CHECK(fake.forward(small).equal(small));
    fake.forward(Tensor::from_values({-9.5F, 1.0F}));
    fake.forward(small);
    CHECK(fake.amax() == 9.5F);
    fake.disable_observer();
    fake.enable_fake_quant();
    const math::FloatFormat format = options == kFp8 ? math::kE4M3FN : math::kE5M2;
    const std::vector<float> x = small.to_float_vector();
    const std::vector<float> y = fake.forward(small).to_float_vector();
    const float scale = format.max() / 9.5F;
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(y[i] == math::round_to_format(x[i] * scale, format) * (1.0F / scale));
    }
    CHECK(fake.forward(Tensor::from_values({20.0F})).item() == doctest::Approx(9.5));
  }
}

TEST_CASE("FormatFakeQuantize: fp8 gradients pass where values lie within the range") {
  FormatFakeQuantize fake;
  fake.forward(Tensor::from_values({2.0F}));
  fake.disable_observer();
  const Tensor x = Tensor::from_values({-3.0F, -2.0F, 0.3F, 2.5F});
  x.set_requires_grad();
  sum(fake.forward(x)).backward();
  CHECK(x.grad().equal(Tensor::from_values({0.0F, 1.0F, 1.0F, 0.0F})));
}

TEST_CASE("FormatFakeQuantize: blocks of activations run along the channels") {
  FormatFakeQuantize fake(kMxfp4Channels);
  const DynamicBlockOptions blocks{.num_bits = kMxfp4Channels.num_bits,
                                   .scale_bits = kMxfp4Channels.scale_bits,
                                   .block_size = 32};
  const Tensor image = random_tensor({2, 40, 3, 5});
  const Tensor last = dynamic_block_quant(image.permute({0, 2, 3, 1}), {}, blocks);
  CHECK(fake.forward(image).equal(last.permute({0, 3, 1, 2})));
  CHECK(
      fake.forward(image.contiguous(MemoryFormat::ChannelsLast)).equal(last.permute({0, 3, 1, 2})));
  const Tensor rows = random_tensor({7, 50});
  CHECK(fake.forward(rows).equal(dynamic_block_quant(rows, {}, blocks)));
  CHECK(fake.has_data());
}

TEST_CASE("FormatFakeQuantize: blocks of weights run along the values of each output") {
  FormatFakeQuantize fake(kNvfp4Rows);
  const Tensor weight = random_tensor({6, 5, 3, 3});
  const Tensor y = fake.forward(weight);
  const Tensor global = Tensor::scalar(static_cast<double>(fake.amax()));
  CHECK(y.sizes() == weight.sizes());
  CHECK(y.reshape({6, 45}).equal(dynamic_block_quant(weight.reshape({6, 45}), global)));
}

TEST_CASE("FormatFakeQuantize: integers in blocks have a scale of their own and rows are padded") {
  FormatFakeQuantize fake(kInt4Rows);
  const Tensor weight = random_tensor({4, 75});
  const std::vector<float> x = weight.to_float_vector();
  const std::vector<float> y = fake.forward(weight).to_float_vector();
  for (std::size_t row = 0; row < 4; ++row) {
    for (std::size_t begin = 0; begin < 75; begin += 32) {
      const std::size_t end = std::min<std::size_t>(75, begin + 32);
      float amax = 0.0F;
      for (std::size_t i = begin; i < end; ++i) amax = std::max(amax, std::fabs(x[row * 75 + i]));
      for (std::size_t i = begin; i < end; ++i) {
        REQUIRE(y[row * 75 + i] ==
                math::fake_tensor_quant(x[row * 75 + i], amax, math::AmaxGrid{-8.0F, 7.0F}));
      }
    }
  }
}

TEST_CASE("FormatFakeQuantize: its state comes back and copies go their own way") {
  FormatFakeQuantize fake;
  fake.forward(Tensor::from_values({3.0F}));
  fake.disable_observer();
  StateDict state;
  fake.save_state(state, "a.");
  FormatFakeQuantize loaded;
  CHECK_FALSE(loaded.has_data());
  loaded.load_state(state, "a.");
  CHECK(loaded.amax() == 3.0F);
  CHECK_FALSE(loaded.is_observer_enabled());
  const std::shared_ptr<Observer> copy = fake.clone();
  copy->reset_min_max_vals();
  CHECK_FALSE(copy->has_data());
  CHECK(fake.has_data());
}

TEST_CASE("FormatFakeQuantize: values without data and values that are not finite are refused") {
  FormatFakeQuantize fake;
  fake.disable_observer();
  CHECK_THROWS_WITH_AS(fake.forward(Tensor::from_values({1.0F})),
                       doctest::Contains("amax: expected data before values are quantized"),
                       ArgumentError);
  fake.enable_observer();
  CHECK_THROWS_WITH_AS(fake.forward(Tensor::full({2}, std::numeric_limits<double>::infinity())),
                       doctest::Contains("x: expected finite values, got a magnitude of inf"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(fake.forward(Tensor::zeros({2}, DType::Int64)),
                       doctest::Contains("x: expected Float32"), ArgumentError);
  CHECK_FALSE(fake.has_data());
  CHECK(fake.forward(Tensor::empty({0, 3})).numel() == 0);
  CHECK_THROWS_WITH_AS(fake.calculate_qparams(), doctest::Contains("calculate_qparams"),
                       UnsupportedError);
}

TEST_CASE("FormatFakeQuantize: formats that do not exist are refused by their bits") {
  CHECK_THROWS_WITH_AS(FormatFakeQuantize({.num_bits = NumBits::floating(3, 2)}),
                       doctest::Contains("got (3, 2) with scale_bits (8, 0) for ScaledFloat"),
                       UnsupportedError);
  CHECK_THROWS_AS(FormatFakeQuantize({.kind = FormatKind::IntegerBlocks}), UnsupportedError);
  CHECK_THROWS_WITH_AS(FormatFakeQuantize({.kind = FormatKind::DynamicBlocks, .block_size = 0}),
                       doctest::Contains("block_size: expected at least 1, got 0"), ArgumentError);
}

TEST_CASE("qconfig_for_format: every format has fake quantizers of its own in both places") {
  std::vector<QConfig> seen;
  for (const NumberFormat& format : number_formats()) {
    const QConfig qconfig = qconfig_for_format(format.name);
    CHECK(std::dynamic_pointer_cast<FakeQuantizeBase>(qconfig.activation()) != nullptr);
    CHECK(std::dynamic_pointer_cast<FakeQuantizeBase>(qconfig.weight()) != nullptr);
    for (const QConfig& other : seen) CHECK_FALSE(qconfig == other);
    seen.push_back(qconfig);
    CHECK(number_format(format.name).weight_bits == format.weight_bits);
  }
  CHECK(seen.size() == 8);
  CHECK_THROWS_WITH_AS(qconfig_for_format("fp5"),
                       doctest::Contains("int8, int4-block32, fp8, fp8-e5m2, mxfp8, mxfp6, mxfp4, "
                                         "nvfp4, got fp5"),
                       ArgumentError);
}

TEST_CASE("qconfig_for_format: more bits lose less of a random weight") {
  const Tensor weight = random_tensor({16, 256});
  const std::vector<float> x = weight.to_float_vector();
  const auto error = [&](std::string_view name) {
    const std::shared_ptr<Observer> fake = qconfig_for_format(name).weight();
    const std::vector<float> y = fake->forward(weight).to_float_vector();
    double total = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      total += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    }
    return total;
  };
  CHECK(error("int8") < error("fp8"));
  CHECK(error("fp8") < error("fp8-e5m2"));
  CHECK(error("mxfp8") < error("mxfp6"));
  CHECK(error("mxfp6") < error("nvfp4"));
  CHECK(error("nvfp4") < error("mxfp4"));
}

}  // namespace
}  // namespace quanta
