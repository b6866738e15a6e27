#include "quanta/fusion/model_file.h"

#include <doctest/doctest.h>

#include "quanta/nn/container.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/skip_init.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "small_network.h"
#include "support/files.h"
#include "support/tensors.h"

namespace quanta::test {
TEST_CASE("save_model and load_model: the loaded network gives identical outputs") {
  const TemporaryFile file;
  for (const QConfig& qconfig : {get_default_qconfig(), default_qconfig()}) {
    const SmallNetwork int8 = convert(calibrated_network(qconfig));
    save_model(int8, file.path);
    SmallNetwork loaded;
    load_model(loaded, file.path);
    CHECK(to_string(loaded) == to_string(int8));
    CHECK(loaded(small_input(9)).equal(int8(small_input(9))));
  }
}

TEST_CASE("load_model: a network without starting values is filled from the file") {
  const TemporaryFile file;
  const SmallNetwork int8 = convert(calibrated_network(get_default_qconfig()));
  save_model(int8, file.path);
  const std::shared_ptr<nn::Module> loaded = [] {
    const nn::SkipInit scope;
    return nn::make_module<SmallNetwork>();
  }();
  load_model(*loaded, file.path);
  CHECK((*loaded)(small_input(9)).equal(int8(small_input(9))));
}

TEST_CASE("load_model: a weight of another size is refused by name") {
  const TemporaryFile file;
  const SmallNetwork int8 = convert(calibrated_network(get_default_qconfig()));
  save_model(int8, file.path);
  SafetensorsFile saved = load_safetensors(file.path);
  for (const auto& [name, tensor] : int8.state_dict()) {
    if (!name.ends_with("weight") || !tensor.is_quantized()) continue;
    SafetensorsFile changed = saved;
    changed.tensors.set(name,
                        quantize_per_tensor(Tensor::ones({1, 1, 1, 1}), 0.1, 0, DType::QInt8));
    write_safetensors(file.path, changed.tensors, changed.metadata);
    SmallNetwork loaded;
    const std::string before = to_string(loaded);
    CHECK_THROWS_WITH_AS(load_model(loaded, file.path), doctest::Contains(name.c_str()),
                         ArgumentError);
    CHECK(to_string(loaded) == before);
  }
}

TEST_CASE("load_state_dict: a packed weight that was written to is packed again") {
  SmallNetwork int8 = convert(calibrated_network(get_default_qconfig()));
  const Tensor before = int8(small_input(9));
  const StateDict state = int8.state_dict();
  for (const auto& [name, tensor] : state) {
    if (tensor.dtype() == DType::QInt8) tensor.fill_(0.0);
  }
  int8.load_state_dict(state);
  CHECK_FALSE(int8(small_input(9)).equal(before));
}

TEST_CASE("save_model: activations with parameters of their own come back") {
  const TemporaryFile file;
  const auto build = [] {
    nn::Sequential net{nn::QuantStub(), nn::Linear({.in_features = 4, .out_features = 4}),
                       nn::ELU(),       nn::LeakyReLU(0.2),
                       nn::PReLU(),     nn::DeQuantStub()};
    net.eval();
    return net;
  };
  QConfigMapping qconfigs(default_qconfig());
  qconfigs.set_object_type<nn::PReLU>(QConfig{default_observer(), default_observer()});
  const nn::Sequential prepared = prepare(build(), qconfigs);
  const Tensor x = random_tensor({8, 4}, 1);
  prepared(x);
  const nn::Sequential int8 = convert(prepared);
  save_model(int8, file.path);
  nn::Sequential loaded = build();
  load_model(loaded, file.path);
  CHECK(to_string(loaded) == to_string(int8));
  CHECK(loaded(x).equal(int8(x)));
}

TEST_CASE("save_model: a plain float model can be saved and loaded") {
  const TemporaryFile file;
  const SmallNetwork net;
  save_model(net, file.path);
  SmallNetwork loaded;
  load_model(loaded, file.path);
  CHECK(loaded(small_input(9)).equal(net(small_input(9))));
}

TEST_CASE("save_model: a fused float model comes back with the biases that folding made") {
  const TemporaryFile file;
  SmallNetwork net;
  fuse_modules(net, small_network_groups());
  save_model(net, file.path);
  SmallNetwork loaded;  // whose first convolution has no bias
  load_model(loaded, file.path);
  CHECK(to_string(loaded) == to_string(net));
  CHECK(loaded(small_input(9)).equal(net(small_input(9))));
}

TEST_CASE("save_model: a prepared model goes on where it was saved") {
  const TemporaryFile file;
  for (const QConfig& qconfig : {get_default_qconfig(), default_qconfig()}) {
    const SmallNetwork prepared = calibrated_network(qconfig);
    save_model(prepared, file.path);
    SmallNetwork loaded;
    load_model(loaded, file.path, qconfig);
    CHECK(to_string(loaded) == to_string(prepared));
    CHECK(loaded(small_input(9)).equal(prepared(small_input(9))));
    CHECK(convert(loaded)(small_input(9)).equal(convert(prepared)(small_input(9))));
    // Into one that is prepared already.
    SmallNetwork fused;
    fuse_modules(fused, small_network_groups());
    SmallNetwork empty = prepare(fused, qconfig);
    load_model(empty, file.path);
    SmallNetwork same;
    load_model(same, file.path, qconfig);
    CHECK(convert(empty)(small_input(9)).equal(convert(same)(small_input(9))));
  }
}

TEST_CASE("save_model: a model in training with batch norms goes on where it was saved") {
  const TemporaryFile file;
  SmallNetwork net;
  net.train();
  fuse_modules_qat(net, small_network_groups());
  SmallNetwork prepared = prepare_qat(net, get_default_qat_qconfig());
  prepared(small_input(1));
  nn::intrinsic::qat::freeze_bn_stats(prepared);
  prepared(small_input(2));
  save_model(prepared, file.path);
  SmallNetwork loaded;
  loaded.train();
  load_model(loaded, file.path, get_default_qat_qconfig());
  CHECK(to_string(loaded) == to_string(prepared));
  CHECK(loaded(small_input(3)).equal(prepared(small_input(3))));
  prepared.eval();
  loaded.eval();
  CHECK(convert(loaded)(small_input(9)).equal(convert(prepared)(small_input(9))));
}

TEST_CASE("load_model: the QConfigs of a prepared model are asked for and the model stays") {
  const TemporaryFile file;
  save_model(calibrated_network(), file.path);
  SmallNetwork loaded;
  const std::string before = to_string(loaded);
  CHECK_THROWS_WITH_AS(load_model(loaded, file.path),
                       doctest::Contains("'conv1' (its observer): expected a QConfig that makes a "
                                         "HistogramObserver"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(load_model(loaded, file.path, default_qconfig()),
                       doctest::Contains("HistogramObserver"), ArgumentError);
  CHECK(to_string(loaded) == before);
  for (const auto& entry : loaded.named_modules()) {
    CHECK(entry.module->activation_post_process() == nullptr);
    CHECK_FALSE(entry.module->has_qconfig_attribute());
  }
}

TEST_CASE("load_model: a module that stands in several places is swapped in all of them") {
  struct Twice : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Linear> fc;
    nn::Child<nn::Module> again;
    nn::Child<nn::DeQuantStub> dequant;
    Twice() {
      register_module("quant", quant);
      register_module("fc", fc, nn::LinearOptions{.in_features = 4, .out_features = 4});
      register_slot("again", again);
      replace_child("again", fc.module());
      register_module("dequant", dequant);
      eval();
    }
    Tensor forward(const Tensor& x) const override { return dequant(again(fc(quant(x)))); }
  };
  const TemporaryFile file;
  const Tensor x = random_tensor({3, 4}, 4);
  const Twice prepared = prepare(Twice(), default_qconfig());
  prepared(x);
  const Twice int8 = convert(prepared);
  save_model(int8, file.path);
  Twice loaded;
  load_model(loaded, file.path);
  CHECK(loaded.fc.module() == loaded.again.module());
  CHECK(loaded(x).equal(int8(x)));
}

TEST_CASE("load_model: a file of another architecture leaves the model as it was") {
  const TemporaryFile file;
  save_model(convert(calibrated_network()), file.path);
  nn::Sequential other(nn::Linear({.in_features = 2, .out_features = 2}), nn::ReLU());
  const std::string before = to_string(other);
  CHECK_THROWS_WITH_AS(load_model(other, file.path), doctest::Contains("'conv1'"), ArgumentError);
  CHECK(to_string(other) == before);

  struct Wider : SmallNetwork {
    Wider() {
      fc.emplace(nn::LinearOptions{.in_features = 8, .out_features = 6});
      eval();
    }
  };
  Wider wider;
  const std::string tree = to_string(wider);
  CHECK_THROWS_WITH_AS(load_model(wider, file.path), doctest::Contains("fc"), ArgumentError);
  CHECK(to_string(wider) == tree);
}

TEST_CASE("load_model: files that save_model did not write are refused") {
  const TemporaryFile file;
  SmallNetwork net;
  const StateDict state = net.state_dict();
  CHECK_THROWS_AS(load_model(net, "/nonexistent/model.safetensors"), FileError);
  write_safetensors(file.path, state);
  CHECK_THROWS_WITH_AS(load_model(net, file.path), doctest::Contains("save_model"), FileError);
  for (const char* modules :
       {"[", "[]", R"({"conv1": 1})", R"({"conv1": ["Nonsense"]})", R"({"conv1": ["Conv2d", 0.1]})",
        R"({"conv1": ["Conv2d", "a", 0]})", R"({"conv1": ["Quantize", 0.1, 0, "quint9"]})",
        R"({"conv1": ["LinearLeakyReLU", {"negative_slope": []}]})"}) {
    write_safetensors(file.path, state, {{"quanta.format", "1"}, {"quanta.modules", modules}});
    CHECK_THROWS_AS(load_model(net, file.path), FileError);
  }
  for (const char* observers : {"[]", R"({"conv1": 1})"}) {
    write_safetensors(
        file.path, state,
        {{"quanta.format", "1"}, {"quanta.modules", "{}"}, {"quanta.observers", observers}});
    CHECK_THROWS_WITH_AS(load_model(net, file.path), doctest::Contains("quanta.observers"),
                         FileError);
  }
  write_safetensors(file.path, state, {{"quanta.format", "7"}, {"quanta.modules", "{}"}});
  CHECK_THROWS_WITH_AS(load_model(net, file.path), doctest::Contains("expected 1"), FileError);
}

}  // namespace quanta::test
