// Operators that only move elements: on codes, and while a plan is recorded.

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/recorder.h"

namespace quanta::graph {
namespace {

using Integers = std::vector<std::int64_t>;

struct Call {
  std::string op;
  std::vector<Tensor> inputs;  ///< behind the first
  OnnxAttributes attributes{};
  std::size_t outputs = 1;
};

Outputs run_row(const Call& call, const Tensor& x, std::int64_t opset = 13) {
  Node node;
  node.name = "node";
  node.op = call.op;
  node.opset = opset;
  node.attributes = call.attributes;
  node.outputs.assign(call.outputs, 0);
  std::vector<Tensor> inputs{x};
  inputs.insert(inputs.end(), call.inputs.begin(), call.inputs.end());
  const OpRow* row = op_table().find("", call.op, opset);
  REQUIRE(row != nullptr);
  return row->evaluate(NodeCall(node, inputs, {}));
}

Tensor list(const Integers& values) { return Tensor::from_int64(values); }

Tensor random_codes() {
  Generator generator(3);
  std::vector<float> values(2 * 8 * 4 * 6);
  for (float& value : values) value = generator.normal();
  return quantize_per_tensor(Tensor::from_values(values, {2, 8, 4, 6}), 0.05, 117, DType::QUInt8);
}

std::vector<Call> moves() {
  return {
      {"Reshape", {list({2, -1, 6})}},
      {"Flatten", {}},
      {"Unsqueeze", {list({0, -1})}},
      {"Transpose", {}, {{"perm", Integers{0, 2, 3, 1}}}},
      {"Slice", {list({3, -1}), list({0, -9}), list({1, 3}), list({-2, -1})}},
      {"Gather", {list({-1, 0})}, {{"axis", std::int64_t{1}}}},
      {"GatherND", {list({1, -1}).view({1, 2})}},
      {"Expand", {list({3, 1, 1, 1, 1})}},
      {"Tile", {list({1, 2, 1, 2})}},
      {"Split", {list({3, 5})}, {{"axis", std::int64_t{1}}}, 2},
      {"Pad", {list({0, 1, 1, 0, 0, -1, 2, 1})}},
      {"Pad", {list({0, 0, 1, 2, 0, 0, 2, 1}), Tensor::full({}, 0.25)}},
      {"Pad", {list({0, 0, 1, 2, 0, 0, 2, 1})}, {{"mode", std::string("reflect")}}},
      {"Pad", {list({1, 1, 1, 2, 0, 0, 2, 1})}, {{"mode", std::string("edge")}}},
      {"Resize", {Tensor(), Tensor::from_values({1, 1, 2, 2})}},
      {"DepthToSpace", {}, {{"blocksize", std::int64_t{2}}}},
      {"DepthToSpace", {}, {{"blocksize", std::int64_t{2}}, {"mode", std::string("CRD")}}},
      {"SpaceToDepth", {}, {{"blocksize", std::int64_t{2}}}},
  };
}

}  // namespace

TEST_CASE("onnx: operators that move elements move codes in any memory order") {
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    const Tensor codes = random_codes().clone(format);
    const Tensor floats = dequantize(codes.as_quantized());
    for (const Call& call : moves()) {
      CAPTURE(call.op);
      const Outputs got = run_row(call, codes);
      const Outputs want = run_row(call, floats);
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        REQUIRE(got[i].is_quantized());
        CHECK(got[i].impl()->quantizer == codes.impl()->quantizer);
        CHECK(dequantize(got[i].as_quantized()).equal(want[i]));
      }
    }
  }
}

TEST_CASE("onnx: what follows from sizes is a constant of a recording") {
  const Tensor x = Tensor::ones({2, 3, 4});
  const replay::Recording recording(x);
  const Tensor shape = run_row({"Shape", {}}, x)[0];
  CHECK(shape.to_int64_vector() == Integers{2, 3, 4});
  CHECK(recording.is_constant(shape));
  CHECK(recording.is_constant(run_row({"Size", {}}, x)[0]));
  CHECK(recording.is_constant(run_row({"ConstantOfShape", {}}, shape)[0]));
  const Tensor last = run_row({"Gather", {list({-1})}}, shape)[0];
  CHECK(recording.is_constant(last));
  CHECK(run_row(
            {"Reshape", {run_row({"Concat", {last}, {{"axis", std::int64_t{0}}}}, list({-1}))[0]}},
            x)[0]
            .sizes() == Dims{6, 4});
  CHECK_THROWS_AS(run_row({"NonZero", {}}, x), UnsupportedError);
}

TEST_CASE("onnx: sizes that a file asks for are checked") {
  const Tensor x = Tensor::ones({2, 3});
  CHECK_THROWS_WITH_AS(run_row({"ConstantOfShape", {}}, list({2, -3})),
                       doctest::Contains("input: expected sizes >= 0, got 2, -3"), ArgumentError);
  CHECK_THROWS_AS(run_row({"ConstantOfShape", {}}, list({1LL << 40, 1LL << 40})), ArgumentError);
  CHECK_THROWS_AS(run_row({"Expand", {list({1LL << 62, 2, 3})}}, x), ArgumentError);
  CHECK_THROWS_AS(run_row({"Tile", {list({1LL << 62, 4})}}, x), ArgumentError);
  CHECK_THROWS_AS(run_row({"Tile", {list({-1, 4})}}, x), ArgumentError);
  CHECK_THROWS_AS(run_row({"Pad", {list({0, 0, 0, 1LL << 62})}}, x), ArgumentError);
  CHECK_THROWS_AS(run_row({"Resize", {Tensor(), Tensor::from_values({1, 1e30F})}}, x),
                  ArgumentError);
  CHECK_THROWS_AS(run_row({"Reshape", {list({1LL << 62, 1LL << 62, -1})}}, x), ArgumentError);
  CHECK_THROWS_AS(
      run_row({"Range", {list({1LL << 62}).view({}), list({1}).view({})}}, list({0}).view({})),
      ArgumentError);
  // Steps whose sum no integer holds, though each number is one.
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kStep = 1LL << 62;
  CHECK(run_row({"Range", {list({kLargest}).view({}), list({kStep}).view({})}},
                list({kLeast}).view({}))[0]
            .to_int64_vector() == std::vector<std::int64_t>{kLeast, -kStep, 0, kStep});
  // A large fill takes no memory until somebody needs it.
  CHECK(run_row({"ConstantOfShape", {}}, list({1 << 20, 1 << 20}))[0].sizes() ==
        Dims{1 << 20, 1 << 20});
}

}  // namespace quanta::graph
