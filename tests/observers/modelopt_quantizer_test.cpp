#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quanta/observers/modelopt/reduce.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/state_dict.h"
#include "support/tensors.h"

namespace quanta::modelopt {
namespace {

using test::random_tensor;

void check_equal(const Tensor& got, const Tensor& want) {
  CHECK(got.sizes() == want.sizes());
  CHECK(got.to_float_vector() == want.to_float_vector());
}

// Static blocks, each with the amax of the tensor that passes.
QuantizerConfig blocks_of(std::int64_t bits, BlockSizes sizes) {
  QuantizerConfig config;
  config.num_bits = NumBits::integer(bits);
  config.block_sizes = BlockConfig{std::move(sizes)};
  config.type = QuantType::Dynamic;
  return config;
}

TEST_CASE("TensorQuantizer: each kind of block is quantized with the amax of its own elements") {
  const Tensor x = random_tensor({6, 22});
  TensorQuantizer rows(blocks_of(4, {{-1, 8}}));
  const Tensor y = rows.forward(x);
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t b = 0; b < 3; ++b) {
      const Tensor part = x[i].slice(0, 8 * b, 8 * b + 8).contiguous();
      check_equal(y[i].slice(0, 8 * b, 8 * b + 8).contiguous(),
                  fake_tensor_quant(part, reduce_amax(part), {{4, false, false}}));
    }
  }
  TensorQuantizer tiles(blocks_of(8, {{0, 3}, {1, 11}}));
  const Tensor z = tiles.forward(x);
  const Tensor tile = x.slice(0, 3, 6).slice(1, 11, 22).contiguous();
  check_equal(z.slice(0, 3, 6).slice(1, 11, 22).contiguous(),
              fake_tensor_quant(tile, reduce_amax(tile), {{8, false, false}}));
  CHECK_THROWS_WITH_AS(tiles.forward(random_tensor({6, 11})), doctest::Contains("[6, 22]"),
                       ArgumentError);
}

TEST_CASE("TensorQuantizer: formats in dynamic blocks are those of dynamic_block_quant") {
  const Tensor x = random_tensor({4, 3, 40});
  for (const NumBits& bits : {NumBits::floating(2, 1), NumBits::floating(4, 3),
                              NumBits::floating(3, 2), NumBits::floating(2, 3)}) {
    QuantizerConfig config;
    config.num_bits = bits;
    config.block_sizes = BlockConfig{{{-1, 32}}, QuantType::Dynamic, NumBits::floating(8, 0)};
    TensorQuantizer quantizer(config);
    CHECK(!quantizer.amax().defined());
    check_equal(quantizer.forward(x),
                dynamic_block_quant(x, {}, {bits, NumBits::floating(8, 0), 32}));
  }
  QuantizerConfig nvfp4;
  nvfp4.num_bits = NumBits::floating(2, 1);
  nvfp4.block_sizes = BlockConfig{{{-1, 16}}, QuantType::Dynamic, NumBits::floating(4, 3)};
  TensorQuantizer quantizer(nvfp4);
  check_equal(quantizer.forward(x), dynamic_block_quant(x, reduce_amax(x)));
  quantizer.set_amax(Tensor::scalar(7.0));
  check_equal(quantizer.forward(x), dynamic_block_quant(x, Tensor::scalar(7.0)));
  // Another axis than the last.
  nvfp4.block_sizes->sizes = {{1, 16}};
  check_equal(TensorQuantizer(nvfp4).forward(x),
              dynamic_block_quant(x.transpose(1, 2), reduce_amax(x)).transpose(1, 2));
}

TEST_CASE("TensorQuantizer: states decide what forward does") {
  const Tensor x = random_tensor({5, 6});
  TensorQuantizer quantizer;
  quantizer.enable_calib();
  quantizer.disable_quant();
  check_equal(quantizer.forward(x), x);
  check_equal(quantizer.forward(Tensor::full({1}, 9.0)), Tensor::full({1}, 9.0));
  quantizer.load_calib_amax();
  CHECK(quantizer.amax().item() == 9.0);
  quantizer.enable_quant();
  quantizer.disable_calib();
  check_equal(quantizer.forward(x), fake_tensor_quant(x, Tensor::scalar(9.0), {{8, false, false}}));
  CHECK(quantizer.to_string() ==
        "8 bit fake per-tensor amax=9.0000 calibrator=MaxCalibrator quant");
  quantizer.disable();
  check_equal(quantizer.forward(x), x);
  CHECK(quantizer.to_string() == "disabled");
  quantizer.enable();
  CHECK(quantizer.forward(Tensor::empty({0, 3})).numel() == 0);
  QuantizerConfig dynamic;
  dynamic.type = QuantType::Dynamic;
  TensorQuantizer own(dynamic);
  own.enable_calib();
  CHECK(!own.is_observer_enabled());
  check_equal(own.forward(x), fake_tensor_quant(x, reduce_amax(x), {{8, false, false}}));
}

