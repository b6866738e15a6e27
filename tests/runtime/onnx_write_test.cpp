#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "onnx_test_util.h"
#include "quanta/runtime/error.h"
#include "support/onnx_text.h"

namespace quanta {
namespace {

namespace fs = std::filesystem;

OnnxModel model_with_weights() {
  OnnxModel model;
  model.opsets = {{"", 13}};
  model.graph.name = "g";
  model.graph.initializers.push_back({"large", OnnxType::Float, Tensor::arange(1000)});
  model.graph.initializers.push_back({"odd", OnnxType::Int8, Tensor::full({1500}, 3, DType::Int8)});
  model.graph.initializers.push_back({"small", OnnxType::Float, Tensor::arange(3)});
  model.graph.initializers.push_back({"last", OnnxType::Int64, Tensor::arange(500, DType::Int64)});
  return model;
}

std::int64_t ir_version(OnnxModel model, std::int64_t opset) {
  const test::TemporaryFolder folder;
  model.opsets[""] = opset;
  write_onnx(folder / "m.onnx", model);
  return read_onnx(folder / "m.onnx").ir_version;
}

}  // namespace

TEST_CASE("onnx: what is written is read again") {
  const test::TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(test::onnx_seeds())) {
    CAPTURE(entry.path().string());
    const OnnxModel model = read_onnx(entry.path());
    if (entry.path().stem() == "other_types") {
      CHECK_THROWS_WITH_AS(write_onnx(folder / "m.onnx", model),
                           doctest::Contains("expected a tensor, got an undefined one"),
                           ArgumentError);
      continue;
    }
    write_onnx(folder / "m.onnx", model);
    CHECK(test::OnnxText(read_onnx(folder / "m.onnx")).text() == test::OnnxText(model).text());
  }
  CHECK(test::files_in(folder.path()) == 1);
}

TEST_CASE("onnx: large weights go to a file beside the model") {
  const test::TemporaryFolder folder;
  OnnxModel model = model_with_weights();
  model.ir_version = 8;
  write_onnx(folder / "m.onnx", model, {.external_data_above = 100});
  CHECK(test::files_in(folder.path()) == 2);
  CHECK(fs::file_size(folder / "m.onnx") < 1000);
  const OnnxModel copy = read_onnx(folder / "m.onnx");
  CHECK(test::OnnxText(copy).text() == test::OnnxText(model).text());
  // Whoever maps the file finds the elements aligned.
  CHECK(fs::file_size(folder / "m.onnx.data") == 4032 + 1536 + 4000);
  // Over the files that the copy's tensors lie in.
  write_onnx(folder / "m.onnx", copy, {.external_data_above = 100});
  CHECK(test::OnnxText(read_onnx(folder / "m.onnx")).text() == test::OnnxText(model).text());
  write_onnx(folder / "one.onnx", model);
  CHECK(test::files_in(folder.path()) == 3);
}

TEST_CASE("onnx: the IR version is the oldest of the opset's releases") {
  OnnxModel model;
  CHECK(ir_version(model, 13) == 8);
  CHECK(ir_version(model, 19) == 9);
  CHECK(ir_version(model, 21) == 10);
  CHECK(ir_version(model, 23) == 11);
  CHECK(ir_version(model, 25) == 13);
  model.ir_version = 3;
  CHECK(ir_version(model, 8) == 3);
  CHECK(ir_version(model, 13) == 7);
  model.graph.initializers.push_back({"w", OnnxType::Float, Tensor::arange(1)});
  CHECK(ir_version(model, 8) == 4);  // a weight that is no input
}

TEST_CASE("onnx: a tensor file keeps name type and values") {
  const test::TemporaryFolder folder;
  const auto trip = [&](const OnnxTensor& tensor) {
    write_onnx_tensor(folder / "t.pb", tensor);
    return read_onnx_tensor(folder / "t.pb");
  };
  const Tensor codes = Tensor::from_values({-8, 7, 0, -1, 3}).to(DType::Int8);
  const OnnxTensor packed = trip({"w", OnnxType::Int4, codes});
  CHECK(packed.name == "w");
  CHECK(packed.type == OnnxType::Int4);
  CHECK(packed.value.to_int64_vector() == codes.to_int64_vector());
  CHECK(fs::file_size(folder / "t.pb") == 2 + 2 + 3 + 2 + 3);
  // A view is written in logical order, a type that is not given found.
  const OnnxTensor view = trip({"", OnnxType::Undefined, Tensor::arange(6).reshape({2, 3}).t()});
  CHECK(view.type == OnnxType::Float);
  CHECK(view.value.to_float_vector() == std::vector<float>{0, 3, 1, 4, 2, 5});
  const QTensor quantized = QTensor::from_int_repr(codes, Quantizer::per_tensor(0.5, 0));
  CHECK(trip({"q", OnnxType::Undefined, quantized}).value.to_int64_vector() ==
        codes.to_int64_vector());
}

TEST_CASE("onnx: tensors that their type cannot hold are refused") {
  const test::TemporaryFolder folder;
  const auto refuse = [&](const OnnxTensor& tensor, const std::string& text) {
    CHECK_THROWS_WITH_AS(write_onnx_tensor(folder / "t.pb", tensor),
                         doctest::Contains(text.c_str()), ArgumentError);
  };
  refuse({"w", OnnxType::Float, {}}, "tensor 'w': expected a tensor, got an undefined one");
  refuse({"w", OnnxType::Float, Tensor::zeros({1}, DType::Int8)}, "that holds FLOAT, got Int8");
  refuse({"w", OnnxType::Int4, Tensor::full({1}, 8, DType::Int8)},
         "expected -8..7 for INT4, got 8");
  refuse({"w", OnnxType::String, Tensor::zeros({1})}, "that holds STRING");
  CHECK(test::files_in(folder.path()) == 0);
  CHECK_THROWS_AS(write_onnx(folder / "none/m.onnx", model_with_weights()), FileError);
}

TEST_CASE("onnx: a model that cannot be written leaves the old one") {
  const test::TemporaryFolder folder;
  OnnxModel model = model_with_weights();
  write_onnx(folder / "m.onnx", model);
  const std::string old = test::read_bytes(folder / "m.onnx");
  model.graph.initializers.push_back({"undefined", OnnxType::Float, {}});
  CHECK_THROWS_AS(write_onnx(folder / "m.onnx", model), ArgumentError);
  CHECK(test::read_bytes(folder / "m.onnx") == old);
  CHECK(test::files_in(folder.path()) == 1);
}

}  // namespace quanta
