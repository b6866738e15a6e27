// Networks that were written as classes as graphs and as ONNX files.

#include "quanta/fusion/graph/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fusion/small_network.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/quantize.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/container.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/models/encoder_classifier.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/recurrent.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using test::largest_difference;

double magnitude(const Tensor& x) {
  double largest = 1e-30;
  for (const float value : x.to_float_vector()) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  return largest;
}

/// What comes out of the graph, and out of the file when it is read again, relative to the largest
/// magnitude.
struct Differences {
  double traced = 0.0, read = 0.0;
};

Differences differences(const nn::Module& net, const Tensor& x, const ExportOptions& options = {}) {
  const Tensor want = net(x);
  const Model traced = trace(net, x, options.trace);
  const Model read = from_onnx(to_onnx(net, x, options));
  const double scale = magnitude(want);
  return {largest_difference(traced(x), want) / scale, largest_difference(read(x), want) / scale};
}

std::map<std::string, int> count_ops(const OnnxModel& file) {
  std::map<std::string, int> counts;
  for (const OnnxNode& node : file.graph.nodes) ++counts[node.op_type];
  return counts;
}

/// Any function of one tensor.
struct Call : nn::Module {
  std::function<Tensor(const Tensor&)> function;
  explicit Call(std::function<Tensor(const Tensor&)> called) : function(std::move(called)) {
    eval();
  }
  Tensor forward(const Tensor& x) const override { return function(x); }
};

}  // namespace

TEST_CASE("trace: a convolutional network has nodes by the names of its modules") {
  manual_seed(1);
  nn::models::FashionResNet net;
  net.eval();
  const Tensor x = randn({2, 1, 28, 28});
  const Model traced = trace(net, x);
  CHECK(test::same_bits(traced(x), net(x)));
  std::set<std::string> names;
  std::set<std::string> weights;
  for (const Node& node : traced.graph().nodes) names.insert(node.name);
  for (const Value& value : traced.graph().values) {
    if (value.constant.defined()) weights.insert(value.name);
  }
  CHECK(names.contains("layer1.0.conv1"));
  CHECK(names.contains("layer2.0.down.1"));
  CHECK(names.contains("layer1.0.add"));
  CHECK(weights.contains("layer1.0.conv1.weight"));
  CHECK(weights.contains("bn1.running_mean"));
  CHECK(weights.contains("fc.bias"));
  CHECK(traced.input_names() == std::vector<std::string>{"input"});
  CHECK(traced.output_names() == std::vector<std::string>{"output"});
}

TEST_CASE("to_onnx: float networks give the same numbers when they are read again") {
  manual_seed(2);
  constexpr double kFloats = 1e-5;
  {
    nn::models::FashionMobileNet net;
    net.eval();
    const Differences off = differences(net, randn({2, 1, 28, 28}));
    CHECK(off.traced == 0.0);
    CHECK(off.read < kFloats);
  }
  {
    nn::models::EncoderClassifier net(1);
    net.eval();
    const Differences off = differences(net, randn({2, 5, 768}));
    CHECK(off.traced == 0.0);
    CHECK(off.read < kFloats);
  }
  for (const bool bidirectional : {false, true}) {
    const nn::RecurrentOptions options{.input_size = 8,
                                       .hidden_size = 6,
                                       .num_layers = 2,
                                       .batch_first = true,
                                       .bidirectional = bidirectional};
    const nn::Sequential lstm{nn::LSTM(options)};
    const nn::Sequential gru{nn::GRU(options)};
    const nn::Sequential rnn{nn::RNN(options)};
    for (const nn::Sequential& net : {lstm, gru, rnn}) {
      nn::Sequential own = net;
      own.eval();
      const Tensor x = randn({3, 4, 8});
      const Differences off = differences(own, x);
      CHECK(off.traced == 0.0);
      CHECK(off.read < kFloats);
    }
  }
}

