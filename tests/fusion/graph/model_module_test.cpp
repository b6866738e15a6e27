// What works on modules works on networks that came as files.

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"
#include "support/files.h"

namespace quanta::graph {
namespace {

using Integers = std::vector<std::int64_t>;

/// Conv_0 - BatchNormalization_1 - Relu_2 - Conv_3 - Mul_4 by a constant - Sigmoid_5 - Flatten_6 -
/// Gemm_7 - Mul_8 by a constant.
OnnxModel file() {
  manual_seed(5);
  test::NetBuilder net;
  const std::string x = net.input("x");
  const OnnxAttributes padded{{"pads", Integers{1, 1, 1, 1}}};
  const auto row = [&net](std::int64_t size) { return net.constant(rand({size})); };
  std::string y = net.node("Conv", {x, net.constant(randn({4, 3, 3, 3})), row(4)}, padded);
  y = net.node("BatchNormalization", {y, row(4), row(4), row(4), row(4)});
  y = net.node("Relu", {y});
  y = net.node("Conv", {y, net.constant(randn({6, 4, 1, 1}))});
  y = net.node("Mul", {y, net.constant(rand({1, 6, 1, 1}))});
  y = net.node("Sigmoid", {y});
  y = net.node("Flatten", {y});
  y = net.node("Gemm", {y, net.constant(randn({96, 32})), row(32)});
  y = net.node("Mul", {y, row(32)});
  return net.finish({y});
}

Tensor sample(std::uint64_t seed = 1) {
  manual_seed(seed);
  return randn({2, 3, 4, 4});
}

Model fresh() { return from_onnx(file()); }
/// With the BatchNormalization and the Muls, which others fold into the layers before them.
Model unfused() { return from_onnx(file(), {.literal = true}); }
void calibrate(const Model& net) { static_cast<void>(net(sample())); }
Model int8() { return quantize_jit(fresh(), get_default_qconfig(), calibrate); }

/// A model with other weights than the file's.
void change(Model& net) {
  for (const auto& [name, tensor] : net.named_parameters()) {
    tensor.copy_(randn(tensor.sizes()));
  }
}

std::vector<std::string> child_names(const Model& net) {
  std::vector<std::string> names;
  for (const auto& child : net.named_children()) names.push_back(child.name);
  return names;
}

}  // namespace

TEST_CASE("graph model: a state goes from one model to another") {
  Model net = fresh();
  change(net);
  const StateDict state = net.state_dict();
  CHECK(state.find("Conv_0.weight") != nullptr);
  CHECK(state.find("Gemm_7.bias") != nullptr);
  Model other = fresh();
  CHECK_FALSE(other(sample()).equal(net(sample())));
  other.load_state_dict(state);
  CHECK(other(sample()).equal(net(sample())));
  StateDict less = state;
  less.erase("Conv_0.weight");
  CHECK_THROWS_WITH_AS(other.load_state_dict(less), doctest::Contains("Conv_0.weight"),
                       ArgumentError);
}

TEST_CASE("graph model: an int8 state goes to a model of the same form") {
  const Model net = int8();
  Model other = quantize_jit(fresh(), get_default_qconfig(),
                             [](const Model& m) { static_cast<void>(m(sample(2))); });
  CHECK_FALSE(other(sample()).equal(net(sample())));
  other.load_state_dict(net.state_dict());
  CHECK(other(sample()).equal(net(sample())));
}

TEST_CASE("graph model: save_model and load_model of float models") {
  const test::TemporaryFile saved;
  const test::TemporaryFile onnx;
  Model net = fresh();
  change(net);
  save_model(net, saved.path);
  Model loaded = fresh();
  load_model(loaded, saved.path);
  CHECK(loaded(sample()).equal(net(sample())));
  // Weights that are views of the mapped file.
  save_onnx(onnx.path, fresh());
  Model mapped = load_onnx(onnx.path);
  load_model(mapped, saved.path);
  CHECK(mapped(sample()).equal(net(sample())));
  CHECK_FALSE(load_onnx(onnx.path)(sample()).equal(net(sample())));
}

TEST_CASE("graph model: dynamic and weight-only models load into the float one") {
  const test::TemporaryFile saved;
  for (const Model& net :
       {quantize_dynamic_jit(fresh()), quantize_dynamic_jit(fresh(), {}, DType::Float16),
        quantize_weight_only_jit(fresh()),
        quantize_weight_only_jit(fresh(), {.bits = 4, .group_size = 32})}) {
    save_model(net, saved.path);
    Model loaded = fresh();
    load_model(loaded, saved.path);
    CHECK(nn::to_string(loaded) == nn::to_string(net));
    CHECK(loaded(sample()).equal(net(sample())));
  }
}

TEST_CASE("graph model: fused models load into fused ones and into no others") {
  const test::TemporaryFile saved;
  Model net = fuse_conv_bn_jit(unfused());
  change(net);
  save_model(net, saved.path);
  Model loaded = fuse_conv_bn_jit(unfused());
  load_model(loaded, saved.path);
  CHECK(loaded(sample()).equal(net(sample())));
  // A Mul of it is part of Gemm_7, of which the names and sizes would fit.
  Model plain = unfused();
  const Tensor before = plain(sample());
  CHECK_THROWS_WITH_AS(load_model(plain, saved.path), doctest::Contains("save_onnx"),
                       ArgumentError);
  CHECK(plain(sample()).equal(before));
}

TEST_CASE("graph model: prepared and converted models load into prepared ones") {
  const test::TemporaryFile saved;
  const QConfigMapping qconfigs(get_default_qconfig());
  const Model prepared = prepare_jit(fresh(), qconfigs);
  calibrate(prepared);
  const Model net = convert_jit(prepared);

  save_model(prepared, saved.path);
  Model other = prepare_jit(fresh(), qconfigs);
  load_model(other, saved.path, qconfigs);
  CHECK(convert_jit(other)(sample()).equal(net(sample())));

  save_model(net, saved.path);
  Model loaded = prepare_jit(fresh(), qconfigs);
  load_model(loaded, saved.path);
  CHECK(loaded(sample()).equal(net(sample())));
  CHECK(nn::to_string(loaded) == nn::to_string(net));

  Model plain = fresh();
  CHECK_THROWS_WITH_AS(load_model(plain, saved.path), doctest::Contains("prepare_jit"),
                       ArgumentError);
}

TEST_CASE("graph model: int8 files load what was saved of them") {
  const test::TemporaryFile saved;
  const OnnxModel written = to_onnx(int8());
  const Model net = from_onnx(written);
  save_model(net, saved.path);
  Model loaded = from_onnx(written);
  load_model(loaded, saved.path);
  CHECK(loaded(sample()).equal(net(sample())));
}

TEST_CASE("graph model: a part of another network is saved with it") {
  const test::TemporaryFile saved;
  const auto build = [](const Model& net) {
    nn::Sequential whole{net, nn::Linear({.in_features = 32, .out_features = 2})};
    whole.eval();
    return whole;
  };
  const nn::Sequential net = build(fresh());
  save_model(net, saved.path);
  nn::Sequential loaded = build(fresh());
  load_model(loaded, saved.path);
  CHECK(loaded(sample()).equal(net(sample())));
  nn::Sequential other = build(unfused());
  CHECK_THROWS_WITH_AS(load_model(other, saved.path), doctest::Contains("expected the graph"),
                       ArgumentError);
}

TEST_CASE("graph model: hooks of the model and of its layers are called") {
  Model net = fresh();
  std::vector<std::string> calls;
  const auto note = [&calls](const char* name) {
    return [&calls, name](const nn::Module&, const Tensor&, const Tensor& output) {
      calls.emplace_back(name);
      return output;
    };
  };
  const auto of_model = net.register_forward_hook(note("model"));
  net.get_submodule("Conv_3")->register_forward_hook(note("Conv_3"));
  const auto halved = net.get_submodule("Gemm_7")->register_forward_hook(
      [](const nn::Module&, const Tensor&, const Tensor& output) {
        return Tensor::zeros(output.sizes());
      });
  CHECK(net(sample()).equal(Tensor::zeros({2, 32})));
  CHECK(calls == std::vector<std::string>{"Conv_3", "model"});
  net.remove_hook(of_model);
  net.get_submodule("Gemm_7")->remove_hook(halved);
  CHECK(net(sample()).equal(fresh()(sample())));
  // By name it is run, not called.
  CHECK(net.run({{"x", sample()}}).begin()->second.equal(fresh()(sample())));
  CHECK(calls == std::vector<std::string>{"Conv_3", "model", "Conv_3", "Conv_3"});
}

TEST_CASE("graph model: the profiler names its layers") {
  for (const Model& net : {fresh(), int8()}) {
    Profiler profiler;
    static_cast<void>(net(sample()));
    const std::vector<ModuleProfile> rows = profiler.modules();
    for (const std::string& name : child_names(net)) {
      CAPTURE(name);
      CHECK(std::ranges::any_of(rows, [&](const ModuleProfile& row) { return row.path == name; }));
    }
  }
}

TEST_CASE("graph model: check looks at modes and observers") {
  Model net = fresh();
  CHECK(check(net).empty());
  const Model prepared = prepare_jit(net, get_default_qconfig());
  const std::vector<Problem> problems = check(prepared);
  REQUIRE(problems.size() >= 4);
  CHECK(problems[0].text.find("saw no data") != std::string::npos);
  calibrate(prepared);
  CHECK(check(prepared).empty());
  CHECK(check(int8()).empty());
  net.train();
  CHECK_FALSE(check(net).empty());
}

TEST_CASE("graph model: freeze takes it as any network") {
  for (const Model& net : {fresh(), int8(), quantize_weight_only_jit(fresh())}) {
    const FrozenModel frozen = freeze(net, sample());
    CHECK(frozen(sample(3)).equal(net(sample(3))));
    CHECK(FrozenGraph(net)(sample(3)).equal(net(sample(3))));
  }
  CHECK_THROWS_AS(freeze(prepare_jit(fresh(), get_default_qconfig()), sample()), ArgumentError);
}

TEST_CASE("graph model: printing shows the layers by the names of their nodes") {
  std::ostringstream text;
  text << fresh();
  CHECK(text.str().starts_with("GraphModule(\n  (Conv_0): Conv2d(3, 4, kernel_size=(3, 3)"));
  CHECK(text.str().find("(Gemm_7): Linear(in_features=96, out_features=32") != std::string::npos);
  CHECK(nn::to_string(int8()).find("QuantizedConvReLU2d") != std::string::npos);
}

TEST_CASE("graph model: QConfigs go by name and pattern and type") {
  const auto forms = [](const QConfigMapping& qconfigs) {
    const Model net = quantize_jit(fresh(), qconfigs, calibrate);
    return std::pair(net.get_submodule("Conv_0")->type_name(),
                     net.get_submodule("Gemm_7")->type_name());
  };
  using Forms = std::pair<std::string, std::string>;
  const QConfig qconfig = get_default_qconfig();
  const Forms both{"QuantizedConvReLU2d", "QuantizedLinear"};
  const Forms convs{"QuantizedConvReLU2d", "Linear"};
  CHECK(forms(qconfig) == both);
  CHECK(forms(QConfigMapping(qconfig).set_module_name("Gemm_7", std::nullopt)) == convs);
  CHECK(forms(QConfigMapping(qconfig).set_module_name_regex("Gemm.*", std::nullopt)) == convs);
  CHECK(forms(QConfigMapping(qconfig).set_object_type<nn::Linear>(std::nullopt)) == convs);
  CHECK(forms(QConfigMapping().set_module_name("Gemm_7", qconfig)) ==
        Forms{"ConvReLU2d", "QuantizedLinear"});
  CHECK_THROWS_AS(prepare_jit(fresh(), QConfigMapping()), ArgumentError);
}

TEST_CASE("graph model: copies share weights, deep copies have their own") {
  const Model net = fresh();
  const Tensor before = net(sample()).clone();
  Model deep = nn::deep_copy(net);
  change(deep);
  CHECK_FALSE(deep(sample()).equal(before));
  CHECK(net(sample()).equal(before));
  CHECK(child_names(deep) == child_names(net));
  Model copy = net;
  CHECK(child_names(copy) == child_names(net));
  change(copy);
  CHECK_FALSE(net(sample()).equal(before));
}

}  // namespace quanta::graph
