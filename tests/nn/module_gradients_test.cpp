// Modules while they are trained: their leaves, copies, states and shared parameters.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "support/modules.h"

namespace quanta {
namespace {

using test::parameter_names;

// Goes through the same matrix twice, as language models do.
struct Tied : nn::Module {
  nn::Child<nn::Linear> in;
  nn::Child<nn::Linear> out;

  Tied() {
    register_module("in", in, nn::LinearOptions{.in_features = 3, .out_features = 3});
    register_module("out", out, nn::LinearOptions{.in_features = 3, .out_features = 3});
    out->weight = in->weight;
  }
  Tensor forward(const Tensor& x) const override { return out(in(x)); }
};

Tensor ramp(const Dims& sizes) {
  Tensor x = Tensor::empty(sizes);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.mutable_data<float>()[i] = 0.3F * static_cast<float>(i % 7) - 0.8F;
  }
  return x;
}

}  // namespace

TEST_CASE("Module: a weight of two layers is one parameter, in copies as well") {
  const auto net = nn::make_module<Tied>();
  CHECK(parameter_names(*net) == std::vector<std::string>{"in.weight", "in.bias", "out.bias"});
  CHECK(net->state_dict().size() == 4);
  net->requires_grad_();
  optim::SGD optimizer(net->parameters(), {.lr = 0.1});
  const Tensor x = ramp({4, 3});
  sum((*net)(x)).backward();
  optimizer.step();
  CHECK(net->in->weight.equal(net->out->weight));

  const auto copy = std::dynamic_pointer_cast<Tied>(net->clone());
  CHECK(copy->in->weight.is_same(copy->out->weight));
  CHECK_FALSE(copy->in->weight.is_same(net->in->weight));
  CHECK(parameter_names(*copy).size() == 3);
}

TEST_CASE("Module: a copy of a net in training has leaves of its own") {
  const auto net = nn::make_module<nn::Sequential>();
  net->add_module(
      "0", nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 3, .out_features = 2}));
  net->requires_grad_();
  const Tensor x = ramp({4, 3});
  const Tensor loss = sum((*net)(x));
  loss.backward({}, true);
  const auto copy = net->clone();
  const auto before = net->parameters();
  const auto after = copy->parameters();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(after[i].requires_grad());
    CHECK(after[i].is_leaf());
    CHECK_FALSE(after[i].grad().defined());
    CHECK_FALSE(after[i].is_same(before[i]));
  }
  sum((*copy)(x)).backward();
  CHECK(after[0].grad().equal(before[0].grad()));
  // The first net's tape is not the copy's.
  loss.backward();
  CHECK_FALSE(after[0].grad().equal(before[0].grad()));
}

TEST_CASE("Module: a state that is loaded between forward and backward is noticed") {
  const auto net =
      nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 3, .out_features = 2});
  const StateDict state =
      nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 3, .out_features = 2})
          ->state_dict();
  net->requires_grad_();
  const Tensor x = ramp({4, 3});
  x.set_requires_grad();
  const Tensor loss = sum((*net)(x));
  const Tensor weight = net->weight;
  net->load_state_dict(state);
  CHECK(net->weight.is_same(weight));
  CHECK(net->weight.requires_grad());
  CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains("changed in place"), ArgumentError);
  CHECK_FALSE(weight.grad().defined());
  sum((*net)(x)).backward();
  CHECK(weight.grad().defined());
}

TEST_CASE("Module: requires_grad_(false) freezes a part and frees its gradients") {
  const auto net = nn::make_module<Tied>();
  net->requires_grad_();
  const Tensor x = ramp({4, 3});
  sum((*net)(x)).backward();
  net->out->requires_grad_(false);
  CHECK_FALSE(net->in->weight.requires_grad());  // the same tensor
  CHECK_FALSE(net->out->bias.grad().defined());
  CHECK(net->in->bias.requires_grad());
  CHECK_THROWS_AS(optim::SGD(net->out->parameters(), {.lr = 0.1}), ArgumentError);
  net->zero_grad();
  sum((*net)(x)).backward();
  CHECK(net->in->bias.grad().defined());
  CHECK_FALSE(net->out->bias.grad().defined());
  net->eval();
  CHECK(net->in->bias.requires_grad());  // the mode is another matter
}

TEST_CASE("Module: optimizers train the scales of learnable fake quantizers with the weights") {
  QConfig qconfig = get_default_qat_qconfig();
  qconfig.weight = LearnableFakeQuantize::with_args(
      {.observer = default_weight_observer(), .scale = 0.02, .use_grad_scaling = true});
  const auto layer = nn::make_module<nn::qat::Linear>(
      nn::LinearOptions{.in_features = 3, .out_features = 2}, qconfig);
  const auto fake = std::dynamic_pointer_cast<LearnableFakeQuantize>(layer->weight_fake_quant());
  REQUIRE(fake != nullptr);
  fake->enable_param_learning();
  layer->requires_grad_();
  CHECK(parameter_names(*layer).size() == 4);
  optim::SGD optimizer(layer->parameters(), {.lr = 0.05});
  const Tensor x = ramp({8, 3});
  const Tensor target = Tensor::full({8, 2}, 0.7);
  const double scale = fake->scale().item();
  double first = 0.0;
  double last = 0.0;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mse_loss((*layer)(x), target);
    loss.backward();
    optimizer.step();
    last = loss.item();
    if (step == 0) first = last;
  }
  CHECK(last < first);
  CHECK(fake->scale().item() != scale);
  const auto copy = std::dynamic_pointer_cast<nn::qat::Linear>(layer->clone());
  const auto own = std::dynamic_pointer_cast<LearnableFakeQuantize>(copy->weight_fake_quant());
  CHECK(own->scale().requires_grad());
  CHECK_FALSE(own->scale().is_same(fake->scale()));
  CHECK(own->scale().item() == fake->scale().item());
}

}  // namespace quanta
