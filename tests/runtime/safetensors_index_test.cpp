// Models in shards: model.safetensors.index.json. Nothing in an index is trusted.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "file_test_util.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"

namespace quanta {
namespace {

/// Two shards with a (3 floats), b (2 floats) and c (1 float) in a folder of their own.
class Shards {
 public:
  Shards() {
    StateDict first;
    first.set("a", Tensor::full({3}, 1.0));
    first.set("c", Tensor::full({1}, 3.0));
    StateDict second;
    second.set("b", Tensor::full({2}, 2.0));
    write_safetensors(folder_ / "m-1.safetensors", first, {{"format", "pt"}, {"part", "1"}});
    write_safetensors(folder_ / "m-2.safetensors", second, {{"format", "pt"}, {"part", "2"}});
  }
  std::filesystem::path index(std::string_view text) const {
    test::write_bytes(folder_ / "m.safetensors.index.json", text);
    return folder_ / "m.safetensors.index.json";
  }
  const test::TemporaryFolder& folder() const { return folder_; }

 private:
  test::TemporaryFolder folder_;
};

constexpr const char* kGood =
    R"({"metadata": {"total_size": 24}, "weight_map":
        {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}})";

}  // namespace

TEST_CASE("load_safetensors: an index gives the tensors of all shards in its order") {
  const Shards shards;
  const SafetensorsFile file = load_safetensors(shards.index(kGood));
  REQUIRE(file.tensors.size() == 3);
  std::string names;
  for (const auto& [name, tensor] : file.tensors) names += name;
  CHECK(names == "abc");
  CHECK(file.tensors.at("a").equal(Tensor::full({3}, 1.0)));
  CHECK(file.tensors.at("b").equal(Tensor::full({2}, 2.0)));
  CHECK(file.tensors.at("c").equal(Tensor::full({1}, 3.0)));
  CHECK(file.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(read_safetensors(shards.index(R"({"weight_map": {}})")).empty());
}

TEST_CASE("load_safetensors: an index that leads out of its folder is refused") {
  const Shards shards;
  for (const char* name : {"../m-1.safetensors", "/etc/passwd", "x/m-1.safetensors", "..", ".", "",
                           "..\\\\m-1.safetensors", "c:m-1.safetensors", "m\\u0000.safetensors",
                           "m\\n.safetensors", "./m-1.safetensors"}) {
    CAPTURE(name);
    const auto path = shards.index(R"({"weight_map": {"a": ")" + std::string(name) + R"("}})");
    CHECK_THROWS_WITH_AS(read_safetensors(path),
                         doctest::Contains("expected names of files in the folder of the index"),
                         FileError);
  }
  const auto refuses = [&](const std::string& text, const char* reason) {
    CAPTURE(reason);
    CHECK_THROWS_WITH_AS(read_safetensors(shards.index(text)), doctest::Contains(reason),
                         FileError);
  };
  refuses(R"({"weight_map": {"a": "passwd"}})", "expected names of .safetensors files");
  refuses(R"({"weight_map": {"a": ")" + std::string(300, 'x') + R"(.safetensors"}})",
          "in the folder of the index");
}

TEST_CASE("load_safetensors: an index that does not fit its shards is refused") {
  const Shards shards;
  const auto refuses = [&](const std::string& text, const char* reason) {
    CAPTURE(reason);
    CHECK_THROWS_WITH_AS(read_safetensors(shards.index(text)), doctest::Contains(reason),
                         FileError);
  };
  const std::string ends = R"("b": "m-2.safetensors"}})";
  refuses(R"({"weight_map": {"a": "m-1.safetensors", )" + ends,
          "expected 'c' to be in m-1.safetensors, which holds it, got no such name");
  refuses(R"({"weight_map": {"a": "m-1.safetensors", "c": "m-2.safetensors", )" + ends,
          "expected 'c' to be in m-1.safetensors, which holds it, got m-2.safetensors");
  refuses(
      R"({"weight_map": {"a": "m-1.safetensors", "c": "m-1.safetensors", "d": "m-1.safetensors", )" +
          ends,
      "expected 'd' in m-1.safetensors, got no such tensor");
  refuses(R"({"weight_map": {"a": "m-3.safetensors"}})", "m-3.safetensors");
  refuses(R"({"weight_map": {"a": "m-1.safetensors", "a": "m-2.safetensors"}})", "'a' twice");
  refuses(R"({"weight_map": {"a": 1}})", "expected the name of a file");
  refuses(R"({"weight_map": []})", "with an object 'weight_map', got an array");
  refuses(R"({"model": {}, "optimizer": 0})", "expected the index of a model in shards");
  refuses(R"({"weight_map": )", "json byte");
  std::string wrong = kGood;
  refuses(wrong.replace(wrong.find("24"), 2, "28"),
          "total_size: expected the 24 bytes of the shards' tensors, got 28");
  wrong = kGood;
  refuses(wrong.replace(wrong.find("24"), 2, "-4"), "total_size: expected a number of bytes");
  wrong = kGood;
  refuses(wrong.replace(wrong.find("24"), 2, "\"24\""), "total_size: expected a number of bytes");
}

TEST_CASE("load_safetensors: an index within an index is refused") {
  const Shards shards;
  test::write_bytes(shards.folder() / "m-3.safetensors", kGood);
  CHECK_THROWS_WITH_AS(
      read_safetensors(shards.index(R"({"weight_map": {"a": "m-3.safetensors"}})")),
      doctest::Contains("expected a .safetensors file, got JSON text"), FileError);
}

TEST_CASE("load_safetensors: every truncation and change of an index gives an answer") {
  const Shards shards;
  const std::string good = kGood;
  for (std::size_t length = 1; length < good.size(); ++length) {
    CHECK_THROWS_AS(read_safetensors(shards.index(good.substr(0, length))), FileError);
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    try {
      read_safetensors(shards.index(changed));
    } catch (const FileError&) {
    }
  }
}

TEST_CASE("read_safetensors: files of other kinds are named with what to do") {
  const auto refuses = [](const std::string& bytes, const char* reason) {
    CAPTURE(reason);
    CHECK_THROWS_WITH_AS(parse_safetensors(test::as_bytes(bytes), "test"),
                         doctest::Contains(reason), FileError);
  };
  refuses(test::make_pt(test::pickle("N")),
          "expected a .safetensors file, got a zip archive, as torch.save writes it: "
          "read_pt_state_dict reads a .pt file");
  refuses(test::read_bytes(test::golden_folder() / "views_legacy.pt"),
          "an older file of torch.save: read_pt_state_dict reads a .pt file");
  refuses("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull");
  refuses(test::make_zip({{.name = "a.npy", .data = "x"}}), "an .npz archive of numpy");
}

}  // namespace quanta