TEST_CASE("TensorQuantizer: pre_quant_scale and rotation work before quantization") {
  const Tensor x = random_tensor({3, 8});
  TensorQuantizer scaled;
  scaled.set_pre_quant_scale(Tensor::full({8}, 2.0));
  scaled.set_amax(Tensor::scalar(4.0));
  scaled.disable_quant();
  CHECK(scaled.forward(x)[1][2].item() == doctest::Approx(2.0 * x[1][2].item()));
  QuantizerConfig config;
  config.rotate = QuantizerConfig::Rotate{true, QuantizerConfig::RotateMode::RotateBack, false, 4};
  TensorQuantizer rotating(config);
  rotating.disable_quant();
  const std::vector<float> back = rotating.forward(x).to_float_vector();
  const std::vector<float> values = x.to_float_vector();
  for (std::size_t i = 0; i < back.size(); ++i) CHECK(back[i] == doctest::Approx(values[i]));
  config.rotate = true;
  TensorQuantizer one_way(config);
  one_way.disable_quant();
  const Tensor unit = Tensor::from_values({1.0F, 0.0F, 0.0F, 0.0F});
  for (const float each : one_way.forward(unit).to_float_vector()) {
    CHECK(each == doctest::Approx(0.5));
  }
  CHECK_THROWS_WITH_AS(rotating.forward(random_tensor({2, 6})), doctest::Contains("got 4"),
                       ArgumentError);
}

TEST_CASE("TensorQuantizer: gradients pass through blocks and scales") {
  Tensor x = random_tensor({3, 10});
  x.set_requires_grad();
  QuantizerConfig config = blocks_of(4, {{-1, 4}});
  TensorQuantizer quantizer(config);
  quantizer.set_pre_quant_scale(Tensor::full({10}, 3.0));
  quantizer.forward(x).backward(Tensor::ones({3, 10}));
  for (const float each : x.grad().to_float_vector()) CHECK(each == 3.0F);
}

TEST_CASE("TensorQuantizer: real quantization is that of the compressed tensor") {
  const Tensor x = random_tensor({4, 64});
  const auto kind_of = [&](QuantizerConfig config) {
    config.fake_quant = false;
    TensorQuantizer quantizer(config);
    const CompressedTensor packed = quantizer.compress(x);
    check_equal(quantizer.forward(x), packed.dequantize());
    return packed.kind;
  };
  QuantizerConfig config;
  CHECK(kind_of(config) == CompressedKind::Int8);
  config.num_bits = NumBits::floating(4, 3);
  CHECK(kind_of(config) == CompressedKind::Fp8);
  config.block_sizes = BlockConfig{{{-1, 32}}, QuantType::Dynamic, NumBits::floating(8, 0)};
  CHECK(kind_of(config) == CompressedKind::MxFp8);
  config.num_bits = NumBits::floating(2, 1);
  CHECK(kind_of(config) == CompressedKind::MxFp4);
  config.block_sizes = BlockConfig{{{-1, 16}}, std::nullopt, NumBits::floating(4, 3)};
  CHECK(kind_of(config) == CompressedKind::NvFp4);
  CHECK(kind_of(blocks_of(4, {{-1, 16}})) == CompressedKind::Int4);
  config = blocks_of(4, {{-1, 16}});
  config.block_sizes->scale_bits = NumBits::integer(8);
  config.block_sizes->scale_block_sizes = BlockSizes{{-1, 4}};
  CHECK(kind_of(config) == CompressedKind::Nf4);
  CHECK_THROWS_WITH_AS(kind_of(blocks_of(5, {{-1, 16}})), doctest::Contains("num_bits 5"),
                       UnsupportedError);
}

TEST_CASE("TensorQuantizer: as the quantizers of a QConfig it observes and converts to QInt8") {
  QuantizerConfig rows;
  rows.axis = Axis{{0}, true};
  const QConfig qconfig{TensorQuantizer::with_args(), TensorQuantizer::with_args(rows)};
  const auto weight = qconfig.weight();
  const Tensor w = random_tensor({4, 9});
  const Tensor y = weight->forward(w);
  check_equal(y, fake_tensor_quant(w, reduce_amax(w, {0}), {{8, false, false}}));
  CHECK(weight->has_data());
  CHECK(weight->dtype() == DType::QInt8);
  const Tensor codes = quantize_with(w, *weight);
  const std::vector<float> back = codes.to_float_vector();
  const std::vector<float> values = y.to_float_vector();
  for (std::size_t i = 0; i < back.size(); ++i) {
    CHECK(back[i] == doctest::Approx(values[i]).epsilon(1e-5));
  }
  QuantizerConfig fp8;
  fp8.num_bits = NumBits::floating(4, 3);
  CHECK_THROWS_AS(TensorQuantizer(fp8).calculate_qparams(), UnsupportedError);
}

