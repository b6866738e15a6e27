// The steps that prepare and convert are made of.

#include <doctest/doctest.h>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/stubs.h"
#include "support/tensors.h"

namespace quanta {
namespace {

nn::Sequential network() {
  nn::Sequential net(nn::QuantStub(),
                     nn::Linear(nn::LinearOptions{.in_features = 3, .out_features = 4}), nn::ReLU(),
                     nn::DeQuantStub());
  net.eval();
  return net;
}

TEST_CASE("add_observer_: only modules that have a QConfig are observed") {
  nn::Sequential net = network();
  propagate_qconfig_(net,
                     QConfigMapping(default_qconfig()).set_object_type<nn::Linear>(std::nullopt));
  add_observer_(net);
  const auto observers = get_observer_dict(net);
  CHECK(observers.size() == 1);
  CHECK(observers.contains("0.activation_post_process"));
}

TEST_CASE("swap_module: an observed module is replaced and others are given back") {
  nn::Sequential net = network();
  prepare_(net, default_qconfig());
  net(test::random_tensor({5, 3}, 3));
  const ModuleMapping& mapping = default_static_quant_module_mappings();
  const auto stub = swap_module(net.ptr(0), mapping);
  CHECK(dynamic_cast<nn::quantized::Quantize*>(stub.get()) != nullptr);
  const auto linear = swap_module(net.ptr(1), mapping);
  const auto* quantized = dynamic_cast<nn::quantized::Linear*>(linear.get());
  REQUIRE(quantized != nullptr);
  CHECK(quantized->weight().sizes() == Dims{4, 3});
  CHECK(swap_module(net.ptr(2), mapping) == net.ptr(2));
  const auto plain =
      nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 3, .out_features = 4});
  CHECK(swap_module(plain, mapping) == plain);
}

TEST_CASE("QuantStub and DeQuantStub: tensors pass until convert") {
  const Tensor x = Tensor::ones({2, 2});
  CHECK(nn::QuantStub()(x).is_same(x));
  CHECK(nn::DeQuantStub()(x).is_same(x));
}

}  // namespace
}  // namespace quanta
