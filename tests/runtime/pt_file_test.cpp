#include "quanta/runtime/pt_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "file_test_util.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"

// Every load_pt case of the golden suite state_dict_pt, then what a reader must do that no golden
// file shows. Hostile files are in pt_hostile_test.cpp.

namespace quanta {
namespace {

using nlohmann::json;
using TensorValue = PickleValue::TensorValue;

json other_to_json(const PickleValue& value) {
  if (value.get_if<PickleValue::None>() != nullptr) return nullptr;
  if (const auto* boolean = value.get_if<bool>()) return *boolean;
  if (const auto* integer = value.get_if<std::int64_t>()) return *integer;
  if (const auto* big = value.get_if<PickleValue::BigInt>()) return {{"bigint", big->digits}};
  if (const auto* number = value.get_if<double>()) return *number;
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* dtype = value.get_if<DType>()) return {{"dtype", torch_name(*dtype)}};
  if (const auto* object = value.get_if<PickleValue::Object>()) return {{"object", object->type}};
  return "unexpected";
}

// The stored form of the golden suite: contiguous, codes for quantized tensors, bool as uint8.
void check_values(const Tensor& tensor, const json& reference, const StateDict& golden) {
  CHECK(torch_name(tensor.dtype()) == reference["dtype"].get<std::string>());
  CHECK(tensor.sizes().to_vector() == reference["shape"].get<std::vector<std::int64_t>>());
  const Tensor& want = golden.at(reference["tensor"].get<std::string>());
  const Tensor plain =
      tensor.is_quantized() ? QTensor(tensor).int_repr_view().contiguous() : tensor.contiguous();
  REQUIRE(plain.nbytes() == want.nbytes());
  CHECK(std::equal(static_cast<const std::byte*>(plain.data_ptr()),
                   static_cast<const std::byte*>(plain.data_ptr()) + plain.nbytes(),
                   static_cast<const std::byte*>(want.data_ptr())));
  CHECK(tensor.is_quantized() == reference.contains("qscheme"));
  if (!tensor.is_quantized()) return;

  const QTensor q(tensor);
  CHECK(torch_name(q.qscheme()) == reference["qscheme"].get<std::string>());
  if (!q.is_per_channel()) {
    CHECK(q.q_scale() == reference["scale"].get<double>());
    CHECK(q.q_zero_point() == reference["zero_point"].get<std::int64_t>());
    return;
  }
  CHECK(q.q_per_channel_axis() == reference["axis"].get<std::int64_t>());
  CHECK(q.q_per_channel_scales().equal(golden.at(reference["scales"].get<std::string>())));
  CHECK(
      q.q_per_channel_zero_points().equal(golden.at(reference["zero_points"].get<std::string>())));
}

PickleValue parse(const std::string& file) { return parse_pt(test::as_bytes(file), "test"); }

PickleValue parse_body(const std::string& body, const std::string& storage = {}) {
  return parse(test::make_pt(test::pickle(body), storage));
}

}  // namespace

TEST_CASE("read_pt: every golden file gives PyTorch's tensors and values") {
  const auto folder = test::golden_folder();
  const json suite = json::parse(test::read_bytes(folder / "state_dict_pt.json"));
  const StateDict golden = read_safetensors(folder / "state_dict_pt.safetensors");
  std::size_t cases = 0;
  for (const json& test_case : suite["cases"]) {
    if (test_case["op"] != "load_pt") continue;
    ++cases;
    const json& attributes = test_case["attrs"];
    const json& layout = attributes["layout"];
    const json& tensors = test_case["outputs"]["tensors"];
    CAPTURE(test_case["id"].get<std::string>());
    const PickleValue value = read_pt(folder / attributes["file"].get<std::string>());

    std::size_t tensor_count = 0;
    json other = json::object();
    std::map<const Storage*, std::set<std::string>> storages;
    visit_leaves(value, [&](const std::string& path, const PickleValue& leaf) {
      CAPTURE(path);
      const auto* tensor = leaf.get_if<TensorValue>();
      if (tensor == nullptr) {
        other[path] = other_to_json(leaf);
        return;
      }
      ++tensor_count;
      REQUIRE(tensors.contains(path));
      check_values(tensor->tensor, tensors[path], golden);
      CHECK(tensor->tensor.strides().to_vector() ==
            layout[path]["stride"].get<std::vector<std::int64_t>>());
      CHECK(tensor->tensor.storage_offset() == layout[path]["storage_offset"].get<std::int64_t>());
      CHECK(tensor->requires_grad == layout[path]["requires_grad"].get<bool>());
      storages[tensor->tensor.storage().get()].insert(path);
    });
    CHECK(tensor_count == tensors.size());
    CHECK(other == test_case["outputs"]["other"]);

    std::set<std::set<std::string>> shared;
    for (const auto& [storage, paths] : storages) {
      if (paths.size() > 1) shared.insert(paths);
    }
    CHECK(shared == attributes["shared_storage"].get<std::set<std::set<std::string>>>());
  }
  CHECK(cases == 25);
}

