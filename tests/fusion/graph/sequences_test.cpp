// Sequences of tensors, which loading takes apart.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/error.h"

namespace quanta::graph {
namespace {

using test::NetBuilder;
using Floats = std::vector<float>;

std::string integers(NetBuilder& builder, std::vector<std::int64_t> values, const Dims& sizes) {
  return builder.constant(Tensor::from_int64(values).view(sizes));
}

TEST_CASE("graph sequences: parts of one size are slices wherever the input ends") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const OnnxAttributes axis{{"axis", std::int64_t{1}}};
  const std::string parts = builder.node("SplitToSequence", {x, integers(builder, {2}, {})}, axis);
  const std::string second = builder.node("SequenceAt", {parts, integers(builder, {1}, {})});
  OnnxAttributes single = axis;
  single["keepdims"] = std::int64_t{0};
  const std::string columns = builder.node("SplitToSequence", {x}, single);
  const std::string last = builder.node("SequenceAt", {columns, integers(builder, {-1}, {})});
  const Model net = from_onnx(builder.finish({second, last}));
  const Tensor values = Tensor::from_values({1, 2, 3, 4, 5, 6}, {2, 3});
  const std::vector<Tensor> results = net.run(std::vector{values});
  CHECK(results[0].sizes() == Dims{2, 1});
  CHECK(results[0].to_float_vector() == Floats{3, 6});
  CHECK(results[1].sizes() == Dims{2});
  CHECK(results[1].to_float_vector() == Floats{3, 6});
  CHECK(FrozenGraph(net).run(std::vector{values})[0].equal(results[0]));
}

TEST_CASE("graph sequences: members come and go and are joined") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string neg = builder.node("Neg", {x});
  const std::string none = builder.node("SequenceEmpty", {});
  const std::string one = builder.node("SequenceInsert", {none, x});
  const std::string two = builder.node("SequenceInsert", {one, neg, integers(builder, {0}, {})});
  const std::string three = builder.node("SequenceInsert", {builder.node("Identity", {two}), x});
  const std::string rest = builder.node("SequenceErase", {three, integers(builder, {1}, {})});
  const std::string flat = builder.node("ConcatFromSequence", {rest}, {{"axis", std::int64_t{0}}});
  const std::string stacked =
      builder.node("ConcatFromSequence", {builder.node("SequenceConstruct", {x, neg, x})},
                   {{"axis", std::int64_t{-1}}, {"new_axis", std::int64_t{1}}});
  const std::string length = builder.node("SequenceLength", {three});
  const Model net = from_onnx(builder.finish({flat, stacked, length}));
  const std::vector<Tensor> results = net.run(std::vector{Tensor::from_values({1, 2})});
  CHECK(results[0].to_float_vector() == Floats{-1, -2, 1, 2});
  CHECK(results[1].sizes() == Dims{2, 3});
  CHECK(results[1].to_float_vector() == Floats{1, -1, 1, 2, -2, 2});
  CHECK(results[2].to_int64_vector() == std::vector<std::int64_t>{3});
}

TEST_CASE("graph sequences: parts of given sizes are those of Split") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string parts = builder.node("SplitToSequence", {x, integers(builder, {1, 3}, {2})});
  const std::string last = builder.node("SequenceAt", {parts, integers(builder, {1}, {})});
  const Model net = from_onnx(builder.finish({last}));
  CHECK(net(Tensor::from_values({1, 2, 3, 4})).to_float_vector() == Floats{2, 3, 4});
}

TEST_CASE("graph sequences: those that depend on values are refused when a file is loaded") {
  NetBuilder asks;
  const std::string at = asks.input("at", OnnxType::Int64);
  const std::string made = asks.node("SequenceConstruct", {at, at});
  CHECK_THROWS_WITH_AS(from_onnx(asks.finish({asks.node("SequenceAt", {made, at})})),
                       doctest::Contains("follow from constants"), UnsupportedError);
  NetBuilder gives;
  const std::string x = gives.input("x");
  CHECK_THROWS_WITH_AS(from_onnx(gives.finish({gives.node("SequenceConstruct", {x})})),
                       doctest::Contains("sequences are no results"), UnsupportedError);
  NetBuilder takes;
  const std::string y = takes.input("y");
  const std::string sequence = takes.node("SequenceConstruct", {y});
  CHECK_THROWS_WITH_AS(from_onnx(takes.finish({takes.node("Neg", {sequence})})),
                       doctest::Contains("cannot take a sequence"), UnsupportedError);
}

}  // namespace
}  // namespace quanta::graph
