// The rows of ONNX's layers: a module where there is one gives what the operator gives.

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using Integers = std::vector<std::int64_t>;

/// A call of an operator; inputs that are undefined are left out.
struct Call {
  std::string op;
  std::vector<Tensor> inputs;
  OnnxAttributes attributes{};
  std::int64_t opset = 22;
  std::size_t outputs = 1;

  Node node() const {
    Node made;
    made.name = "node";
    made.op = op;
    made.opset = opset;
    made.attributes = attributes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      made.inputs.push_back(inputs[i].defined() ? static_cast<ValueId>(i) : kNone);
    }
    for (std::size_t i = 0; i < outputs; ++i) made.outputs.push_back(static_cast<ValueId>(100 + i));
    return made;
  }
  const OpRow& row() const {
    const OpRow* found = op_table().find("", op, opset);
    REQUIRE(found != nullptr);
    return *found;
  }
  Outputs evaluate() const {
    const Node made = node();
    return row().evaluate(NodeCall(made, inputs, {}));
  }
  /// Of the inputs behind the first `variable`.
  std::shared_ptr<nn::Module> module(std::size_t variable = 1) const {
    const Node made = node();
    std::vector<Tensor> constants = inputs;
    for (std::size_t i = 0; i < variable && i < constants.size(); ++i) constants[i] = Tensor();
    return row().make_module(NodeCall(made, constants, {}));
  }
  Outputs through(const nn::Module& called) const {
    const Node made = node();
    if (row().call_module != nullptr) return row().call_module(called, NodeCall(made, inputs, {}));
    return {called(inputs[0])};
  }
};

void check_module(const Call& call, float tolerance = 1e-5F) {
  CAPTURE(call.op);
  const std::shared_ptr<nn::Module> module = call.module();
  REQUIRE(module != nullptr);
  CHECK_FALSE(module->is_training());
  test::check_close(call.through(*module)[0], call.evaluate()[0], tolerance);
}

TEST_CASE("ONNX layers: a module with the node's constants gives what the operator gives") {
  Generator generator(51);
  const auto random = [&](const Dims& sizes) { return randn(sizes, generator); };
  for (const std::int64_t rank : {1, 2, 3}) {
    Dims x{2, 4}, weight{6, 2}, back{4, 3};
    for (std::int64_t d = 0; d < rank; ++d) x.push_back(7), weight.push_back(3), back.push_back(3);
    const auto numbers = [&](std::int64_t value) {
      return Integers(static_cast<std::size_t>(rank), value);
    };
    const auto pads = Integers(static_cast<std::size_t>(2 * rank), 1);
    check_module({"Conv",
                  {random(x), random(weight), random({6})},
                  {{"group", std::int64_t{2}}, {"pads", pads}, {"strides", numbers(2)}}});
    check_module({"Conv",
                  {random(x), random(weight)},
                  {{"group", std::int64_t{2}},
                   {"auto_pad", std::string("SAME_LOWER")},
                   {"dilations", numbers(2)}}});
    check_module({"ConvTranspose",
                  {random(x), random(back), random({6})},
                  {{"group", std::int64_t{2}},
                   {"pads", pads},
                   {"strides", numbers(2)},
                   {"output_padding", numbers(1)}}});
    check_module({"MaxPool", {random(x)}, {{"kernel_shape", numbers(3)}, {"pads", pads}}});
    check_module({"AveragePool",
                  {random(x)},
                  {{"kernel_shape", numbers(2)},
                   {"strides", numbers(2)},
                   {"pads", pads},
                   {"ceil_mode", std::int64_t{1}}}});
  }
  check_module({"Gemm",
                {random({3, 5}), random({4, 5}), random({4})},
                {{"transB", std::int64_t{1}}, {"alpha", 0.5F}, {"beta", 2.0F}}});
  check_module({"Gemm", {random({3, 5}), random({5, 4}), random({1})}});
  check_module({"Gemm", {random({3, 5}), random({5, 4})}});
  check_module({"MatMul", {random({2, 3, 5}), random({5, 4})}});
  check_module({"LayerNormalization", {random({2, 3, 5}), random({5}), random({5})}});
  check_module({"LayerNormalization",
                {random({2, 3, 5}), random({3, 5})},
                {{"axis", std::int64_t{-2}}, {"epsilon", 0.1F}}});
  check_module({"GroupNormalization",
                {random({2, 6, 5}), random({6}), random({6})},
                {{"num_groups", std::int64_t{3}}}});
}

TEST_CASE("ONNX layers: recurrent modules have the gates in torch's order") {
  Generator generator(52);
  const auto random = [&](const Dims& sizes) { return randn(sizes, generator); };
  constexpr std::int64_t kHidden = 5;
  for (const std::string op : {"LSTM", "GRU", "RNN"}) {
    const std::int64_t gates = (op == "LSTM" ? 4 : op == "GRU" ? 3 : 1) * kHidden;
    for (const std::int64_t directions : {1, 2}) {
      for (const bool has_state : {false, true}) {
        CAPTURE(op);
        CAPTURE(directions);
        CAPTURE(has_state);
        const auto state = [&] { return has_state ? random({directions, 2, kHidden}) : Tensor(); };
        Call call{op,
                  {random({4, 2, 3}), random({directions, gates, 3}),
                   random({directions, gates, kHidden}), random({directions, 2 * gates}), Tensor(),
                   state()},
                  {{"hidden_size", kHidden}, {"linear_before_reset", std::int64_t{1}}}};
        if (directions == 2) call.attributes["direction"] = std::string("bidirectional");
        if (op == "LSTM") call.inputs.push_back(state());
        call.outputs = op == "LSTM" ? 3 : 2;
        const auto module = call.module();
        REQUIRE(module != nullptr);
        const Outputs want = call.evaluate();
        const Outputs got = call.through(*module);
        REQUIRE(got.size() == want.size());
        for (std::size_t i = 0; i < got.size(); ++i) test::check_close(got[i], want[i]);
        call.outputs = 1;
        test::check_close(call.through(*module)[0], want[0]);
      }
    }
  }
}

