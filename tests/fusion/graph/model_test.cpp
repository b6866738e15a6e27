// Files become graphs, and graphs run.

#include "quanta/fusion/graph/model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/matmul.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using test::NetBuilder;

Tensor floats(std::initializer_list<float> values) { return Tensor::from_values(values); }
Tensor integers(std::vector<std::int64_t> values) { return Tensor::from_int64(values); }

OnnxNode make_node(const std::string& op, std::vector<std::string> inputs,
                   std::vector<std::string> outputs) {
  OnnxNode node;
  node.name = op + "_" + outputs[0];
  node.op_type = op;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

OnnxModel model_of(std::vector<OnnxNode> nodes, const std::string& input,
                   const std::string& output) {
  OnnxModel model;
  model.opsets[""] = 17;
  model.graph.nodes = std::move(nodes);
  model.graph.inputs.push_back({.name = input, .type = OnnxType::Float, .sizes = {}});
  model.graph.outputs.push_back({.name = output, .type = OnnxType::Float, .sizes = {}});
  return model;
}

TEST_CASE("graph model: nodes in any order run each after those that it waits for") {
  const OnnxModel model =
      model_of({make_node("Neg", {"b"}, {"c"}), make_node("Exp", {"a"}, {"b"})}, "a", "c");
  const Model net = from_onnx(model);
  CHECK(net(floats({0.0F})).to_float_vector() == std::vector<float>{-1.0F});
  CHECK(net.graph().nodes[0].op == "Exp");
}

TEST_CASE("graph model: a cycle is refused by name") {
  const OnnxModel model =
      model_of({make_node("Neg", {"c"}, {"b"}), make_node("Exp", {"b"}, {"c"})}, "a", "c");
  CHECK_THROWS_WITH_AS(from_onnx(model), doctest::Contains("in a cycle"), FileError);
}

TEST_CASE("graph model: a value that nobody makes and one that two make are refused") {
  CHECK_THROWS_WITH_AS(from_onnx(model_of({make_node("Neg", {"ghost"}, {"c"})}, "a", "c")),
                       doctest::Contains("'ghost'"), FileError);
  const OnnxModel twice =
      model_of({make_node("Neg", {"a"}, {"c"}), make_node("Exp", {"a"}, {"c"})}, "a", "c");
  CHECK_THROWS_WITH_AS(from_onnx(twice), doctest::Contains("made twice"), FileError);
}

TEST_CASE("graph model: all operators that are missing are listed at once") {
  OnnxModel model = model_of({make_node("Frobnicate", {"a"}, {"b"}), make_node("Exp", {"b"}, {"c"}),
                              make_node("Defrobnicate", {"c"}, {"d"})},
                             "a", "d");
  model.graph.nodes[2].domain = "com.example";
  try {
    from_onnx(model);
    FAIL("expected an error");
  } catch (const UnsupportedError& error) {
    const std::string text = error.what();
    CHECK(text.find("Frobnicate (opset 17)") != std::string::npos);
    CHECK(text.find("com.example.Defrobnicate (opset 1)") != std::string::npos);
    CHECK(text.find("Frobnicate_b") != std::string::npos);
  }
}

TEST_CASE("graph model: a function of the file is written out with the call's attributes") {
  OnnxModel model =
      model_of({make_node("Leak", {"a"}, {"b"}), make_node("Leak", {"b"}, {"c"})}, "a", "c");
  for (OnnxNode& node : model.graph.nodes) node.domain = "my";
  model.graph.nodes[1].attributes["slope"] = 0.25F;
  model.opsets["my"] = 1;
  OnnxFunction function;
  function.name = "Leak";
  function.domain = "my";
  function.inputs = {"x"};
  function.outputs = {"y"};
  function.attributes["slope"] = 0.5F;
  function.opsets[""] = 16;
  OnnxNode inner = make_node("LeakyRelu", {"x"}, {"y"});
  inner.references["alpha"] = {"slope"};
  function.nodes = {inner};
  model.functions = {function};
  const Model net = from_onnx(model);
  CHECK(net(floats({-8.0F, 2.0F})).to_float_vector() == std::vector<float>{-1.0F, 2.0F});

  model.functions[0].nodes[0].op_type = "Leak";
  model.functions[0].nodes[0].domain = "my";
  CHECK_THROWS_WITH_AS(from_onnx(model), doctest::Contains("calls itself"), FileError);
}

std::shared_ptr<const OnnxGraph> branch(const std::string& op, const std::string& captured) {
  auto graph = std::make_shared<OnnxGraph>();
  graph->name = op;
  graph->nodes = {make_node(op, {captured}, {op + "_result"})};
  graph->outputs.push_back({.name = op + "_result", .type = OnnxType::Float, .sizes = {}});
  return graph;
}

TEST_CASE("graph model: If takes a branch with what it captures, now or when it is loaded") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string flag = builder.input("flag", OnnxType::Bool);
  const std::string y = builder.node(
      "If", {flag}, {{"then_branch", branch("Exp", x)}, {"else_branch", branch("Neg", x)}});
  const OnnxModel file = builder.finish({y});
  const Model net = from_onnx(file);
  const auto run = [&](bool value) {
    return net.run({{"x", floats({0.0F, 0.0F})}, {"flag", Tensor::scalar(value, DType::Bool)}})
        .at(y)
        .to_float_vector();
  };
  CHECK(run(true) == std::vector<float>{1.0F, 1.0F});
  CHECK(run(false) == std::vector<float>{0.0F, 0.0F});

  const Model bound = from_onnx(file, {.constants = {{"flag", Tensor::scalar(1, DType::Bool)}}});
  CHECK(bound.input_names() == std::vector<std::string>{"x"});
  REQUIRE(bound.graph().nodes.size() == 1);
  CHECK(bound.graph().nodes[0].op == "Exp");
  CHECK(bound(floats({0.0F})).to_float_vector() == std::vector<float>{1.0F});
  CHECK_THROWS_WITH_AS(from_onnx(file, {.constants = {{"flog", Tensor::scalar(1, DType::Bool)}}}),
                       doctest::Contains("expected names of inputs, got 'flog'"), ArgumentError);
}

