#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "quanta/fusion/check.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/warning.h"
#include "small_network.h"
#include "support/tensors.h"

// Mistakes that are told where they are made, with what to do.

namespace quanta::test {
namespace {

std::string warnings_of(const std::function<void()>& body) {
  std::string text;
  const WarningHandler before =
      set_warning_handler([&](std::string_view warning) { text += std::string(warning) + "\n"; });
  body();
  set_warning_handler(before);
  return text;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("prepare: train mode is warned of, prepared and converted models are refused") {
  SmallNetwork net;
  net.train();
  CHECK(has(warnings_of([&] { static_cast<void>(prepare(net, get_default_qconfig())); }),
            "call eval()"));
  net.eval();
  CHECK(warnings_of([&] { static_cast<void>(prepare(net, get_default_qconfig())); }).empty());
  SmallNetwork prepared = prepare(net, get_default_qconfig());
  CHECK_THROWS_WITH_AS(prepare(prepared, get_default_qconfig()),
                       doctest::Contains("prepared already"), ArgumentError);
  CHECK_THROWS_WITH_AS(fuse_modules(prepared, {{"conv1", "bn1"}}),
                       doctest::Contains("fuse first, then prepare"), ArgumentError);
  prepared(small_input(1));
  CHECK_THROWS_WITH_AS(prepare(convert(prepared), get_default_qconfig()),
                       doctest::Contains("converted already"), ArgumentError);
}

TEST_CASE("prepare: a path that no module has is refused") {
  SmallNetwork net;
  net.eval();
  CHECK_THROWS_WITH_AS(
      prepare(net, QConfigMapping(get_default_qconfig()).set_module_name("conv9", std::nullopt)),
      doctest::Contains("got 'conv9'"), ArgumentError);
}

TEST_CASE("prepare_qat: a QConfig of observers is refused") {
  SmallNetwork net;
  net.train();
  CHECK_THROWS_WITH_AS(prepare_qat(net, get_default_qconfig()),
                       doctest::Contains("get_default_qat_qconfig()"), ArgumentError);
  CHECK_FALSE(net.conv1.module()->has_qconfig_attribute());
  SmallNetwork prepared = prepare_qat(net, get_default_qat_qconfig());
  CHECK_THROWS_WITH_AS(prepare_qat_(prepared, get_default_qat_qconfig()),
                       doctest::Contains("prepare_qat: model: expected a float network"),
                       ArgumentError);
}

TEST_CASE("an optimizer of parameters that are not trained is warned of") {
  SmallNetwork net;
  net.requires_grad_();
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  net.train();
  SmallNetwork prepared = prepare_qat(net, get_default_qat_qconfig());
  prepared.requires_grad_();
  const Tensor y = prepared(small_input(1));
  y.backward(Tensor::ones(y.sizes()));
  CHECK(has(warnings_of([&] { optimizer.step(); }), "prepare_qat"));
  optim::SGD right(prepared.parameters(), {.lr = 0.1});
  CHECK(warnings_of([&] { right.step(); }).empty());
}

TEST_CASE("check: observers that still run after training are noted") {
  SmallNetwork net;
  net.train();
  SmallNetwork prepared = prepare_qat(net, get_default_qat_qconfig());
  prepared(small_input(1));
  prepared.eval();
  const std::vector<Problem> problems = check(prepared);
  REQUIRE_FALSE(problems.empty());
  CHECK(has(problems[0].text, "disable_observer"));
  disable_observer(prepared);
  CHECK(check(prepared).empty());
}

TEST_CASE(
    "check: a QConfig that cannot serve its layer, leaves without int8 form, and what throws") {
  struct Bilinear : nn::Module {
    Tensor weight = Tensor::ones({4});
    Bilinear() { register_parameter("weight", weight); }
    Tensor forward(const Tensor& x) const override { return mul(x, weight); }
  };
  nn::Sequential net{nn::QuantStub(), nn::Linear({.in_features = 4, .out_features = 4}), Bilinear(),
                     nn::DeQuantStub()};
  net.eval();
  std::vector<Problem> problems = check(net, random_tensor({2, 4}));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].severity == Problem::Severity::Note);
  CHECK(has(problems[0].text, "no quantized form"));
  CHECK(has(problems[1].text, "mul runs in float"));
  net.ptr(1)->set_qconfig(default_quint8_weight_qconfig());
  problems = check(net);
  REQUIRE_FALSE(problems.empty());
  CHECK(problems[0].path == "1");
  CHECK(has(problems[0].text, "its QConfig does not fit"));
  problems =
      check(nn::Sequential{nn::QuantStub(), nn::Linear({.in_features = 4, .out_features = 4}),
                           nn::DeQuantStub()},
            random_tensor({2, 5}));
  CHECK(has(to_string(problems), "error: "));
  CHECK(has(to_string(problems), "'1'"));
}

TEST_CASE("fuse_modules: layers that do not follow each other in the run are refused") {
  struct Crossed : nn::Module {
    nn::Child<nn::Linear> a, b;
    nn::Child<nn::ReLU> relu;
    Crossed() {
      register_module("a", a, {.in_features = 4, .out_features = 4});
      register_module("b", b, {.in_features = 4, .out_features = 4});
      register_module("relu", relu);
      eval();
    }
    Tensor forward(const Tensor& x) const override { return relu(b(a(x))); }
  };
  const Tensor x = random_tensor({2, 4});
  Crossed net;
  CHECK_THROWS_WITH_AS(fuse_modules(net, {{"a", "relu"}}, x),
                       doctest::Contains("'relu' to be the only one that takes the result of 'a'"),
                       ArgumentError);
  fuse_modules(net, {{"b", "relu"}}, x);
  CHECK(net.b.module()->type_name() == "LinearReLU");
  CHECK(find_fusion_groups(Crossed(), x) == FusionGroups{{"b", "relu"}});
}

TEST_CASE("quantize in one call: what is missing is listed") {
  nn::Sequential net{nn::Linear({.in_features = 4, .out_features = 4}), nn::ReLU()};
  const std::vector<Tensor> data{random_tensor({2, 4})};
  CHECK_THROWS_WITH_AS(quantize(net, data[0], data), doctest::Contains("QuantStub"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize(nn::Sequential{nn::QuantStub(), net, nn::DeQuantStub()}, data[0],
                                std::vector<Tensor>()),
                       doctest::Contains("calibration data"), ArgumentError);
}

}  // namespace quanta::test