TEST_CASE("ONNX layers: modules hold the file's weights and leave out what they cannot be") {
  Generator generator(53);
  const auto random = [&](const Dims& sizes) { return randn(sizes, generator); };
  const Call conv{"Conv", {random({1, 3, 8, 8}), random({4, 3, 3, 3}), random({4})}};
  const auto layer = std::dynamic_pointer_cast<nn::Conv2d>(conv.module());
  REQUIRE(layer != nullptr);
  CHECK(layer->weight.data_ptr() == conv.inputs[1].data_ptr());
  const Call linear{
      "Gemm", {random({1, 3}), random({4, 3}), random({4})}, {{"transB", std::int64_t{1}}}};
  const auto product = std::dynamic_pointer_cast<nn::Linear>(linear.module());
  REQUIRE(product != nullptr);
  CHECK(product->weight.data_ptr() == linear.inputs[1].data_ptr());
  CHECK(product->bias.data_ptr() == linear.inputs[2].data_ptr());

  const auto none = [](Call call, std::string name, OnnxAttribute value) {
    call.attributes[std::move(name)] = std::move(value);
    CHECK(call.module() == nullptr);
  };
  none(conv, "pads", Integers{0, 0, 1, 1});
  CHECK(Call{"Conv", conv.inputs}.module(2) == nullptr);
  CHECK(Call{"Conv", conv.inputs}.module(3) == nullptr);
  none(linear, "transA", std::int64_t{1});
  const Call lstm{"LSTM",
                  {random({4, 2, 3}), random({1, 20, 3}), random({1, 20, 5})},
                  {{"hidden_size", std::int64_t{5}}}};
  CHECK(lstm.module() != nullptr);
  none(lstm, "direction", std::string("reverse"));
  none(lstm, "clip", 1.0F);
  none(lstm, "layout", std::int64_t{1});
  none(lstm, "activations", std::vector<std::string>{"Sigmoid", "Tanh", "Relu"});
}

TEST_CASE("ONNX layers: attributes and sizes that do not fit are refused by name") {
  const Tensor x = Tensor::zeros({1, 3, 8, 8});
  const Tensor weight = Tensor::zeros({4, 3, 3, 3});
  const auto refuses = [](const Call& call, const char* text) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(call.evaluate(), doctest::Contains(text), ArgumentError);
  };
  refuses({"Conv", {x, weight}, {{"strides", Integers{0, 1}}}}, "strides: expected 1..");
  refuses({"Conv", {x, weight}, {{"pads", Integers{1, 1}}}}, "pads: expected 4 numbers, got 2");
  refuses({"Conv", {x, weight}, {{"pads", Integers{-1, 0, 0, 0}}}}, "pads: expected 0..");
  refuses({"Conv", {x, weight}, {{"auto_pad", std::string("SAME")}}}, "auto_pad: expected NOTSET");
  refuses({"Conv", {x, weight}, {{"kernel_shape", Integers{3, 5}}}}, "kernel_shape: expected");
  refuses({"Conv", {x.squeeze(0), weight}}, "expected 4 dimensions as W has");
  refuses({"ConvTranspose", {x, Tensor::zeros({3, 4, 3, 3})}, {{"output_shape", Integers{9}}}},
          "output_shape: expected 2 numbers");
  refuses({"ConvTranspose", {x, Tensor::zeros({3, 4, 3, 3})}, {{"pads", Integers{9, 9, 9, 9}}}},
          "expected sizes >= 1 of the result");
  refuses({"MaxPool", {x}}, "kernel_shape: expected integers, got none");
  refuses({"Gemm", {x, weight}}, "input 0 (A): expected 2 dimensions");
  refuses({"Gemm", {Tensor::zeros({2, 3}), Tensor::zeros({3, 4}), Tensor::zeros({5, 1, 1})}},
          "input 2 (C): expected sizes that broadcast");
  refuses({"LSTM",
           {Tensor::zeros({4, 2, 3}), Tensor::zeros({1, 20, 3}), Tensor::zeros({1, 20, 5})},
           {{"direction", std::string("up")}}},
          "direction: expected forward");
  refuses({"LSTM",
           {Tensor::zeros({4, 2, 3}), Tensor::zeros({1, 20, 3}), Tensor::zeros({1, 20, 5})},
           {{"activations", std::vector<std::string>{"Tanh"}}}},
          "activations: expected 3 names, got 1");
  refuses({"GRU", {Tensor::zeros({4, 2, 3}), Tensor::zeros({1, 20, 3}), Tensor::zeros({1, 20, 5})}},
          "input 2 (R): expected [1, 3 * hidden_size, hidden_size]");
  refuses({"LayerNormalization", {x, Tensor::zeros({8})}, {{"axis", std::int64_t{4}}}},
          "axis: expected -4..3, got 4");
  refuses({"Attention", {x, x, Tensor::zeros({1, 2, 8, 8})}}, "expected a number of heads");
}

}  // namespace
}  // namespace quanta::graph