TEST_CASE("to_onnx: converted networks give the same codes when they are read again") {
  manual_seed(3);
  nn::models::FashionMobileNet net;
  net.eval();
  fuse_modules(net, fusion_groups(net));
  const Tensor x = randn({2, 1, 28, 28});
  prepare_(net, get_default_qconfig("x86"));
  net(x);
  convert_(net);
  for (const OnnxFormat format : {OnnxFormat::QDQ, OnnxFormat::QOperator}) {
    const Differences off = differences(net, x, {.format = format});
    CHECK(off.traced == 0.0);
    CHECK(off.read == 0.0);
  }
  const OnnxModel file = to_onnx(net, x);
  CHECK(file.metadata.at("quanta.arithmetic") == "torch");
  CHECK(count_ops(file)["QuantizeLinear"] > 20);
}

TEST_CASE("to_onnx: dynamic and weight-only layers come back as these layers") {
  manual_seed(4);
  const Tensor x = randn({3, 4, 32});
  {
    nn::models::LstmClassifier net(
        {.input_size = 32, .hidden_size = 16, .num_layers = 2, .batch_first = true}, 5);
    net.eval();
    quantize_dynamic_(net);
    const Differences off = differences(net, x);
    CHECK(off.traced == 0.0);
    CHECK(off.read == 0.0);
    CHECK(count_ops(to_onnx(net, x))["MatMulInteger"] == 1);
  }
  for (const int bits : {4, 8}) {
    nn::Sequential net{nn::Linear(32, 16), nn::ReLU(), nn::Linear(16, 4)};
    net.eval();
    quantize_weight_only_(net, {.bits = bits, .group_size = 16});
    const Differences off = differences(net, x);
    CHECK(off.traced == 0.0);
    CHECK(off.read == 0.0);
    const ExportOptions runtime{.target = OnnxTarget::OnnxRuntime};
    CHECK(count_ops(to_onnx(net, x, runtime))["MatMulNBits"] == (bits == 4 ? 2 : 0));
  }
}

TEST_CASE("to_onnx: a network goes on in graph mode") {
  manual_seed(5);
  test::SmallNetwork net;
  net.eval();
  const Tensor x = randn({2, 3, 8, 8});
  const Model read = from_onnx(to_onnx(net, x));
  const Model int8 = quantize_jit(read, get_default_qconfig("x86"), [&](const Model& m) { m(x); });
  CHECK(test::sqnr_db(net(x), int8(x)) > 20.0);
}

TEST_CASE("trace: dynamic_batch follows the number of samples") {
  manual_seed(6);
  const ExportOptions options{.trace = {.dynamic_batch = true}};
  const auto check_batches = [&](const nn::Module& net, const Tensor& example, const Dims& sample) {
    const Model read = from_onnx(to_onnx(net, example, options));
    for (const std::int64_t batch : {1, 2, 5}) {
      Dims sizes = sample;
      sizes.insert(0, batch);
      const Tensor x = randn(sizes);
      const Tensor want = net(x);
      CAPTURE(batch);
      const Tensor got = read(x);
      REQUIRE(got.sizes() == want.sizes());
      CHECK(largest_difference(got, want) <= 1e-5 * magnitude(want));
    }
  };
  {
    nn::models::FashionMobileNet net;
    net.eval();
    check_batches(net, randn({1, 1, 28, 28}), {1, 28, 28});
    const OnnxModel file = to_onnx(net, randn({1, 1, 28, 28}), options);
    CHECK(!(*file.graph.inputs[0].sizes)[0].size.has_value());
    CHECK((*file.graph.inputs[0].sizes)[0].name == "batch");
  }
  {
    nn::models::EncoderClassifier net(1);
    net.eval();
    check_batches(net, randn({2, 3, 768}), {3, 768});
  }
  {
    nn::models::GruClassifier net(
        {.input_size = 8, .hidden_size = 6, .num_layers = 2, .batch_first = true}, 5);
    net.eval();
    check_batches(net, randn({2, 4, 8}), {4, 8});
  }
  // A token in front of each sample.
  const Tensor token = randn({1, 1, 4});
  const Call with_token([token](const Tensor& x) {
    const std::vector<Tensor> parts{token.expand({x.size(0), 1, 4}), x};
    return cat(parts, 1);
  });
  check_batches(with_token, randn({2, 3, 4}), {3, 4});
}

