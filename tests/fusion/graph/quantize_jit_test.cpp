// Graph mode quantization beside the eager workflow.

#include "quanta/fusion/graph/quantize_jit.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using test::NetBuilder;

/// A residual block and a classifier, as a class.
struct EagerNet : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::BatchNorm2d> bn1, bn2;
  nn::Child<nn::ReLU> relu1, relu2;
  nn::Child<nn::FloatFunctional> add;
  nn::Child<nn::AdaptiveAvgPool2d> pool;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;

  EagerNet() {
    const nn::Conv2dOptions first{
        .in_channels = 3, .out_channels = 8, .kernel_size = {3}, .padding = {1}, .bias = false};
    const nn::Conv2dOptions second{
        .in_channels = 8, .out_channels = 8, .kernel_size = {3}, .padding = {1}, .bias = false};
    register_module("quant", quant);
    register_module("conv1", conv1, first);
    register_module("bn1", bn1, nn::BatchNorm2dOptions{.num_features = 8});
    register_module("relu1", relu1);
    register_module("conv2", conv2, second);
    register_module("bn2", bn2, nn::BatchNorm2dOptions{.num_features = 8});
    register_module("add", add);
    register_module("relu2", relu2);
    register_module("pool", pool, Dims{1});
    register_module("fc", fc, nn::LinearOptions{.in_features = 8, .out_features = 5});
    register_module("dequant", dequant);
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor y = relu1(bn1(conv1(quant(x))));
    const Tensor z = relu2(add->add(bn2(conv2(y)), y));
    return dequant(fc(pool(z).flatten(1)));
  }
};

EagerNet random_net() {
  EagerNet net;
  Generator generator(11);
  for (nn::BatchNorm2d* norm : {net.bn1.operator->(), net.bn2.operator->()}) {
    norm->running_mean.copy_(randn({8}, generator));
    norm->running_var.copy_(rand({8}, generator));
    norm->weight.copy_(rand({8}, generator));
    norm->bias.copy_(randn({8}, generator));
  }
  net.eval();
  return net;
}

/// The same network as a file.
Model file_net(const EagerNet& net) {
  NetBuilder builder;
  const std::vector<std::int64_t> ones(4, 1);
  const auto norm = [&](const std::string& x, const nn::BatchNorm2d& bn) {
    const std::string weight = builder.constant(bn.weight), bias = builder.constant(bn.bias);
    const std::string mean = builder.constant(bn.running_mean);
    return builder.node("BatchNormalization",
                        {x, weight, bias, mean, builder.constant(bn.running_var)});
  };
  const std::string x = builder.input("x");
  const std::string y = builder.node(
      "Relu",
      {norm(builder.node("Conv", {x, builder.constant(net.conv1->weight)}, {{"pads", ones}}),
            *net.bn1.operator->())});
  const std::string z =
      norm(builder.node("Conv", {y, builder.constant(net.conv2->weight)}, {{"pads", ones}}),
           *net.bn2.operator->());
  const std::string sum = builder.node("Relu", {builder.node("Add", {z, y})});
  const std::string flat = builder.node("Flatten", {builder.node("GlobalAveragePool", {sum})});
  const std::string weight = builder.constant(net.fc->weight);
  const std::string bias = builder.constant(net.fc->bias);
  return from_onnx(
      builder.finish({builder.node("Gemm", {flat, weight, bias}, {{"transB", std::int64_t{1}}})}));
}

std::vector<Tensor> batches(std::uint64_t seed) {
  Generator generator(seed);
  std::vector<Tensor> data;
  for (int i = 0; i < 4; ++i) data.push_back(randn({4, 3, 9, 9}, generator));
  return data;
}

