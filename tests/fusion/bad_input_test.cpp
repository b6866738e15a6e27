#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "quanta/fusion/float_islands.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "small_network.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/modules.h"

// Models, state dicts and files that are wrong: an error that names the module's path and what was
// expected, and everything stays as it was.

namespace quanta::test {
namespace {

/// Types, tensors and observers of a whole tree.
std::string snapshot(const nn::Module& model) {
  std::string text = to_string(model);
  for (const auto& [name, tensor] : model.state_dict()) text += name + to_string(tensor);
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    text += entry.path + (entry.module->has_qconfig_attribute() ? " qconfig;" : ";");
  }
  return text;
}

/// Two wrong layers of three.
struct Upscaler : nn::Module {
  nn::Child<nn::Conv2d> conv;
  nn::Child<nn::ConvTranspose2d> up;
  Upscaler() {
    register_module("conv", conv,
                    nn::Conv2dOptions{.in_channels = 3, .out_channels = 3, .kernel_size = {1}});
    register_module(
        "up", up,
        nn::ConvTranspose2dOptions{.in_channels = 3, .out_channels = 3, .kernel_size = {2}});
    eval();
  }
  Tensor forward(const Tensor& x) const override { return up(conv(x)); }
};

}  // namespace

TEST_CASE("bad input: layers with wrong channel and group counts cannot be made") {
  refuses({"Conv2d", "in_channels", "0"},
          [] { return nn::Conv2d({.in_channels = 0, .out_channels = 2, .kernel_size = {1}}); });
  refuses({"Conv2d", "groups", "3"}, [] {
    return nn::Conv2d({.in_channels = 4, .out_channels = 6, .kernel_size = {1}, .groups = 3});
  });
  refuses({"Conv2d", "kernel_size"},
          [] { return nn::Conv2d({.in_channels = 4, .out_channels = 6}); });
  refuses({"ConvTranspose2d", "output_padding"}, [] {
    return nn::ConvTranspose2d(
        {.in_channels = 4, .out_channels = 6, .kernel_size = {2}, .output_padding = {1}});
  });
  refuses({"Linear", "in_features"},
          [] { return nn::Linear({.in_features = -1, .out_features = 2}); });
  refuses({"BatchNorm2d", "num_features"}, [] { return nn::BatchNorm2d({.num_features = 0}); });
}

TEST_CASE("bad input: a wrong tensor is reported with the path of the module it reached") {
  SmallNetwork net;
  refuses({"conv2d", "x", "3 channels", "'conv1'"}, [&] {
    return net(Tensor::zeros({1, 4, 9, 9}));
  });
  refuses({"conv2d", "x", "Float32", "Int64", "'conv1'"}, [&] {
    return net(Tensor::zeros({1, 3, 9, 9}, DType::Int64));
  });
  const SmallNetwork int8 = convert(calibrated_network());
  refuses({"conv2d", "x", "3 channels", "'conv1'"}, [&] {
    return int8(Tensor::zeros({1, 4, 9, 9}));
  });
  refuses({"quantize_per_tensor", "Float32", "'quant'"},
          [&] { return int8(quantize_per_tensor(small_input(1), 0.1, 0, DType::QUInt8)); });
  net.conv1->weight = Tensor();
  refuses({"conv2d", "weight", "undefined", "'conv1'"}, [&] { return net(small_input(1)); });
}

TEST_CASE(
    "bad input: state dicts with missing, extra and wrong tensors are listed and not loaded") {
  for (const bool quantized : {false, true}) {
    SmallNetwork net = quantized ? convert(calibrated_network()) : SmallNetwork();
    const std::string before = snapshot(net);
    StateDict state = net.state_dict();
    state.erase("fc.scale");
    state.erase("conv1.weight");
    state.set("conv9.weight", Tensor::zeros({1}));
    const QTensor wrong = quantize_per_tensor(Tensor::ones({8, 8, 5, 5}), 0.1, 0, DType::QInt8);
    state.set("conv2.weight", quantized ? Tensor(wrong) : Tensor::zeros({8, 8, 5, 5}));
    refuses({"load_state_dict", "'conv1.weight'", "unexpected", "'conv9.weight'", "conv2.weight",
             "[8, 8, 3, 3]", "[8, 8, 5, 5]"},
            [&] { return net.load_state_dict(state); });
    CHECK(snapshot(net) == before);
    CHECK_THROWS_AS(net.load_state_dict(state, nn::Strict::No), ArgumentError);  // the sizes
    CHECK(snapshot(net) == before);
  }
}

