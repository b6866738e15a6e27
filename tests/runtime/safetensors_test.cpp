#include "quanta/runtime/safetensors.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "file_test_util.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/paths.h"

namespace quanta {
namespace {

using test::as_bytes;
using test::safetensors;

constexpr DType kPlainDtypes[] = {
    DType::Float64, DType::Float32,      DType::Float16,   DType::BFloat16, DType::Int64,
    DType::Int32,   DType::Int16,        DType::UInt16,    DType::Int8,     DType::UInt8,
    DType::Bool,    DType::Float8E4M3FN, DType::Float8E5M2};

StateDict parse(const std::string& file) {
  return parse_safetensors(as_bytes(file), "test").tensors;
}

std::string one_tensor(std::string_view entry, std::string_view data) {
  return safetensors("{\"x\":" + std::string(entry) + "}", data);
}

QTensor quantized(const Dims& sizes, DType dtype, const Quantizer& quantizer) {
  QTensor result = QTensor::empty(sizes, dtype, quantizer);
  auto* bytes = static_cast<std::uint8_t*>(result.data_ptr());
  for (std::size_t i = 0; i < result.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
  return result;
}

}  // namespace

TEST_CASE("read_safetensors: a large file of another kind is refused by its first bytes") {
  const test::TemporaryFolder folder;
  const std::size_t size = std::size_t{1}
                           << 33U;  // a file with a hole: no disk, but memory if read
  const auto make = [&](const char* name, std::string_view begin) {
    test::write_bytes(folder / name, std::string(begin));
    std::filesystem::resize_file(folder / name, size);
    return folder / name;
  };
  const std::size_t before = allocator_stats().peak_in_use;
  CHECK_THROWS_WITH_AS(read_safetensors(make("a.onnx", "\xff\xff\xff\xff\xff\xff\xff\xff")),
                       doctest::Contains("expected a header of at most 100000000 bytes"),
                       FileError);
  CHECK_THROWS_WITH_AS(read_safetensors(make("a.pt", std::string("PK\x03\x04 and so on"))),
                       doctest::Contains("byte 0: expected a .safetensors file, got"), FileError);
  CHECK_THROWS_WITH_AS(read_safetensors(make("index.json", R"({"weight_map": {)")),
                       doctest::Contains("expected an index of at most 100000008 bytes"),
                       FileError);
  CHECK(allocator_stats().peak_in_use < before + (std::size_t{1} << 24U));
}

TEST_CASE("serialize_safetensors: what parse_safetensors reads, without a file") {
  StateDict state;
  state.set("a", Tensor::from_values({1.0F, -2.5F}, {2}));
  state.set("codes",
            quantize_per_tensor(Tensor::from_values({0.5F, 1.0F}, {2}), 0.5, 3, DType::QUInt8));
  const std::vector<std::byte> bytes = serialize_safetensors(state, {{"key", "text"}});
  const SafetensorsFile back = parse_safetensors(bytes, "bytes");
  CHECK(back.metadata.at("key") == "text");
  REQUIRE(back.tensors.size() == 2);
  CHECK(back.tensors.at("a").equal(state.at("a")));
  CHECK(back.tensors.at("codes").equal(state.at("codes")));
  state.set("none", Tensor());
  CHECK_THROWS_WITH_AS(
      serialize_safetensors(state),
      doctest::Contains("serialize_safetensors: tensors: expected defined tensors"), ArgumentError);
}

TEST_CASE("safetensors: every plain dtype survives a round trip") {
  const test::TemporaryFolder folder;
  StateDict tensors;
  for (const DType dtype : kPlainDtypes) {
    for (const Dims& sizes : {Dims{}, Dims{0}, Dims{3, 0, 2}, Dims{5}, Dims{2, 3, 1, 7}}) {
      Tensor tensor = Tensor::zeros(sizes, dtype);
      auto* bytes = static_cast<std::uint8_t*>(tensor.data_ptr());
      for (std::size_t i = 0; i < tensor.nbytes(); ++i) {
        bytes[i] = static_cast<std::uint8_t>(dtype == DType::Bool ? i % 2 : i * 3 + 1);
      }
      tensors.set(std::string(to_string(dtype)) + to_string(sizes), tensor);
    }
  }
  write_safetensors(tensors, folder / "all", {{"format", "pt"}, {"note", "\"x\"\n\xe2\x82\xac"}});
  const SafetensorsFile file = load_safetensors(folder / "all");
  CHECK(file.metadata.at("format") == "pt");
  CHECK(file.metadata.at("note") == "\"x\"\n\xe2\x82\xac");
  REQUIRE(file.tensors.size() == tensors.size());
  for (auto expected = tensors.begin(), got = file.tensors.begin(); expected != tensors.end();
       ++expected, ++got) {
    CAPTURE(expected->first);
    CHECK(got->first == expected->first);  // the order is kept
    CHECK(got->second.dtype() == expected->second.dtype());
    CHECK(got->second.sizes() == expected->second.sizes());
    CHECK(std::memcmp(got->second.data_ptr(), expected->second.data_ptr(),
                      expected->second.nbytes()) == 0);
    // Elements are sorted by width in the file so that none has to be copied for alignment.
    CHECK(reinterpret_cast<std::uintptr_t>(got->second.data_ptr()) %
              item_size(got->second.dtype()) ==
          0);
  }
}

TEST_CASE("safetensors: views and channels-last tensors are written in logical order") {
  const test::TemporaryFolder folder;
  const Tensor base = Tensor::arange(24).reshape({4, 6});
  StateDict tensors;
  tensors.set("t", base.t());
  tensors.set("column", base.select(1, 2));
  tensors.set("expanded", base.select(0, 1).unsqueeze(0).expand({3, 6}));
  tensors.set("nhwc",
              Tensor::arange(48).reshape({1, 3, 4, 4}).contiguous(MemoryFormat::ChannelsLast));
  write_safetensors(tensors, folder / "views");
  const StateDict back = read_safetensors(folder / "views");
  for (const auto& [name, tensor] : tensors) {
    CAPTURE_BINDING(name);
    CHECK(back.at(name).equal(tensor));
    CHECK(back.at(name).is_contiguous());
  }
}

TEST_CASE("safetensors: quantized tensors come back with their parameters") {
  const test::TemporaryFolder folder;
  StateDict tensors;
  tensors.set("per_tensor", quantized({3, 4}, DType::QUInt8, Quantizer::per_tensor(0.1, 128)));
  tensors.set("signed", quantized({5}, DType::QInt8, Quantizer::per_tensor(0x1.fffffep-20, -128)));
  tensors.set("wide", quantized({4}, DType::QInt32, Quantizer::per_tensor(1e-9, -7)));
  tensors.set("scalar", quantized({}, DType::QUInt8, Quantizer::per_tensor(3.0, 0)));
  tensors.set("empty", quantized({0, 2}, DType::QUInt8, Quantizer::per_tensor(3.0, 0)));
  tensors.set("channels",
              quantized({2, 3, 4}, DType::QInt8,
                        Quantizer::per_channel({0.1, 1.0 / 3.0, 1e-5}, {0, -128, 127}, 1)));
  tensors.set("float_qparams",
              quantized({2, 8}, DType::QUInt8,
                        Quantizer::per_channel_float_qparams({0.1F, 0.7F}, {-0.33F, 1e-7F}, 0)));
  tensors.set("four_bits",
              quantized({3, 5}, DType::QUInt4x2,
                        Quantizer::per_channel_float_qparams({0.1F, 0.7F, 2.0F}, {0, 1, 2}, 0)));
  tensors.set("two_bits", quantized({9}, DType::QUInt2x4, Quantizer::per_tensor(0.5, 3)));
  tensors.set("plain", Tensor::ones({3}));
  write_safetensors(tensors, folder / "q");
  const SafetensorsFile file = load_safetensors(folder / "q");
  CHECK(file.metadata.empty());
  for (const auto& [name, tensor] : tensors) {
    CAPTURE_BINDING(name);
    const Tensor& back = file.tensors.at(name);
    CHECK(back.dtype() == tensor.dtype());
    CHECK(back.equal(tensor));
    if (tensor.is_quantized()) CHECK(QTensor(back).quantizer() == QTensor(tensor).quantizer());
  }
}

TEST_CASE("safetensors: tensors outlive the file and writes do not reach it") {
  const test::TemporaryFolder folder;
  StateDict tensors;
  tensors.set("x", Tensor::arange(1000));
  write_safetensors(tensors, folder / "x");
  Tensor x = read_safetensors(folder / "x").at("x");
  std::filesystem::remove(folder / "x");
  CHECK(x.equal(tensors.at("x")));
  write_safetensors(tensors, folder / "x");
  Tensor written = read_safetensors(folder / "x").at("x");
  written.fill_(3);
  CHECK(read_safetensors(folder / "x").at("x").equal(tensors.at("x")));
}

TEST_CASE("safetensors: a tensor that is not aligned is copied") {
  const test::TemporaryFolder folder;
  std::string data(1, 'a');
  for (const float value : {1.5F, -2.0F}) test::put(data, value);
  const std::string file = safetensors(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                                       data);
  test::write_bytes(folder / "odd", file);
  for (const StateDict& tensors : {read_safetensors(folder / "odd"), parse(file)}) {
    CHECK(tensors.at("f").to_float_vector() == std::vector<float>{1.5F, -2.0F});
    CHECK(reinterpret_cast<std::uintptr_t>(tensors.at("f").data_ptr()) % 4 == 0);
    CHECK(tensors.at("b").to_int64_vector() == std::vector<std::int64_t>{'a'});
  }
}

TEST_CASE("safetensors: all golden files are read") {
  std::size_t files = 0;
  for (const char* folder : {"torch", "seeds"}) {
    for (const auto& entry : std::filesystem::directory_iterator(test::golden_cases() / folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      CAPTURE(entry.path().string());
      CHECK_NOTHROW(read_safetensors(entry.path()));
      ++files;
    }
  }
  CHECK(files >= 20);
}

TEST_CASE("safetensors: malformed files are refused with their reason") {
  const auto refuses = [](const std::string& file, const char* reason) {
    CAPTURE(reason);
    CHECK_THROWS_WITH_AS(parse(file), doctest::Contains(reason), FileError);
  };
  refuses("", "expected 8 bytes of the header's length");
  refuses(std::string(8, '\xff'), "expected a header of at most 100000000 bytes");
  refuses(std::string("\x10\0\0\0\0\0\0\0{}", 10), "expected 16 bytes of the header");
  refuses(safetensors("", ""), "begins with '{'");
  refuses(safetensors(" {}", ""), "begins with '{'");
  refuses(safetensors("[]", ""), "begins with '{'");
  refuses(safetensors("{", ""), "json byte 1");
  refuses(safetensors("{}", "x"), "expected 0 bytes of data, got 1");
  refuses(safetensors("{\"x\":1}", ""), "tensor 'x': expected an object, got an integer");
  refuses(one_tensor("{}", ""), "dtype: expected a string, got nothing");
  refuses(one_tensor(R"({"dtype":"F7","shape":[],"data_offsets":[0,0]})", ""), "got 'F7'");
  refuses(one_tensor(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,0]})", ""), "sizes >= 0");
  refuses(one_tensor(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})", "a"),
          "array of integers");
  refuses(one_tensor(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})", "a"),
          "at most 10 dimensions");
  refuses(one_tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[0,3]})", "abc"),
          "expected 2 bytes");
  refuses(one_tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})", "a"), "truncated");
  refuses(one_tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[2,0]})", "ab"), "range within");
  refuses(one_tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[-2,0]})", "ab"), "range within");
  refuses(one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0]})", "a"), "two integers");
  refuses(one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})", "ab"), "there is a gap");
  refuses(one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})", "ab"), "got 2");
  refuses(one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1})", "a"),
          "got 'more'");
  refuses(one_tensor(R"({"dtype":"BOOL","shape":[2],"data_offsets":[0,2]})", "\x01\x02"),
          "got 2 at byte 1");
  // Products that overflow to something small.
  refuses(one_tensor(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", ""),
          "2^55");
  refuses(one_tensor(R"({"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]})",
                     "12345678"),
          "2^55");
  refuses(
      one_tensor(R"({"dtype":"F32","shape":[0,4611686018427387904,8],"data_offsets":[0,0]})", ""),
      "2^55");
  refuses(safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                      "abc"),
          "overlap");
  refuses(safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      "ab"),
          "got 'a' twice");
  refuses(safetensors(R"({"__metadata__":[]})", ""), "__metadata__: expected an object");
  refuses(safetensors(R"({"__metadata__":{"a":1}})", ""), "'a': expected a string");
  refuses(safetensors(std::string(100000, '[').insert(0, "{\"x\":"), ""), "levels of nesting");
}

