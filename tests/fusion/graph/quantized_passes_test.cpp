#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize_linear.h"
#include "quanta/runtime/catalogue.h"

using namespace quanta;
using quanta::graph::Graph;
using quanta::graph::Model;
using quanta::graph::Node;
using quanta::test::NetBuilder;

namespace {

std::int64_t count_of(const Graph& graph, const std::string& op) {
  return std::ranges::count_if(graph.nodes, [&](const Node& node) { return node.op == op; });
}

Tensor codes(const Dims& sizes, DType dtype, std::uint64_t seed) {
  const bool is_signed = dtype == DType::Int8;
  return quantize_linear(sample_tensor(sizes, DType::Float32, seed), Tensor::scalar(0.02),
                         Tensor::full({}, is_signed ? 0.0 : 128.0, dtype), {.dtype = dtype});
}

struct Difference {
  double largest = 0.0;  // of any element
  double share = 0.0;    // of elements that differ
};

// The literal graph against the lowered one, over integer results in units, over floats as a share
// of the largest.
Difference difference(const OnnxModel& file, const std::vector<Tensor>& inputs) {
  const Model literal = graph::from_onnx(file, {.literal = true});
  const Model lowered = graph::from_onnx(file);
  const std::vector<Tensor> wanted = literal.run(std::span<const Tensor>(inputs));
  const std::vector<Tensor> got = lowered.run(std::span<const Tensor>(inputs));
  Difference result;
  double count = 0.0;
  double differ = 0.0;
  REQUIRE(wanted.size() == got.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    REQUIRE(wanted[i].sizes() == got[i].sizes());
    REQUIRE(wanted[i].dtype() == got[i].dtype());
    const std::vector<float> a = wanted[i].to(DType::Float32).to_float_vector();
    const std::vector<float> b = got[i].to(DType::Float32).to_float_vector();
    float unit = 1.0F;
    if (wanted[i].is_floating_point()) {
      for (const float value : a) unit = std::max(unit, std::fabs(value));
    }
    for (std::size_t k = 0; k < a.size(); ++k) {
      const double error = std::fabs(static_cast<double>(a[k]) - static_cast<double>(b[k]));
      result.largest = std::max(result.largest, error / static_cast<double>(unit));
      differ += error > 0.0 ? 1.0 : 0.0;
      count += 1.0;
    }
  }
  result.share = differ / count;
  return result;
}

void check_codes(const OnnxModel& file, const std::vector<Tensor>& inputs) {
  const Difference found = difference(file, inputs);
  CHECK(found.largest <= 1.0);
  CHECK(found.share <= 0.002);
}

Graph imported(const OnnxModel& file) {
  Graph graph = graph::import_graph(file);
  graph::fold_constants(graph, graph::Fold::AllButCodes);
  return graph;
}

}  // namespace

TEST_CASE("absorb_qdq: Q and DQ become annotations, one for all users") {
  NetBuilder net;
  const std::string x = net.input("x");
  const std::string q = net.quantize(x, 0.1, -3, DType::Int8);
  const std::string same = net.quantize(x, 0.1, -3, DType::Int8);
  const std::string a = net.node("Relu", {net.dequantize(q, 0.1, -3, DType::Int8)});
  const std::string b = net.node("Sigmoid", {net.dequantize(q, 0.1, -3, DType::Int8)});
  const std::string c = net.node("Tanh", {net.dequantize(same, 0.1, -3, DType::Int8)});
  const std::string floats = net.dequantize(q, 0.1, -3, DType::Int8);
  Graph graph = imported(net.finish({a, b, c, floats, q}));
  CHECK(graph::absorb_qdq(graph));
  graph::erase_dead(graph);
  CHECK(count_of(graph, "QuantizeLinear") == 0);
  CHECK(count_of(graph, "DequantizeLinear") == 0);
  CHECK(count_of(graph, "Quantize") == 1);
  CHECK(count_of(graph, "Dequantize") == 1);  // a result of floats
  CHECK(count_of(graph, "ToCodes") == 1);     // a result of integers
  for (const Node& node : graph.nodes) {
    if (!node.domain.empty()) continue;
    const auto& found = graph.values[static_cast<std::size_t>(node.inputs[0])].codes;
    REQUIRE(found);
    CHECK(found->dtype == DType::QUInt8);
    CHECK(found->zero_point == 125);
    CHECK(static_cast<float>(found->scale) == 0.1F);
  }
  CHECK_FALSE(graph::absorb_qdq(graph));
}