TEST_CASE("bad input: quantization parameters in a state dict are checked") {
  SmallNetwork net = convert(calibrated_network());
  const std::string before = snapshot(net);
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    StateDict state = net.state_dict();
    state.set("conv2.scale", Tensor::scalar(scale));
    refuses({"conv2.scale", "finite number > 0"}, [&] { return net.load_state_dict(state); });
  }
  for (const std::int64_t zero_point : {-1, 256}) {
    StateDict state = net.state_dict();
    state.set("fc.zero_point", Tensor::scalar(static_cast<double>(zero_point), DType::Int64));
    refuses({"fc.zero_point", "0..255", std::to_string(zero_point)},
            [&] { return net.load_state_dict(state); });
  }
  StateDict state = net.state_dict();
  state.set("skip.scale", Tensor::zeros({2}));
  refuses({"skip.scale", "[2]"}, [&] { return net.load_state_dict(state); });
  state = net.state_dict();
  state.set("conv1.weight", Tensor::zeros({8, 3, 3, 3}));
  refuses({"conv1.weight", "quantized", "Float32"}, [&] { return net.load_state_dict(state); });
  state = net.state_dict();
  state.set("conv1.bias", Tensor::zeros({9}));
  refuses({"conv1", "bias", "8", "[9]"}, [&] { return net.load_state_dict(state); });
  CHECK(snapshot(net) == before);
}

TEST_CASE("bad input: prepare_ that fails leaves the model as it was") {
  Upscaler net;
  const std::string before = snapshot(net);
  refuses({"prepare", "'up'", "per-tensor"}, [&] {
    prepare_(net,
             QConfigMapping(get_default_qconfig()).set_module_name("up", get_default_qconfig()));
  });
  CHECK(snapshot(net) == before);
  refuses({"prepare", "qconfigs", "got none"}, [&] { prepare_(net); });
  CHECK(snapshot(net) == before);
}

TEST_CASE("bad input: convert_ that fails leaves the prepared model as it was") {
  SmallNetwork net;
  refuses({"convert", "prepare first", "SmallNetwork"}, [&] { convert_(net); });
  // One layer saw data, the others did not.
  SmallNetwork prepared = prepare(net, get_default_qconfig());
  prepared.get_submodule("quant")->operator()(small_input(1));
  const std::string before = snapshot(prepared);
  refuses({"convert", "Conv2d 'conv1'", "Linear 'fc'", "saw no data"}, [&] { convert_(prepared); });
  CHECK(snapshot(prepared) == before);

  // A dtype that convolutions have no kernel for.
  SmallNetwork signed_net = prepare(
      net, QConfig{MinMaxObserver::with_args({.dtype = DType::QInt8}), default_weight_observer()});
  signed_net(small_input(1));
  const std::string calibrated = snapshot(signed_net);
  refuses({"convert", "'conv1'", "QUInt8", "QInt8"}, [&] { convert_(signed_net); });
  CHECK(snapshot(signed_net) == calibrated);
}

TEST_CASE("bad input: a mapping that makes no module is refused by module path") {
  const SmallNetwork prepared = calibrated_network();
  ModuleMapping mapping = default_static_quant_module_mappings();
  mapping.add<nn::Linear>([](const nn::Module&) { return std::shared_ptr<nn::Module>(); });
  refuses({"convert", "Linear 'fc'", "from_float", "null"},
          [&] { return convert(prepared, {.mapping = mapping}); });
  CHECK(is<nn::Linear>(prepared, "fc"));
}

TEST_CASE("bad input: infinite calibration data is refused by module path") {
  SmallNetwork prepared = prepare(SmallNetwork(), default_qconfig());
  Tensor x = small_input(1);
  x.select(0, 0).fill_(std::numeric_limits<double>::infinity());
  std::string text;
  try {
    prepared(x);
    convert_(prepared);
  } catch (const Error& error) {
    text = error.what();
  }
  CAPTURE(text);
  CHECK(text.find("'quant'") != std::string::npos);
}

TEST_CASE("bad input: fuse_modules that fails leaves the float model as it was") {
  SmallNetwork net;
  const std::string before = snapshot(net);
  const std::vector<std::string> good{"conv1", "bn1", "relu1"};
  const auto fuse = [&](const std::vector<std::string>& bad) {
    fuse_modules(net, {good, bad});
    return 0;
  };
  refuses({"fuse_modules", "conv2, relu2, bn2"}, [&] { return fuse({"conv2", "relu2", "bn2"}); });
  refuses({"fuse_modules", "two or more", "conv2"}, [&] { return fuse({"conv2"}); });
  refuses({"'nothing'"}, [&] { return fuse({"conv2", "nothing"}); });
  refuses({"once", "'bn1'"}, [&] { return fuse({"conv2", "bn1"}); });
  net.bn2->running_mean = Tensor::zeros({7});
  refuses({"fold_batch_norm", "running_mean", "[8]", "[7]", "conv2, bn2"}, [&] {
    return fuse({"conv2", "bn2"});
  });
  net.bn2->running_mean = Tensor::zeros({8});
  CHECK(is<nn::Conv2d>(net, "conv1"));
  CHECK(is<nn::BatchNorm2d>(net, "bn1"));
  const FuserTable broken{{{typeid(nn::Conv2d), typeid(nn::BatchNorm2d)},
                           [](const auto&) { return std::shared_ptr<nn::Module>(); }}};
  refuses({"fuse_modules", "additional", "null"}, [&] {
    fuse_modules(net, {{"conv1", "bn1"}}, broken);
  });
  CHECK(to_string(net) == before.substr(0, to_string(net).size()));
}

