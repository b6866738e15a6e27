// Int8 weights of torchao, as .pt and as .safetensors (tests/runtime/files/make_files.py wrote them).

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <string>

#include "../runtime/file_test_util.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/pt_file.h"
#include "quanta/runtime/safetensors.h"
#include "support/compare.h"

namespace quanta::test {
namespace {

std::filesystem::path file(std::string_view name) {
  return source_folder() / "tests" / "runtime" / "files" / name;
}

nn::Sequential weight_only_network() {
  nn::Sequential net(nn::Linear({.in_features = 32, .out_features = 6}), nn::ReLU(),
                     nn::Linear({.in_features = 6, .out_features = 3}));
  net.eval();
  quantize_weight_only_(net);
  return net;
}

/// The file of torchao with changed tensors and metadata.
SafetensorsFile plain_file() {
  // Without tensor_names nothing is restored: the parts come as they are.
  std::string bytes = read_bytes(file("torchao_int8.safetensors"));
  bytes.replace(bytes.find("tensor_names"), 12, "other__names");
  return parse_safetensors(as_bytes(bytes), "plain");
}

void refuses(const std::function<void(SafetensorsFile&)>& change, const std::string& reason) {
  CAPTURE(reason);
  SafetensorsFile changed = plain_file();
  changed.metadata["tensor_names"] = "[]";
  change(changed);
  const TemporaryFile temporary;
  write_safetensors(temporary.path, changed.tensors, changed.metadata);
  CHECK_THROWS_WITH_AS(read_safetensors(temporary.path), doctest::Contains(reason.c_str()),
                       FileError);
}

}  // namespace

TEST_CASE("torchao: int8 weights come as QInt8 from both files and run as weight-only layers") {
  const StateDict expected = read_safetensors(file("torchao_int8_expected.safetensors"));
  const StateDict pt = read_pt_state_dict(file("torchao_int8.pt"));
  const StateDict safetensors = read_safetensors(file("torchao_int8.safetensors"));
  for (const StateDict& state : {pt, safetensors}) {
    REQUIRE(state.size() == 4);
    const QTensor weight(state.at("0.weight"));
    CHECK(weight.dtype() == DType::QInt8);
    CHECK(weight.sizes() == Dims{6, 32});
    CHECK(weight.q_per_channel_axis() == 0);
    CHECK(state.at("2.weight").equal(pt.at("2.weight")));

    nn::Sequential net = weight_only_network();
    net.load_state_dict(state);
    const Tensor y = net(expected.at("x"));
    check_close(y, expected.at("y"), 1e-5F);
    // The codes are torchao's own.
    const auto& layer = dynamic_cast<const nn::weight_only::Linear&>(net[0]);
    CHECK(layer.packed().codes().equal(int_repr(weight)));
    CHECK(layer.weight().equal(dequantize(weight)));

    const TemporaryFile saved;
    save_model(net, saved.path);
    nn::Sequential loaded(nn::Linear({.in_features = 32, .out_features = 6}), nn::ReLU(),
                          nn::Linear({.in_features = 6, .out_features = 3}));
    loaded.eval();
    load_model(loaded, saved.path);
    CHECK(loaded(expected.at("x")).equal(y));
  }
}

TEST_CASE("torchao: parts that do not fit are refused") {
  const auto set = [](const char* name, const Tensor& tensor) {
    return [=](SafetensorsFile& changed) { changed.tensors.set(name, tensor); };
  };
  refuses(set("0._weight_qdata", Tensor::zeros({6, 32}, DType::UInt8)), "qdata of Int8 [N, K]");
  refuses(set("0._weight_qdata", Tensor::zeros({6, 31}, DType::Int8)), "a block_size of [1, K]");
  refuses(set("0._weight_qdata", Tensor::zeros({192}, DType::Int8)), "qdata of Int8 [N, K]");
  refuses(set("0._weight_scale", Tensor::ones({6, 2})), "a scale of floats for each row");
  refuses(set("0._weight_scale", Tensor::zeros({6, 1})), "finite and > 0");
  refuses(set("0._weight_scale", Tensor::ones({6, 1}, DType::Int64)), "a scale of floats");
  refuses(set("0._weight_zero_point", Tensor::ones({6, 1}, DType::Int8)), "zero points 0");
  refuses(set("0._weight_zero_point", Tensor::zeros({5, 1}, DType::Int8)), "a zero point for each");
  refuses(set("0.weight", Tensor::ones({6, 32})), "got a tensor '0.weight' too");
  refuses([](SafetensorsFile& changed) { changed.tensors.erase("0._weight_qdata"); }, "got none");
  refuses([](SafetensorsFile& changed) { changed.tensors.erase("0._weight_scale"); }, "got none");
  const auto metadata = [](const char* text) {
    return [=](SafetensorsFile& changed) { changed.metadata["0.weight"] = text; };
  };
  refuses(metadata(R"({"_type": "Int8Tensor"})"), "a block_size of [1, K]");
  refuses(metadata(R"({"_type": "Int8Tensor", "_data": {"block_size": [1, "x"]}})"),
          "a block_size of [1, K]");
  refuses(metadata(R"({"_type": "Int8Tensor", "_data": {"act_quant_kwargs": {}}})"),
          "expected null (weights only)");
  refuses(metadata(R"({"_type": )"), "json byte");
  // Without zero points the codes are symmetric all the same.
  SafetensorsFile without = plain_file();
  without.metadata["tensor_names"] = "[]";
  without.tensors.erase("0._weight_zero_point");
  const TemporaryFile temporary;
  write_safetensors(temporary.path, without.tensors, without.metadata);
  CHECK(read_safetensors(temporary.path).at("0.weight").dtype() == DType::QInt8);
}

TEST_CASE("torchao: other tensors of tensors are refused by name") {
  const auto call = [](const std::string& type, const std::string& state) {
    return make_pt(pickle(global("torch._tensor", "_rebuild_from_type_v2") +
                          tuple({global("torch._utils", "_rebuild_wrapper_subclass"), type,
                                 tuple({type}), state}) +
                          "R"),
                   std::string(8, 'a'));
  };
  const auto says = [](const std::string& bytes, const char* reason) {
    CAPTURE(reason);
    CHECK_THROWS_WITH_AS(parse_pt(as_bytes(bytes), "test"), doctest::Contains(reason), FileError);
  };
  const std::string int8 = global("torchao.quantization", "Int8Tensor");
  says(call(global("torchao.quantization", "Int4Tensor"), "}"),
       "expected a plain tensor or torchao's Int8Tensor, got torchao.quantization.Int4Tensor");
  says(call(int8, "]"), "expected a dict of attributes, got a list");
  says(call(int8, "}"), "contiguous qdata of Int8 [N, K], got none");
  says(call(int8, "}" + text("qdata") + "K\x01s"), "qdata: expected a tensor, got an integer");
  says(call(int8, "}" + text("act_quant_kwargs") + "K\x01s"), "expected None (weights only)");
  // 2^40 codes in eight bytes.
  const std::int64_t huge = std::int64_t{1} << 40;
  says(call(int8, "}" + text("qdata") +
                      tensor_call(storage_id("CharStorage", 8), 0, {huge, 1}, {0, 0}) + "s"),
       "contiguous qdata");
  says(make_pt(pickle(global("torch._utils", "_rebuild_wrapper_subclass") + ")R")),
       "expected a known function");
}

TEST_CASE("weight_only.Linear: a quantized weight that does not fit is refused whole") {
  nn::Sequential net = weight_only_network();
  const StateDict state = read_pt_state_dict(file("torchao_int8.pt"));
  const StateDict before = net.state_dict();
  const QTensor weight(state.at("0.weight"));
  const auto says = [&](const Tensor& changed, const char* reason) {
    CAPTURE(reason);
    StateDict wrong = state;
    wrong.set("0.weight", changed);
    CHECK_THROWS_WITH_AS(net.load_state_dict(wrong), doctest::Contains(reason), ArgumentError);
    CHECK(same_state(net.state_dict(), before));
  };
  const Tensor values = dequantize(weight);
  says(quantize_per_tensor(values, 0.1, 0, DType::QInt8), "per channel along axis 0");
  says(quantize_per_channel(values, Tensor::ones({32}), Tensor::zeros({32}, DType::Int64), 1,
                            DType::QInt8),
       "per channel along axis 0");
  says(quantize_per_channel(values, Tensor::ones({6}), Tensor::ones({6}, DType::Int64), 0,
                            DType::QInt8),
       "expected zero points 0");
  says(quantize_per_channel(Tensor::ones({5, 32}), Tensor::ones({5}),
                            Tensor::zeros({5}, DType::Int64), 0, DType::QInt8),
       "expected [6, 32], got [5, 32]");
  StateDict no_bias = state;
  no_bias.erase("0.bias");
  CHECK_NOTHROW(net.load_state_dict(no_bias));
}

}  // namespace quanta::test
