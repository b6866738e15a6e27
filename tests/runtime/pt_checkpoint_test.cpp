// Files that hold more than a state_dict: parts by key, objects of Python, whole modules.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "file_test_util.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/pt_file.h"
#include "support/capture_binding.h"

namespace quanta {
namespace {

using test::global;
using test::make_pt;
using test::make_zip;
using test::pickle;
using test::storage_id;
using test::tensor_call;
using test::text;

std::filesystem::path file(std::string_view name) {
  return test::source_folder() / "tests" / "runtime" / "files" / name;
}

PickleValue parse(const std::string& bytes, std::string_view key = {}) {
  return parse_pt(test::as_bytes(bytes), "test", key);
}

/// A dict with one tensor: {"weight": [a, b]}.
std::string state_body() {
  return "}" + text("weight") + tensor_call(storage_id("ByteStorage", 2), 0, {2}, {1}) + "s";
}

void writes_and_refuses(const std::string& bytes, const std::string& reason,
                        std::string_view key = {}) {
  const test::TemporaryFile temporary;
  test::write_bytes(temporary.path, bytes);
  CHECK_THROWS_WITH_AS(read_pt_state_dict(temporary.path, key), doctest::Contains(reason.c_str()),
                       FileError);
}

}  // namespace

TEST_CASE("read_pt_state_dict: a key gives the state_dict of a checkpoint") {
  for (const char* name : {"checkpoint.pt", "checkpoint_protocol4.pt", "checkpoint_legacy.pt"}) {
    CAPTURE(name);
    const StateDict state = read_pt_state_dict(file(name), "model");
    REQUIRE(state.size() == 7);
    CHECK(state.begin()->first == "0.weight");
    CHECK(state.at("0.weight").sizes() == Dims{2, 3});
    CHECK(state.at("1.num_batches_tracked").dtype() == DType::Int64);
  }
  const PickleValue moment = read_pt(file("checkpoint.pt"), "optimizer/state/0/exp_avg");
  REQUIRE(moment.get_if<PickleValue::TensorValue>() != nullptr);
  CHECK(moment.get_if<PickleValue::TensorValue>()->tensor.sizes() == Dims{2, 3});
  const PickleValue rate = read_pt(file("checkpoint.pt"), "optimizer/param_groups/0/lr");
  CHECK(*rate.get_if<double>() == 0.001);
}

TEST_CASE("read_pt_state_dict: a checkpoint without a key is refused with its keys") {
  for (const char* name : {"checkpoint.pt", "checkpoint_protocol4.pt"}) {
    CAPTURE(name);
    try {
      read_pt_state_dict(file(name));
      FAIL("expected FileError");
    } catch (const FileError& error) {
      const std::string message = error.what();
      for (const char* part : {"is a dictionary of several things", "'epoch' (an integer)",
                               "'model' (a dict with 7 tensors)", "'optimizer' (a dict)",
                               "'args' (an object 'argparse.Namespace')",
                               "'whole' (a whole module 'torch.nn.modules.container.Sequential')",
                               "read_pt_state_dict(path, \"model\")"}) {
        CAPTURE(message);
        CAPTURE(part);
        CHECK(message.find(part) != std::string::npos);
      }
    }
  }
  CHECK_THROWS_WITH_AS(read_pt_state_dict(file("checkpoint.pt"), "weights"),
                       doctest::Contains("key: expected one of 'epoch' (an integer), 'model'"),
                       FileError);
  CHECK_THROWS_WITH_AS(read_pt(file("checkpoint.pt"), "epoch/x"),
                       doctest::Contains("key: expected none within an integer, got 'x'"),
                       FileError);
}

TEST_CASE("load_pt: what only Python could build is listed and the weights are read") {
  const PickleValue value = read_pt(file("checkpoint.pt"));
  const std::vector<OpaqueValue> opaque = opaque_values(value);
  const auto type_of = [&](std::string_view path) -> std::string {
    const auto found = std::find_if(opaque.begin(), opaque.end(),
                                    [&](const OpaqueValue& entry) { return entry.path == path; });
    return found == opaque.end() ? "none" : found->type;
  };
  CHECK(type_of("args") == "argparse.Namespace");
  CHECK(type_of("best") == "numpy._core.multiarray.scalar");
  CHECK(type_of("array") == "numpy._core.multiarray._reconstruct");
  CHECK(type_of("path") == "pathlib.PurePosixPath");
  CHECK(type_of("color") == "__main__.Color");
  CHECK(type_of("class") == "torch.nn.modules.linear.Linear");
  CHECK(type_of("function") == "torch.nn.functional.relu");
  CHECK(type_of("slice") == "__builtin__.slice");
  CHECK(type_of("whole") == "torch.nn.modules.container.Sequential");
  CHECK(type_of("epoch") == "none");
  CHECK(load_pt(file("checkpoint.pt"), "model").opaque.empty());

  const std::string mixed = "}(" + text("weight") +
                            tensor_call(storage_id("ByteStorage", 2), 0, {2}, {1}) + text("args") +
                            global("argparse", "Namespace") + ")\x81}" + text("lr") + "K\x01sbu";
  const test::TemporaryFile temporary;
  test::write_bytes(temporary.path, make_pt(pickle(mixed), "ab"));
  const PtFile loaded = load_pt(temporary.path);
  CHECK(loaded.tensors.size() == 1);
  CHECK(loaded.opaque == std::vector<OpaqueValue>{{"args", "argparse.Namespace"}});
}

TEST_CASE("read_pt: a whole module is refused by the name of its class") {
  const char* reason =
      "holds a whole module, 'torch.nn.modules.container.Sequential', which only Python can build: "
      "save its state_dict() instead";
  CHECK_THROWS_WITH_AS(read_pt(file("whole_module.pt")), doctest::Contains(reason), FileError);
  CHECK_THROWS_WITH_AS(read_pt_state_dict(file("whole_module.pt")), doctest::Contains(reason),
                       FileError);
  CHECK_THROWS_WITH_AS(read_pt_state_dict(file("checkpoint.pt"), "whole"),
                       doctest::Contains("'whole' holds a whole module"), FileError);
  // A class of one's own is told by its attributes.
  const std::string own = global("__main__", "Net") + ")\x81}(" + text("training") + "\x88" +
                          text("_parameters") + "}" + text("_modules") + "}ub";
  CHECK_THROWS_WITH_AS(parse(make_pt(pickle(own))),
                       doctest::Contains("holds a whole module, '__main__.Net'"), FileError);
  writes_and_refuses(make_pt(pickle("}" + text("model") + own + "s")),
                     "dictionary without tensors: 'model' (a whole module '__main__.Net')");
  writes_and_refuses(make_pt(pickle(global("argparse", "Namespace") + ")\x81")),
                     "holds an object of Python, 'argparse.Namespace'");
}

TEST_CASE("read_pt: classes of older files stand with their source and are not looked at") {
  const std::string type = test::tuple({text("module"), global("torch.nn.modules.linear", "Linear"),
                                        text("linear.py"), text("class Linear: ...")}) +
                           "Q";
  const std::string module = type + ")\x81}" + text("_modules") + "}sb";
  CHECK_THROWS_WITH_AS(parse(make_pt(pickle(module))),
                       doctest::Contains("holds a whole module, 'torch.nn.modules.linear.Linear'"),
                       FileError);
  const std::string body = "}(" + text("model") + state_body() + text("whole") + module + "u";
  CHECK(parse(make_pt(pickle(body), "ab"), "model").get_if<PickleValue::Dict>() != nullptr);
  const std::string refused =
      test::tuple({text("module"), global("os", "system"), text(""), text("")}) + "Q";
  CHECK_THROWS_WITH_AS(parse(make_pt(pickle(refused))), doctest::Contains("got 'os.system'"),
                       FileError);
}

TEST_CASE("read_pt: names that reach beyond a file are refused wherever they stand") {
  for (const auto& [module, name] :
       std::vector<std::pair<const char*, const char*>>{{"os", "system"},
                                                        {"posix", "system"},
                                                        {"nt", "system"},
                                                        {"subprocess", "Popen"},
                                                        {"os.path", "join"},
                                                        {"builtins", "exec"},
                                                        {"builtins", "__import__"},
                                                        {"__builtin__", "eval"},
                                                        {"importlib", "import_module"},
                                                        {"runpy", "_run_code"},
                                                        {"shutil", "rmtree"},
                                                        {"sys", "exit"},
                                                        {"pickle", "loads"},
                                                        {"socket", "socket"},
                                                        {"ctypes", "CDLL"}}) {
    CAPTURE_BINDING(module);
    CAPTURE_BINDING(name);
    const std::string body = "}(" + text("model") + state_body() + text("x") +
                             global(module, name) + text("true") + "\x85Ru";
    CHECK_THROWS_WITH_AS(parse(make_pt(pickle(body), "ab"), "model"),
                         doctest::Contains("expected a name from the list of known ones"),
                         FileError);
  }
  // A tensor that cannot be built is never left out in silence.
  for (const char* name : {"_rebuild_sparse_tensor", "_rebuild_meta_tensor_no_storage"}) {
    CHECK_THROWS_WITH_AS(parse(make_pt(pickle(global("torch._utils", name) + ")R"))),
                         doctest::Contains("expected a name from the list"), FileError);
  }
}

TEST_CASE("read_pt: opaque objects take anything and keep nothing") {
  const std::string object = global("a.b", "C");
  const auto type_of = [&](const std::string& body) {
    const PickleValue value = parse(make_pt(pickle("(" + body + "t")));
    return value.get_if<PickleValue::Sequence>()->items.at(0).get_if<PickleValue::Opaque>()->type;
  };
  CHECK(type_of(object) == "a.b.C");
  CHECK(type_of(object + ")R") == "a.b.C");
  CHECK(type_of(object + ")R(NNe") == "a.b.C");     // a list of a class of its own
  CHECK(type_of(object + ")R(NNu") == "a.b.C");     // a dict
  CHECK(type_of(object + ")R(NN\x90") == "a.b.C");  // a set
  CHECK(type_of(object + ")\x81Nb}b") == "a.b.C");  // two states
  CHECK(type_of(object + ")R)R") == "a.b.C");       // a method, called
  CHECK(type_of(global("copyreg", "_reconstructor") + "(" + object + object + "NtR") == "a.b.C");
  CHECK(type_of(global("copyreg", "_reconstructor") + ")R") == "copyreg._reconstructor");
  // Arguments of the wrong kind stay errors.
  CHECK_THROWS_AS(parse(make_pt(pickle(object + "NR"))), FileError);
  CHECK_THROWS_AS(parse(make_pt(pickle(object + "N\x81"))), FileError);
  CHECK_THROWS_WITH_AS(parse(make_pt(pickle(global("a", std::string(2000, 'x'))))),
                       doctest::Contains("of at most 1000 bytes"), FileError);
  CHECK_THROWS_WITH_AS(parse(make_pt(pickle(global("\xff", "x")))),
                       doctest::Contains("got other bytes"), FileError);
}

TEST_CASE("read_pt: keys with slashes and numbers are found") {
  const std::string body = "}(" + text("a/b") + state_body() + text("a") + "}" + text("b") +
                           "K\x05sK\x07](K\x01K\x02" + "eu";
  const std::string bytes = make_pt(pickle(body), "ab");
  CHECK(parse(bytes, "a/b").get_if<PickleValue::Dict>() != nullptr);
  CHECK(*parse(bytes, "7/1").get_if<std::int64_t>() == 2);
  CHECK(parse(bytes, "a/b/weight").get_if<PickleValue::TensorValue>() != nullptr);
  for (const char* key : {"7/2", "7/-1", "7/x", "/", "b", "//////"}) {
    CAPTURE(key);
    CHECK_THROWS_WITH_AS(parse(bytes, key), doctest::Contains("key: expected"), FileError);
  }
}

TEST_CASE("read_pt: the storages beside a key are not read") {
  // The second storage has no record at all.
  const std::string other =
      global("torch._utils", "_rebuild_tensor_v2") +
      test::tuple({test::tuple({text("storage"), global("torch", "FloatStorage"), text("9"),
                                text("cpu"), test::integer(1)}) +
                       "Q",
                   test::integer(0), test::integers({1}), test::integers({1}), "\x89",
                   global("collections", "OrderedDict") + ")R"}) +
      "R";
  const std::string body = "}(" + text("model") + state_body() + text("optimizer") + other + "u";
  const std::string bytes = make_pt(pickle(body), "ab");
  CHECK_NOTHROW(parse(bytes, "model"));
  CHECK_THROWS_WITH_AS(parse(bytes), doctest::Contains("expected a record 'm/data/9'"), FileError);
}

TEST_CASE("read_pt: a large dict that a checkpoint holds many times is looked through once") {
  std::string body = "}q" + std::string(1, '\0') + "(";
  for (int i = 0; i < 20000; ++i) body += "M" + std::string{char(i & 0xff), char(i >> 8)} + "N";
  body += "u0}(";
  for (int i = 0; i < 20000; ++i) {
    body += "M" + std::string{char(i & 0xff), char(i >> 8)} + std::string("h\0", 2);
  }
  // 4 * 10^8 comparisons would take seconds; here the value itself is refused, or read.
  const test::TemporaryFile temporary;
  test::write_bytes(temporary.path, make_pt(pickle(body + "u")));
  CHECK_THROWS_WITH_AS(read_pt_state_dict(temporary.path),
                       doctest::Contains("repeats its parts too often"), FileError);
}

TEST_CASE("read_pt: every truncation and change of a checkpoint gives an answer") {
  const std::string whole = test::read_bytes(file("checkpoint_legacy.pt"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    REQUIRE_THROWS_AS(parse(whole.substr(0, length), "model"), FileError);
  }
  for (const char* name : {"checkpoint_legacy.pt", "checkpoint.pt", "torchao_int8.pt"}) {
    const std::string bytes = test::without_checksums(test::read_bytes(file(name)));
    const char* key = bytes.find("Int8Tensor") == std::string::npos ? "model" : "";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string changed = bytes;
        changed[i] = static_cast<char>(changed[i] ^ change);
        try {
          parse(changed, key);
        } catch (const FileError&) {
        }
      }
    }
  }
}

