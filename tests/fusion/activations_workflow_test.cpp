// Activations that torch has no int8 module for, and the operations of FloatFunctional, from float
// to int8.

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/files.h"

namespace quanta {
namespace {

using test::same_bits;
using test::sqnr_db;

using Make = std::function<std::shared_ptr<nn::Module>()>;

template <typename T, typename... Args>
std::pair<std::string, Make> maker(const char* name, Args... args) {
  return {name, [args...]() -> std::shared_ptr<nn::Module> { return nn::make_module<T>(args...); }};
}

const std::vector<std::pair<std::string, Make>>& activations() {
  static const std::vector<std::pair<std::string, Make>> all = {
      maker<nn::GELU>("GELU"),
      maker<nn::GELU>("GELU", GeluApproximation::Tanh),
      maker<nn::SiLU>("SiLU"),
      maker<nn::Mish>("Mish"),
      maker<nn::CELU>("CELU", 0.5),
      maker<nn::SELU>("SELU"),
      maker<nn::Softplus>("Softplus", 2.0, 10.0),
      maker<nn::Softsign>("Softsign"),
      maker<nn::LogSigmoid>("LogSigmoid"),
      maker<nn::Softmax>("Softmax", std::int64_t{-1}),
      maker<nn::LogSoftmax>("LogSoftmax", std::int64_t{-1}),
  };
  return all;
}

nn::Sequential network(const Make& activation) {
  const auto layer = [] {
    return nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 8, .out_features = 8});
  };
  nn::Sequential net;
  net.add_module("quant", nn::make_module<nn::QuantStub>());
  net.add_module("first", layer());
  net.add_module("activation", activation());
  net.add_module("second", layer());
  net.add_module("dequant", nn::make_module<nn::DeQuantStub>());
  net.eval();
  return net;
}

TEST_CASE("static int8: each activation is observed and converted and frozen and saved") {
  const Tensor x = randn({64, 8});
  for (const auto& [name, make] : activations()) {
    CAPTURE_BINDING(name);
    manual_seed(1);
    const nn::Sequential net = network(make);
    const nn::Sequential prepared = prepare(net, get_default_qconfig("onednn"));
    CHECK(prepared.get_submodule("activation")->activation_post_process() != nullptr);
    prepared(x);
    const nn::Sequential int8 = convert(prepared);
    const auto quantized = int8.get_submodule("activation");
    CHECK(dynamic_cast<const nn::quantized::OutputQuantized*>(quantized.get()) != nullptr);
    CHECK(quantized->type_name() == "Quantized" + name);
    const Tensor want = int8(x);
    CHECK(sqnr_db(net(x), want) > 25.0);
    CHECK(same_bits(freeze(int8, x)(x), want));

    const test::TemporaryFile file;
    save_model(int8, file.path);
    nn::Sequential loaded = network(make);
    load_model(loaded, file.path);
    CHECK(to_string(loaded) == to_string(int8));
    CHECK(same_bits(loaded(x), want));
  }
}

TEST_CASE("training: each activation is fake-quantized and converted") {
  const Tensor x = randn({64, 8});
  for (const auto& [name, make] : activations()) {
    CAPTURE_BINDING(name);
    manual_seed(2);
    nn::Sequential net = network(make);
    const Tensor want = net(x);
    net.train();
    nn::Sequential trained = prepare_qat(net, get_default_qat_qconfig("onednn"));
    for (int i = 0; i < 3; ++i) trained(x);
    trained.eval();
    const nn::Sequential int8 = convert(trained);
    CHECK(int8.get_submodule("activation")->type_name() == "Quantized" + name);
    CHECK(sqnr_db(want, int8(x)) > 15.0);
  }
}

// Every operation that torch's FloatFunctional lacks, each at a place of its own.
struct Arithmetic : nn::Module {
  nn::Child<nn::QuantStub> quant, quant_other;
  nn::Child<nn::FloatFunctional> sub, div, neg, minimum, maximum, mean, softmax;
  nn::Child<nn::DeQuantStub> dequant;

  Arithmetic() {
    register_module("quant", quant);
    register_module("quant_other", quant_other);
    register_module("sub", sub);
    register_module("div", div);
    register_module("neg", neg);
    register_module("minimum", minimum);
    register_module("maximum", maximum);
    register_module("mean", mean);
    register_module("softmax", softmax);
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor a = quant(x);
    const Tensor b = quant_other(add_scalar(mul(x, x), 1.0));
    Tensor y = div->div(sub->sub(a, b), b);
    y = minimum->minimum(y, neg->neg(a));
    y = maximum->maximum(y, mean->mean(a, {-1}, {.keepdim = true}));
    return dequant(softmax->softmax(y, -1));
  }
};

TEST_CASE("static int8: a FloatFunctional takes every operation of two tensors") {
  manual_seed(3);
  const Arithmetic net;
  const Tensor x = randn({32, 12});
  const Arithmetic prepared = prepare(net, get_default_qconfig("onednn"));
  prepared(x);
  const Arithmetic int8 = convert(prepared);
  const Tensor want = int8(x);
  CHECK(int8.get_submodule("div")->type_name() == "QFunctional");
  CHECK(sqnr_db(net(x), want) > 25.0);
  const test::TemporaryFile file;
  save_model(int8, file.path);
  Arithmetic loaded;
  load_model(loaded, file.path);
  CHECK(same_bits(loaded(x), want));
}

}  // namespace
}  // namespace quanta