TEST_CASE("trace: dynamic_batch refuses what cannot follow by name") {
  const Tensor rows = randn({4, 3});
  // One number for each of 2 and 3 times the example's samples.
  const Call net([rows](const Tensor& x) { return x * rows.narrow(0, 0, x.size(0)); });
  CHECK_THROWS_WITH_AS(trace(net, randn({1, 3}), {.dynamic_batch = true}),
                       doctest::Contains("what depends on the number of samples"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(trace(net, Tensor::scalar(1.0), {.dynamic_batch = true}),
                       doctest::Contains("expected a common dimension 0"), ArgumentError);
}

TEST_CASE("trace: several inputs and outputs have the names that are given") {
  struct Pair : nn::Module {
    Pair() { eval(); }
    std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
      return {inputs[0] + inputs[1], inputs[0], inputs[0].t()};
    }
  };
  const Pair net;
  const std::vector<Tensor> inputs{randn({2, 3}), randn({2, 3})};
  const Model traced =
      trace(net, inputs, {.input_names = {"a", "b"}, .output_names = {"sum", "same", "turned"}});
  CHECK(traced.input_names() == std::vector<std::string>{"a", "b"});
  CHECK(traced.output_names() == std::vector<std::string>{"sum", "same", "turned"});
  const std::vector<Tensor> got = traced.run(inputs);
  CHECK(test::same_bits(got[0], inputs[0] + inputs[1]));
  CHECK(test::same_bits(got[1], inputs[0]));
  CHECK(test::same_bits(got[2], inputs[0].t()));
  CHECK_THROWS_WITH_AS(trace(net, inputs, {.input_names = {"a"}}),
                       doctest::Contains("input_names: expected 2, got 1"), ArgumentError);
  CHECK_THROWS_WITH_AS(trace(net, inputs, {.input_names = {"a", "a"}}),
                       doctest::Contains("expected names that differ"), ArgumentError);
  CHECK_THROWS_WITH_AS(trace(net, inputs, {.output_names = {"y"}}),
                       doctest::Contains("output_names: expected 3, got 1"), ArgumentError);
}

TEST_CASE("trace: wrong arguments are refused by name") {
  nn::Sequential net{nn::Linear(3, 2)};
  CHECK_THROWS_WITH_AS(trace(net, randn({1, 3})),
                       doctest::Contains("expected Sequential in eval mode"), ArgumentError);
  net.eval();
  CHECK_THROWS_WITH_AS(trace(net, Tensor()), doctest::Contains("got an undefined one"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(trace(net, std::span<const Tensor>()),
                       doctest::Contains("expected at least one tensor"), ArgumentError);
  CHECK_THROWS_WITH_AS(trace(net, quantize_per_tensor(randn({1, 3}), 0.1, 3, DType::QUInt8)),
                       doctest::Contains("expected plain tensors on the CPU, got QUInt8"),
                       ArgumentError);
}

TEST_CASE("to_onnx: all operations that ONNX has no form for are listed") {
  const Call net([](const Tensor& x) { return det(x) + det(x + 1.0); });
  const std::string text = test::message_of([&] { to_onnx(net, randn({2, 3, 3})); });
  CHECK(text.find("det 'det': no form for the operation det") != std::string::npos);
  CHECK(text.find("det 'det_2': no form for the operation det") != std::string::npos);
}

TEST_CASE("trace: what is written to in part is refused and what is changed whole follows") {
  const Call part([](const Tensor& x) {
    const Tensor y = x + 1.0;
    relu_(y.narrow(1, 0, 1));
    return y;
  });
  CHECK_THROWS_WITH_AS(trace(part, randn({2, 3})),
                       doctest::Contains("a part of one that is written to in place"),
                       UnsupportedError);
  const Call whole([](const Tensor& x) {
    const Tensor y = x + 1.0;
    relu_(y);
    return y.t();
  });
  const Tensor x = randn({2, 3});
  CHECK(test::same_bits(trace(whole, x)(x), whole(x)));
}

}  // namespace quanta::graph