TEST_CASE("read_pt: files of other kinds are named with what to do") {
  const auto refuses = [](const std::string& bytes, const char* reason) {
    CAPTURE(reason);
    CHECK_THROWS_WITH_AS(parse(bytes), doctest::Contains(reason), FileError);
  };
  const std::string none = pickle("N");
  refuses(test::safetensors("{}", ""), "got a .safetensors file: read_safetensors reads it");
  refuses("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
          "got a git-lfs pointer, not the file itself: fetch it with 'git lfs pull'");
  refuses(make_zip({{.name = "a.npy", .data = "x"}}), "an .npz archive of numpy: data::read_npz");
  refuses(make_zip({{.name = "m/data/weights/weight_0", .data = "x"},
                    {.name = "m/models/model.json", .data = "{}"},
                    {.name = "m/archive_format", .data = "pt2"}}),
          "an exported program (.pt2 of torch.export.save); save its weights instead");
  refuses(make_zip({{.name = "serialized_exported_program.json", .data = "{}"}}),
          "an exported program (.pt2");
  refuses(
      make_zip({{.name = "m/data.pkl", .data = none}, {.name = "m/constants.pkl", .data = none}}),
      "a TorchScript archive of torch.jit.save; save the module's state_dict() instead: "
      "torch.save(torch.jit.load(path).state_dict()");
  refuses(make_zip({{.name = "m/data.pkl", .data = none},
                    {.name = "m/code/__torch__/net.py", .data = none, .method = 8}}),
          "a TorchScript archive of torch.jit.save");
  refuses(make_zip({{.name = "a.npy", .data = "x", .method = 8}}), "an .npz archive of numpy");
  refuses(pickle(global("torch.storage", "_load_from_bytes") + text("some bytes") + "\x85R"),
          "the file does not begin as those of torch.save do");
  refuses("\x93NUMPY\x01", "an .npy array of numpy");
  refuses("\x89HDF\r\n", "an HDF5 file (Keras)");
  refuses("GGUF\x03", "a GGUF file");
  refuses("\x1f\x8b\x08", "gzip-compressed data: decompress it first");
  refuses("<!DOCTYPE html><html>", "a web page: the download did not give the file itself");
  refuses("{\"weight_map\": {}}", "JSON text: read_safetensors reads the index");
  refuses(none, "a pickle of something else; save it from Python with torch.save");
}

}  // namespace quanta