TEST_CASE("spread_codes: forward behind DQ, backward before Q") {
  NetBuilder net;
  const std::string x = net.input("x");
  const std::string order = "perm";
  const OnnxAttributes turned{{order, std::vector<std::int64_t>{1, 0}}};
  const std::string before = net.node("Transpose", {net.coded(x, 0.1, 5)}, turned);
  const std::string flat = net.node("Sigmoid", {before});
  const std::string behind = net.coded(net.node("Transpose", {flat}, turned), 0.01, 0);
  const std::string y = net.node("Relu", {behind});
  Graph graph = imported(net.finish({y}));
  graph::absorb_qdq(graph);
  CHECK(graph::spread_codes(graph));
  std::vector<std::string> order_of_ops;
  for (const Node& node : graph.nodes) order_of_ops.push_back(node.op);
  CHECK(order_of_ops == std::vector<std::string>{"Quantize", "Transpose", "Sigmoid", "Quantize",
                                                 "Transpose", "Relu"});
  CHECK(graph.values[static_cast<std::size_t>(graph.nodes[1].outputs[0])].codes);
  CHECK(graph.values[static_cast<std::size_t>(graph.nodes[4].outputs[0])].codes->scale ==
        doctest::Approx(0.01));
}

TEST_CASE("lower_codes: convolutions of any codes become modules") {
  for (const DType activation : {DType::UInt8, DType::Int8}) {
    for (const DType weight : {DType::UInt8, DType::Int8}) {
      const std::int64_t zero = activation == DType::UInt8 ? 120 : -8;
      NetBuilder net;
      const std::string x = net.input("x");
      const Tensor scales = Tensor::from_values({0.01F, 0.02F, 0.015F, 0.03F});
      const Tensor zeros =
          weight == DType::UInt8 ? Tensor::full({4}, 128.0, weight) : Tensor::zeros({4}, weight);
      const std::string w = net.weight(codes({4, 3, 3, 3}, weight, 2), scales, zeros);
      const std::string b = net.node(
          "DequantizeLinear",
          {net.constant(
               Tensor::from_int64(std::vector<std::int64_t>{5, -700, 30, 0}).to(DType::Int32)),
           net.constant(
               Tensor::from_values({0.05F * 0.01F, 0.05F * 0.02F, 0.05F * 0.015F, 0.05F * 0.03F}))},
          {{"axis", std::int64_t{0}}});
      const std::string y = net.node("Conv", {net.coded(x, 0.05, zero, activation), w, b},
                                     {{"pads", std::vector<std::int64_t>{1, 0, 2, 1}}});
      const std::string q = net.quantize(net.node("Relu", {y}), 0.1, zero, activation);
      const OnnxModel file = net.finish({q});
      check_codes(file, {sample_tensor({2, 3, 9, 8})});
      const Model lowered = graph::from_onnx(file);
      CHECK(count_of(lowered.graph(), "Relu") == 0);
      CHECK(lowered.named_children().size() == 1);
    }
  }
}

TEST_CASE("lower_codes: a bias in another unit than the sums is no integer bias") {
  NetBuilder net;
  const std::string x = net.input("x");
  const std::string w = net.weight(codes({4, 3, 1, 1}, DType::Int8, 2), Tensor::scalar(0.01),
                                   Tensor::zeros({}, DType::Int8));
  const std::string b = net.node(
      "DequantizeLinear",
      {net.constant(
           Tensor::from_int64(std::vector<std::int64_t>{90, -700, 30, 0}).to(DType::Int32)),
       net.constant(Tensor::scalar(0.003))});
  const std::string y = net.node("Conv", {net.coded(x, 0.0513, 120), w, b});
  check_codes(net.finish({net.quantize(y, 0.0971, 100)}), {sample_tensor({4, 3, 17, 16})});
}