TEST_CASE("graph model: Loop carries states and stacks what its steps give") {
  auto body = std::make_shared<OnnxGraph>();
  for (const char* name : {"i", "go", "sum"}) {
    body->inputs.push_back({.name = name, .type = OnnxType::Undefined, .sizes = {}});
  }
  body->nodes = {make_node("Add", {"sum", "step"}, {"next"}),
                 make_node("Identity", {"go"}, {"go_on"}),
                 make_node("Identity", {"next"}, {"seen"})};
  for (const char* name : {"go_on", "next", "seen"}) {
    body->outputs.push_back({.name = name, .type = OnnxType::Undefined, .sizes = {}});
  }
  NetBuilder builder;
  const std::string trips = builder.input("trips", OnnxType::Int64);
  const std::string step = builder.input("step");
  const std::string start = builder.constant(floats({1.0F}));
  builder.node("Loop", {trips, "", start}, {{"body", std::shared_ptr<const OnnxGraph>(body)}}, "",
               2);
  const Model net = from_onnx(builder.finish({"Loop_0_out0", "Loop_0_out1"}));
  const std::vector<Tensor> given{integers({3}).reshape({}), floats({2.0F})};
  const std::vector<Tensor> results = net.run(given);
  CHECK(results[0].to_float_vector() == std::vector<float>{7.0F});
  CHECK(results[1].sizes() == Dims{3, 1});
  CHECK(results[1].to_float_vector() == std::vector<float>{3.0F, 5.0F, 7.0F});
  CHECK(step == "step");
}

TEST_CASE("graph model: what depends on constants alone is calculated once") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string half =
      builder.node("Mul", {builder.constant(floats({0.25F})), builder.constant(floats({2.0F}))});
  const Model net = from_onnx(builder.finish({builder.node("Mul", {x, half})}));
  CHECK(net.graph().nodes.size() == 1);
  CHECK(net(floats({3.0F})).to_float_vector() == std::vector<float>{1.5F});
}