TEST_CASE("read_pt: a state_dict keeps the order of its names and the versions of its modules") {
  const auto path = test::golden_folder() / "cnn_stack.pt";
  const StateDict tensors = read_pt_state_dict(path);
  CHECK(tensors.begin()->first == "quant.scale");
  CHECK(tensors.contains("fc._packed_params._packed_params/0"));
  const PickleValue value = read_pt(path);
  const auto* dict = value.get_if<PickleValue::Dict>();
  REQUIRE(dict != nullptr);
  REQUIRE(dict->state != nullptr);
  std::map<std::string, std::int64_t> versions;
  visit_leaves(*dict->state, [&](const std::string& name, const PickleValue& leaf) {
    if (const auto* version = leaf.get_if<std::int64_t>()) versions[name] = *version;
  });
  CHECK(versions.at("_metadata/fc._packed_params/version") == 3);
}

TEST_CASE("read_pt: the file and its bytes in memory give the same") {
  for (const char* name : {"quantized_kinds.pt", "views_legacy.pt", "lstm_classifier.pt"}) {
    const auto path = test::golden_folder() / name;
    const StateDict from_file = read_pt_state_dict(path);
    const StateDict from_memory = flatten_tensors(parse(test::read_bytes(path)));
    REQUIRE(from_file.size() == from_memory.size());
    for (const auto& [key, tensor] : from_file) CHECK(from_memory.at(key).equal(tensor));
  }
}

TEST_CASE("read_pt: small values of Python come back") {
  using test::text;
  const PickleValue value = parse_body(
      "(" + test::integer(-5) + "\x8a" + std::string("\x01\xff", 2) + std::string("\x8a\x00", 2) +
      std::string("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff", 11) + "NG" +
      std::string("\xc0\x04\x00\x00\x00\x00\x00\x00", 8) + test::global("_codecs", "encode") +
      test::tuple({text("a\xc3\xbf"), text("latin1")}) + "R" + test::global("__builtin__", "set") +
      "(](" + test::integer(1) + "etR" + test::global("torch", "per_channel_affine") +
      test::global("torch", "bfloat16") + test::global("torch", "Size") + "(" +
      test::integers({2, 3}) + "tR" + test::global("torch", "device") + "(" + text("cuda") +
      test::integer(1) + "tR" + "t");
  const auto& items = value.get_if<PickleValue::Sequence>()->items;
  REQUIRE(items.size() == 12);
  CHECK(*items[0].get_if<std::int64_t>() == -5);
  CHECK(*items[1].get_if<std::int64_t>() == -1);
  CHECK(*items[2].get_if<std::int64_t>() == 0);
  CHECK(items[3].get_if<PickleValue::BigInt>()->digits == "-18446744073709551616");
  CHECK(items[4].get_if<PickleValue::None>() != nullptr);
  CHECK(*items[5].get_if<double>() == -2.5);
  CHECK(items[6].get_if<PickleValue::Object>()->type == "bytes");
  CHECK(*items[6].get_if<PickleValue::Object>()->state->get_if<std::string>() == "a\xff");
  CHECK(items[7].get_if<PickleValue::Sequence>()->kind == PickleValue::Sequence::Kind::Set);
  CHECK(*items[8].get_if<QScheme>() == QScheme::PerChannelAffine);
  CHECK(*items[9].get_if<DType>() == DType::BFloat16);
  CHECK(items[10].get_if<PickleValue::Sequence>()->items.size() == 2);
  CHECK(items[11].get_if<PickleValue::Object>()->type == "torch.device");
}

TEST_CASE("read_pt: scales of a quantized tensor may be a list") {
  std::string call = test::global("torch._utils", "_rebuild_qtensor") + "(" +
                     test::storage_id("QInt8Storage", 4) + test::integer(0) +
                     test::integers({2, 2}) + test::integers({2, 1}) + "(" +
                     test::global("torch", "per_channel_affine") + "](G" +
                     std::string("\x3f\xe0\x00\x00\x00\x00\x00\x00", 8) + test::integer(2) + "e](" +
                     test::integer(0) + test::integer(-3) + "e" + test::integer(1) + "t\x89" +
                     test::global("collections", "OrderedDict") + ")RtR";
  const PickleValue value = parse_body(call, std::string("\x01\x02\x03\x04"));
  const QTensor q(value.get_if<TensorValue>()->tensor);
  CHECK(q.quantizer() == Quantizer::per_channel({0.5, 2.0}, {0, -3}, 1));
  CHECK(q.int_repr_view().to_int64_vector() == std::vector<std::int64_t>{1, 2, 3, 4});
}

TEST_CASE("read_pt: big-endian storages are turned round") {
  const std::string call = test::tensor_call(test::storage_id("FloatStorage", 2), 0, {2}, {1});
  const std::string file = test::make_zip(
      {{.name = "m/data.pkl", .data = test::pickle(call)},
       {.name = "m/byteorder", .data = "big"},
       {.name = "m/data/0", .data = std::string("\x3f\x80\x00\x00\xc0\x00\x00\x00", 8)}});
  const PickleValue value = parse(file);
  CHECK(value.get_if<TensorValue>()->tensor.to_float_vector() == std::vector<float>{1.0F, -2.0F});
}

TEST_CASE("flatten_tensors: two tensors with one path are refused") {
  const std::string tensor = test::tensor_call(test::storage_id("ByteStorage", 1), 0, {1}, {1});
  const PickleValue value = parse_body(
      "}(" + test::text("a/b") + tensor + test::text("a") + "}" + test::text("b") + tensor + "su",
      "x");
  CHECK_THROWS_WITH_AS(flatten_tensors(value), doctest::Contains("got 'a/b' twice"), ArgumentError);
}

}  // namespace quanta
