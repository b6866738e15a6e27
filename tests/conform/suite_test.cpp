#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "conform/suite.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::conform {
namespace {

/// A suite with one case, in a folder that goes away.
class OneCase {
 public:
  explicit OneCase(const std::string& inputs, const std::string& attrs = "{}") {
    folder_ =
        std::filesystem::temp_directory_path() / ("quanta-conform-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    write_json(
        R"({"suite": "s", "source": "by hand", "cases": [{"id": "a", "op": "relu", "attrs": )" +
        attrs + R"(, "inputs": )" + inputs +
        R"(, "outputs": {}, "compare": {"max_int_diff": 1, "min_exact": 0.5}}]})");
    StateDict tensors;
    tensors.set("float", Tensor::arange(24));
    tensors.set("bytes", Tensor::arange(6, DType::UInt8));
    tensors.set("flags", Tensor::ones({2}, DType::UInt8));
    tensors.set("signed", Tensor::arange(6, DType::Int8));
    tensors.set("scales", Tensor::full({2}, 0.1, DType::Float64));
    tensors.set("zero_points", Tensor::full({2}, 3.0, DType::Int64));
    tensors.set("float_zero_points", Tensor::full({2}, 1.5, DType::Float32));
    write_safetensors(folder_ / "s.safetensors", tensors);
  }
  ~OneCase() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  OneCase(const OneCase&) = delete;
  OneCase& operator=(const OneCase&) = delete;

  void write_json(const std::string& text) const { std::ofstream(folder_ / "s.json") << text; }
  Suite read() const { return Suite::read(folder_ / "s.json"); }
  Case load() const { return read().load(0); }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace

TEST_CASE("Suite: a plain tensor has the shape and dtype of its reference") {
  const OneCase files(R"({"x": {"tensor": "float", "dtype": "float32", "shape": [2, 3, 4]},
                          "mask": {"tensor": "flags", "dtype": "bool", "shape": [2]}})");
  const Case test = files.load();
  CHECK(test.id == "a");
  CHECK(test.op == "relu");
  CHECK(test.tolerance.max_int_diff == 1);
  CHECK(test.tolerance.min_exact == 0.5);
  CHECK(test.tensor("x").sizes() == Dims{2, 3, 4});
  CHECK(test.tensor("mask").dtype() == DType::Bool);
}

TEST_CASE("Suite: an integer that no int64 holds is read as a double") {
  const OneCase files(R"({"x": 9223372036854775808})",
                      R"({"small": 9223372036854775807, "large": 9223372036854775808})");
  const Case test = files.load();
  CHECK(*test.inputs.find("x")->get_if<double>() == 0x1p63);
  CHECK(test.integer("small") == 9223372036854775807);
  CHECK_THROWS_WITH_AS(test.integer("large"), doctest::Contains("large"), FormatError);
}

TEST_CASE("Suite: quantized references get their parameters") {
  const OneCase files(R"({
    "x": {"tensor": "bytes", "dtype": "quint8", "shape": [2, 3], "qscheme": "per_tensor_affine",
          "scale": 0.1, "zero_point": 7},
    "weight": {"tensor": "signed", "dtype": "qint8", "shape": [3, 2],
               "qscheme": "per_channel_affine", "scales": "scales", "zero_points": "zero_points",
               "axis": 1},
    "table": {"tensor": "bytes", "dtype": "quint4x2", "shape": [2, 6],
              "qscheme": "per_channel_affine_float_qparams", "scales": "scales",
              "zero_points": "float_zero_points", "axis": 0}})");
  const Case test = files.load();
  const QTensor x = test.qtensor("x");
  CHECK(x.q_scale() == 0.1);
  CHECK(x.q_zero_point() == 7);
  CHECK(x.to_int64_vector() == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
  const QTensor weight = test.qtensor("weight");
  CHECK(weight.dtype() == DType::QInt8);
  CHECK(weight.q_per_channel_axis() == 1);
  CHECK(weight.quantizer().channel->scales == std::vector<double>{0.1, 0.1});
  const QTensor table = test.qtensor("table");
  CHECK(table.sizes() == Dims{2, 6});
  CHECK(table.quantizer().channel->float_zero_points == std::vector<float>{1.5F, 1.5F});
  // Byte 1 of the packed row holds columns 2 and 3: the lower half first.
  CHECK(table.to_int64_vector()[2] == 1);
}

TEST_CASE("Suite: lists and objects nest and plain values stand for themselves") {
  const OneCase files(R"({"tensors": [{"tensor": "float", "dtype": "float32"},
                                      {"tensor": "bytes", "dtype": "uint8"}],
                          "weight": {"scales": {"tensor": "scales", "dtype": "float64"}},
                          "bias": null, "flag": {"json": true}})");
  const Case test = files.load();
  CHECK(test.tensors("tensors").size() == 2);
  CHECK(test.object("weight").find("scales")->get_if<Tensor>()->dtype() == DType::Float64);
  CHECK_FALSE(test.has_input("bias"));
  CHECK_FALSE(test.optional_tensor("bias").defined());
  CHECK(*test.inputs.find("flag")->get_if<bool>());
}

TEST_CASE("Case: memory_format is the memory order of x and not its values") {
  const OneCase files(R"({"x": {"tensor": "float", "dtype": "float32", "shape": [1, 2, 3, 4]}})",
                      R"({"memory_format": "channels_last", "size": [2, null], "k": 3})");
  const Case test = files.load();
  CHECK(test.x().is_contiguous(MemoryFormat::ChannelsLast));
  CHECK_FALSE(test.x().is_contiguous());
  CHECK(test.x().equal(test.tensor("x")));
  CHECK(test.dims("size") == Dims{2, -1});
  CHECK(test.dims("k") == Dims{3});
  CHECK(test.dims("absent", {4}) == Dims{4});
}

TEST_CASE("Suite: what does not follow the format is refused with a text") {
  const OneCase files(R"({"x": {"tensor": "absent", "dtype": "float32"}})");
  CHECK_THROWS_WITH_AS(files.load(), "no tensor 'absent' in the file", FormatError);
  files.write_json(R"({"cases": [{"op": "relu"}]})");
  CHECK_THROWS_WITH_AS(files.read(), doctest::Contains("expected an object with 'id' and 'op'"),
                       FormatError);
  files.write_json("{");
  CHECK_THROWS_WITH_AS(files.read(), doctest::Contains("s.json"), FormatError);
  files.write_json(R"({"cases": []})");
  std::filesystem::remove(files.folder() / "s.safetensors");
  CHECK_THROWS_AS(files.read(), FileError);
  CHECK_THROWS_AS(Suite::read(files.folder() / "none.json"), FormatError);
}

}  // namespace quanta::conform
