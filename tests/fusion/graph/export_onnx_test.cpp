// Graphs written as ONNX: what stands in the file, and that reading it gives the same numbers.

#include "quanta/fusion/graph/export_onnx.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/graph/detail/coded_weight.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using Integers = std::vector<std::int64_t>;

OnnxValue floats(std::string name, Integers sizes) {
  OnnxValue value{
      .name = std::move(name), .type = OnnxType::Float, .sizes = std::vector<OnnxDim>{}};
  for (const std::int64_t size : sizes) value.sizes->push_back({.size = size, .name = {}});
  return value;
}

OnnxNode node(std::string op, std::vector<std::string> inputs, std::string output,
              OnnxAttributes attributes = {}) {
  OnnxNode made;
  made.name = op + "_" + output;
  made.op_type = std::move(op);
  made.inputs = std::move(inputs);
  made.outputs = {std::move(output)};
  made.attributes = std::move(attributes);
  return made;
}

void add_weight(OnnxModel& file, const std::string& name, const Tensor& value) {
  file.graph.initializers.push_back(
      {.name = name, .type = onnx_type_of(value.dtype()), .value = value});
}

/// Conv - Relu - Conv - Add - Concat - MaxPool - Flatten - Gemm, with a batch norm.
OnnxModel small_file(std::int64_t opset = 13) {
  manual_seed(7);
  OnnxModel file;
  file.opsets[""] = opset;
  file.graph.name = "small";
  file.graph.inputs = {floats("x", {2, 3, 8, 8})};
  file.graph.outputs = {floats("y", {2, 5})};
  add_weight(file, "w1", randn({6, 3, 3, 3}));
  add_weight(file, "b1", randn({6}));
  add_weight(file, "w2", randn({6, 1, 3, 3}));
  add_weight(file, "w3", randn({192, 5}));
  add_weight(file, "b3", randn({5}));
  const OnnxAttributes padded{{"pads", Integers{1, 1, 1, 1}}};
  OnnxAttributes grouped = padded;
  grouped["group"] = std::int64_t{6};
  file.graph.nodes = {
      node("Conv", {"x", "w1", "b1"}, "c1", padded),
      node("Relu", {"c1"}, "r1"),
      node("Conv", {"r1", "w2"}, "c2", grouped),
      node("Add", {"c2", "r1"}, "sum"),
      node("Concat", {"sum", "r1"}, "joined", {{"axis", std::int64_t{1}}}),
      node("MaxPool", {"joined"}, "pooled",
           {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}}),
      node("Flatten", {"pooled"}, "flat"),
      node("Gemm", {"flat", "w3", "b3"}, "y"),
  };
  return file;
}

Tensor sample() {
  manual_seed(3);
  return randn({2, 3, 8, 8});
}

Model quantized(const Model& net, const QConfig& qconfig = get_default_qconfig()) {
  return quantize_jit(net, qconfig, [](const Model& m) { static_cast<void>(m(sample())); });
}

std::size_t count(const OnnxModel& file, std::string_view op) {
  std::size_t found = 0;
  for (const OnnxNode& made : file.graph.nodes) found += made.op_type == op ? 1 : 0;
  return found;
}

}  // namespace

TEST_CASE("a float model is written as it was read") {
  const OnnxModel file = small_file();
  const Model net = from_onnx(file);
  const OnnxModel written = to_onnx(net);
  CHECK(written.opsets.at("") == 13);
  REQUIRE(written.graph.nodes.size() == file.graph.nodes.size());
  for (std::size_t i = 0; i < file.graph.nodes.size(); ++i) {
    CHECK(written.graph.nodes[i].op_type == file.graph.nodes[i].op_type);
    CHECK(written.graph.nodes[i].name == file.graph.nodes[i].name);
    CHECK(written.graph.nodes[i].inputs == file.graph.nodes[i].inputs);
    CHECK(written.graph.nodes[i].outputs == file.graph.nodes[i].outputs);
  }
  CHECK(from_onnx(written)(sample()).equal(net(sample())));
}

