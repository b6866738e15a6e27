#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "quanta/nn/data/npy.h"
#include "quanta/runtime/error.h"
#include "quanta/tools/cli/onnx_inputs.h"
#include "support/files.h"
#include "support/tensors.h"

namespace quanta::cli {
namespace {

OnnxValue value(const char* name, OnnxType type, std::vector<OnnxDim> sizes) {
  return {.name = name, .type = type, .sizes = std::move(sizes)};
}

/// x FLOAT [n, 3, 4, 4] and sr INT64 [].
OnnxModel two_inputs() {
  OnnxModel model;
  model.graph.inputs = {value("x", OnnxType::Float, {{{}, "n"}, {3, ""}, {4, ""}, {4, ""}}),
                        value("sr", OnnxType::Int64, {})};
  return model;
}

}  // namespace

TEST_CASE("onnx inputs: constants have the dtype and the sizes that the file declares") {
  const OnnxModel model = two_inputs();
  const graph::NamedTensors constants = read_constants({"sr=16000"}, model);
  const Tensor& rate = constants.find("sr")->second;
  CHECK(rate.dtype() == DType::Int64);
  CHECK(rate.dim() == 0);
  CHECK(rate.item() == 16000);
  CHECK(free_inputs(model, constants).size() == 1);
  CHECK_THROWS_WITH_AS(read_constants({"rate=1"}, model),
                       doctest::Contains("--set: expected one of the inputs x, sr, got 'rate'"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(read_constants({"sr=fast"}, model),
                       doctest::Contains("expected a number, got 'fast'"), ArgumentError);
  CHECK_THROWS_AS(read_constants({"16000"}, model), ArgumentError);
}

TEST_CASE("onnx inputs: sizes come from the option and else from the file") {
  const std::vector<OnnxValue> inputs = free_inputs(two_inputs());
  const SizesByName sizes = read_sizes({"x=2,3,8,8"}, inputs);
  CHECK(sizes_of(inputs[0], sizes) == Dims{2, 3, 8, 8});
  CHECK(sizes_of(inputs[0], {}) == Dims{1, 3, 4, 4});
  CHECK(random_input(inputs[1], {}).dtype() == DType::Int64);
  CHECK(random_input(inputs[0], {}).equal(random_input(inputs[0], {})));
  CHECK_FALSE(random_input(inputs[0], {}).equal(random_input(inputs[0], {}, 2)));
  CHECK_THROWS_AS(read_sizes({"x=2,-3"}, inputs), ArgumentError);
  CHECK_THROWS_AS(read_sizes({"x=2,,3"}, inputs), ArgumentError);
}

TEST_CASE("onnx inputs: arrays of a file become samples of a batch each") {
  const test::TemporaryFolder folder;
  const std::vector<OnnxValue> inputs = free_inputs(two_inputs());
  const std::string path = (folder / "data.npz").string();
  const Tensor x = test::random_tensor({7, 3, 4, 4}, 1);
  const Tensor rates = Tensor::arange(4, DType::Int64);
  data::write_npz(path, {{"x", x}, {"sr", rates}});
  const Samples samples = Samples::open(path, inputs, {}, {}, 2, 100);
  REQUIRE(samples.size() == 4);  // seven in pairs, and the last one
  const graph::NamedTensors third = samples[2];
  CHECK(third.find("x")->second.equal(x.slice(0, 4, 6)));
  CHECK(third.find("sr")->second.dim() == 0);
  CHECK(third.find("sr")->second.item() == 2);
  CHECK(samples[3].find("x")->second.equal(x.slice(0, 6, 7)));
  CHECK(Samples::open(path, inputs, {}, {}, 2, 1).size() == 1);

  data::write_npz(path, {{"x", x}, {"rate", rates}});
  CHECK_THROWS_WITH_AS(Samples::open(path, inputs, {}, {}, 2, 100),
                       doctest::Contains("expected an array 'sr', as the input is named"),
                       ArgumentError);
  data::write_npz(path, {{"x", rates}, {"sr", rates}});
  CHECK_THROWS_WITH_AS(Samples::open(path, inputs, {}, {}, 2, 100),
                       doctest::Contains("expected float32 for input 'x', got int64"),
                       ArgumentError);
}

TEST_CASE("onnx inputs: fewer samples than a network takes at once are refused") {
  const test::TemporaryFolder folder;
  const std::string path = (folder / "x.npy").string();
  const std::vector<OnnxValue> inputs{value("x", OnnxType::Float, {{4, ""}, {3, ""}})};
  data::write_npy(path, test::random_tensor({7, 3}, 1));
  CHECK(Samples::open(path, inputs, {}, {}, 8, 100).size() == 1);
  data::write_npy(path, test::random_tensor({3, 3}, 1));
  CHECK_THROWS_WITH_AS(Samples::open(path, inputs, {}, {}, 8, 100),
                       doctest::Contains("expected at least 4 samples"), ArgumentError);
}

TEST_CASE("onnx inputs: a folder's files are samples in the order of their names") {
  const test::TemporaryFolder folder;
  const std::vector<OnnxValue> inputs{free_inputs(two_inputs())[0]};
  const Tensor a = test::random_tensor({1, 3, 4, 4}, 1);
  const Tensor b = test::random_tensor({5, 3, 4, 4}, 2);
  data::write_npy(folder / "b.npy", b);
  data::write_npz(folder / "a.npz", {{"x", a}});
  const Samples samples = Samples::open(folder.path().string(), inputs, {}, {}, 8, 100);
  REQUIRE(samples.size() == 2);
  CHECK(samples[0].find("x")->second.equal(a));
  CHECK(samples[1].find("x")->second.equal(b));
  const test::TemporaryFolder empty;
  CHECK_THROWS_AS(Samples::open(empty.path().string(), inputs, {}, {}, 8, 100), FileError);
}

TEST_CASE("onnx inputs: pictures take the sizes and the mean that are asked for") {
  const test::TemporaryFolder folder;
  const std::vector<OnnxValue> inputs{free_inputs(two_inputs())[0]};
  // A grey PPM of 2 x 2.
  std::string ppm = "P6 2 2 255\n";
  ppm += std::string(12, '\x80');
  test::write_bytes(folder / "grey.ppm", ppm);
  const std::string path = (folder / "grey.ppm").string();
  const Tensor x = read_input(inputs[0], path, {}, {.mean = {0.5F}, .std = {0.5F}});
  CHECK(x.sizes() == Dims{1, 3, 4, 4});
  CHECK(x.to_float_vector()[0] == doctest::Approx((128.0 / 255 - 0.5) / 0.5));
  CHECK(read_input(inputs[0], path, {}, {.size = "6x5"}).sizes() == Dims{1, 3, 6, 5});
  CHECK(read_input(inputs[0], folder.path().string(), {}, {}).sizes() == Dims{1, 3, 4, 4});
  CHECK_THROWS_AS(read_input(inputs[0], path, {}, {.size = "6"}), ArgumentError);
  CHECK_THROWS_AS(read_input(inputs[0], "nothing.png", {}, {}), FileError);
}

}  // namespace quanta::cli
