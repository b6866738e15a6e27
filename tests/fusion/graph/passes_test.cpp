// The passes that load_onnx runs on every file; those of codes: quantized_passes_test.cpp.

#include "quanta/fusion/graph/passes/passes.h"

#include <doctest/doctest.h>

#include <numbers>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using test::NetBuilder;

Tensor floats(std::initializer_list<float> values) { return Tensor::from_values(values); }

Tensor integers(std::vector<std::int64_t> values) { return Tensor::from_int64(values); }

std::vector<std::string> ops_of(const Graph& graph) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op);
  return ops;
}

const Value& value_of(const Graph& graph, ValueId id) { return graph.values[index_of(id)]; }

TEST_CASE("bind_constants: inputs become constants, by name and with their dtype") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string rate = builder.input("rate", OnnxType::Int64);
  const std::string y = builder.node("Mul", {x, builder.node("Cast", {rate}, {{"to", 1}})});
  Graph graph = import_graph(builder.finish({y}));
  CHECK_FALSE(bind_constants(graph, {}));
  CHECK_THROWS_WITH_AS(bind_constants(graph, {{"speed", integers({3})}}),
                       doctest::Contains("'speed'"), ArgumentError);
  CHECK_THROWS_WITH_AS(bind_constants(graph, {{"rate", floats({3.0F})}}),
                       doctest::Contains("'rate'"), ArgumentError);
  CHECK(graph.inputs.size() == 2);
  CHECK(bind_constants(graph, {{"rate", integers({3})}}));
  CHECK(graph.inputs.size() == 1);
  CHECK(fold_constants(graph));
  CHECK(ops_of(graph) == std::vector<std::string>{"Mul"});
  CHECK(Model(graph)(floats({2.0F})).to_float_vector() == std::vector<float>{6.0F});
}

TEST_CASE("fold_constants: calculates what depends on constants alone, but not codes if asked") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const Tensor codes = integers({10, 20}).to(DType::Int8);
  const std::string weight = builder.dequantize(builder.constant(codes), 0.5, 0, DType::Int8);
  const std::string shift = builder.node("Neg", {builder.constant(floats({1.0F}))});
  const std::string y = builder.node("Add", {builder.node("Mul", {x, weight}), shift});
  const OnnxModel file = builder.finish({y});
  Graph graph = import_graph(file);
  CHECK(fold_constants(graph, Fold::AllButCodes));
  CHECK(ops_of(graph) == std::vector<std::string>{"DequantizeLinear", "Mul", "Add"});
  CHECK_FALSE(fold_constants(graph, Fold::AllButCodes));
  CHECK(fold_constants(graph));
  CHECK(ops_of(graph) == std::vector<std::string>{"Mul", "Add"});
  CHECK(Model(graph)(floats({1.0F, 1.0F})).to_float_vector() == std::vector<float>{4.0F, 9.0F});
}

TEST_CASE("drop_identity: what changes nothing goes, an output keeps its name") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string same = builder.node("Identity", {builder.node("Dropout", {x})});
  const std::string cast = builder.node("Cast", {same}, {{"to", 1}});
  const std::string y = builder.node("Identity", {builder.node("Neg", {cast})});
  Graph graph = import_graph(builder.finish({y}));
  CHECK(drop_identity(graph));
  CHECK(ops_of(graph) == std::vector<std::string>{"Neg"});
  CHECK(value_of(graph, graph.outputs[0]).name == y);
  CHECK(graph.nodes[0].inputs[0] == graph.inputs[0]);
  CHECK_FALSE(drop_identity(graph));
}

TEST_CASE("drop_identity: from an input to an output, and what does something, stay") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string y = builder.node("Identity", {x});
  const std::string integers = builder.node("Cast", {x}, {{"to", 7}});
  // Its second result is a mask.
  const std::string kept = builder.node("Dropout", {x}, {}, "", 2);
  const std::string mask = "Dropout_2_out1";
  Graph graph = import_graph(builder.finish({y, integers, kept, mask}));
  CHECK_FALSE(drop_identity(graph));
  CHECK(ops_of(graph) == std::vector<std::string>{"Identity", "Cast", "Dropout"});
}