TEST_CASE("safetensors: descriptions of quantized tensors that do not fit are refused") {
  const auto refuses = [](const std::string& description, const char* reason) {
    CAPTURE(description);
    std::string escaped;
    for (const char c : description) escaped += c == '"' ? std::string("\\\"") : std::string(1, c);
    const std::string file =
        safetensors(R"({"__metadata__":{"quanta.quantized":")" + escaped +
                        R"("},"x":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})",
                    "abcd");
    CHECK_THROWS_WITH_AS(parse(file), doctest::Contains(reason), FileError);
  };
  const auto member = [](const std::string& rest) { return "{\"x\":{" + rest + "}}"; };
  const std::string head = R"("dtype":"quint8","shape":[2,2],)";
  refuses("{", "json byte");
  refuses("[]", "expected an object");
  refuses(R"({"y":{}})", "got 'y'");
  refuses(member(""), "dtype: expected a string");
  refuses(member(R"("dtype":"float32")"), "expected a quantized one");
  refuses(member(R"("dtype":"qint8","shape":[2,2])"), "expected codes of Int8");
  refuses(
      member(
          R"("dtype":"quint8","shape":[4],"qscheme":"per_tensor_affine","scale":1,"zero_point":0)"),
      "expected that of its codes");
  refuses(member(head + R"("qscheme":"x")"), "qscheme");
  refuses(member(head + R"("qscheme":"per_tensor_symmetric")"), "expected an affine one");
  refuses(member(head + R"("qscheme":"per_tensor_affine","scale":0,"zero_point":0)"), "scale");
  refuses(member(head + R"("qscheme":"per_tensor_affine","scale":1,"zero_point":256)"),
          "zero_point");
  refuses(member(head + R"("qscheme":"per_tensor_affine","scale":1,"zero_point":0.5)"),
          "an integer");
  refuses(
      member(head + R"("qscheme":"per_channel_affine","scales":[1],"zero_points":[0,0],"axis":0)"),
      "scales");
  refuses(member(head +
                 R"("qscheme":"per_channel_affine","scales":[1,1],"zero_points":[0,0],"axis":2)"),
          "axis");
  const std::string packed = R"("qscheme":"per_tensor_affine","scale":1,"zero_point":0)";
  refuses(member(R"("dtype":"quint4x2","shape":[9],)" + packed), "4 packed bytes");
  refuses(member(R"("dtype":"quint4x2","shape":[-8],)" + packed), "sizes >= 0");
  refuses(member(R"("dtype":"quint4x2","shape":[9223372036854775807,2],)" + packed), "2^55");
}

