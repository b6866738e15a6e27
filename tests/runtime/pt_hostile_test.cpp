#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "file_test_util.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/pt_file.h"

// Files that are damaged or made to harm: each must give a FileError that says what and where.

namespace quanta {
namespace {

using test::global;
using test::integer;
using test::integers;
using test::make_pt;
using test::make_zip;
using test::pickle;
using test::storage_id;
using test::tensor_call;
using test::text;
using test::tuple;

PickleValue parse(const std::string& file) { return parse_pt(test::as_bytes(file), "test"); }

void refuses(const std::string& file, const char* reason) {
  CAPTURE(reason);
  CHECK_THROWS_WITH_AS(parse(file), doctest::Contains(reason), FileError);
}

void refuses_body(const std::string& body, const char* reason, const std::string& storage = {}) {
  refuses(make_pt(pickle(body), storage), reason);
}

std::string repeat(std::string_view part, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += part;
  return result;
}

void read_everything(const PickleValue& value) {
  visit_leaves(value, [](const std::string&, const PickleValue& leaf) {
    const auto* tensor = leaf.get_if<PickleValue::TensorValue>();
    if (tensor != nullptr && tensor->tensor.numel() < 100000) tensor->tensor.to_float_vector();
  });
}

}  // namespace

TEST_CASE("read_pt: every truncation of real files is refused") {
  for (const char* name :
       {"bare_tensor.pt", "views_legacy.pt", "cnn_stack_legacy.pt", "float8.pt"}) {
    CAPTURE(name);
    const std::string file = test::read_bytes(test::golden_folder() / name);
    for (std::size_t length = 0; length < file.size(); ++length) {
      REQUIRE_THROWS_AS(parse(file.substr(0, length)), FileError);
    }
  }
}

TEST_CASE("read_pt: every change of a byte of real files gives an answer") {
  for (const char* name : {"bare_tensor.pt", "views_legacy.pt", "protocol4.pt",
                           "quantized_kinds.pt", "lists.pt", "lstm_classifier.pt"}) {
    CAPTURE(name);
    const std::string file =
        test::without_checksums(test::read_bytes(test::golden_folder() / name));
    std::size_t parsed = 0;
    for (std::size_t i = 0; i < file.size(); ++i) {
      for (const int change : {0x01, 0x10, 0x80, 0xff}) {
        std::string changed = file;
        changed[i] = static_cast<char>(changed[i] ^ change);
        try {
          read_everything(parse(changed));
          ++parsed;
        } catch (const FileError&) {
        }
      }
    }
    CHECK(parsed > 0);
  }
}

TEST_CASE("read_pt: a damaged record is caught by its checksum") {
  const std::string body = tensor_call(storage_id("ByteStorage", 2), 0, {2}, {1});
  refuses(make_zip({{.name = "m/data.pkl", .data = pickle(body)},
                    {.name = "m/data/0", .data = "ab", .crc_xor = 1}}),
          "record 'm/data/0': expected CRC-32");
  refuses(make_zip({{.name = "m/data.pkl", .data = pickle(body), .crc_xor = 1}}),
          "the file is damaged");
}

TEST_CASE("read_pt: malformed archives are refused with their reason") {
  const std::string none = pickle("N");
  CHECK_NOTHROW(parse(make_pt(none)));
  refuses("", "byte 0: expected a file of torch.save");
  refuses("PK\x03\x04", "expected a zip archive, got 4 bytes");
  refuses("PK\x03\x04" + std::string(100, '\0'), "no end record");
  refuses(make_zip({{.name = "data.pkl", .data = none}}), "without a record data.pkl");
  refuses(make_zip({{.name = "a/data.pkl", .data = none}, {.name = "b/data.pkl", .data = none}}),
          "expected one record data.pkl");
  refuses(
      make_zip({{.name = "a/data.pkl", .data = none}, {.name = "a/constants.pkl", .data = none}}),
      "TorchScript");
  refuses(make_zip({{.name = "a/data.pkl", .data = none}, {.name = "a/data.pkl", .data = none}}),
          "got 'a/data.pkl' twice");
  refuses(make_zip({{.name = "a/data.pkl", .data = none},
                    {.name = "a/x", .data = none, .central_name = "a/data.pkl", .reuse = 0}}),
          "twice");
  refuses(make_zip({{.name = "a/data.pkl", .data = none},
                    {.name = "a/data.pkl", .data = none, .central_name = "a/0", .reuse = 0}}),
          "got another");
  refuses(make_zip({{.name = "a/data.pkl", .data = none, .method = 8}}), "does not compress");
  for (const char* name : {"../data.pkl", "/a/data.pkl", "a/../data.pkl", "a\\data.pkl",
                           "c:/data.pkl", "a/..", "\xff/data.pkl", "a\n/data.pkl"}) {
    CAPTURE(name);
    refuses(make_zip({{.name = name, .data = none}}), "expected a relative record name");
  }
  refuses(make_zip({{.name = "a/data.pkl", .data = none}, {.name = "a/version", .data = "99\n"}}),
          "expected a version");
  refuses(
      make_zip({{.name = "a/data.pkl", .data = none}, {.name = "a/byteorder", .data = "middle"}}),
      "expected 'little' or 'big'");
  refuses(make_zip({{.name = "a/data.pkl", .data = none + "x"}}), "expected the end after STOP");
}

TEST_CASE("read_pt: an archive whose numbers lie is refused") {
  const std::string file = make_pt(pickle("N"));
  const std::size_t end = file.size() - 22;
  const auto with = [&](std::size_t position, std::uint32_t value) {
    std::string changed = file;
    std::memcpy(changed.data() + position, &value, 4);
    return changed;
  };
  const std::size_t central = file.find("PK\x01\x02");
  refuses(with(end + 12, 0x7fffffff), "expected a zip directory before byte");
  refuses(with(end + 16, 0x7fffffff), "expected a zip directory before byte");
  refuses(with(end + 16, 0xffffffff), "zip64 locator");
  refuses(with(end + 8, 0x7fff7fff), "records");
  refuses(with(central + 42, 0x7fffffff), "expected a header before byte");
  refuses(with(central + 42, 5), "expected a local header");
  std::string huge = with(central + 20, 0x7fffffff);
  const std::uint32_t size = 0x7fffffff;
  std::memcpy(huge.data() + central + 24, &size, 4);
  refuses(huge, "expected 2147483647 bytes of the record");
}

TEST_CASE("read_pt: a name outside the list is refused before anything else happens") {
  refuses_body(global("os", "system") + "(" + text("true") + "tR",
               "byte 2: expected a name from the list");
  refuses_body(global("builtins", "eval") + "(" + text("1") + "tR", "got 'builtins.eval'");
  refuses_body(global("torch", "torch.float32"), "expected a name from the list");
  refuses_body(global("torch.nn.modules.linear", "Linear") + ")\x81",
               "save its state_dict() instead");
  refuses_body(text("os") + text("system") + "\x93)R", "got 'os.system'");
  refuses_body(global("torch", "complex64"), "expected a dtype that Quanta has");
  refuses_body(global("torch", "FloatStorage"), "got the type or function torch.FloatStorage");
  refuses_body(global("torch", "float32") + ")R", "expected a known function");
  refuses_body(text("x") + ")R", "REDUCE: expected a known name");
  refuses_body(global("collections", "OrderedDict") + ")\x81", "NEWOBJ");
  refuses_body("c" + std::string(10000, 'x'), "ends with a line feed");
}

TEST_CASE("read_pt: opcodes outside the list and broken stacks are refused") {
  for (const char opcode :
       {'i', 'o', 'I', 'F', 'S', 'P', 'd', 'l', 'p', 'g', '\x82', '\x92', '\x98'}) {
    refuses_body(std::string("N") + opcode, "expected an opcode of data");
  }
  refuses(make_pt("\x80\x06N."), "expected pickle protocol 2 to 5");
  refuses(make_pt("N."), "expected a pickle");
  refuses_body("", "expected one value at STOP");
  refuses_body("NN", "expected one value at STOP");
  refuses_body("(N", "expected one value at STOP");
  refuses_body("a", "on the stack");
  refuses_body("]a", "APPEND");
  refuses_body("NNa", "expected a list");
  refuses_body("](Nu", "expected a dict");
  refuses_body("}(Nu", "expected pairs");
  refuses_body("}(NNNu", "expected pairs");
  refuses_body("t", "expected a mark");
  refuses_body("N(\x85", "TUPLE");
  refuses_body("(0", "on the stack");
  refuses_body(std::string("h\x05", 2), "remembered as 5");
  refuses_body("j\xff\xff\xff\xff", "remembered as 4294967295");
  refuses_body("X\xff\xff\xff\x7f", "expected 2147483647 bytes of a string");
  refuses_body("\x8d" + std::string(8, '\xff'), "bytes of a string");
  refuses_body("\x95" + std::string(8, '\xff') + "N", "FRAME");
  refuses_body(text("\xff"), "expected UTF-8");
  refuses_body("NNb", "BUILD");
  refuses_body("}NbNb", "got one that has it");
  refuses_body("\x88Q", "expected a persistent id");
  refuses_body(storage_id("FloatStorage", 1), "got one by itself");
}

TEST_CASE("read_pt: containers that hold themselves are refused") {
  const char* reason = "holds itself";
  refuses_body(std::string("]q\0h\0a", 6), reason);
  refuses_body(std::string("}q\0Nh\0s", 7), reason);
  refuses_body(std::string("]q\0(h\0tq\1", 9) + "0" + std::string("h\1a", 3), reason);
  refuses_body(std::string("}q\0h\0b", 6), reason);
  refuses_body(global("torch", "ScriptObject") + ")\x81q" + std::string("\0(h\0", 4) +
                   text("__torch__.torch.classes.x.Y") + "tb",
               reason);
}

TEST_CASE("read_pt: nesting is bounded") {
  refuses_body(repeat("]", 100000) + repeat("a", 99999), "levels of nesting");
  refuses_body("N" + repeat("\x85", 100000), "levels of nesting");
  CHECK_NOTHROW(parse(make_pt(pickle("N" + repeat("\x85", 90)))));
}

TEST_CASE("read_pt: values that repeat their parts are bounded") {
  // Ten references to a list of ten references to ...: 10^20 values in 1000 bytes.
  std::string laughs = "]q" + std::string(1, '\0') + "0";
  for (char level = 1; level <= 20; ++level) {
    laughs +=
        "]q" + std::string(1, level) + "(" + repeat(std::string("h") + char(level - 1), 10) + "e0";
  }
  refuses_body(laughs + "h\x14", "repeats its parts too often");
  // One long string a million times.
  std::string strings = text(std::string(100000, 'x')) + std::string("q\0", 2) + "0](";
  refuses_body(strings + repeat(std::string("h\0", 2), 100000) + "e",
               "repeats its parts too often");
  // A set copied again and again.
  std::string copies = "](" + repeat("N", 100000) + "eq" + std::string(1, '\0') + "0](";
  copies += repeat(global("builtins", "set") + std::string("h\0\x85R", 4), 1000);
  refuses_body(copies + "e", "copied containers");
  // Long bytes a thousand times, as protocol 2 writes them and as itself.
  const std::string remembered = text(std::string(1000000, 'x')) + std::string("q\0", 2) + "0](";
  const std::string latin1 = std::string("h\0", 2) + text("latin1") + "\x86R";
  for (const auto& [module, name] : {std::pair("_codecs", "encode"), {"builtins", "bytearray"}}) {
    refuses_body(remembered + repeat(global(module, name) + latin1, 1000) + "e",
                 "repeats its parts too often");
  }
  std::string bytes = "B";
  test::put<std::uint32_t>(bytes, 1000000);
  bytes += std::string(1000000, 'x') + std::string("q\0", 2) + "0](";
  const std::string copy = global("builtins", "bytearray") + std::string("h\0", 2) + "\x85R";
  refuses_body(bytes + repeat(copy, 1000) + "e", "repeats its parts too often");
}

TEST_CASE("read_pt: a file of long integers takes time in proportion to its bytes") {
  std::string body = "](";
  for (int i = 0; i < 4000; ++i) {
    body += "\x8a\xff" + std::string(254, static_cast<char>(i)) + "\x7f";
  }
  const std::string file = make_pt(pickle(body + "e"));
  const auto start = std::chrono::steady_clock::now();
  const PickleValue value = parse(file);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(value.get_if<PickleValue::Sequence>()->items.size() == 4000);
  CHECK(seconds.count() < 2.0);  // 4 s when each digit walked over all bytes
}

TEST_CASE("read_pt: dicts with a key that stands twice are refused") {
  refuses_body("}(" + text("a") + "N" + text("a") + "Nu", "got 'a' twice");
  refuses_body("}(K\x01NK\x01Nu", "got 1 twice");
}

TEST_CASE("read_pt: tensors outside their storage are refused") {
  const std::string four(16, '\0');
  const auto call = [](std::int64_t offset, const std::vector<std::int64_t>& size,
                       const std::vector<std::int64_t>& stride) {
    return tensor_call(storage_id("FloatStorage", 4), offset, size, stride);
  };
  const std::int64_t large = std::int64_t{1} << 62;
  CHECK_NOTHROW(parse(make_pt(pickle(call(0, {2, 2}, {2, 1})), four)));
  CHECK_NOTHROW(parse(make_pt(pickle(call(100, {0}, {1})), four)));
  const char* outside = "expected a tensor within its storage of 4 elements";
  refuses_body(call(0, {5}, {1}), outside, four);
  refuses_body(call(1, {4}, {1}), outside, four);
  refuses_body(call(4, {1}, {1}), outside, four);
  refuses_body(call(4, {}, {}), outside, four);
  refuses_body(call(0, {2, 2}, {3, 1}), outside, four);
  refuses_body(call(0, {2}, {large}), outside, four);
  refuses_body(call(0, {3, 3}, {large, large}), outside, four);
  refuses_body(call(large, {1}, {1}), outside, four);
  refuses_body(call(0, {large / 256, 1}, {1, 1}), outside, four);
  refuses_body(call(0, {large}, {0}), "2^55", four);
  refuses_body(call(0, {large, 4, 0}, {0, 0, 0}), "2^55", four);
  refuses_body(call(-1, {1}, {1}), "storage_offset: expected >= 0", four);
  refuses_body(call(0, {-1}, {1}), "sizes >= 0", four);
  refuses_body(call(3, {2}, {-1}), "stride: expected numbers >= 0", four);
  refuses_body(call(0, {1}, {}), "stride: expected 1 numbers", four);
  refuses_body(call(0, std::vector<std::int64_t>(11, 1), std::vector<std::int64_t>(11, 1)),
               "at most 10 dimensions", four);
}

TEST_CASE("read_pt: storages that do not fit their record are refused") {
  const auto call = [](std::string_view type, std::int64_t numel) {
    return tensor_call(storage_id(type, numel), 0, {1}, {1});
  };
  refuses_body(call("FloatStorage", 4), "expected 4 elements of 4 bytes, got 15 bytes",
               std::string(15, 'x'));
  refuses_body(call("FloatStorage", std::int64_t{1} << 62), "got 4 bytes", "abcd");
  refuses_body(call("FloatStorage", -1), "expected a length >= 0", "abcd");
  refuses_body(call("ComplexFloatStorage", 1), "that Quanta has", "12345678");
  refuses_body(call("BoolStorage", 2), "expected bools 0 and 1", "\x01\x02");
  refuses_body(call("QInt8Storage", 4), "expected a plain dtype", "abcd");
  refuses_body("(" + call("FloatStorage", 1) + call("IntStorage", 1) + "t", "as before", "abcd");
  refuses_body(tensor_call(tuple({text("storage"), global("torch", "FloatStorage"), text("../0"),
                                  text("cpu"), integer(1)}) +
                               "Q",
                           0, {1}, {1}),
               "expected a record 'm/data/../0'", "abcd");
  refuses_body(tuple({text("module"), "N"}) + "Q", "save its state_dict() instead");
}

TEST_CASE("read_pt: quantized tensors with parameters that do not fit are refused") {
  const auto call = [](const std::string& storage, const std::string& params,
                       const std::vector<std::int64_t>& size = {2, 2}) {
    return global("torch._utils", "_rebuild_qtensor") +
           tuple({storage, integer(0), integers(size),
                  integers(size.size() == 2 ? std::vector<std::int64_t>{size[1], 1}
                                            : std::vector<std::int64_t>{1}),
                  params, "\x89", "}"}) +
           "R";
  };
  const std::string codes = storage_id("QUInt8Storage", 4);
  const std::string per_tensor = global("torch", "per_tensor_affine");
  const std::string per_channel = global("torch", "per_channel_affine");
  CHECK_NOTHROW(
      parse(make_pt(pickle(call(codes, tuple({per_tensor, integer(1), integer(255)}))), "abcd")));
  refuses_body(call(codes, "N"), "quantizer_params", "abcd");
  refuses_body(call(codes, tuple({per_tensor, integer(1)})), "got 2 members", "abcd");
  refuses_body(call(codes, tuple({per_tensor, integer(0), integer(0)})), "scale", "abcd");
  refuses_body(call(codes, tuple({per_tensor, integer(1), integer(256)})), "zero_point", "abcd");
  refuses_body(call(codes, tuple({per_tensor, text("x"), integer(0)})), "expected a number",
               "abcd");
  refuses_body(call(codes, tuple({per_channel, integers({1}), integers({0, 0}), integer(0)})),
               "scales", "abcd");
  refuses_body(call(codes, tuple({per_channel, integers({1, 1}), integers({0}), integer(0)})),
               "zero_points", "abcd");
  refuses_body(call(codes, tuple({per_channel, integers({1, 1}), integers({0, 0}), integer(2)})),
               "axis", "abcd");
  refuses_body(call(codes, tuple({per_channel, integers({1, 1}), integers({0, 0}), integer(-1)})),
               "axis", "abcd");
  refuses_body(call(codes, tuple({per_channel, "N", integers({0, 0}), integer(0)})),
               "a tensor or a list", "abcd");
  refuses_body(call(storage_id("ByteStorage", 4), tuple({per_tensor, integer(1), integer(0)})),
               "expected a quantized storage", "abcd");
  // Two values a byte: four bytes hold eight, not nine.
  const std::string packed = storage_id("QUInt4x2Storage", 4);
  const std::string params = tuple({per_tensor, integer(1), integer(0)});
  CHECK_NOTHROW(parse(make_pt(pickle(call(packed, params, {8})), "abcd")));
  refuses_body(call(packed, params, {9}), "within its storage of 8 elements", "abcd");
  // Scales that a stride of zero makes from one number.
  const std::string expanded = tensor_call(codes, 0, {std::int64_t{1} << 40}, {0});
  refuses_body(call(codes, tuple({per_channel, expanded, expanded, integer(0)})), "QUInt8", "abcd");
  const std::string plain = storage_id("ByteStorage", 4);
  const std::string scales = tensor_call(plain, 0, {std::int64_t{1} << 40}, {0});
  const std::string q = global("torch._utils", "_rebuild_qtensor") +
                        tuple({tuple({text("storage"), global("torch", "QUInt8Storage"), text("1"),
                                      text("cpu"), integer(4)}) +
                                   "Q",
                               integer(0), integers({std::int64_t{1} << 40}), integers({0}),
                               tuple({per_channel, scales, scales, integer(0)}), "\x89", "}"}) +
                        "R";
  refuses(make_zip({{.name = "m/data.pkl", .data = pickle(q)},
                    {.name = "m/data/0", .data = "abcd"},
                    {.name = "m/data/1", .data = "abcd"}}),
          "repeats its parts too often");
}

TEST_CASE("read_pt: scales that are NaN or infinite are refused by the tensor's name") {
  const auto real = [](double value) {
    std::string result = "G";
    std::string bytes;
    test::put(bytes, value);
    return result + std::string(bytes.rbegin(), bytes.rend());
  };
  const auto weight = [&](double scale) {
    const std::string params =
        tuple({global("torch", "per_channel_affine"), "](" + real(1.0) + real(scale) + "e",
               integers({0, 0}), integer(0)});
    return "}(" + text("model") + "}(" + text("fc.weight") +
           global("torch._utils", "_rebuild_qtensor") +
           tuple({storage_id("QInt8Storage", 4), integer(0), integers({2, 2}), integers({2, 1}),
                  params, "\x89", "}"}) +
           "Ruu";
  };
  CHECK_NOTHROW(parse(make_pt(pickle(weight(0.5)), "abcd")));
  for (const double scale : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    refuses_body(weight(scale),
                 "'model/fc.weight': _rebuild_qtensor: scale: expected a finite number > 0",
                 "abcd");
  }
}

TEST_CASE("read_pt: script objects are data with a type name of torch's classes") {
  const std::string object = global("torch", "ScriptObject") + ")\x81";
  CHECK_NOTHROW(parse(make_pt(pickle(object + "N" + text("__torch__.torch.classes.x.Y") +
                                     "\x86"
                                     "b"))));
  refuses_body(object, "expected the state of a script object");
  refuses_body(object + "N" + text("os.system") +
                   "\x86"
                   "b",
               "expected the state of a script object");
  refuses_body(global("torch", "ScriptObject") + "(Nt\x81", "expected no arguments");
}

TEST_CASE("read_pt: legacy files whose parts do not fit are refused") {
  const std::string magic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.", 15);
  const std::string protocol("\x80\x02M\xe9\x03.", 6);
  const std::string system = pickle("}" + text("little_endian") + "\x88s");
  const std::string tensor = pickle(tensor_call(storage_id("ByteStorage", 2), 0, {2}, {1}));
  const std::string keys = pickle("]" + text("0") + "a");
  std::string data;
  test::put<std::int64_t>(data, 2);
  data += "ab";
  CHECK_NOTHROW(parse(magic + protocol + system + tensor + keys + data));
  refuses(pickle("N"), "expected the magic number");
  refuses(magic + pickle("N"), "expected protocol version 1001");
  refuses(magic + protocol + pickle("N"), "system information");
  refuses(magic + protocol + system + tensor + pickle("N"), "expected the list of storage keys");
  refuses(magic + protocol + system + tensor + pickle("]"), "expected it in the list of storages");
  refuses(magic + protocol + system + tensor + pickle("]" + text("9") + "a"),
          "a storage that a tensor uses");
  refuses(magic + protocol + system + tensor + pickle("]Na"), "a storage that a tensor uses");
  refuses(
      magic + protocol + system + tensor + pickle("](" + text("0") + text("0") + "e") + data + data,
      "got '0' twice");
  refuses(magic + protocol + system + tensor + keys + data + "x", "got 1 more bytes");
  refuses(magic + protocol + system + tensor + keys + data.substr(0, 9), "the file is truncated");
  std::string longer;
  test::put<std::int64_t>(longer, std::int64_t{1} << 61);
  refuses(magic + protocol + system + tensor + keys + longer, "expected 2 elements");
  std::string tar(600, '\0');
  tar.replace(257, 5, "ustar");
  refuses(tar, "got a tar archive");
}

}  // namespace quanta
