// AIMET's encodings on float ONNX files.

#include "quanta/fusion/graph/apply_encodings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fusion/small_network.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/quantsim.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/nn/container.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/onnx_cases.h"

namespace quanta::graph {
namespace {

using aimet::EncodingFile;
using aimet::EncodingVersion;
using test::SmallNetwork;

const SmallNetwork& fused() {
  static const SmallNetwork network = test::fused_network();
  return network;
}

aimet::QuantizationSimModel<SmallNetwork> simulated(const aimet::QuantSimConfig& config) {
  aimet::QuantizationSimModel<SmallNetwork> sim(fused(), config);
  sim.compute_encodings([](const nn::Module& m) { m(test::small_input(1)); });
  return sim;
}

std::map<std::string, int> count_ops(const OnnxModel& file) {
  std::map<std::string, int> counts;
  for (const OnnxNode& node : file.graph.nodes) ++counts[node.op_type];
  return counts;
}

}  // namespace

TEST_CASE("apply_encodings: what a QuantizationSimModel exports gives its results") {
  const Tensor x = test::small_input(2);
  const OnnxModel floats = to_onnx(fused(), x);
  for (const std::int64_t param_bits : {4, 8}) {
    for (const std::int64_t output_bits : {8, 16}) {
      const auto sim = simulated({.scheme = aimet::QuantScheme::MinMax,
                                  .param_bitwidth = param_bits,
                                  .output_bitwidth = output_bits});
      for (const EncodingVersion version :
           {EncodingVersion::V0_6_1, EncodingVersion::V1_0_0, EncodingVersion::V2_0_0}) {
        CAPTURE(param_bits);
        CAPTURE(output_bits);
        CAPTURE(std::string(aimet::to_string(version)));
        const OnnxModel file = apply_encodings(floats, aimet::to_json(sim.encodings(version)));
        CHECK(count_ops(file)["QuantizeLinear"] == 5);
        CHECK(count_ops(file)["DequantizeLinear"] == 8);
        CHECK(file.opsets.at("") == (output_bits == 16 ? 21 : 17));
        const Tensor want = sim.model()(x);
        test::write_onnx_case(fmt::format("encodings_w{}a{}", param_bits, output_bits), file, x,
                              want);
        CHECK(test::sqnr_db(want, from_onnx(file, {.literal = true})(x)) > 60.0);
        CHECK(test::sqnr_db(want, from_onnx(file)(x)) > 45.0);
      }
    }
  }
}

TEST_CASE("apply_encodings: a value of more than 16 bits is clipped") {
  const auto sim = simulated({.scheme = aimet::QuantScheme::MinMax, .output_bitwidth = 32});
  const Tensor x = test::small_input(2);
  const OnnxModel file = apply_encodings(to_onnx(fused(), x), sim.encodings());
  CHECK(count_ops(file)["QuantizeLinear"] == 0);
  CHECK(count_ops(file)["DequantizeLinear"] == 3);
  CHECK(test::largest_difference(sim.model()(x), from_onnx(file, {.literal = true})(x)) < 1e-4);
}

TEST_CASE("apply_encodings: channels of transposed weights and float formats") {
  manual_seed(7);
  nn::Sequential net{nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 4)};
  net.eval();
  const Tensor x = randn({2, 3, 8});
  aimet::QuantizationSimModel<nn::Sequential> sim(
      net, {.scheme = aimet::QuantScheme::MinMax, .param_bitwidth = 4});
  sim.compute_encodings([&](const nn::Module& m) { m(x); });
  const OnnxModel floats = to_onnx(net, x);
  // The weight of [8, 8] stands transposed in the file: nothing but MatMul tells where channels lie.
  const OnnxModel file = apply_encodings(floats, aimet::to_json(sim.encodings()));
  CHECK(test::sqnr_db(sim.model()(x), from_onnx(file, {.literal = true})(x)) > 60.0);

  EncodingFile halves{.version = EncodingVersion::V1_0_0};
  for (const char* dtype : {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}) {
    CAPTURE(dtype);
    const auto encoding = aimet::FloatQuantizeDequantize({.dtype = dtype}).encoding();
    halves.params = {{"0.weight", encoding, Dims{8, 8}}};
    halves.activations = {{"input", encoding}, {"output", encoding}};
    const OnnxModel casts = apply_encodings(floats, halves);
    const aimet::FloatQuantizeDequantize quantizer({.dtype = dtype});
    nn::Sequential own = nn::deep_copy(net);
    const Tensor weight = own.named_parameters()[0].tensor;
    weight.copy_(quantizer(weight.clone()).tensor());
    const Tensor want = quantizer(own(quantizer(x).tensor())).tensor();
    test::write_onnx_case(std::string("encodings_") + dtype, casts, x, want);
    CHECK(test::sqnr_db(want, from_onnx(casts, {.literal = true})(x)) > 40.0);
  }
}