TEST_CASE("lower_codes: a layer whose result is wanted as floats") {
  NetBuilder net;
  const std::string x = net.input("x");
  const std::string w = net.weight(codes({4, 3, 3, 3}, DType::Int8, 2), Tensor::scalar(0.01),
                                   Tensor::zeros({}, DType::Int8));
  const std::string bias = net.constant(Tensor::from_values({1.0F, -2.0F, 0.5F, 0.0F}));
  const std::string y = net.node("Conv", {net.coded(x, 0.05, 120), w, bias});
  const std::string rows = net.node("GlobalAveragePool", {y});
  const std::string flat = net.node("Flatten", {rows});
  const std::string dense = net.weight(codes({4, 7}, DType::Int8, 4), Tensor::full({7}, 0.02),
                                       Tensor::zeros({7}, DType::Int8), -1);
  const std::string z = net.node("MatMul", {net.coded(flat, 0.03, 90), dense});
  const std::string sum =
      net.node("Add", {z, net.constant(Tensor::from_values({1, 2, 3, 4, 5, 6, 7}))});
  const OnnxModel file = net.finish({y, sum});
  CHECK(difference(file, {sample_tensor({2, 3, 6, 6})}).largest < 1e-5);
  const Model lowered = graph::from_onnx(file);
  CHECK(count_of(lowered.graph(), "Add") == 0);
}

TEST_CASE("lower_codes: Add, Mul and Concat of codes, mixed and with constants") {
  NetBuilder net;
  const std::string a = net.input("a");
  const std::string b = net.input("b");
  const std::string left = net.coded(a, 0.0513, 120);
  const std::string right = net.coded(b, 0.0317, -5, DType::Int8);
  const std::string constant = net.weight(codes({3, 1, 1}, DType::UInt8, 9), Tensor::scalar(0.0219),
                                          Tensor::full({}, 100.0, DType::UInt8));
  const std::string sum =
      net.coded(net.node("Relu", {net.node("Add", {left, right})}), 0.0637, -128, DType::Int8);
  const std::string scaled = net.coded(net.node("Mul", {sum, constant}), 0.0571, 128);
  const OnnxAttributes last{{"axis", std::int64_t{1}}};
  const std::string joined = net.node("Concat", {scaled, left, sum}, last);
  const std::string half = net.constant(Tensor::scalar(0.5));
  const std::string moved = net.quantize(net.node("Mul", {left, half}), 0.0513, 120);
  const OnnxModel file = net.finish({net.quantize(joined, 0.0723, 120), moved});
  check_codes(file,
              {sample_tensor({2, 3, 26, 16}), sample_tensor({2, 3, 26, 16}, DType::Float32, 7)});
  const Model lowered = graph::from_onnx(file);
  for (const Node& node : lowered.graph().nodes) {
    CHECK(node.float_reason.empty());
    CHECK(node.row == nullptr);
  }
}

TEST_CASE("lower_codes: functions of one code are tables, islands of them too") {
  NetBuilder net;
  const std::string x = net.coded(net.input("x"), 0.05, 120);
  const std::string three = net.constant(Tensor::scalar(3.0));
  const std::string six = net.constant(Tensor::scalar(6.0));
  const std::string none = net.constant(Tensor::scalar(0.0));
  // x * clip(x + 3, 0, 6) / 6 with no codes in between.
  const std::string gate = net.node("Clip", {net.node("Add", {x, three}), none, six});
  const std::string swish = net.node("Div", {net.node("Mul", {x, gate}), six});
  const std::string erf = net.node("Sigmoid", {x});
  const OnnxModel file = net.finish({net.quantize(swish, 0.03, 20), erf});
  CHECK(difference(file, {sample_tensor({2, 3, 6, 6})}).largest == 0.0);
  const Model lowered = graph::from_onnx(file);
  CHECK(count_of(lowered.graph(), "MapCodes") == 1);
  CHECK(count_of(lowered.graph(), "MapCodesToFloat") == 1);
  CHECK(lowered.graph().nodes.size() == 4);  // and Quantize, ToCodes
}

