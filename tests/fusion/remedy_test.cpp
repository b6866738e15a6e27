// Mistakes that people make, and what the messages tell them to do.

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "quanta/fusion/freeze.h"
#include "quanta/fusion/model_file.h"
#include "quanta/nn/container.h"
#include "quanta/nn/misc.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "quanta/runtime/state_names.h"
#include "small_network.h"
#include "support/files.h"

namespace quanta::test {
namespace {

void tells(const std::function<void()>& call, const std::string& text) {
  CAPTURE(text);
  CHECK_THROWS_WITH_AS(call(), doctest::Contains(text.c_str()), Error);
}

std::shared_ptr<SmallNetwork> shared_network() {
  auto net = nn::make_module<SmallNetwork>();
  fuse_modules(*net, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
  return net;
}

StateDict with_prefix(const StateDict& state, const std::string& prefix) {
  return rename(state, RenameTable().add_regex("(.*)", prefix + "$1"));
}

QTensor codes() {
  Generator generator(3);
  return quantize_per_tensor(randn({2, 3}, generator), 0.1, 5, DType::QUInt8);
}

}  // namespace

TEST_CASE("load_state_dict: a prefix before all names is named with its remedy") {
  SmallNetwork net;
  const StateDict state = net.state_dict();
  for (const char* prefix : {"module.", "_orig_mod.", "module._orig_mod.", "model."}) {
    const StateDict given = with_prefix(state, prefix);
    tells([&] { net.load_state_dict(given); },
          std::string("all missing names stand under '") + prefix +
              "' in the state: take it off with strip_prefix(state, \"" + prefix + "\")");
    CHECK_NOTHROW(net.load_state_dict(strip_prefix(given, prefix)));
  }
  tells([&] { net.load_state_dict(with_prefix(state, "model/")); },
        "read that part of the file: read_pt_state_dict(path, \"model\")");
  // Other names beside do not hide it; a name that is missing there as well does.
  StateDict more = with_prefix(state, "module.");
  more.set("epoch", Tensor::scalar(1.0));
  tells([&] { net.load_state_dict(more); }, "strip_prefix(state, \"module.\")");
  more.erase("module.fc.weight");
  try {
    net.load_state_dict(more);
    FAIL("expected ArgumentError");
  } catch (const ArgumentError& error) {
    CHECK(std::string(error.what()).find("strip_prefix") == std::string::npos);
  }
  nn::Sequential wrapper;
  wrapper.add_module("model", nn::make_module<SmallNetwork>());
  tells([&] { wrapper.load_state_dict(state); },
        "stand under 'model.' in the model: load it into model.get_submodule(\"model\")");
}

TEST_CASE("load_state_dict: a state of another form is told and what to do") {
  SmallNetwork net;
  const TemporaryFile file;
  const SmallNetwork prepared = calibrated_network();
  SmallNetwork int8 = convert(prepared);
  save_model(int8, file.path);
  const StateDict before = net.state_dict();
  tells([&] { net.load_state_dict(read_safetensors(file.path)); },
        "the state is that of a quantized model, and this one is not: load_model(model, path)");
  tells([&] { net.load_state_dict(read_safetensors(file.path)); }, "Uncalibrated::Allow");
  tells([&] { int8.load_state_dict(before); },
        "the state is that of a float model, and this one is quantized: load the state first");
  tells([&] { net.load_state_dict(prepared.state_dict()); },
        "that of a prepared model, and this one is not: prepare it with the same QConfigs first");
  SmallNetwork waiting = prepare(*shared_network(), get_default_qconfig());
  tells([&] { waiting.load_state_dict(before); }, "load the state before prepare");
  const auto fused = shared_network();
  tells(
      [&] { fused->load_state_dict(before); },
      "the model is fused, and the state is not: load the state into the float network, then call "
      "fuse_modules");
  tells([&] { net.load_state_dict(fused->state_dict()); },
        "the state is that of a fused model, and this one is not: call fuse_modules with the same "
        "groups first");
  CHECK(same_state(net.state_dict(), before));
}

TEST_CASE("load_model: a fused network takes files of fused and int8 ones and is told of others") {
  const TemporaryFile file;
  const auto fused = shared_network();
  save_model(*fused, file.path);
  CHECK_NOTHROW(load_model(*shared_network(), file.path));
  const SmallNetwork int8 = convert(calibrated_network());
  save_model(int8, file.path);
  const auto loaded = shared_network();
  load_model(*loaded, file.path);
  CHECK((*loaded)(small_input(9)).equal(int8(small_input(9))));

  save_model(SmallNetwork(), file.path);
  const std::string before = to_string(*fused);
  tells([&] { load_model(*fused, file.path); },
        "load the state into the float network, then call fuse_modules");
  CHECK(to_string(*fused) == before);

  save_model(calibrated_network(), file.path);
  SmallNetwork net;
  tells([&] { load_model(net, file.path); },
        "give load_model those that the saved model was prepared with");
  tells([&] { net.load_state_dict(read_safetensors(file.path)); },
        "load_model(model, path, qconfigs)");
}

TEST_CASE("prepare_qat and convert: a root that is a single layer is to be wrapped") {
  const nn::Conv2dOptions options{.in_channels = 3, .out_channels = 2, .kernel_size = {3}};
  nn::Conv2d layer(options);
  tells([&] { prepare_qat(layer, get_default_qat_qconfig()); },
        "got a single Conv2d: the root itself is not replaced; wrap it in nn::QuantWrapper or "
        "nn::Sequential");
  const nn::Conv2d prepared = prepare(layer, get_default_qconfig());
  prepared(small_input(1));
  tells([&] { convert(prepared); }, "wrap it in nn::QuantWrapper or nn::Sequential before prepare");

  nn::QuantWrapper wrapped(nn::make_module<nn::Conv2d>(options));
  wrapped.eval();
  const auto calibrated = prepare(wrapped, get_default_qconfig());
  calibrated(small_input(1));
  CHECK_NOTHROW(convert(calibrated)(small_input(1)));
}

TEST_CASE("freeze: a model in train mode is told to call eval") {
  SmallNetwork net;
  net.train();
  tells([&] { freeze(net, small_input(1)); }, "expected a model in eval mode (call eval() first)");
}

TEST_CASE("activations: codes are sent to the module that knows the result's scale") {
  tells([] { mish(codes()); },
        "mish: x: expected Float32, got QUInt8; quantized::mish takes the result's scale "
        "and zero point: in a network that is converted, call a module nn::Mish");
  tells([] { softmax(codes(), 1); }, "in a network that is converted, call a module nn::Softmax");
  tells([] { log_softmax(codes(), 1); }, "call a module nn::LogSoftmax");
  tells([] { silu(codes()); }, "call a module nn::SiLU");
  tells(
      [] { dropout(codes()); },
      "dropout: x: expected Float32, got QUInt8: codes pass unchanged through quantized::dropout, "
      "and through a module nn::Dropout in eval mode");
  nn::Dropout dropped;
  tells([&] { dropped(codes()); }, "nn::Dropout in eval mode");
  CHECK(dropped.eval()(codes()).equal(codes()));
}

TEST_CASE("Tensor::data: another type is told with the one to ask for") {
  const auto text = [](const char* wanted, const std::string& dtype, const char* type) {
    return std::string("expected a tensor whose elements are ") + wanted + ", got " + dtype +
           ": ask a " + dtype + " tensor for data<" + type + ">()";
  };
  tells([] { Tensor::ones({2}).data<std::int64_t>(); }, text("std::int64_t", "Float32", "float"));
  tells([] { Tensor::ones({2}).data<double>(); }, text("double", "Float32", "float"));
  tells([] { codes().data<float>(); }, text("float", "QUInt8", "std::uint8_t"));
  tells([] { codes().data<bool>(); }, text("bool", "QUInt8", "std::uint8_t"));
  for (const auto& [dtype, type] :
       std::vector<std::pair<DType, const char*>>{{DType::Float64, "double"},
                                                  {DType::Float16, "std::uint16_t"},
                                                  {DType::Int64, "std::int64_t"},
                                                  {DType::Int8, "std::int8_t"},
                                                  {DType::Bool, "bool"}}) {
    tells([dtype = dtype] { Tensor::zeros({2}, dtype).data<float>(); },
          text("float", std::string(to_string(dtype)), type));
  }
  tells([] { Tensor::zeros({2}, DType::Int32).data<std::uint16_t>(); },
        text("std::uint16_t", "Int32", "std::int32_t"));
}

TEST_CASE("BatchNorm: the number of dimensions is told once") {
  Generator generator(1);
  tells(
      [&] {
        nn::BatchNorm2d({.num_features = 3})(randn({2, 3}, generator));
      },
      "BatchNorm2d: x: expected 4 dimensions, got [2, 3]");
  tells([&] { nn::BatchNorm1d({.num_features = 3})(randn({2}, generator)); },
        "BatchNorm1d: x: expected 2 to 3 dimensions, got [2]");
}

}  // namespace quanta::test
