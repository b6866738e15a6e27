#include "quanta/nn/optim/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "quanta/nn/linear.h"
#include "quanta/nn/optim/lr_scheduler.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/compare.h"

namespace {

using namespace quanta;

Tensor leaf(std::initializer_list<float> values) {
  Tensor result = Tensor::from_values(values);
  result.set_requires_grad();
  return result;
}

void step_with(optim::Optimizer& optimizer, const Tensor& parameter,
               std::initializer_list<float> gradient) {
  parameter.set_grad(Tensor::from_values(gradient));
  optimizer.step();
}

}  // namespace

TEST_CASE("SGD follows its formula with momentum, dampening and decay") {
  const Tensor p = leaf({1.0F});
  optim::SGD sgd({p}, {.lr = 0.5, .momentum = 0.5, .dampening = 0.25, .weight_decay = 0.1});
  step_with(sgd, p, {1.0F});
  // d = 1 + 0.1 = 1.1, b = 1.1, p = 1 - 0.55
  CHECK(p.item() == doctest::Approx(0.45));
  step_with(sgd, p, {1.0F});
  // d = 1.045, b = 0.55 + 0.75 * 1.045 = 1.33375
  CHECK(p.item() == doctest::Approx(0.45 - 0.5 * 1.33375));
  CHECK(sgd.steps() == 2);
}