TEST_CASE("bad input: an unfused BatchNorm1d is found by check and runs in float") {
  nn::Sequential net{nn::QuantStub(), nn::Linear({.in_features = 4, .out_features = 4}),
                     nn::BatchNorm1d({.num_features = 4}), nn::DeQuantStub()};
  net.eval();
  const std::vector<Problem> problems = check(net);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].path == "2");
  CHECK(problems[0].severity == Problem::Severity::Note);
  const nn::Sequential prepared = prepare(net, default_qconfig());
  prepared(Tensor::ones({2, 4}));
  const nn::Sequential int8 = convert(prepared);
  CHECK(sqnr_db(net(Tensor::ones({2, 4})), int8(Tensor::ones({2, 4}))) > 30.0);
  REQUIRE(float_islands(int8).size() == 1);
  CHECK(float_islands(int8)[0].path == "2");
}

TEST_CASE("bad input: models that cannot be saved leave the old file and nothing beside it") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  save_model(convert(calibrated_network()), path);
  const std::string before = read_bytes(path);
  struct Unknown : nn::quantized::OutputQuantized {
    Unknown() : OutputQuantized(1.0, 0) {}
    Tensor forward(const Tensor& x) const override { return x; }
  };
  refuses({"save_model", "Unknown '1'", "register_module_form"}, [&] {
    save_model(nn::Sequential{nn::QuantStub(), Unknown()}, path);
  });
  CHECK(read_bytes(path) == before);
  CHECK(files_in(folder.path()) == 1);
  fails({"nowhere"}, [&] {
    save_model(convert(calibrated_network()), folder / "nowhere" / "model.safetensors");
  });
  std::filesystem::create_directory(folder / "folder");
  refuses({"folder"}, [&] { save_model(convert(calibrated_network()), folder / "folder"); });
  CHECK(std::filesystem::is_directory(folder / "folder"));
  CHECK(files_in(folder.path()) == 2);
}

TEST_CASE("bad input: a model file that does not fit leaves the float model as it was") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  save_model(convert(calibrated_network()), path);

  Upscaler other;
  const std::string other_before = snapshot(other);
  refuses({"load_model", "model.safetensors", "'conv1'"}, [&] { load_model(other, path); });
  CHECK(snapshot(other) == other_before);

  // The right tree, but one tensor is gone and one module's scale is not a number.
  const SafetensorsFile file = load_safetensors(path);
  StateDict less = file.tensors;
  less.erase("conv2.weight");
  const std::filesystem::path damaged = folder / "damaged.safetensors";
  write_safetensors(damaged, less, file.metadata);
  SmallNetwork net;
  const std::string before = snapshot(net);
  refuses({"load_state_dict", "'conv2.weight'"}, [&] { load_model(net, damaged); });
  CHECK(snapshot(net) == before);

  auto metadata = file.metadata;
  std::string& tree = metadata.at("quanta.modules");
  const std::size_t at = tree.find("\"QFunctional\",");
  REQUIRE(at != std::string::npos);
  tree.insert(at + 14, "-");
  write_safetensors(damaged, file.tensors, metadata);
  refuses({"skip.scale", "finite number > 0"}, [&] { load_model(net, damaged); });
  CHECK(snapshot(net) == before);

  tree = "{\"conv1\": [\"Conv17\"]}";
  write_safetensors(damaged, file.tensors, metadata);
  fails({"load_model", "'conv1'", "'Conv17'"}, [&] { load_model(net, damaged); });
  write_safetensors(damaged, file.tensors, {});
  refuses({"load_model", "quanta.format", "load_state_dict"}, [&] { load_model(net, damaged); });
  fails({"absent.safetensors"}, [&] { load_model(net, folder / "absent.safetensors"); });
  CHECK(snapshot(net) == before);
}

TEST_CASE("bad input: a slot outside of the module is refused before it can be copied") {
  struct Stack : nn::Module {
    std::vector<nn::Child<nn::ReLU>> layers{2};
    Stack() {
      register_module("0", layers[0]);
      register_module("1", layers[1]);
    }
    Tensor forward(const Tensor& x) const override { return layers[1](layers[0](x)); }
  };
  refuses({"register_module", "slot", "ModuleList", "'0'"},
          [] { return prepare(Stack(), default_qconfig()); });
  refuses({"register_module", "Stack", "'0'"}, [] { return nn::make_module<Stack>(); });
}

}  // namespace quanta::test