TEST_CASE("lower_codes: codes of a mask that ends at the least float stay as they are") {
  constexpr double kScale = 2.6793887e36;
  NetBuilder net;
  const auto x = net.coded(net.input("x"), 0.01, 0, DType::Int8);
  const auto mask = net.weight(Tensor::from_values({0, -127, 0, 0}, {2, 2}).to(DType::Int8),
                               Tensor::scalar(kScale), Tensor::zeros({}, DType::Int8));
  const auto sum = net.coded(net.node("Add", {x, mask}), kScale, 0, DType::Int8);
  const Tensor values = Tensor::from_values({1.2F, 0.1F, -0.7F, 0.3F}, {2, 2});
  check_codes(net.finish({net.node("Softmax", {sum})}), {values});
}

TEST_CASE("merge_tables: what is calculated from one value's codes is one table") {
  // HardSwish in its parts, each with codes of its own, as ONNX Runtime quantizes it.
  NetBuilder net;
  const std::string x = net.coded(net.input("x"), 0.0517, 120);
  const std::string sum =
      net.coded(net.node("Add", {x, net.constant(Tensor::scalar(3.0))}), 0.0613, 60);
  const std::string clip = net.coded(
      net.node("Clip", {sum, net.constant(Tensor::scalar(0.0)), net.constant(Tensor::scalar(6.0))}),
      0.0239, 0);
  const std::string product = net.coded(net.node("Mul", {x, clip}), 0.1523, 8);
  const std::string scaled =
      net.coded(net.node("Div", {product, net.constant(Tensor::scalar(6.0))}), 0.0251, 8);
  const std::string other = net.coded(net.input("other"), 0.0517, 120);
  const std::string gated = net.coded(net.node("Mul", {scaled, other}), 0.1031, 100);
  const OnnxModel file = net.finish({scaled, gated});
  const std::vector<Tensor> inputs{mul_scalar(sample_tensor({3, 100}, DType::Float32, 1), 3.0),
                                   sample_tensor({3, 100}, DType::Float32, 2)};
  check_codes(file, inputs);
  const Model lowered = graph::from_onnx(file);
  CHECK(count_of(lowered.graph(), "MapCodes") == 1);
  CHECK(count_of(lowered.graph(), "Mul") == 1);  // of two values
}

TEST_CASE("split_wide_codes: layers of 16-bit codes are two layers of bytes") {
  for (const DType dtype : {DType::UInt16, DType::Int16}) {
    CAPTURE(dtype);
    const std::int64_t zero = dtype == DType::UInt16 ? 30519 : -300;
    NetBuilder net(21);
    const std::string x = net.coded(net.input("x"), 0.0001039, zero, dtype);
    const auto weight = [&](const Dims& sizes, std::int64_t axis) {
      const std::int64_t channels = sizes[static_cast<std::size_t>(axis)];
      return net.weight(codes(sizes, DType::Int8, 1), Tensor::full({channels}, 0.0031),
                        Tensor::zeros({channels}, DType::Int8), axis);
    };
    const std::string bias = net.constant(sample_tensor({7}, DType::Float32, 3));
    std::string y = net.node("Conv", {x, weight({7, 6, 3, 3}, 0), bias},
                             {{"pads", std::vector<std::int64_t>(4, 1)}});
    y = net.coded(y, 0.00041, zero, dtype);
    y = net.node("MatMul", {y, weight({8, 5}, 1)});
    const OnnxModel file = net.finish({net.quantize(y, 0.0011, zero, dtype)});
    const std::vector<Tensor> inputs{sample_tensor({2, 6, 8, 8}, DType::Float32, 4)};
    // A float32 sum is off by hundredths of a code in the first layer, which codes flip by.
    CHECK(difference(file, inputs).largest <= 2.0);
    const Model lowered = graph::from_onnx(file);
    CHECK(count_of(lowered.graph(), "ByteOfCodes") == 4);
    CHECK(std::ranges::none_of(lowered.graph().nodes, [](const Node& node) {
      return (node.op == "Conv" || node.op == "MatMul") && node.operation == nullptr &&
             node.module.empty();
    }));
  }
}