TEST_CASE("parameters without a gradient stay as they are") {
  const Tensor a = leaf({1.0F});
  const Tensor b = leaf({2.0F});
  optim::Adam adam({a, b}, {.lr = 0.1});
  step_with(adam, a, {1.0F});
  CHECK(a.item() == doctest::Approx(0.9));
  CHECK(b.item() == 2.0);
  adam.zero_grad();
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("AdamW shrinks weights apart from the gradient") {
  const Tensor p = leaf({2.0F});
  optim::AdamW adam({p}, {.lr = 0.1, .weight_decay = 0.5});
  step_with(adam, p, {3.0F});
  // 2 * (1 - 0.05) - 0.1 * sign
  CHECK(p.item() == doctest::Approx(1.8));
}

TEST_CASE("an optimizer that was saved goes on exactly") {
  for (const bool adam : {false, true}) {
    const auto make = [&](const Tensor& p) -> std::unique_ptr<optim::Optimizer> {
      if (adam)
        return std::make_unique<optim::Adam>(std::vector<Tensor>{p},
                                             optim::AdamOptions{.lr = 0.1, .amsgrad = true});
      return std::make_unique<optim::SGD>(std::vector<Tensor>{p},
                                          optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
    };
    const Tensor whole = leaf({1.0F, -1.0F});
    const auto first = make(whole);
    step_with(*first, whole, {0.3F, 0.2F});
    step_with(*first, whole, {-0.1F, 0.4F});
    Tensor stopped = whole.detach().clone();
    stopped.set_requires_grad();
    const auto second = make(stopped);
    second->load_state_dict(first->state_dict());
    CHECK(second->steps() == 2);
    step_with(*first, whole, {0.5F, -0.6F});
    step_with(*second, stopped, {0.5F, -0.6F});
    CHECK(whole.equal(stopped));

    StateDict wrong = first->state_dict();
    wrong.set("0.something", Tensor::ones({1}));
    CHECK_THROWS_AS(second->load_state_dict(wrong), ArgumentError);
    wrong = first->state_dict();
    wrong.set(adam ? "0.exp_avg" : "0.momentum_buffer", Tensor::ones({3}));
    CHECK_THROWS_AS(second->load_state_dict(wrong), ArgumentError);
    for (const double steps : {1e300, 0x1p54, 2.5}) {
      CAPTURE(steps);
      wrong = first->state_dict();
      wrong.set("step", Tensor::scalar(steps, DType::Float64));
      CHECK_THROWS_WITH_AS(second->load_state_dict(wrong),
                           doctest::Contains("step: expected a whole number up to 2^53"),
                           ArgumentError);
    }
    CHECK(second->steps() == 3);
    const StateDict before = second->state_dict();
    for (const auto& [name, tensor] : before) {
      CAPTURE_BINDING(name);
      StateDict undefined = before;
      undefined.set(name, Tensor());
      CHECK_THROWS_WITH_AS(second->load_state_dict(undefined),
                           doctest::Contains("expected a tensor, got an undefined one"),
                           ArgumentError);
      CHECK(test::same_state(second->state_dict(), before));
    }
  }
}

TEST_CASE("gradients are clipped by norm and by value") {
  const Tensor a = leaf({0.0F, 0.0F});
  const Tensor b = leaf({0.0F});
  a.set_grad(Tensor::from_values({3.0F, 0.0F}));
  b.set_grad(Tensor::from_values({-4.0F}));
  CHECK(optim::clip_grad_norm_({a, b}, 10.0) == doctest::Approx(5.0));
  CHECK(b.grad().item() == -4.0);
  CHECK(optim::clip_grad_norm_({a, b}, 1.0, std::numeric_limits<double>::infinity()) ==
        doctest::Approx(4.0));
  CHECK(b.grad().item() == doctest::Approx(-1.0));
  optim::clip_grad_value_({a, b}, 0.5);
  CHECK(a.grad().to_float_vector()[0] == doctest::Approx(0.5));
  CHECK(b.grad().item() == doctest::Approx(-0.5));
  b.set_grad(Tensor::from_values({NAN}));
  CHECK_THROWS_AS(optim::clip_grad_norm_({a, b}, 1.0, 2.0, true), ArgumentError);
  CHECK_THROWS_AS(optim::clip_grad_norm_({a, b}, -1.0), ArgumentError);
}

TEST_CASE("schedules set the learning rates that torch's set") {
  const Tensor p = leaf({0.0F});
  optim::SGD sgd({p}, {.lr = 0.1});
  optim::StepLR step(sgd, 2, 0.5);
  step.step();
  CHECK(sgd.lr() == doctest::Approx(0.1));
  step.step();
  CHECK(sgd.lr() == doctest::Approx(0.05));
  optim::MultiStepLR milestones(sgd, {1, 3}, 0.1);
  milestones.set_last_step(3);
  CHECK(sgd.lr() == doctest::Approx(0.001));
  optim::CosineAnnealingLR cosine(sgd, 10, 0.02);
  cosine.set_last_step(5);
  CHECK(sgd.lr() == doctest::Approx(0.06));
  cosine.set_last_step(10);
  CHECK(sgd.lr() == doctest::Approx(0.02));
  // torch 2.x: OneCycleLR(max_lr=1, total_steps=10): 0.04 at 0, 1 at step 2, 4e-6 at the end.
  optim::OneCycleLR cycle(sgd, {.max_lr = 1.0, .total_steps = 10});
  CHECK(sgd.lr() == doctest::Approx(0.04));
  cycle.step();
  CHECK(sgd.lr() == doctest::Approx(0.52));
  cycle.step();
  CHECK(sgd.lr() == doctest::Approx(1.0));
  cycle.set_last_step(9);
  CHECK(sgd.lr() == doctest::Approx(4e-6));
  cycle.step();  // after the tenth of the optimizer's steps
  CHECK(sgd.lr() == doctest::Approx(4e-6));
  CHECK_THROWS_AS(cycle.step(), ArgumentError);
}

TEST_CASE("optimizers refuse what cannot be trained") {
  nn::Linear layer({.in_features = 2, .out_features = 1});
  CHECK_THROWS_AS(optim::SGD(layer.parameters()), ArgumentError);  // requires_grad_ not called
  layer.requires_grad_();
  CHECK_NOTHROW(optim::SGD(layer.parameters()));
  CHECK_THROWS_AS(optim::SGD({}), ArgumentError);
  CHECK_THROWS_AS(optim::SGD({layer.weight, layer.weight}), ArgumentError);
  CHECK_THROWS_AS(optim::SGD(layer.parameters(), {.lr = -1.0}), ArgumentError);
  CHECK_THROWS_AS(optim::SGD(layer.parameters(), {.lr = 0.1, .nesterov = true}), ArgumentError);
  CHECK_THROWS_AS(optim::Adam(layer.parameters(), {.beta1 = 1.0}), ArgumentError);
}
