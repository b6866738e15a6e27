// Weights in files beside the model: what a model may name, and what it may not.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "onnx_test_util.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

namespace fs = std::filesystem;
using Entries = std::vector<std::pair<std::string, std::string>>;

/// A model whose only weight, UINT8 of size 4, has these entries of external_data.
std::string model_with_entries(const Entries& entries) {
  return test::model_with_tensor(test::tensor_message(OnnxType::UInt8, {4}, [&](auto& writer) {
    for (const auto& pair : entries) {
      writer.add_message(detail::onnx_tensor::kExternalData, test::message([&](auto& entry) {
                           entry.add_string(detail::onnx_pair::kKey, pair.first);
                           entry.add_string(detail::onnx_pair::kValue, pair.second);
                         }));
    }
    writer.add_int32(detail::onnx_tensor::kDataLocation, 1);
  }));
}

/// A folder "models" with a file "data" of ten bytes, and "secret" outside it.
struct Folders {
  test::TemporaryFolder outer;
  fs::path models = outer / "models";

  Folders() {
    fs::create_directories(models / "inner");
    test::write_bytes(models / "data", "0123456789");
    test::write_bytes(models / "inner/data", "abcd");
    test::write_bytes(outer / "secret", "0123456789");
  }

  Tensor read(const Entries& entries) const {
    test::write_bytes(models / "m.onnx", model_with_entries(entries));
    return read_onnx(models / "m.onnx").graph.initializers.at(0).value;
  }
  void refuse(const Entries& entries, const std::string& text) const {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(read(entries), doctest::Contains(text.c_str()), FileError);
    CHECK_THROWS_WITH_AS(read(entries), doctest::Contains("tensor 't'"), FileError);
  }
};

std::string text_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace

TEST_CASE("onnx: external data is read at its offset") {
  const Folders folders;
  CHECK(text_of(folders.read({{"location", "data"}})) == "0123");
  CHECK(text_of(folders.read({{"location", "data"}, {"offset", "6"}, {"length", "4"}})) == "6789");
  CHECK(text_of(folders.read({{"location", "./inner/data"}, {"checksum", "x"}})) == "abcd");
  const auto current = fs::current_path();
  fs::current_path(folders.models);
  CHECK(text_of(read_onnx("m.onnx").graph.initializers.at(0).value) == "abcd");
  fs::current_path(current);
}

TEST_CASE("onnx: external data outside the model's folder is refused") {
  const Folders folders;
  folders.refuse({{"location", "../secret"}}, "a path without '..'");
  folders.refuse({{"location", "inner/../data"}}, "a path without '..'");
  folders.refuse({{"location", (folders.outer / "secret").string()}},
                 "relative to the model's folder");
  folders.refuse({{"location", ""}}, "a file name");
  folders.refuse({{"location", std::string("data\0", 5)}}, "a file name");
  folders.refuse({{"location", "none"}}, "a file in the model's folder");
  folders.refuse({{"location", "inner"}}, "a regular file");
  fs::create_symlink(folders.outer / "secret", folders.models / "link");
  folders.refuse({{"location", "link"}}, "without symbolic links");
  fs::create_symlink("data", folders.models / "inside");
  folders.refuse({{"location", "inside"}}, "without symbolic links");
  fs::create_directory_symlink(folders.outer.path(), folders.models / "up");
  folders.refuse({{"location", "up/secret"}}, "without symbolic links");
  fs::create_hard_link(folders.outer / "secret", folders.models / "hard");
  folders.refuse({{"location", "hard"}}, "one hard link");
}

TEST_CASE("onnx: external data of other sizes and keys is refused") {
  const Folders folders;
  folders.refuse({}, "location: expected a file name, got nothing");
  folders.refuse({{"location", "data"}, {"offset", "7"}}, "expected 4 bytes at 7, got 10 bytes");
  folders.refuse({{"location", "data"}, {"offset", "18446744073709551615"}}, "expected 4 bytes at");
  folders.refuse({{"location", "data"}, {"offset", "-1"}}, "offset: expected a number >= 0");
  folders.refuse({{"location", "data"}, {"offset", "1x"}}, "offset: expected a number >= 0");
  folders.refuse({{"location", "data"}, {"length", "5"}}, "length: expected 4 bytes");
  folders.refuse({{"location", "data"}, {"location", "data"}}, "each key once");
  folders.refuse({{"location", "data"}, {"__class__", "x"}}, "got '__class__'");
  CHECK_THROWS_WITH_AS(test::parse_model(model_with_entries({{"location", "data"}})),
                       doctest::Contains("needs a model that is read from a file"), FileError);
  const std::string both = test::tensor_message(OnnxType::UInt8, {1}, [](auto& writer) {
    test::raw("a")(writer);
    writer.add_int32(detail::onnx_tensor::kDataLocation, 1);
  });
  CHECK_THROWS_WITH_AS(test::parse_model(test::model_with_tensor(both)),
                       doctest::Contains("raw_data and external data"), FileError);
}

}  // namespace quanta