TEST_CASE("move_constant_codes: axes of scales follow a Transpose of the codes") {
  Generator generator(1);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const Tensor codes = integers({1, 2, 3, 4, 5, 6}).reshape({2, 3}).to(DType::Int8);
  const Tensor scales = floats({0.5F, 0.25F});
  const std::string weight = builder.weight(codes, scales, Tensor::zeros({2}, DType::Int8), 0);
  const std::string turned =
      builder.node("Transpose", {weight}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const OnnxModel file = builder.finish({builder.node("MatMul", {x, turned})});
  Graph graph = import_graph(file);
  CHECK(move_constant_codes(graph));
  erase_dead(graph);
  CHECK(ops_of(graph) == std::vector<std::string>{"DequantizeLinear", "MatMul"});
  const Node& dequantize = graph.nodes[0];
  CHECK(integer_attribute(dequantize, "axis", -1) == 1);
  CHECK(value_of(graph, dequantize.inputs[0]).constant.sizes() == Dims{3, 2});
  const Tensor input = randn({4, 3}, generator);
  CHECK(Model(graph)(input).equal(from_onnx(file, {.literal = true})(input)));
  CHECK_FALSE(move_constant_codes(graph));
}

TEST_CASE("move_constant_codes: a Reshape that tears channels apart stays in float") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const Tensor codes = integers({1, 2, 3, 4}).reshape({2, 2}).to(DType::Int8);
  const std::string weight =
      builder.weight(codes, floats({0.5F, 0.25F}), Tensor::zeros({2}, DType::Int8), 0);
  const std::string flat = builder.node("Reshape", {weight, builder.constant(integers({4, 1}))});
  Graph graph = import_graph(builder.finish({builder.node("MatMul", {x, flat})}));
  CHECK_FALSE(move_constant_codes(graph));
}

TEST_CASE("use_torch_arithmetic: multiplication by the reciprocal instead of division") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string y = builder.node("Relu", {builder.coded(x, 0.1, 3)});
  Graph graph = import_graph(builder.finish({y}));
  CHECK_FALSE(use_torch_arithmetic(graph));
  absorb_qdq(graph);
  CHECK(use_torch_arithmetic(graph));
  const Node& quantize = graph.nodes[0];
  REQUIRE(quantize.operation != nullptr);
  CHECK(quantize.operation->name() == "quantize_per_tensor");
  const auto& made = value_of(graph, quantize.outputs[0]).codes;
  REQUIRE(made);
  CHECK(made->zero_point == 3);
}

TEST_CASE("follow_types: element types of what the file does not declare") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string shape = builder.node("Shape", {x});
  const std::string as_int = builder.node("Cast", {x}, {{"to", 6}});
  const std::string sum = builder.node("Add", {as_int, as_int});
  const std::string is_less = builder.node("Less", {x, x});
  const std::string chosen = builder.node("Where", {is_less, x, x});
  const std::string top = builder.node("TopK", {x, builder.constant(integers({1}))}, {}, "", 2);
  Graph graph = import_graph(builder.finish({shape, sum, chosen, top, "TopK_5_out1"}));
  for (Value& value : graph.values) {
    if (!value.constant.defined() && value.name != "x") value.type = OnnxType::Undefined;
  }
  CHECK(follow_types(graph));
  const auto type_of = [&](const Node& node, std::size_t i) {
    return value_of(graph, node.outputs[i]).type;
  };
  CHECK(type_of(graph.nodes[0], 0) == OnnxType::Int64);
  CHECK(type_of(graph.nodes[1], 0) == OnnxType::Int32);
  CHECK(type_of(graph.nodes[2], 0) == OnnxType::Int32);
  CHECK(type_of(graph.nodes[3], 0) == OnnxType::Bool);
  CHECK(type_of(graph.nodes[4], 0) == OnnxType::Float);
  CHECK(type_of(graph.nodes[5], 0) == OnnxType::Float);
  CHECK(type_of(graph.nodes[5], 1) == OnnxType::Int64);
  CHECK_FALSE(follow_types(graph));
}