TEST_CASE("weights that were changed are written as they are now") {
  Model net = from_onnx(small_file());
  for (const auto& [name, tensor] : net.named_parameters()) tensor.fill_(0.25);
  CHECK(from_onnx(to_onnx(net))(sample()).equal(net(sample())));
  CHECK(count(to_onnx(net), "Conv") == 2);
}

TEST_CASE("a quantized model comes back with the same bits") {
  const Model net = quantized(from_onnx(small_file()));
  const OnnxModel written = to_onnx(net);
  CHECK(written.metadata.at("quanta.arithmetic") == "torch");
  CHECK(count(written, "Conv") == 2);
  CHECK(count(written, "Gemm") == 1);
  CHECK(count(written, "QuantizeLinear") == 8);
  CHECK(from_onnx(written)(sample()).equal(net(sample())));
}

TEST_CASE("QOperator form has no float layers") {
  const Model net = quantized(from_onnx(small_file()));
  const OnnxModel written = to_onnx(net, {.format = OnnxFormat::QOperator});
  CHECK(count(written, "QLinearConv") == 2);
  CHECK(count(written, "QLinearAdd") == 1);
  CHECK(count(written, "QLinearConcat") == 1);
  CHECK(count(written, "QGemm") == 1);
  CHECK(count(written, "MaxPool") == 1);
  CHECK(count(written, "QuantizeLinear") == 1);
  CHECK(count(written, "DequantizeLinear") == 1);
  CHECK(written.opsets.at("com.microsoft") == 1);
}

TEST_CASE("the opset is the lowest that has it all") {
  const Model net = quantized(from_onnx(small_file(11)));
  CHECK(to_onnx(net).opsets.at("") == 13);
  CHECK(to_onnx(net, {.opset = 17}).opsets.at("") == 17);
  CHECK_THROWS_AS(to_onnx(net, {.opset = 11}), UnsupportedError);
  OnnxModel old = small_file(11);
  old.graph.nodes.push_back(node("Softmax", {"y"}, "z", {{"axis", std::int64_t{0}}}));
  old.graph.outputs = {floats("z", {2, 5})};
  const Model plain = from_onnx(old);
  CHECK(to_onnx(plain).opsets.at("") == 11);
  // Before 13 Softmax works on rows of all dimensions from its axis on: here on all numbers at once.
  const OnnxModel newer = to_onnx(plain, {.opset = 13});
  CHECK(count(newer, "Flatten") == count(to_onnx(plain), "Flatten") + 1);
  CHECK(from_onnx(newer)(sample()).equal(plain(sample())));
}

TEST_CASE("TensorRT is told what it does not take") {
  const Model net = quantized(from_onnx(small_file()));
  CHECK_THROWS_WITH_AS(to_onnx(net, {.target = OnnxTarget::TensorRT}), doctest::Contains("x_quant"),
                       ArgumentError);
  QConfig symmetric;
  symmetric.activation = MinMaxObserver::with_args({.qscheme = QScheme::PerTensorSymmetric});
  symmetric.weight = default_per_channel_weight_observer();
  const Model fitting = quantized(from_onnx(small_file()), symmetric);
  const OnnxModel written = to_onnx(fitting, {.target = OnnxTarget::TensorRT});
  CHECK(from_onnx(written)(sample()).equal(fitting(sample())));
}

TEST_CASE("weights of 4 bits in blocks") {
  OnnxModel file;
  manual_seed(5);
  file.opsets[""] = 13;
  file.graph.inputs = {floats("x", {3, 64})};
  file.graph.outputs = {floats("y", {3, 16})};
  add_weight(file, "w", randn({64, 16}));
  file.graph.nodes = {node("MatMul", {"x", "w"}, "y")};
  const Tensor x = randn({3, 64});
  for (const bool symmetric : {true, false}) {
    const Model net = quantize_weight_only_jit(
        from_onnx(file), {.bits = 4, .group_size = 32, .symmetric = symmetric});
    const OnnxModel written = to_onnx(net);
    CHECK(written.opsets.at("") == 21);
    CHECK(from_onnx(written)(x).equal(net(x)));
    const OnnxModel packed = to_onnx(net, {.target = OnnxTarget::OnnxRuntime});
    CHECK(count(packed, "MatMulNBits") == 1);
    CHECK(packed.opsets.at("") == 13);
    CHECK(from_onnx(packed)(x).equal(net(x)));
  }
}

