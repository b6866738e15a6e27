#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/ops/linear.h"
#include "quanta/runtime/error.h"
#include "support/modules.h"

namespace quanta {
namespace {

using test::parameter_names;

/// A linear layer that fake-quantizes its weight.
struct WeightQuantized : nn::Module {
  Tensor weight = Tensor::full({2, 3}, 0.3);
  std::shared_ptr<Observer> weight_fake_quant;

  explicit WeightQuantized(const ObserverFactory& factory) : weight_fake_quant(factory()) {
    register_parameter("weight", weight);
  }
  WeightQuantized(const WeightQuantized& other)
      : Module(other), weight(other.weight), weight_fake_quant(other.weight_fake_quant->clone()) {}

  Tensor forward(const Tensor& x) const override {
    return linear(x, weight_fake_quant->forward(weight), Tensor());
  }
  std::vector<NamedObserver> own_observers() const override {
    return {{"weight_fake_quant", weight_fake_quant}};
  }
};

}  // namespace

TEST_CASE("Module: parameters of learnable fake quantizers are its own") {
  const auto module = nn::make_module<WeightQuantized>(LearnableFakeQuantize::with_args());
  module->set_activation_post_process(default_fake_quant()());
  CHECK(parameter_names(*module) == std::vector<std::string>{"weight", "weight_fake_quant.scale",
                                                             "weight_fake_quant.zero_point"});
  module->requires_grad_();
  const auto fake = std::dynamic_pointer_cast<LearnableFakeQuantize>(module->weight_fake_quant);
  CHECK(fake->scale().requires_grad());
  module->zero_grad();
  CHECK_FALSE(fake->scale().grad().defined());
}

TEST_CASE("Module: fake quantizers of weights stand in the state below their name") {
  const auto module = nn::make_module<WeightQuantized>(default_fused_per_channel_wt_fake_quant());
  module->set_activation_post_process(default_fused_act_fake_quant()());
  (*module)(Tensor::ones({1, 3}));
  const StateDict state = module->state_dict();
  CHECK(state.at("weight_fake_quant.scale").sizes() == Dims{2});
  CHECK(state.contains("weight_fake_quant.activation_post_process.min_val"));
  CHECK(state.contains("activation_post_process.activation_post_process.min_val"));

  const auto fresh = nn::make_module<WeightQuantized>(default_fused_per_channel_wt_fake_quant());
  fresh->set_activation_post_process(default_fused_act_fake_quant()());
  fresh->load_state_dict(state);
  CHECK(
      fresh->state_dict().at("weight_fake_quant.scale").equal(state.at("weight_fake_quant.scale")));
  StateDict broken = state;
  broken.erase("weight_fake_quant.scale");
  CHECK_THROWS_WITH_AS(fresh->load_state_dict(broken), doctest::Contains("weight_fake_quant.scale"),
                       ArgumentError);
  // A copy has fake quantizers of its own.
  const auto copy = std::dynamic_pointer_cast<WeightQuantized>(module->clone());
  CHECK(copy->weight_fake_quant != module->weight_fake_quant);
  CHECK(
      copy->state_dict().at("weight_fake_quant.scale").equal(state.at("weight_fake_quant.scale")));
}

TEST_CASE("Module: a fake quantizer of the input changes what forward gets") {
  const auto module = nn::make_module<nn::ReLU>();
  module->set_activation_post_process(default_fixed_qparams_range_0to1_fake_quant()(),
                                      nn::Module::Observation::Input);
  CHECK((*module)(Tensor::from_values({0.5F, 7.0F}))
            .equal(Tensor::from_values({0.5F, 255.0F / 256.0F})));
}

TEST_CASE("Module: a fake quantizer of the output passes the gradient on") {
  const auto module = nn::make_module<nn::ReLU>();
  module->set_activation_post_process(default_fixed_qparams_range_0to1_fake_quant()());
  const Tensor x = Tensor::from_values({0.5F, 7.0F});
  x.set_requires_grad();
  const Tensor y = (*module)(x);
  REQUIRE(y.requires_grad());
  y.backward(Tensor::from_values({3.0F, 5.0F}));
  CHECK(x.grad().equal(Tensor::from_values({3.0F, 0.0F})));
}

}  // namespace quanta