TEST_CASE("graph model: a file cannot ask for more memory than the limit") {
  NetBuilder builder;
  builder.input("x");
  const std::string sizes = builder.constant(integers({1 << 20, 1 << 20, 1 << 4}));
  const std::string huge = builder.node("ConstantOfShape", {sizes});
  const OnnxModel file = builder.finish({builder.node("Exp", {builder.node("Neg", {huge})})});
  // Loading leaves it to the run, and that is refused before memory is taken.
  const Model hostile = from_onnx(file);
  CHECK_THROWS_WITH_AS(hostile(floats({1.0F})), doctest::Contains("the limit is"), Error);
  NetBuilder large;
  const std::string x = large.input("x");
  const std::string filled =
      large.node("ConstantOfShape", {large.constant(integers({1024, 1024}))});
  const Model net = from_onnx(large.finish({large.node("Add", {x, filled})}));
  CHECK(net.graph().nodes.size() == 2);  // four megabytes are not kept
}

TEST_CASE("graph model: inputs that are missing, unknown or of another type are refused") {
  NetBuilder builder;
  const std::string a = builder.input("a");
  const std::string b = builder.input("b");
  const Model net = from_onnx(builder.finish({builder.node("Add", {a, b})}));
  const Tensor x = floats({1.0F});
  CHECK_THROWS_WITH_AS(net.run({{"a", x}}), doctest::Contains("'b' is missing"), ArgumentError);
  CHECK_THROWS_WITH_AS(net.run({{"a", x}, {"b", x}, {"c", x}}), doctest::Contains("got 'c'"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(net.run({{"a", x}, {"b", integers({1})}}),
                       doctest::Contains("input 'b': expected Float32, got Int64"), ArgumentError);
  CHECK_THROWS_WITH_AS(net(x), doctest::Contains("use run"), ArgumentError);
}

TEST_CASE("graph model: operators without the inputs that they need are errors") {
  const std::vector<std::vector<std::string>> inputs{
      {}, {""}, {"x"}, {"", "w"}, {"x", ""}, {"x", "w"}, {"x", "w", ""}, {"x", "", "w", ""}};
  const std::vector<std::string> notes{"", "DynamicLinear, bias, 8 bits", "WeightOnlyLinear",
                                       "DynamicLSTM", "DynamicGRU"};
  int refused = 0;
  for (const OpRow& row : op_table().rows()) {
    for (const std::vector<std::string>& given : inputs) {
      for (const std::string& note : notes) {
        OnnxNode first = make_node(std::string(row.name), given, {"y"});
        first.domain = row.domain;
        OnnxModel model = model_of({first, make_node("Mul", {"y", "w"}, {"z"})}, "x", "z");
        model.opsets[std::string(row.domain)] = std::max<std::int64_t>(row.since, 17);
        const Tensor w = Tensor::ones({4, 4, 1, 1});
        model.graph.initializers.push_back({.name = "w", .type = OnnxType::Float, .value = w});
        if (!note.empty()) model.metadata["quanta.layer." + first.name] = note;
        try {
          static_cast<void>(from_onnx(model));
        } catch (const Error&) {
          ++refused;
        }
      }
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("graph model: errors name the node and the sizes of its inputs") {
  NetBuilder builder;
  const std::string a = builder.input("a");
  const std::string b = builder.input("b");
  const Model net = from_onnx(builder.finish({builder.node("Add", {a, b})}));
  CHECK_THROWS_WITH_AS(net.run({{"a", floats({1.0F, 2.0F})}, {"b", floats({1.0F, 2.0F, 3.0F})}}),
                       doctest::Contains("in node 'Add_0', Add of Float32 [2], Float32 [3]"),
                       ArgumentError);
}

TEST_CASE("graph model: layers are children under the names of their nodes") {
  Generator generator(3);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string weight = builder.constant(randn({4, 2, 3, 3}, generator));
  const std::string y =
      builder.node("Conv", {x, weight}, {{"pads", std::vector<std::int64_t>(4, 1)}});
  const OnnxModel file = builder.finish({builder.node("Relu", {y})});
  Model net = from_onnx(file);
  CHECK(net.has_child("Conv_0"));
  CHECK(net.state_dict().contains("Conv_0.weight"));
  CHECK(nn::to_string(net).find("(Conv_0): Conv2d(2, 4") != std::string::npos);
  const Tensor input = randn({1, 2, 5, 5}, generator);
  const Tensor before = net(input);

  // Hooks see what passes, and a clone has weights of its own.
  int calls = 0;
  net.get_submodule("Conv_0")->register_forward_hook(
      [&](const nn::Module&, const Tensor&, const Tensor& output) {
        ++calls;
        return output;
      });
  CHECK(net(input).equal(before));
  CHECK(calls == 1);
  const Model copy = nn::deep_copy(net);
  net.get_submodule("Conv_0")->parameters()[0].fill_(0.0);
  CHECK(copy(input).equal(before));
  CHECK_FALSE(net(input).equal(before));
}

TEST_CASE("graph model: layers without weights take 16-bit floats") {
  NetBuilder builder;
  const std::string x = builder.input("x", OnnxType::Float16);
  const OnnxAttributes window{{"kernel_shape", std::vector<std::int64_t>{2, 2}}};
  const Model net = from_onnx(builder.finish(
      {builder.node("MaxPool", {x}, window), builder.node("AveragePool", {x}, window),
       builder.node("Concat", {x, x}, {{"axis", std::int64_t{1}}})}));
  const Tensor values = Tensor::arange(9).view({1, 1, 3, 3}).to(DType::Float16);
  const std::vector<Tensor> results = net.run(std::vector{values});
  CHECK(results[0].dtype() == DType::Float16);
  CHECK(results[0].to_float_vector() == std::vector<float>{4, 5, 7, 8});
  CHECK(results[1].to_float_vector() == std::vector<float>{2, 3, 5, 6});
  CHECK(results[2].sizes() == Dims{1, 2, 3, 3});
}

TEST_CASE("graph model: FusedMatMul turns matrices and what stands before them") {
  Generator generator(11);
  const Tensor a = randn({5, 2, 3, 4}, generator);
  const Tensor b = randn({6, 2, 3, 4}, generator);
  NetBuilder builder;
  const std::string left = builder.input("a");
  const std::string right = builder.input("b");
  const OnnxAttributes attributes{{"transBatchA", std::int64_t{1}},
                                  {"transBatchB", std::int64_t{1}},
                                  {"transB", std::int64_t{1}},
                                  {"alpha", 0.5F}};
  const Model net = from_onnx(
      builder.finish({builder.node("FusedMatMul", {left, right}, attributes, "com.microsoft")}));
  const Tensor want = mul_scalar(matmul(a.permute({1, 2, 0, 3}), b.permute({1, 2, 3, 0})), 0.5);
  test::check_close(net.run(std::vector{a, b})[0], want);
}

TEST_CASE("graph model: a batch norm goes into the convolution before it") {
  Generator generator(4);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string y = builder.node("Conv", {x, builder.constant(randn({4, 3, 3, 3}, generator))});
  const auto channels = [&] { return builder.constant(rand({4}, generator)); };
  const std::string scale = channels(), bias = channels(), mean = channels(), var = channels();
  const OnnxModel file =
      builder.finish({builder.node("BatchNormalization", {y, scale, bias, mean, var})});
  const Model folded = from_onnx(file);
  const Model literal = from_onnx(file, {.literal = true});
  CHECK(folded.graph().nodes.size() == 1);
  CHECK(literal.graph().nodes.size() == 2);
  const Tensor input = randn({2, 3, 6, 6}, generator);
  test::check_close(folded(input), literal(input), 1e-4F);
}

TEST_CASE("from_onnx: scales that are NaN or infinite are refused by node and tensor") {
  const auto network = [](float scale) {
    NetBuilder net;
    const std::string x = net.coded(net.input("x"), 0.1, 3);
    const std::string weight = net.weight(Tensor::full({2, 4}, 3.0, DType::Int8),
                                          floats({1.0F, scale}), Tensor::zeros({2}, DType::Int8));
    return net.finish({net.node("Gemm", {x, weight}, {{"transB", std::int64_t{1}}})});
  };
  CHECK_NOTHROW(from_onnx(network(0.5F)));
  for (const float scale : {std::nanf(""), HUGE_VALF}) {
    for (const bool literal : {false, true}) {
      CHECK_THROWS_WITH_AS(
          from_onnx(network(scale), {.literal = literal}),
          doctest::Contains("node 'DequantizeLinear_2' (DequantizeLinear): 'constant_5': expected "
                            "finite scales, got"),
          FileError);
    }
  }
}

}  // namespace
}  // namespace quanta::graph