TEST_CASE("widen_layers: layers of 16-bit floats are modules of Float32 between casts") {
  Generator generator(8);
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    CAPTURE(dtype);
    NetBuilder builder;
    const std::string x = builder.input("x", onnx_type_of(dtype));
    const auto weight = [&](const Dims& sizes) {
      return builder.constant(randn(sizes, generator).to(dtype));
    };
    std::string y = builder.node("Conv", {x, weight({4, 3, 3, 3}), weight({4})});
    y = builder.node("MatMul", {builder.node("Relu", {y}), weight({6, 5})});
    const OnnxModel file = builder.finish({y});
    const Model net = from_onnx(file);
    CHECK(ops_of(net.graph()) ==
          std::vector<std::string>{"Cast", "Conv", "Cast", "Relu", "Cast", "MatMul", "Cast"});
    CHECK(net.has_child("Conv_0"));
    const Tensor input = randn({2, 3, 8, 8}, generator).to(dtype);
    const Tensor got = net(input);
    CHECK(got.dtype() == dtype);
    const Tensor wanted = from_onnx(file, {.literal = true})(input).to(DType::Float32);
    test::check_close(got.to(DType::Float32), wanted, dtype == DType::Float16 ? 0.02F : 0.2F);
    CHECK(from_onnx(to_onnx(net))(input).equal(got));
  }
}

TEST_CASE("fold_scales: numbers behind a convolution go into its weight and bias") {
  Generator generator(6);
  for (const bool transposed : {false, true}) {
    CAPTURE(transposed);
    NetBuilder builder;
    const std::string x = builder.input("x");
    const Dims sizes = transposed ? Dims{4, 3, 2, 2} : Dims{6, 2, 3, 3};
    std::string y =
        builder.node(transposed ? "ConvTranspose" : "Conv",
                     {x, builder.constant(randn(sizes, generator))}, {{"group", std::int64_t{2}}});
    const auto channels = [&](const Dims& dims) { return builder.constant(rand(dims, generator)); };
    y = builder.node("Mul", {channels({1, 6, 1, 1}), y});
    y = builder.node("Add", {y, channels({6, 1, 1})});
    y = builder.node("Div", {y, channels({})});
    y = builder.node("Sub", {y, channels({1})});
    y = builder.node("BatchNormalization",
                     {y, channels({6}), channels({6}), channels({6}), channels({6})});
    y = builder.node("Add", {y, channels({1, 1, 1, 1})});
    const OnnxModel file = builder.finish({y});
    const Model folded = from_onnx(file);
    CHECK(folded.graph().nodes.size() == 1);
    const Tensor input = randn({2, 4, 5, 5}, generator);
    test::check_close(folded(input), from_onnx(file, {.literal = true})(input), 1e-4F);
  }
}

TEST_CASE("fold_scales: other shapes, and results that others take, stay") {
  Generator generator(7);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const auto conv = [&] {
    return builder.node("Conv", {x, builder.constant(randn({4, 2, 1, 1}, generator))});
  };
  const std::string wide = builder.node("Mul", {conv(), builder.constant(rand({4}, generator))});
  const std::string twice = conv();
  const std::string scaled = builder.node("Mul", {twice, builder.constant(floats({2.0F}))});
  const std::string inverse = builder.node("Div", {builder.constant(floats({2.0F})), conv()});
  Graph graph = import_graph(builder.finish({wide, twice, scaled, inverse}));
  CHECK_FALSE(fold_scales(graph));
}

/// Activations as exporters write them that have no operator for them.
struct Parts : NetBuilder {
  Parts() : NetBuilder(13) {}
  std::string x = input("x");

  std::string number(float value) { return constant(Tensor::scalar(value)); }
  std::string clipped() {
    return node("Clip", {node("Add", {number(3.0F), x}), number(0.0F), number(6.0F)});
  }
  std::string one_and_erf() {
    const std::string scaled = node("Div", {x, number(std::numbers::sqrt2_v<float>)});
    return node("Add", {node("Erf", {scaled}), number(1.0F)});
  }
};