TEST_CASE("safetensors: weights without elements do not share scales") {
  // A thousand weights of a thousand channels each, of which the file has the scales once.
  constexpr int kChannels = 1000;
  std::string described;
  std::string tensors;
  for (int i = 0; i < 1000; ++i) {
    described += fmt::format("{}\\\"w{}\\\":0", i == 0 ? "" : ",", i);
    tensors +=
        fmt::format(R"("w{}":{{"dtype":"I8","shape":[{},0],"data_offsets":[0,0]}},)", i, kChannels);
  }
  const std::string header =
      R"({"__metadata__":{"quanta.quantized":"{)" + described + R"(}"},)" + tensors +
      fmt::format(R"("quanta.scales":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})",
                  kChannels, 4 * kChannels);
  std::string data;
  for (int i = 0; i < kChannels; ++i) test::put(data, 1.0F);
  CHECK_THROWS_WITH_AS(parse(safetensors(header, data)),
                       doctest::Contains("'w1': expected weights that each have their own of the "
                                         "1000 scales"),
                       FileError);
}

TEST_CASE("readers: memory that is not there ends in a FileError that names the file") {
  const auto refused = [](const auto& read) {
    CHECK_THROWS_WITH_AS(detail::reading("read_x: a.file", read),
                         doctest::Contains("read_x: a.file: expected memory"), FileError);
  };
  refused([]() -> int { throw std::bad_alloc(); });
  refused([] { std::vector<char>().reserve(~std::size_t{0}); });
  CHECK(detail::reading("x", [] { return 3; }) == 3);
}

