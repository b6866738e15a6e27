// ModelOpt's symbolic functions.

#include "quanta/fusion/graph/symbolic.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/onnx_cases.h"

namespace quanta::graph::symbolic {
namespace {

constexpr TensorQuantOptions kFullRange{.narrow_range = false};

std::vector<OnnxDim> sizes() {
  std::vector<OnnxDim> dims(2);
  dims[0].size = 4;
  dims[1].size = 32;
  return dims;
}

/// A graph that begins with x [4, 32].
OnnxModel begun(std::int64_t opset, OnnxType type = OnnxType::Float) {
  OnnxModel model;
  model.opsets[""] = opset;
  model.graph.name = "test";
  model.graph.inputs.push_back({.name = "x", .type = type, .sizes = sizes()});
  return model;
}

void end(OnnxModel& model, const std::string& y) {
  model.graph.outputs.push_back({.name = y, .type = OnnxType::Float, .sizes = sizes()});
}

std::vector<std::string> ops(const OnnxModel& model) {
  std::vector<std::string> names;
  for (const OnnxNode& node : model.graph.nodes) {
    names.push_back((node.domain.empty() ? "" : node.domain + "::") + node.op_type);
  }
  return names;
}

const Tensor& weight(const OnnxModel& model, const std::string& name) {
  for (const OnnxTensor& tensor : model.graph.initializers) {
    if (tensor.name == name) return tensor.value;
  }
  FAIL("no weight " << name);
  return model.graph.initializers.front().value;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("symbolic: integers give the values of fake_tensor_quant") {
  manual_seed(1);
  const Tensor x = randn({4, 32});
  const Tensor one = Tensor::scalar(2.0, DType::Float32);
  const Tensor rows = Tensor::from_values({0.5F, 1.0F, 2.0F, 3.0F}, {4, 1});
  for (const auto function : {fake_tensor_quant, legacy_fake_tensor_quant, tensor_quant}) {
    for (const Tensor& amax : {one, rows}) {
      OnnxModel model = begun(17);
      const std::string y = function(model, "x", amax, kFullRange, {});
      end(model, y);
      CHECK(ops(model) == Names{"QuantizeLinear", "DequantizeLinear"});
      CHECK(weight(model, "x_zero_point").dtype() == DType::Int8);
      test::write_onnx_case("symbolic_int8", model, x,
                            quanta::fake_tensor_quant(x, amax, {.codes = kFullRange}));
      test::check_close(from_onnx(model, {.literal = true})(x),
                        quanta::fake_tensor_quant(x, amax, {.codes = kFullRange}));
    }
  }
  OnnxModel model = begun(17);
  end(model, fake_tensor_quant(model, "x", one, {.is_unsigned = true}));
  CHECK(weight(model, "x_zero_point").dtype() == DType::UInt8);
  CHECK(weight(model, "x_scale").item() == doctest::Approx(2.0 / 255.0));
}

TEST_CASE("symbolic: an amax of 0 has the scale 1") {
  OnnxModel model = begun(17);
  fake_tensor_quant(model, "x", Tensor::from_values({0.0F, 1.0F, 127.0F, 2.0F}, {4, 1}),
                    kFullRange);
  CHECK(weight(model, "x_scale").to_float_vector()[0] == 1.0F);
  CHECK(weight(model, "x_scale").to_float_vector()[2] == 1.0F);
}

TEST_CASE("symbolic: Q and DQ calculate in trt_high_precision_dtype between casts") {
  const Tensor amax = Tensor::scalar(2.0, DType::Float32);
  OnnxModel halves = begun(19, OnnxType::Float16);
  fake_tensor_quant(halves, "x", amax, kFullRange, {.trt_high_precision_dtype = DType::Float32});
  CHECK(ops(halves) == Names{"Cast", "QuantizeLinear", "DequantizeLinear", "Cast"});
  CHECK(weight(halves, "x_scale").dtype() == DType::Float32);
  CHECK(halves.graph.values.back().type == OnnxType::Float16);

  OnnxModel strong = begun(19, OnnxType::Float16);
  fake_tensor_quant(strong, "x", amax, kFullRange, {.trt_high_precision_dtype = DType::Float16});
  CHECK(ops(strong) == Names{"QuantizeLinear", "DequantizeLinear"});
  CHECK(weight(strong, "x_scale").dtype() == DType::Float16);

  OnnxModel bfloats = begun(19, OnnxType::BFloat16);
  scaled_e4m3(bfloats, "x", amax, {.trt_high_precision_dtype = DType::Float32});
  CHECK(ops(bfloats) ==
        Names{"Cast", "trt::TRT_FP8QuantizeLinear", "trt::TRT_FP8DequantizeLinear", "Cast"});

  OnnxModel floats = begun(19);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(floats, "x", amax, kFullRange,
                                         {.trt_high_precision_dtype = DType::Float16}),
                       doctest::Contains("expected Float32 or the value's FLOAT, got Float16"),
                       ArgumentError);
  CHECK(floats.graph.nodes.empty());
}

TEST_CASE("symbolic: float8 has nodes of TensorRT or of ONNX") {
  manual_seed(2);
  const Tensor x = randn({4, 32});
  const Tensor amax = Tensor::scalar(1.5, DType::Float32);
  OnnxModel trt = begun(17);
  scaled_e4m3(trt, "x", amax);
  CHECK(ops(trt) == Names{"trt::TRT_FP8QuantizeLinear", "trt::TRT_FP8DequantizeLinear"});
  CHECK(trt.opsets.at("trt") == 1);
  CHECK(weight(trt, "x_scale").item() == doctest::Approx(1.5 / 448.0));
  OnnxModel without = begun(17);
  scaled_e4m3(without, "x");
  CHECK(weight(without, "x_scale").item() == 1.0);

  OnnxModel standard = begun(19);
  end(standard, scaled_e4m3(standard, "x", amax, {.nodes = QuantizerNodes::Standard}));
  CHECK(ops(standard) == Names{"QuantizeLinear", "DequantizeLinear"});
  test::write_onnx_case("symbolic_fp8", standard, x, quanta::scaled_e4m3(x, amax));
  test::check_close(from_onnx(standard)(x), quanta::scaled_e4m3(x, amax));

  const Tensor rows = Tensor::ones({4, 1});
  CHECK_THROWS_WITH_AS(scaled_e4m3(trt, "x", rows), doctest::Contains("TensorRT takes one"),
                       UnsupportedError);
  OnnxModel old = begun(17);
  CHECK_THROWS_WITH_AS(scaled_e4m3(old, "x", amax, {.nodes = QuantizerNodes::Standard}),
                       doctest::Contains("expected opset 19 or later"), ArgumentError);
  CHECK(old.graph.nodes.empty());
  CHECK(old.graph.initializers.empty());
}

TEST_CASE("symbolic: int4 is for weights in blocks") {
  manual_seed(3);
  const Tensor w = randn({4, 32});
  const Tensor amax = Tensor::full({4, 2}, 2.0);
  const TensorQuantOptions four{.num_bits = 4, .narrow_range = false};
  OnnxModel trt = begun(17);
  fake_tensor_quant(trt, "x", amax, four, {.block_size = 16});
  CHECK(ops(trt) == Names{"trt::DequantizeLinear"});
  CHECK(std::get<std::int64_t>(trt.graph.nodes[0].attributes.at("block_size")) == 16);
  CHECK(std::get<std::int64_t>(trt.graph.nodes[0].attributes.at("axis")) == 1);

  OnnxModel halves = begun(17, OnnxType::Float16);
  fake_tensor_quant(halves, "x", amax, four,
                    {.trt_high_precision_dtype = DType::Float32, .block_size = 16});
  CHECK(ops(halves) == Names{"Cast", "trt::DequantizeLinear", "Cast"});

  OnnxModel standard = begun(21);
  standard.graph.initializers.push_back({.name = "w", .type = OnnxType::Float, .value = w});
  const std::string y = fake_tensor_quant(standard, "w", amax, four,
                                          {.nodes = QuantizerNodes::Standard, .block_size = 16});
  OnnxNode add;
  add.op_type = "Add";
  add.inputs = {"x", y};
  add.outputs = {"z"};
  standard.graph.nodes.push_back(add);
  end(standard, "z");
  const Tensor split =
      quanta::fake_tensor_quant(w.reshape({4, 2, 16}), amax.reshape({4, 2, 1}), {.codes = four});
  test::check_close(from_onnx(standard)(Tensor::zeros({4, 32})), split.reshape({4, 32}));
  CHECK_THROWS_WITH_AS(fake_tensor_quant(standard, "x", amax, four,
                                         {.nodes = QuantizerNodes::Standard, .block_size = 16}),
                       doctest::Contains("expected an initializer"), UnsupportedError);
  CHECK_THROWS_WITH_AS(fake_tensor_quant(trt, "x", amax, four, {.block_size = 5}),
                       doctest::Contains("block_size: expected a size that divides the 32"),
                       ArgumentError);
}

TEST_CASE("symbolic: dynamic blocks have TensorRT's nodes or are taken apart") {
  manual_seed(4);
  const Tensor x = randn({4, 32});
  const Tensor amax = Tensor::scalar(3.0, DType::Float32);
  const DynamicBlockOptions mxfp8{
      .num_bits = NumBits::floating(4, 3), .scale_bits = NumBits::floating(8, 0), .block_size = 32};
  OnnxModel nvfp4 = begun(17);
  dynamic_block_quant(nvfp4, "x", amax);
  CHECK(ops(nvfp4) ==
        Names{"trt::TRT_FP4DynamicQuantize", "trt::DequantizeLinear", "trt::DequantizeLinear"});
  CHECK(weight(nvfp4, "x_scale").item() == doctest::Approx(3.0 / 6.0 / 448.0));
  OnnxModel mx = begun(17);
  dynamic_block_quant(mx, "x", {}, mxfp8);
  CHECK(ops(mx) == Names{"trt::TRT_MXFP8DynamicQuantize", "trt::TRT_MXFP8DequantizeLinear"});

  OnnxModel parts = begun(19);
  end(parts, dynamic_block_quant(parts, "x", {}, mxfp8, {.nodes = QuantizerNodes::Standard}));
  // Powers of two and their neighbours: where a logarithm is off by a rounding.
  std::vector<float> edges;
  for (int i = 0; i < 128; ++i) {
    const float power = std::ldexp(448.0F, i / 32 - 3);
    edges.push_back(i % 32 == 0 ? (i % 64 == 0 ? power : std::nextafter(power, 1e9F)) : 1.0F);
  }
  for (const Tensor& each : {x, Tensor::from_values(edges, {4, 32}), Tensor::zeros({4, 32})}) {
    test::check_close(from_onnx(parts)(each), quanta::dynamic_block_quant(each, {}, mxfp8));
  }
  test::write_onnx_case(
      "symbolic_mxfp8", parts, Tensor::from_values(edges, {4, 32}),
      quanta::dynamic_block_quant(Tensor::from_values(edges, {4, 32}), {}, mxfp8));
  CHECK_THROWS_WITH_AS(
      dynamic_block_quant(mx, "x", {}, {.num_bits = NumBits::floating(4, 3), .block_size = 7}),
      doctest::Contains("blocks of 7 that do not divide"), UnsupportedError);
}

TEST_CASE("symbolic: wrong arguments are refused by name and leave the graph as it was") {
  OnnxModel model = begun(17);
  const Tensor amax = Tensor::scalar(1.0, DType::Float32);
  const auto refused = [&](const char* text, const auto& call) {
    CAPTURE(text);
    const std::string got = test::message_of(call);
    CAPTURE(got);
    CHECK(got.find(text) != std::string::npos);
    CHECK(model.graph.nodes.empty());
    CHECK(model.graph.initializers.empty());
    CHECK(model.graph.values.empty());
  };
  refused("a value that the graph declares",
          [&] { fake_tensor_quant(model, "z", amax, kFullRange); });
  refused("narrow_range: expected false", [&] { fake_tensor_quant(model, "x", amax); });
  refused("num_bits: expected 8, or 4 in blocks, got 6",
          [&] { tensor_quant(model, "x", amax, {.num_bits = 6, .narrow_range = false}); });
  refused("amax: expected a floating tensor", [&] { tensor_quant(model, "x", {}, kFullRange); });
  refused("finite numbers of at least 0, got -1", [&] {
    legacy_fake_tensor_quant(model, "x", Tensor::scalar(-1.0, DType::Float32), kFullRange);
  });
  refused("expected one that broadcasts to [4, 32], got [3]",
          [&] { fake_tensor_quant(model, "x", Tensor::ones({3}), kFullRange); });
  refused("finite numbers of at least 0, got -5", [&] {
    dynamic_block_quant(model, "x", Tensor::from_values({1.0F, 2.0F, -5.0F, 1.0F}, {4, 1}));
  });
  for (const std::int64_t bits : {0, 1, 9, 20, 65}) {
    refused("there are integers of 2 to 8", [&] {
      dynamic_block_quant(model, "x", {}, {.num_bits = NumBits::integer(bits), .block_size = 16},
                          {.nodes = QuantizerNodes::Standard});
    });
  }
  refused("several elements along one axis", [&] {
    fake_tensor_quant(model, "x", Tensor::ones({4, 32}), kFullRange);
  });
}

TEST_CASE("symbolic: the opset is known under both of its names") {
  OnnxModel old = begun(9);
  old.opsets = {{"ai.onnx", 9}};
  CHECK_THROWS_WITH_AS(scaled_e4m3(old, "x", Tensor::scalar(1.0, DType::Float32),
                                   {.nodes = QuantizerNodes::Standard}),
                       doctest::Contains("expected opset 19 or later"), ArgumentError);
  CHECK(old.opsets.size() == 1);
}

}  // namespace quanta::graph::symbolic