TEST_CASE("TensorQuantizer: state and clones carry amax and scales") {
  TensorQuantizer quantizer;
  quantizer.set_amax(Tensor::scalar(2.5));
  quantizer.set_pre_quant_scale(Tensor::full({4}, 0.5));
  StateDict state;
  quantizer.save_state(state, "q.");
  TensorQuantizer other;
  other.load_state(state, "q.");
  CHECK(other.amax().item() == 2.5);
  CHECK(other.pre_quant_scale().numel() == 4);
  const auto copy = quantizer.clone();
  quantizer.reset_amax();
  check_equal(copy->forward(Tensor::full({4}, 1.0)), other.forward(Tensor::full({4}, 1.0)));
}

TEST_CASE("TensorQuantizer: a state brings no amax where none can be set") {
  TensorQuantizer source;
  source.set_amax(Tensor::scalar(2.5));
  StateDict state;
  source.save_state(state, "");
  QuantizerConfig dynamic, constant, real;
  dynamic.type = QuantType::Dynamic;
  constant.constant_amax = 2.0;
  real.fake_quant = false;
  for (const QuantizerConfig& config : {dynamic, constant, real}) {
    TensorQuantizer quantizer(config);
    CHECK_THROWS_WITH_AS(quantizer.set_amax(Tensor::scalar(2.5)),
                         doctest::Contains("amax: expected none with"), UnsupportedError);
    CHECK_THROWS_WITH_AS(quantizer.load_state(state, ""),
                         doctest::Contains("amax: expected none with"), UnsupportedError);
    CHECK(!quantizer.amax().defined());
  }
  const Tensor x = random_tensor({4, 6});
  check_equal(TensorQuantizer(real).forward(x), quantize_int8(x).dequantize());
  CHECK_THROWS_WITH_AS(TensorQuantizer(constant).compress(x), doctest::Contains("compress: "),
                       UnsupportedError);
  // The global amax: one element, and where it counts.
  QuantizerConfig nvfp4;
  nvfp4.num_bits = NumBits::floating(2, 1);
  nvfp4.block_sizes = BlockConfig{{{-1, 16}}, {}, NumBits::floating(4, 3)};
  TensorQuantizer blocks(nvfp4);
  state.set("_global_amax", Tensor::ones({3}));
  CHECK_THROWS_WITH_AS(blocks.load_state(state, ""),
                       doctest::Contains("global_amax: expected one element, got [3]"),
                       ArgumentError);
  CHECK(!blocks.amax().defined());
  state.set("_global_amax", Tensor::scalar(-1.0));
  CHECK_THROWS_WITH_AS(blocks.load_state(state, ""), doctest::Contains("got -1"), ArgumentError);
  state.set("_global_amax", Tensor::ones({}));
  blocks.load_state(state, "");
  CHECK_THROWS_AS(source.load_state(state, ""), UnsupportedError);
}

TEST_CASE("TensorQuantizer: what does not suit is refused by name and value") {
  TensorQuantizer quantizer;
  CHECK_THROWS_WITH_AS(quantizer.load_calib_amax(), doctest::Contains("no tensor"), ArgumentError);
  quantizer.load_calib_amax(TensorQuantizer::Strict::No);
  CHECK_THROWS_AS(quantizer.export_amax(), ArgumentError);
  CHECK_THROWS_AS(quantizer.step_size(), ArgumentError);
  CHECK_THROWS_WITH_AS(quantizer.set_amax(Tensor::scalar(-1.0)), doctest::Contains("got -1"),
                       ArgumentError);
  CHECK_THROWS_AS(quantizer.set_amax(Tensor::scalar(NAN)), ArgumentError);
  quantizer.set_amax(Tensor::scalar(1.0));
  CHECK_THROWS_WITH_AS(quantizer.set_amax(Tensor::ones({3})), doctest::Contains("got [3]"),
                       ArgumentError);
  QuantizerConfig config;
  config.backend = std::string("x");
  CHECK_THROWS_AS(TensorQuantizer{config}, UnsupportedError);
  config = {};
  config.calibrator = ConfigValue::tuple({"MyCalibrator"});
  CHECK_THROWS_AS(TensorQuantizer{config}, UnsupportedError);
  config = {};
  config.calibrator = "histogram";
  config.axis = Axis{{0}, true};
  CHECK_THROWS_AS(TensorQuantizer{config}, UnsupportedError);
  CHECK_THROWS_AS(SequentialQuantizer({}), ArgumentError);
}