TEST_CASE("safetensors: every truncation and many byte changes of a file give an answer") {
  const test::TemporaryFolder folder;
  StateDict tensors;
  tensors.set("a", Tensor::arange(5));
  tensors.set("b", Tensor::ones({2, 2}, DType::Bool));
  tensors.set("q", quantized({2, 2}, DType::QInt8, Quantizer::per_channel({0.5, 1}, {0, 1}, 0)));
  tensors.set("p", quantized({3}, DType::QUInt4x2, Quantizer::per_tensor(0.5, 1)));
  write_safetensors(tensors, folder / "x", {{"k", "v"}});
  const std::string file = test::read_bytes(folder / "x");
  for (std::size_t length = 0; length < file.size(); ++length) {
    REQUIRE_THROWS_AS(parse(file.substr(0, length)), FileError);
  }
  std::size_t parsed = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const int change : {0x01, 0x02, 0x04, 0x10, 0x20, 0x80, 0xff}) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ change);
      try {
        for (const auto& [name, tensor] : parse(changed)) tensor.to_float_vector();
        ++parsed;
      } catch (const FileError&) {
      }
    }
  }
  CHECK(parsed > 0);
  CHECK(parsed < file.size() * 7);
}

TEST_CASE("safetensors: what cannot be opened is named in the error") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(read_safetensors(folder / "missing"), doctest::Contains("No such file"),
                       FileError);
  CHECK_THROWS_WITH_AS(read_safetensors(folder.path()), doctest::Contains("got a folder"),
                       FileError);
  test::write_bytes(folder / "empty", "");
  CHECK_THROWS_WITH_AS(read_safetensors(folder / "empty"), doctest::Contains("header's length"),
                       FileError);
}