// The file has `parts` operators, the graph one; both give the same, also when written again.
void check_fused(Parts& net, const std::string& y, const std::string& op) {
  const OnnxModel file = net.finish({y});
  Graph graph = import_graph(file);
  CHECK(fuse_activations(graph));
  CHECK(ops_of(graph) == std::vector<std::string>{op});
  CHECK_FALSE(fuse_activations(graph));
  Generator generator(5);
  const Tensor input = mul(randn({2, 3, 40}, generator), Tensor::scalar(4.0));
  const Model fused = from_onnx(file);
  CHECK(fused.graph().nodes.size() == 1);
  test::check_close(fused(input), from_onnx(file, {.literal = true})(input), 1e-5F);
  const OnnxModel again = to_onnx(fused);
  CHECK(again.opsets.at("") == 13);
  CHECK(from_onnx(again)(input).equal(fused(input)));
}

TEST_CASE("fuse_activations: HardSwish, HardSigmoid, Swish and Gelu from what they are made of") {
  {
    Parts net;
    const std::string product = net.node("Mul", {net.x, net.clipped()});
    check_fused(net, net.node("Div", {product, net.number(6.0F)}), "HardSwish");
  }
  {
    Parts net;
    const std::string gate = net.node("Mul", {net.clipped(), net.number(1.0F / 6.0F)});
    check_fused(net, net.node("Mul", {gate, net.x}), "HardSwish");
  }
  {
    Parts net;
    const std::string gate =
        net.node("HardSigmoid", {net.x}, {{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}});
    check_fused(net, net.node("Mul", {net.x, gate}), "HardSwish");
  }
  {
    Parts net;
    check_fused(net, net.node("Div", {net.clipped(), net.number(6.0F)}), "HardSigmoid");
  }
  {
    Parts net;
    check_fused(net, net.node("Mul", {net.node("Sigmoid", {net.x}), net.x}), "Swish");
  }
  {
    Parts net;
    const std::string product = net.node("Mul", {net.x, net.one_and_erf()});
    check_fused(net, net.node("Mul", {product, net.number(0.5F)}), "Gelu");
  }
  {
    Parts net;
    const std::string half = net.node("Mul", {net.x, net.number(0.5F)});
    check_fused(net, net.node("Mul", {half, net.one_and_erf()}), "Gelu");
  }
}

TEST_CASE("fuse_activations: other numbers, other inputs and parts that others take stay") {
  {
    Parts net;
    const std::string product = net.node("Mul", {net.x, net.clipped()});
    Graph graph = import_graph(net.finish({net.node("Div", {product, net.number(5.0F)})}));
    CHECK_FALSE(fuse_activations(graph));
  }
  {
    Parts net;
    const std::string other = net.input("other");
    Graph graph =
        import_graph(net.finish({net.node("Mul", {net.node("Sigmoid", {net.x}), other})}));
    CHECK_FALSE(fuse_activations(graph));
  }
  {
    Parts net;
    const std::string gate = net.node("Sigmoid", {net.x});
    Graph graph = import_graph(net.finish({net.node("Mul", {gate, net.x}), gate}));
    CHECK_FALSE(fuse_activations(graph));
  }
}

TEST_CASE("make_modules: children for layers, each with a name of its own") {
  Generator generator(2);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string first = builder.node("MatMul", {x, builder.constant(randn({3, 4}, generator))});
  const std::string second =
      builder.node("MatMul", {first, builder.constant(randn({4, 2}, generator))});
  OnnxModel file = builder.finish({builder.node("Relu", {second})});
  file.graph.nodes[0].name = "/encoder/layer.0";
  file.graph.nodes[1].name = "encoder/layer_0";
  Graph graph = import_graph(file);
  const std::vector<nn::Module::NamedChild> children = make_modules(graph);
  REQUIRE(children.size() == 3);
  CHECK(children[0].name == "encoder/layer_0");  // a dot would be a step down
  CHECK(children[1].name == "encoder/layer_0_2");
  CHECK(graph.nodes[0].module == children[0].name);
  CHECK(graph.nodes[1].module == children[1].name);
  CHECK(graph.nodes[2].module == children[2].name);
  CHECK(make_modules(graph).empty());
  const Tensor input = randn({5, 3}, generator);
  test::check_close(Model(graph, children)(input), from_onnx(file, {.literal = true})(input), 0.0F);

  Graph other = import_graph(file);
  CHECK(make_modules(other, children)[0].name == "encoder/layer_0_3");
}

}  // namespace
}  // namespace quanta::graph