TEST_CASE("dynamic linear layers become integer products") {
  const Model net = quantize_dynamic_jit(from_onnx(small_file()));
  const OnnxModel written = to_onnx(net);
  CHECK(count(written, "DynamicQuantizeLinear") == 1);
  CHECK(count(written, "MatMulInteger") == 1);
  CHECK(count(written, "Conv") == 2);
  CHECK(written.metadata.at("quanta.layer.Gemm_y") == "DynamicLinear, bias");
  const Model back = from_onnx(written);
  CHECK(back.get_submodule("Gemm_y")->type_name() == "DynamicQuantizedLinear");
  CHECK(back(sample()).equal(net(sample())));
  // The nodes as they stand.
  const Model literal = from_onnx(written, {.literal = true});
  CHECK_THROWS_AS(static_cast<void>(literal.get_submodule("Gemm_y")), ArgumentError);
  CHECK_FALSE(literal(sample()).equal(net(sample())));
}

TEST_CASE("nodes that somebody has changed since are read as they stand") {
  const Model net = quantize_dynamic_jit(from_onnx(small_file()));
  OnnxModel written = to_onnx(net);
  for (OnnxNode& made : written.graph.nodes) {
    if (made.op_type == "Add" && made.outputs[0] == "y") made.op_type = "Sub";
  }
  const Tensor y = from_onnx(written)(sample());
  CHECK_FALSE(y.equal(net(sample())));
  for (auto& [key, value] : written.metadata) value = "nonsense";
  CHECK(from_onnx(written)(sample()).equal(y));
}

TEST_CASE("a recurrent layer that was made another one is no layer of torch's any more") {
  manual_seed(2);
  OnnxModel file;
  file.opsets[""] = 14;
  file.graph.inputs = {floats("x", {3, 2, 8})};
  file.graph.outputs = {floats("y", {3, 1, 2, 8})};
  add_weight(file, "w", randn({1, 24, 8}));
  add_weight(file, "r", randn({1, 24, 8}));
  file.graph.nodes = {
      node("GRU", {"x", "w", "r"}, "y",
           {{"hidden_size", std::int64_t{8}}, {"linear_before_reset", std::int64_t{1}}})};
  const Model net = quantize_dynamic_jit(from_onnx(file));
  OnnxModel written = to_onnx(net);
  const Tensor x = randn({3, 2, 8});
  CHECK(from_onnx(written).get_submodule("GRU_y")->type_name() == "DynamicQuantizedGRU");
  CHECK(from_onnx(written)(x).equal(net(x)));
  for (OnnxNode& made : written.graph.nodes) {
    if (made.op_type == "GRU") made.attributes["linear_before_reset"] = std::int64_t{0};
  }
  const Model other = from_onnx(written);
  CHECK(other(x).equal(from_onnx(written, {.literal = true})(x)));
  CHECK_FALSE(other(x).equal(net(x)));
}

TEST_CASE("notes of an earlier file do not stay") {
  const Model net = from_onnx(to_onnx(quantize_dynamic_jit(from_onnx(small_file()))));
  OnnxModel rest = net.file();
  REQUIRE(rest.metadata.contains("quanta.layer.Gemm_y"));
  rest.metadata["author"] = "somebody";
  Model plain = from_onnx(small_file());
  plain.set_file(std::make_shared<const OnnxModel>(rest));
  CHECK(to_onnx(plain).metadata == std::map<std::string, std::string>{{"author", "somebody"}});
}