TEST_CASE("apply_encodings: scales that a float format has no place for are told") {
  const OnnxModel floats = to_onnx(fused(), test::small_input(2));
  const auto problem = [&](double scale, const char* format) {
    EncodingFile file{.version = EncodingVersion::V1_0_0};
    file.activations = {{floats.graph.inputs[0].name,
                         std::make_shared<aimet::FloatEncoding>(
                             Tensor::full({}, scale), aimet::FloatSpec::from_name(format))}};
    return test::message_of([&] { apply_encodings(floats, file); });
  };
  CHECK(problem(0.25, "float16").find("a scale of floats of 16 bits") != std::string::npos);
  CHECK(problem(0.0, "float8_e4m3fn").find("finite and above 0") != std::string::npos);
  CHECK(problem(1.0, "float16").empty());
}

TEST_CASE("apply_encodings: a file is read by its path") {
  const auto sim = simulated({.scheme = aimet::QuantScheme::MinMax});
  const test::TemporaryFolder folder;
  sim.export_to(folder.path(), "net");
  const Tensor x = test::small_input(2);
  const OnnxModel floats = to_onnx(fused(), x);
  const OnnxModel file = apply_encodings(floats, folder.path() / "net.encodings");
  CHECK(test::sqnr_db(sim.model()(x), from_onnx(file, {.literal = true})(x)) > 60.0);
  CHECK_THROWS_WITH_AS(apply_encodings(floats, folder.path() / "none.encodings"),
                       doctest::Contains("expected a file that can be read"), FileError);
}

TEST_CASE("apply_encodings: what does not belong to the model is listed") {
  const auto sim = simulated({.scheme = aimet::QuantScheme::MinMax});
  const OnnxModel floats = to_onnx(fused(), test::small_input(2));
  EncodingFile file = sim.encodings();
  file.params[0].name = "nobody.weight";
  file.activations[0].name = "nothing";
  const std::string text = test::message_of([&] { apply_encodings(floats, file); });
  CHECK(text.find("nobody.weight: no tensor of this name") != std::string::npos);
  CHECK(text.find("nothing: no tensor of this name") != std::string::npos);

  EncodingFile twice = sim.encodings();
  twice.activations.push_back(twice.activations[1]);
  CHECK_THROWS_WITH_AS(apply_encodings(floats, twice), doctest::Contains("has an encoding already"),
                       ArgumentError);
  EncodingFile swapped = sim.encodings();
  std::swap(swapped.params[0].encoding, swapped.params.back().encoding);
  CHECK_THROWS_WITH_AS(apply_encodings(floats, swapped), doctest::Contains("do not fit a weight"),
                       ArgumentError);
}

TEST_CASE("apply_encodings: values of 16 bits stand between casts, others are refused") {
  const auto sim = simulated({.scheme = aimet::QuantScheme::MinMax});
  const EncodingFile file = sim.encodings();
  OnnxModel halves = to_onnx(fused(), test::small_input(2));
  halves.graph.inputs[0].type = OnnxType::Float16;
  const OnnxModel made = apply_encodings(halves, file);
  const auto casts = std::ranges::count(made.graph.nodes, "Cast", &OnnxNode::op_type);
  CHECK(casts >= 2);
  OnnxModel integers = to_onnx(fused(), test::small_input(2));
  integers.graph.inputs[0].type = OnnxType::Int64;
  CHECK_THROWS_WITH_AS(apply_encodings(integers, file),
                       doctest::Contains("expected a value of floats"), ArgumentError);
}

TEST_CASE("apply_encodings: hostile JSON is an error") {
  const OnnxModel floats = to_onnx(fused(), test::small_input(2));
  const std::string good = aimet::to_json(simulated({}).encodings());
  for (const std::string& text :
       {std::string("{"), std::string("{}"), std::string("{\"version\": \"9\"}"),
        std::string("{\"version\": \"1.0.0\", \"activation_encodings\": 3}"),
        std::string(200000, '{'), good.substr(0, good.size() / 2),
        std::string("{\"version\":\"1.0.0\",\"activation_encodings\":[{\"name\":\"input\",\"bw\":"
                    "8,\"dtype\":\"INT\",\"enc_type\":\"PER_TENSOR\",\"is_sym\":false,\"scale\":"
                    "[0.0],\"offset\":[-3]}],\"param_encodings\":[]}"),
        std::string("{\"version\":\"1.0.0\",\"activation_encodings\":[{\"name\":\"input\",\"bw\":"
                    "8,\"dtype\":\"INT\",\"enc_type\":\"PER_TENSOR\",\"is_sym\":false,\"scale\":"
                    "[1.0],\"offset\":[-3e9]}],\"param_encodings\":[]}")}) {
    CAPTURE(text.substr(0, 200));
    CHECK_THROWS_AS(apply_encodings(floats, text), Error);
  }
}

}  // namespace quanta::graph