TEST_CASE("TensorQuantizer: a static one without an amax is refused and a calibrated one is not") {
  const Tensor x = random_tensor({3, 8});
  TensorQuantizer quantizer;
  CHECK_THROWS_WITH_AS(quantizer.forward(x),
                       doctest::Contains("amax: expected one that was set or calibrated"),
                       ArgumentError);
  quantizer.update(x);
  check_equal(quantizer.forward(x), fake_tensor_quant(x, reduce_amax(x), {{8, false, false}}));
  // What is refused fixes no shape of blocks.
  QuantizerConfig blocks;
  blocks.block_sizes = BlockConfig{{{-1, 4}}};
  TensorQuantizer static_blocks(blocks);
  CHECK_THROWS_AS(static_blocks.forward(random_tensor({2, 12})), ArgumentError);
  static_blocks.update(x);
  CHECK(static_blocks.forward(x).sizes() == x.sizes());
  QuantizerConfig constant;
  constant.constant_amax = 2.0;
  TensorQuantizer given(constant);
  check_equal(given.forward(x), fake_tensor_quant(x, Tensor::scalar(2.0), {{8, false, false}}));
  CHECK_THROWS_WITH_AS(given.set_amax(Tensor::scalar(1.0)), doctest::Contains("a constant amax"),
                       UnsupportedError);
  QuantizerConfig dynamic;
  dynamic.type = QuantType::Dynamic;
  CHECK_THROWS_AS(TensorQuantizer(dynamic).set_amax(Tensor::scalar(1.0)), UnsupportedError);
}

TEST_CASE("TensorQuantizer: fields that would have no effect are refused by name") {
  const auto refuse = [](const char* field, auto&& change) {
    QuantizerConfig config;
    change(config);
    CHECK_THROWS_WITH_AS(TensorQuantizer{config},
                         doctest::Contains(("TensorQuantizer: " + std::string(field)).c_str()),
                         UnsupportedError);
  };
  using Config = QuantizerConfig;
  const NumBits e4m3 = NumBits::floating(4, 3);
  refuse("effective_bits: ", [](Config& c) { c.effective_bits = 4.5; });
  refuse("backend_extra_args: ", [](Config& c) { c.backend_extra_args = ConfigValue::dict({}); });
  refuse("trt_high_precision_dtype: ", [](Config& c) { c.trt_high_precision_dtype = "Half"; });
  refuse("constant_amax: ", [](Config& c) {
    c.constant_amax = 2.0;
    c.fake_quant = false;
  });
  refuse("use_constant_amax: ", [](Config& c) {
    c.use_constant_amax = true;
    c.type = QuantType::Dynamic;
  });
  for (const auto& scale_bits : {std::optional<NumBits>(), {NumBits::floating(8, 0)}}) {
    refuse("constant_amax: ", [&](Config& c) {
      c.num_bits = NumBits::floating(2, 1);
      c.constant_amax = 2.0;
      c.block_sizes = BlockConfig{{{-1, 32}}, QuantType::Dynamic, scale_bits};
    });
  }
  refuse("rotate: ", [](Config& c) {
    c.rotate = Config::Rotate{false, Config::RotateMode::Rotate, true, std::nullopt};
  });
  refuse("unsigned: ", [&](Config& c) {
    c.num_bits = e4m3;
    c.is_unsigned = true;
  });
  refuse("narrow_range: ", [&](Config& c) {
    c.num_bits = e4m3;
    c.narrow_range = true;
  });
  refuse("bias: ", [](Config& c) { c.bias = Config::Bias{{{-1, 4}}}; });
  refuse("bias: ", [](Config& c) {
    c.bias = Config::Bias{{{-1, std::nullopt}}};
    c.fake_quant = false;
  });
  const auto refuse_blocks = [&](const char* field, const NumBits& bits,
                                 const BlockConfig& blocks) {
    refuse((std::string("block_sizes: ") + field).c_str(), [&](Config& c) {
      c.num_bits = bits;
      c.block_sizes = blocks;
    });
  };
  const NumBits int4 = NumBits::integer(4);
  refuse_blocks("scale_block_sizes: ", int4, {{{-1, 8}}, {}, {}, BlockSizes{{-1, 4}}});
  refuse_blocks("scale_block_sizes: ", int4,
                {{{-1, 8}}, {}, NumBits::integer(8), BlockSizes{{0, 4}}});
  refuse_blocks("scale_bits: ", int4, {{{-1, 8}}, {}, NumBits::floating(8, 0)});
  refuse_blocks("scale_bits: ", int4, {{{-1, 8}}, {}, NumBits::integer(9)});
  refuse_blocks("four_over_six: ", int4, {{{-1, 8}}, {}, e4m3, {}, true});
  refuse("unsigned: ", [&](Config& c) {
    c.is_unsigned = true;
    c.block_sizes = BlockConfig{{{-1, 8}}, QuantType::Dynamic};
  });
}