TEST_CASE("quantize_jit: the bits of the eager workflow for the same network") {
  const EagerNet net = random_net();
  const Model graph = file_net(net);
  const std::vector<Tensor> data = batches(12);
  test::check_close(graph(data[0]), net(data[0]), 1e-4F);

  EagerNet fused = nn::deep_copy(net);
  fuse_modules(fused, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
  const EagerNet prepared = prepare(fused, get_default_qconfig());
  for (const Tensor& x : data) prepared(x);
  const EagerNet eager = convert(prepared);
  const Model jit = quantize_jit(graph, get_default_qconfig(), [&](const Model& m) {
    for (const Tensor& x : data) m(x);
  });
  INFO(to_string(jit.graph()), nn::to_string(jit), nn::to_string(eager));
  for (const Tensor& x : batches(13)) CHECK(jit(x).equal(eager(x)));
}

TEST_CASE("quantize_jit: with debug the layers are float between quantize and dequantize") {
  const Model graph = file_net(random_net());
  const std::vector<Tensor> data = batches(14);
  const Model prepared = prepare_jit(graph, get_default_qconfig());
  for (const Tensor& x : data) prepared(x);
  const Model int8 = convert_jit(prepared);
  const Model literal = convert_jit(prepared, {.debug = true});
  const std::string text = to_string(literal.graph());
  CHECK(text.find("quantize_per_tensor(") != std::string::npos);
  CHECK(text.find("dequantize") != std::string::npos);
  CHECK(test::sqnr_db(literal(data[0]), int8(data[0])) > 30.0);
}

TEST_CASE("quantize_jit: layers without a QConfig are float islands") {
  const EagerNet net = random_net();
  const Model graph = file_net(net);
  const std::vector<Tensor> data = batches(15);
  const auto run = [&](const Model& m) {
    for (const Tensor& x : data) m(x);
  };
  QConfigMapping qconfigs(get_default_qconfig());
  qconfigs.set_module_name("Conv_3", std::nullopt);
  REQUIRE(graph.has_child("Conv_3"));
  const Model int8 = quantize_jit(graph, qconfigs, run);
  CHECK(int8.get_submodule("Conv_3")->type_name() == "Conv2d");
  CHECK(int8.get_submodule("Conv_0")->type_name() != "Conv2d");
  CHECK(int8.has_child("Relu_2_out0_dequant"));
  test::check_close(int8(data[0]), graph(data[0]), 0.2F);
  CHECK_THROWS_AS(prepare_jit(graph, QConfigMapping()), ArgumentError);
}

TEST_CASE("quantize_jit: a model that saw no data is refused and stays as it was") {
  const Model graph = file_net(random_net());
  const Tensor before = graph(batches(16)[0]);
  CHECK_THROWS_WITH_AS(quantize_jit(graph, get_default_qconfig(), [](const Model&) {}),
                       doctest::Contains("Conv_0"), ArgumentError);
  CHECK(graph(batches(16)[0]).equal(before));
  CHECK_THROWS_AS(quantize_jit(graph, get_default_qconfig(), {}), ArgumentError);
}

TEST_CASE("quantize_jit: an addition and its ReLU can be one operation") {
  const Model graph = file_net(random_net());
  const std::vector<Tensor> data = batches(17);
  const Model int8 = quantize_jit(graph, get_default_qconfig(),
                                  [&](const Model& m) {
                                    for (const Tensor& x : data) m(x);
                                  },
                                  {.prepare = {.fuse_add_relu = true}});
  CHECK(graph.has_child("Relu_6"));
  CHECK_FALSE(int8.has_child("Relu_6"));
  test::check_close(int8(data[0]), graph(data[0]), 0.2F);
}

TEST_CASE("quantize_jit: a layer and its ReLU6 can be observed as one") {
  Generator generator(21);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const auto number = [&](float value) { return builder.constant(Tensor::scalar(value)); };
  std::string y = builder.node("Conv", {x, builder.constant(randn({8, 3, 3, 3}, generator))});
  y = builder.node("Clip", {y, number(0.0F), number(6.0F)});
  y = builder.node("Conv", {y, builder.constant(randn({4, 8, 1, 1}, generator))});
  const Model net =
      from_onnx(builder.finish({builder.node("Clip", {y, number(0.0F), number(6.0F)})}));
  const Tensor input = randn({4, 3, 12, 12}, generator);
  const QConfig all_bits{.activation = MinMaxObserver::with_args({}),
                         .weight = default_per_channel_weight_observer()};
  const auto quantized = [&](bool fuse) {
    return quantize_jit(net, QConfigMapping(all_bits), [&](const Model& model) { model(input); },
                        {.prepare = {.fuse_relu6 = fuse}});
  };
  const Model apart = quantized(false);
  const Model fused = quantized(true);
  const auto clips = [](const Model& model) {
    return std::ranges::count_if(model.graph().nodes,
                                 [](const Node& node) { return node.op == "Clip"; });
  };
  CHECK(clips(apart) == 2);
  CHECK(clips(fused) == 0);
  const Tensor truth = net(input);
  CHECK(test::sqnr_db(truth, fused(input)) > test::sqnr_db(truth, apart(input)) + 2.0);
  CHECK(from_onnx(to_onnx(fused))(input).equal(fused(input)));
}

TEST_CASE("quantize_jit: means can have codes of their own") {
  Generator generator(22);
  NetBuilder builder;
  const std::string x = builder.input("x");
  std::string y = builder.node("Conv", {x, builder.constant(randn({8, 3, 3, 3}, generator))});
  y = builder.node("GlobalAveragePool", {y});
  y = builder.node("Conv", {y, builder.constant(randn({4, 8, 1, 1}, generator))});
  const Model net = from_onnx(builder.finish({y}));
  const Tensor input = randn({8, 3, 12, 12}, generator);
  const auto quantized = [&](bool observe) {
    return quantize_jit(net, get_default_qconfig(), [&](const Model& model) { model(input); },
                        {.prepare = {.observe_means = observe}});
  };
  const Model same = quantized(false);
  const Model own = quantized(true);
  const Tensor truth = net(input);
  CHECK(test::sqnr_db(truth, own(input)) > test::sqnr_db(truth, same(input)) + 6.0);
  // The sums are of codes.
  CHECK(std::ranges::any_of(own.graph().nodes, [](const Node& node) {
    return node.op == "GlobalAveragePool" && node.operation != nullptr;
  }));
  CHECK(from_onnx(to_onnx(own))(input).equal(own(input)));
}

TEST_CASE("quantize_jit: calculations of sizes stay integers and transposed layers are taken") {
  Generator generator(21);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string weight = builder.constant(randn({3, 4, 2, 2}, generator));
  const std::string up =
      builder.node("ConvTranspose", {x, weight}, {{"strides", std::vector<std::int64_t>{2, 2}}});
  const std::string sizes = builder.node("Shape", {up});
  const std::string zero = builder.constant(Tensor::from_int64(std::vector<std::int64_t>{0}));
  const std::string rows = builder.node("Gather", {sizes, zero});
  const std::string rest = builder.constant(Tensor::from_int64(std::vector<std::int64_t>{-1}));
  const std::string shape = builder.node("Concat", {builder.node("Mul", {rows, rest}), rest},
                                         {{"axis", std::int64_t{0}}});
  const std::string one = builder.node("Mul", {shape, rest});
  const std::string first = builder.constant(Tensor::from_int64(std::vector<std::int64_t>{0}));
  const std::string lines = builder.node("Concat", {builder.node("Gather", {one, first}), rest},
                                         {{"axis", std::int64_t{0}}});
  const Model net = from_onnx(builder.finish({builder.node("Reshape", {up, lines})}));
  const Tensor data = randn({2, 3, 5, 5}, generator);
  const Model int8 = quantize_jit(net, get_default_qconfig(), [&](const Model& m) { m(data); });
  CHECK(int8(data).sizes() == Dims{2, 400});
  CHECK(test::sqnr_db(net(data), int8(data)) > 25.0);
}

TEST_CASE("quantize_dynamic_jit: linear layers get int8 weights") {
  const EagerNet net = random_net();
  const Model graph = file_net(net);
  const Model dynamic = quantize_dynamic_jit(graph);
  const EagerNet eager = quantize_dynamic(net);
  for (const Tensor& x : batches(18)) {
    test::check_close(dynamic(x), eager(x), 1e-2F);
    CHECK_FALSE(dynamic(x).equal(graph(x)));
  }
  const Model weights = quantize_weight_only_jit(graph);
  test::check_close(weights(batches(18)[0]), graph(batches(18)[0]), 0.05F);
}

TEST_CASE("fuse_conv_bn_jit: scales and shifts behind a linear layer go into it") {
  Generator generator(19);
  NetBuilder builder;
  const std::string x = builder.input("x");
  std::string y = builder.node("MatMul", {x, builder.constant(randn({3, 4}, generator))});
  y = builder.node("Mul", {y, builder.constant(Tensor::from_values({0.5F}))});
  y = builder.node("Add", {builder.constant(randn({4}, generator)), y});
  const OnnxModel file = builder.finish({y});
  const Model literal = from_onnx(file, {.literal = true});
  const Model fused = fuse_conv_bn_jit(literal);
  CHECK(literal.graph().nodes.size() == 3);
  CHECK(fused.graph().nodes.size() == 1);
  CHECK(from_onnx(file).graph().nodes.size() == 1);
  const Tensor input = randn({2, 5, 3}, generator);
  test::check_close(fused(input), literal(input), 1e-5F);
  CHECK(from_onnx(file)(input).equal(fused(input)));
}

}  // namespace
}  // namespace quanta::graph
