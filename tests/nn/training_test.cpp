#include "quanta/nn/optim/training.h"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/optim/checkpoint.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"
#include "runtime/file_test_util.h"

namespace {

using namespace quanta;
using quanta::test::TemporaryFolder;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

nn::Sequential make_net(std::int64_t hidden = 8) {
  return nn::Sequential{nn::Linear({.in_features = 4, .out_features = hidden}),
                        nn::BatchNorm1d({.num_features = hidden}), nn::ReLU(), nn::Dropout(0.25),
                        nn::Linear({.in_features = hidden, .out_features = 3})};
}

// A small training with everything that has to be saved.
struct Training {
  nn::Sequential net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::OneCycleLR> scheduler;

  explicit Training(bool adam = true, std::int64_t hidden = 8) : net(make_net(hidden)) {
    Generator generator(7);
    for (const Tensor& parameter : net.parameters()) {
      parameter.copy_(randn(parameter.sizes(), generator));
    }
    net.requires_grad_();
    if (adam) {
      optimizer = std::make_unique<optim::AdamW>(net.parameters());
    } else {
      optimizer = std::make_unique<optim::SGD>(net.parameters(),
                                               optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
    }
    scheduler = std::make_unique<optim::OneCycleLR>(
        *optimizer, optim::OneCycleOptions{.max_lr = 0.05, .total_steps = 10});
  }
  optim::TrainingParts parts() {
    return {.model = net, .optimizer = *optimizer, .scheduler = scheduler.get()};
  }
};

// The data comes from the default generator too: it must go on where it stood.
double step(optim::TrainingLoop& loop, const nn::Module& net) {
  const Tensor x = randn({16, 4});
  const Tensor target = randint(0, 3, {16});
  return loop.step([&] { return cross_entropy(net(x), target); });
}

std::string everything(Training& training) {
  const TemporaryFolder folder;
  optim::save_checkpoint(folder / "all", training.parts());
  return test::read_bytes(folder / "all");
}

}  // namespace

TEST_CASE("a training that was stopped goes on bit for bit") {
  const TemporaryFolder folder;
  for (const bool adam : {true, false}) {
    manual_seed(11);
    Training whole(adam);
    optim::TrainingLoop loop(whole.parts());
    std::vector<double> losses;
    for (int i = 0; i < 6; ++i) losses.push_back(step(loop, whole.net));

    manual_seed(11);
    const auto file = folder / (adam ? "adam" : "sgd");
    {
      Training first(adam);
      optim::TrainingLoop half(first.parts(), {.checkpoint = file});
      CHECK_FALSE(half.resume().has_value());
      for (int i = 0; i < 3; ++i)
        CHECK(step(half, first.net) == losses[static_cast<std::size_t>(i)]);
      half.save({{"epoch", 2}, {"loader.seed", std::numeric_limits<std::int64_t>::max()}});
    }
    manual_seed(5);
    Training second(adam);
    optim::TrainingLoop rest(second.parts(), {.checkpoint = file});
    const auto counters = rest.resume();
    REQUIRE(counters.has_value());
    CHECK(counters->at("epoch") == 2);
    CHECK(counters->at("loader.seed") == std::numeric_limits<std::int64_t>::max());
    for (int i = 3; i < 6; ++i)
      CHECK(step(rest, second.net) == losses[static_cast<std::size_t>(i)]);
    CHECK(everything(second) == everything(whole));
  }
}

TEST_CASE("load_checkpoint: a failed load changes nothing") {
  const TemporaryFolder folder;
  const auto file = folder / "checkpoint";
  Training source;
  optim::TrainingLoop loop(source.parts());
  step(loop, source.net);
  optim::save_checkpoint(file, source.parts(), {{"epoch", 1}});
  const SafetensorsFile good = load_safetensors(file);

  Training target;
  optim::TrainingLoop(target.parts()).step([&] {
    return cross_entropy(target.net(Tensor::ones({2, 4})), Tensor::zeros({2}, DType::Int64));
  });
  target.optimizer->set_lr(0, 0.123);
  const std::string before = everything(target);
  const auto refuse = [&](const char* text, auto error) {
    CHECK_THROWS_WITH_AS(optim::load_checkpoint(file, target.parts(), {"epoch"}),
                         doctest::Contains(text), decltype(error));
    CHECK(everything(target) == before);
  };
  const auto with = [&](auto change) {
    SafetensorsFile changed = good;
    change(changed);
    write_safetensors(file, changed.tensors, changed.metadata);
  };
  with([](SafetensorsFile& f) { f.tensors.erase("model.0.weight"); });
  refuse("missing names: '0.weight'", ArgumentError(""));
  with([](SafetensorsFile& f) { f.tensors.set("model.4.bias", Tensor::zeros({4})); });
  refuse("4.bias", ArgumentError(""));
  with([](SafetensorsFile& f) { f.tensors.set("optimizer.0.exp_avg", Tensor::zeros({4})); });
  refuse("expected '0.exp_avg'", ArgumentError(""));
  with([](SafetensorsFile& f) { f.tensors.set("other", Tensor::zeros({4})); });
  refuse("tensor 'other'", FileError(""));
  with([](SafetensorsFile& f) { f.metadata.erase("quanta.checkpoint"); });
  refuse("no training checkpoint", FileError(""));
  with([](SafetensorsFile& f) { f.metadata["quanta.checkpoint"] = "2"; });
  refuse("expected 1, got 2", FileError(""));
  with([](SafetensorsFile& f) { f.metadata.erase("generator"); });
  refuse("generator: expected its state", FileError(""));
  with([](SafetensorsFile& f) { f.metadata["generator"] = "1 2 3"; });
  refuse("too few numbers", FileError(""));
  with([](SafetensorsFile& f) { f.metadata["counter.epoch"] = "many"; });
  refuse("expected a whole number, got 'many'", FileError(""));
  with([](SafetensorsFile& f) { f.metadata.erase("counter.epoch"); });
  refuse("checkpoint: counter.epoch: expected a whole number, got nothing", FileError(""));
  CHECK_THROWS_WITH_AS(optim::TrainingLoop(target.parts(), {.checkpoint = file}).resume({"epoch"}),
                       doctest::Contains("counter.epoch"), FileError);
  CHECK(everything(target) == before);
  with([](SafetensorsFile& f) { f.metadata["scheduler.last_step"] = "11"; });
  refuse("OneCycleLR", ArgumentError(""));
  with([](SafetensorsFile& f) { f.metadata.erase("scheduler.last_step"); });
  refuse("expected a training without a scheduler", ArgumentError(""));
  test::write_bytes(file, "cut");
  refuse("checkpoint", FileError(""));
  std::filesystem::remove(file);
  refuse("checkpoint", FileError(""));
}

TEST_CASE("Generator: its state goes on with the same numbers") {
  Generator a(3);
  for (int i = 0; i < 5; ++i) a.normal();
  Generator b;
  b.set_state(a.state());
  for (int i = 0; i < 1000; ++i) {
    CHECK(a.normal() == b.normal());
    CHECK(a.next() == b.next());
  }
  const std::string state = a.state();
  CHECK_THROWS_AS(a.set_state(""), ArgumentError);
  CHECK_THROWS_AS(a.set_state(state + " 1"), ArgumentError);
  CHECK_THROWS_AS(a.set_state("x" + state), ArgumentError);
  // A position behind the engine's words.
  const std::size_t flag = state.rfind(' ', state.rfind(' ') - 1);
  const std::size_t position = state.rfind(' ', flag - 1);
  CHECK_THROWS_WITH_AS(a.set_state(state.substr(0, position) + " 99999" + state.substr(flag)),
                       doctest::Contains("out of range"), ArgumentError);
  CHECK(a.state() == state);
}

TEST_CASE("Generator: a seed starts anew whatever was drawn before") {
  Generator used(3);
  used.normal();  // the second number of the pair waits
  used.manual_seed(9);
  Generator fresh(9);
  CHECK(used.state() == fresh.state());
  for (int i = 0; i < 3; ++i) CHECK(used.normal() == fresh.normal());
}

TEST_CASE("require_finite_loss: NaN and infinity are told with the step") {
  CHECK(optim::require_finite_loss(Tensor::scalar(0.5), 1) == 0.5);
  CHECK_THROWS_WITH_AS(optim::require_finite_loss(Tensor::scalar(kNan), 12),
                       "training: loss: expected a finite number, got nan at step 12",
                       NumericError);
  CHECK_THROWS_AS(
      optim::require_finite_loss(Tensor::scalar(std::numeric_limits<double>::infinity()), 1),
      NumericError);
  CHECK_THROWS_AS(optim::require_finite_loss(Tensor::zeros({2}), 1), ArgumentError);
}

TEST_CASE("TrainingLoop: a loss of NaN stops and the last good checkpoint stays") {
  const TemporaryFolder folder;
  Training training;
  optim::TrainingLoop loop(training.parts(), {.checkpoint = folder / "run"});
  const auto broken = [&] {
    return cross_entropy(training.net(Tensor::full({2, 4}, kNan)),
                         Tensor::zeros({2}, DType::Int64));
  };
  CHECK_THROWS_WITH_AS(loop.step(broken), doctest::Contains("at step 1; there is no checkpoint"),
                       NumericError);
  Training fresh;
  optim::TrainingLoop again(fresh.parts(), {.checkpoint = folder / "run"});
  step(again, fresh.net);
  again.save();
  const std::string good = test::read_bytes(folder / "run");
  const std::vector<float> weights = fresh.net.parameters().front().to_float_vector();
  CHECK_THROWS_WITH_AS(again.step([&] {
    return cross_entropy(fresh.net(Tensor::full({2, 4}, kNan)), Tensor::zeros({2}, DType::Int64));
  }),
                       doctest::Contains("at step 2; the last good checkpoint, of step 1, is "),
                       NumericError);
  CHECK(fresh.net.parameters().front().to_float_vector() == weights);
  CHECK(test::read_bytes(folder / "run") == good);
}

TEST_CASE("TrainingLoop: parameters that are no numbers are not saved over good ones") {
  const TemporaryFolder folder;
  Training training;
  optim::TrainingLoop loop(training.parts(), {.checkpoint = folder / "run"});
  loop.save();
  const std::string good = test::read_bytes(folder / "run");
  {
    const autograd::NoGradGuard guard;
    training.net.parameters().front().fill_(kNan);
  }
  CHECK_THROWS_WITH_AS(loop.save(), doctest::Contains("0.weight: expected finite parameters"),
                       NumericError);
  CHECK(test::read_bytes(folder / "run") == good);
  // What they lead to is told as what it is: an observer refuses NaN as an argument.
  const auto refusing = []() -> Tensor { throw ArgumentError("observer: no NaN"); };
  CHECK_THROWS_WITH_AS(loop.step(refusing),
                       doctest::Contains("0.weight: expected finite parameters, got others at step "
                                         "1 (observer: no NaN); the last good checkpoint"),
                       NumericError);
  optim::load_checkpoint(folder / "run", training.parts());
  CHECK_THROWS_WITH_AS(loop.step(refusing), "observer: no NaN", ArgumentError);
}

TEST_CASE("TrainingLoop: gradients beyond all numbers stop the training before the step") {
  Training training;
  optim::TrainingLoop loop(training.parts(), {.max_grad_norm = 1.0});
  const std::vector<float> before = training.net.parameters().front().to_float_vector();
  training.net.parameters().front().register_hook(
      [](const Tensor& grad) { return Tensor::full(grad.sizes(), kNan); });
  CHECK_THROWS_WITH_AS(step(loop, training.net),
                       doctest::Contains("gradients: expected a finite norm, got nan at step 1"),
                       NumericError);
  CHECK(training.net.parameters().front().to_float_vector() == before);
  CHECK_THROWS_AS(optim::TrainingLoop(training.parts(), {.max_grad_norm = -1.0}), ArgumentError);
}