TEST_CASE("TensorQuantizer: compress refuses what its storage would leave out") {
  const Tensor x = random_tensor({4, 64});
  const auto refuse = [&](const QuantizerConfig& config) {
    CHECK_THROWS_WITH_AS(TensorQuantizer(config).compress(x), doctest::Contains("compress: "),
                         UnsupportedError);
  };
  QuantizerConfig config = blocks_of(8, {{-1, 16}});
  config.block_sizes->scale_bits = NumBits::integer(8);
  refuse(config);
  config.num_bits = NumBits::integer(4);
  refuse(config);
  config = {};
  config.narrow_range = true;
  refuse(config);
  config = blocks_of(2, {{-1, 16}});
  config.num_bits = NumBits::floating(2, 1);
  config.block_sizes->scale_bits = NumBits::floating(4, 3);
  config.block_sizes->four_over_six = true;
  refuse(config);
}

TEST_CASE("TensorQuantizer: rotate_fp32 rounds half types once") {
  const Tensor x = random_tensor({7, 8}).to(DType::Float16);
  QuantizerConfig config;
  const auto turned = [&](bool fp32, const Tensor& values) {
    config.rotate =
        QuantizerConfig::Rotate{true, QuantizerConfig::RotateMode::Rotate, fp32, std::nullopt};
    TensorQuantizer quantizer(config);
    quantizer.disable_quant();
    return quantizer.forward(values);
  };
  const Tensor wide = x.to(DType::Float32);
  check_equal(turned(true, x), turned(true, wide).to(DType::Float16));
  const Tensor root = Tensor::scalar(std::sqrt(8.0));
  const Tensor product = mul(turned(true, wide), root).to(DType::Float16);
  const Tensor twice = div(product.to(DType::Float32), root).to(DType::Float16);
  const Tensor got = turned(false, x);
  CHECK(max(abs(got.to(DType::Float32) - twice.to(DType::Float32))).item() < 2e-3);
  CHECK(!got.equal(turned(true, x)));
  check_equal(turned(false, wide), turned(true, wide));
}

TEST_CASE("TensorQuantizer: a bias is taken off before dynamic blocks and calibration") {
  const Tensor x = add_scalar(random_tensor({6, 16}), 10.0);
  QuantizerConfig config;
  config.bias = QuantizerConfig::Bias{{{-1, std::nullopt}}};
  TensorQuantizer plain(config);
  plain.update(x);
  const Tensor bias = mean(x, {1}, {true});
  const Tensor amax = reduce_amax(sub(x, bias));
  check_equal(plain.forward(x),
              fake_tensor_quant(x, amax, {{8, false, false}, GradientRule::PassThrough, bias}));
  StateDict state;
  plain.save_state(state, "q.");
  TensorQuantizer other(config);
  CHECK_THROWS_WITH_AS(other.forward(x),
                       doctest::Contains("bias: expected one that was calibrated"), ArgumentError);
  other.load_state(state, "q.");
  other.set_amax(amax);
  check_equal(other.forward(x), plain.forward(x));
  config.bias->type = QuantType::Dynamic;
  config.num_bits = NumBits::integer(4);
  config.block_sizes = BlockConfig{{{-1, 8}}, QuantType::Dynamic};
  check_equal(TensorQuantizer(config).forward(x),
              add(dynamic_block_quant(sub(x, bias), {}, {config.num_bits, std::nullopt, 8}), bias));
}

TEST_CASE("SequentialQuantizer: quantizers follow one another") {
  const Tensor x = random_tensor({2, 32});
  QuantizerConfig fp8;
  fp8.num_bits = NumBits::floating(4, 3);
  fp8.type = QuantType::Dynamic;
  const auto first = std::make_shared<TensorQuantizer>(blocks_of(4, {{-1, 16}}));
  const auto second = std::make_shared<TensorQuantizer>(fp8);
  const SequentialQuantizer both({first, second});
  check_equal(both.forward(x), second->forward(first->forward(x)));
}

}  // namespace
}  // namespace quanta::modelopt