TEST_CASE("biases as integers") {
  const Model net = quantized(from_onnx(small_file()));
  const OnnxModel written = to_onnx(net, {.bias = OnnxBias::Int32});
  std::size_t integers = 0;
  for (const OnnxTensor& tensor : written.graph.initializers) {
    integers += tensor.type == OnnxType::Int32 ? 1 : 0;
  }
  CHECK(integers == 2);
  CHECK(from_onnx(written)(sample()).equal(net(sample())));
  CHECK(test::sqnr_db(net(sample()), from_onnx(written, {.literal = true})(sample())) > 30.0);
}

TEST_CASE("a bias with NaN is no integer") {
  const QTensor weight = quantize_per_tensor(Tensor::ones({2, 3}), 0.5, 0, DType::QInt8);
  const auto codes_of = [&](std::array<float, 2> bias, double x_scale) {
    return detail::coded_bias(Tensor::from_values({bias[0], bias[1]}), x_scale, weight)
        .codes.to_int64_vector();
  };
  CHECK(codes_of({1.0F, -2.0F}, 0.25) == Integers{8, -16});
  CHECK(codes_of({0.0F, 1e30F}, 1e-46) == Integers{0, 2147483647});  // units of 0
  CHECK_THROWS_WITH_AS(codes_of({1.0F, std::nanf("")}, 0.25),
                       "to_onnx: bias: expected numbers, got NaN at 1", ArgumentError);
}

TEST_CASE("integer biases that somebody has changed since are those that count") {
  const Model net = quantized(from_onnx(small_file()));
  for (const OnnxFormat format : {OnnxFormat::QDQ, OnnxFormat::QOperator}) {
    OnnxModel written = to_onnx(net, {.format = format, .bias = OnnxBias::Int32});
    REQUIRE(written.metadata.contains("quanta.bias.Gemm_y.bias_quantized"));
    for (OnnxTensor& tensor : written.graph.initializers) {
      if (tensor.name == "Gemm_y.bias_quantized") tensor.value = tensor.value.clone().fill_(1e6);
    }
    const Tensor y = from_onnx(written)(sample());
    CHECK_FALSE(y.equal(net(sample())));
    written.metadata.erase("quanta.bias.Gemm_y.bias_quantized");
    CHECK(from_onnx(written)(sample()).equal(y));
  }
}

TEST_CASE("graphs within nodes name what they capture") {
  OnnxModel file = small_file();
  file.graph.inputs.push_back(
      {.name = "flag", .type = OnnxType::Bool, .sizes = std::vector<OnnxDim>{}});
  const auto branch = [](const char* op, const char* result) {
    auto body = std::make_shared<OnnxGraph>();
    body->name = op;
    body->nodes = {node(op, {"y"}, result)};
    body->outputs = {floats(result, {2, 5})};
    return std::shared_ptr<const OnnxGraph>(std::move(body));
  };
  file.graph.nodes.push_back(
      node("If", {"flag"}, "z",
           {{"then_branch", branch("Relu", "a")}, {"else_branch", branch("Neg", "b")}}));
  file.graph.outputs = {floats("z", {2, 5})};
  const Model net = from_onnx(file);
  const Model back = from_onnx(to_onnx(net));
  for (const double flag : {0.0, 1.0}) {
    const NamedTensors inputs{{"x", sample()}, {"flag", Tensor::scalar(flag, DType::Bool)}};
    CHECK(back.run(inputs).at("z").equal(net.run(inputs).at("z")));
  }
}

TEST_CASE("files are written whole") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "quanta_export_onnx_test";
  std::filesystem::create_directories(folder);
  const Model net = from_onnx(small_file());
  save_onnx(folder / "net.onnx", net, {.external_data_above = 100});
  CHECK(load_onnx(folder / "net.onnx")(sample()).equal(net(sample())));
  CHECK(std::filesystem::exists(folder / "net.onnx.data"));
  std::filesystem::remove_all(folder);
}

}  // namespace quanta::graph