TEST_CASE("safetensors: a save that fails leaves the old file as it was") {
  const test::TemporaryFolder folder;
  StateDict tensors;
  tensors.set("x", Tensor::ones({3}));
  write_safetensors(tensors, folder / "x");
  const std::string before = test::read_bytes(folder / "x");
  StateDict broken = tensors;
  broken.set("y", Tensor());
  CHECK_THROWS_AS(write_safetensors(broken, folder / "x"), ArgumentError);
  StateDict reserved;
  reserved.set("__metadata__", Tensor::ones({1}));
  CHECK_THROWS_AS(write_safetensors(reserved, folder / "x"), ArgumentError);
  CHECK_THROWS_AS(write_safetensors(tensors, folder / "x", {{"quanta.quantized", "{}"}}),
                  ArgumentError);
  StateDict not_text;
  not_text.set("\xff", Tensor::ones({1}));
  CHECK_THROWS_AS(write_safetensors(not_text, folder / "x"), ArgumentError);
  CHECK(test::read_bytes(folder / "x") == before);
}

TEST_CASE("state_dict: names keep their order and are found") {
  StateDict tensors;
  for (int i = 0; i < 100; ++i) tensors.set("t" + std::to_string(i), Tensor::full({1}, i));
  tensors.set("t5", Tensor::full({1}, 500));
  tensors.erase("t0");
  tensors.erase("missing");
  CHECK(tensors.size() == 99);
  CHECK(tensors.begin()->first == "t1");
  CHECK(tensors.at("t5").item() == 500);
  CHECK(tensors.at("t99").item() == 99);
  CHECK(!tensors.contains("t0"));
  CHECK_THROWS_WITH_AS(tensors.at("t0"), doctest::Contains("got 't0'"), ArgumentError);
  const StateDict copy = tensors;
  tensors.erase("t99");
  CHECK(copy.contains("t99"));
}

}  // namespace quanta