TEST_CASE("lower_codes: what stays in float says why") {
  NetBuilder net;
  const std::string a = net.coded(net.input("a"), 0.05, 120);
  const std::string b = net.input("b");
  const OnnxModel file = net.finish({net.quantize(net.node("Add", {a, b}), 0.06, 128)});
  CHECK(
      difference(file, {sample_tensor({3, 4}), sample_tensor({3, 4}, DType::Float32, 2)}).largest ==
      0.0);
  const Model lowered = graph::from_onnx(file);
  const auto add = std::ranges::find_if(lowered.graph().nodes,
                                        [](const Node& node) { return node.op == "Add"; });
  REQUIRE(add != lowered.graph().nodes.end());
  CHECK(add->float_reason == "one of its operands is not in 8-bit codes");
}

TEST_CASE("lower_codes: equal codes stay through Concat, means are of codes") {
  NetBuilder net;
  const std::string x = net.coded(net.input("x"), 0.05, 120);
  const OnnxAttributes axis{{"axis", std::int64_t{1}}};
  const std::string joined = net.node("Concat", {x, net.node("Relu", {x}), x}, axis);
  const std::string coded = net.node("Concat", {x, x}, axis);
  const std::string w = net.weight(codes({4, 6, 1, 1}, DType::Int8, 2), Tensor::scalar(0.01),
                                   Tensor::zeros({}, DType::Int8));
  const std::string y = net.node("Conv", {coded, w});
  const std::string mean = net.node("GlobalAveragePool", {x});
  const OnnxModel file =
      net.finish({net.quantize(joined, 0.05, 120), net.quantize(y, 0.1, 90), mean});
  CHECK(difference(file, {sample_tensor({2, 3, 5, 4})}).largest <= 1.0);
  const Model lowered = graph::from_onnx(file);
  for (const Node& node : lowered.graph().nodes) CHECK(node.row == nullptr);
}

TEST_CASE("lower_codes: products of two activations") {
  NetBuilder net;
  const std::string a = net.coded(net.input("a"), 0.05, 120);
  const std::string b = net.coded(net.input("b"), 0.04, 3, DType::Int8);
  const std::string y = net.node("MatMul", {a, b});
  const std::string z = net.node("MatMul", {b, a});
  const OnnxModel file = net.finish({net.quantize(y, 0.2, 128), z});
  const Difference found =
      difference(file, {sample_tensor({2, 5, 5}), sample_tensor({2, 5, 5}, DType::Float32, 2)});
  CHECK(found.largest <= 1.0);
  const Model lowered = graph::from_onnx(file);
  for (const Node& node : lowered.graph().nodes) CHECK(node.row == nullptr);
}

TEST_CASE("fold_channel_scales: a scale a channel before a depthwise convolution") {
  for (const bool clipped : {true, false}) {
    NetBuilder net;
    const std::string x = net.coded(net.input("x"), 0.0513, 120);
    const std::string w = net.weight(codes({4, 3, 1, 1}, DType::Int8, 2), Tensor::scalar(0.0107),
                                     Tensor::zeros({}, DType::Int8));
    const std::string bias = net.constant(Tensor::from_values({0.1F, 0.2F, -0.3F, 0.4F}));
    const std::string y = net.node("Conv", {x, w, bias});
    const std::string six = net.constant(Tensor::scalar(6.0));
    const std::string none = net.constant(Tensor::scalar(0.0));
    const std::string end = clipped ? net.node("Clip", {y, none, six}) : net.node("Sigmoid", {y});
    const std::string scales =
        net.constant(Tensor::from_values({0.0201F, 0.0113F, 0.0233F, 0.0059F}));
    const std::string zeros = net.constant(Tensor::full({4}, -128.0, DType::Int8));
    const OnnxAttributes axis{{"axis", std::int64_t{1}}};
    const std::string coded =
        net.node("DequantizeLinear",
                 {net.node("QuantizeLinear", {end, scales, zeros}, axis), scales, zeros}, axis);
    const std::string deep = net.weight(codes({4, 1, 3, 3}, DType::Int8, 3),
                                        Tensor::from_values({0.013F, 0.011F, 0.017F, 0.019F}),
                                        Tensor::zeros({4}, DType::Int8));
    const std::string z = net.node("Conv", {coded, deep}, {{"group", std::int64_t{4}}});
    const OnnxModel file = net.finish({net.quantize(z, 0.0471, 128)});
    check_codes(file, {sample_tensor({4, 3, 19, 16})});
    Graph graph = imported(file);
    CHECK(graph::fold_channel_scales(graph));
    CHECK(count_of(graph, "Div") == (clipped ? 0 : 1));
    const Model lowered = graph::from_onnx(file);
    CHECK(count_of(lowered.graph(), "QuantizeLinear") == 0);
    CHECK(lowered.graph().nodes.back().op == "ToCodes");
  }
}

TEST_CASE("expand_qoperators: operators of codes are lowered as Q and DQ around them are") {
  NetBuilder net;
  const std::string x = net.input("x", OnnxType::UInt8);
  const auto scale = [&](double value) { return net.constant(Tensor::scalar(value)); };
  const std::string w = net.constant(codes({4, 3, 3, 3}, DType::Int8, 2));
  const std::string bias =
      net.constant(Tensor::from_int64(std::vector<std::int64_t>{1, 2, -300, 4}).to(DType::Int32));
  const std::string y = net.node(
      "QLinearConv", {x, scale(0.05), net.zero(120, DType::UInt8), w, scale(0.01),
                      net.zero(0, DType::Int8), scale(0.1), net.zero(100, DType::UInt8), bias});
  const std::string pooled =
      net.node("MaxPool", {y}, {{"kernel_shape", std::vector<std::int64_t>{2, 2}}});
  const std::string sum =
      net.node("QLinearAdd",
               {pooled, scale(0.1), net.zero(100, DType::UInt8), pooled, scale(0.1),
                net.zero(100, DType::UInt8), scale(0.2), net.zero(90, DType::UInt8)},
               {}, "com.microsoft");
  const OnnxModel file = net.finish({sum});
  check_codes(file, {codes({2, 3, 7, 7}, DType::UInt8, 1)});
  const Model lowered = graph::from_onnx(file);
  CHECK(count_of(lowered.graph(), "QLinearConv") == 0);
  CHECK(count_of(lowered.graph(), "DequantizeLinear") == 0);
}

TEST_CASE("lower_dynamic: dynamic layers are one node behind DynamicQuantizeLinear") {
  NetBuilder net;
  const std::string x = net.input("x");
  net.node("DynamicQuantizeLinear", {x}, {}, "", 3);
  const std::string name = "DynamicQuantizeLinear_0_out";
  for (int i = 0; i < 2; ++i) {
    const std::string w = net.constant(codes({8, 5}, i == 0 ? DType::Int8 : DType::UInt8, 2));
    const std::string sums = net.node(
        "MatMulInteger", {name + "0", w, name + "2",
                          net.zero(i == 0 ? 0 : 128, i == 0 ? DType::Int8 : DType::UInt8)});
    const std::string floats = net.node("Cast", {sums}, {{"to", std::int64_t{1}}});
    const std::string scale = net.node("Mul", {name + "1", net.constant(Tensor::scalar(0.02))});
    const std::string y = net.node("Mul", {floats, scale});
    net.node("Add", {net.constant(Tensor::from_values({1, 2, 3, 4, 5})), y});
  }
  const OnnxModel file = net.finish({"Add_5_out0", "Add_10_out0"});
  CHECK(difference(file, {sample_tensor({3, 8})}).largest < 1e-6);
  const Model lowered = graph::from_onnx(file);
  CHECK(lowered.graph().nodes.size() == 3);
}

TEST_CASE("lower_weight_only: constants in blocks become weight-only layers") {
  NetBuilder net(21);
  const std::string x = net.input("x");
  const Tensor values = quantize_linear(sample_tensor({64, 6}), Tensor::scalar(0.2), {},
                                        {.dtype = DType::Int8, .bits = 4});
  const Tensor scales = Tensor::full({2, 6}, 0.2);
  const std::string w = net.node("DequantizeLinear", {net.constant(values), net.constant(scales)},
                                 {{"axis", std::int64_t{0}}, {"block_size", std::int64_t{32}}});
  const OnnxModel file = net.finish({net.node("MatMul", {x, w})});
  CHECK(difference(file, {sample_tensor({3, 64})}).largest < 1e-5);
  const Model lowered = graph::from_onnx(file);
  REQUIRE(lowered.named_children().size() == 1);
  CHECK(lowered.named_children()[0].module->type_name() == "WeightOnlyLinear");
}
