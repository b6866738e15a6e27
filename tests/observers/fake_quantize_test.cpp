#include "quanta/observers/fake_quantize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "quanta/observers/defaults.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/lsq_qconfig.h"
#include "quanta/observers/other_observers.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/modules.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::leaf;
using test::names;
using test::says;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

StateDict state_of(const Observer& observer) {
  StateDict state;
  observer.save_state(state, "");
  return state;
}

std::vector<ObserverFactory> all_factories() {
  return {default_fake_quant(),
          default_weight_fake_quant(),
          default_dynamic_fake_quant(),
          default_per_channel_weight_fake_quant(),
          default_embedding_fake_quant(),
          default_embedding_fake_quant_4bit(),
          default_histogram_fake_quant(),
          default_fused_act_fake_quant(),
          default_fused_wt_fake_quant(),
          default_fused_per_channel_wt_fake_quant(),
          fused_wt_fake_quant_range_neg_127_to_127(),
          fused_per_channel_wt_fake_quant_range_neg_127_to_127(),
          default_fixed_qparams_range_neg1to1_fake_quant(),
          default_fixed_qparams_range_0to1_fake_quant(),
          LearnableFakeQuantize::with_args(),
          LearnableFakeQuantize::with_args(
              {.observer = default_per_channel_weight_observer(), .channel_len = 3})};
}

}  // namespace

TEST_CASE("FakeQuantize: the observer's parameters make the result and both switches work") {
  FakeQuantize fake(MovingAverageMinMaxObserver::with_args());
  const Tensor x = leaf(Tensor::from_values({-1.0F, 0.0F, 0.7F, 2.0F}));
  const Tensor y = fake.forward(x);
  CHECK(fake.scale().item() == doctest::Approx(3.0 / 255.0));
  CHECK(fake.zero_point().to_int64_vector() == std::vector<std::int64_t>{85});
  CHECK(y.detach().equal(
      fake_quantize_per_tensor_affine(x.detach(), fake.scale(), fake.zero_point(), 0, 255)));
  y.backward(Tensor::ones({4}));
  CHECK(x.grad().equal(Tensor::ones({4})));

  fake.disable_observer();
  CHECK_FALSE(fake.is_observer_enabled());
  fake.forward(Tensor::from_values({100.0F}));
  CHECK(fake.scale().item() == doctest::Approx(3.0 / 255.0));

  fake.disable_fake_quant();
  CHECK_FALSE(fake.is_fake_quant_enabled());
  CHECK(fake.forward(x).is_same(x));
  fake.enable_observer();
  fake.forward(Tensor::from_values({200.0F}));
  CHECK(fake.scale().item() > 3.0 / 255.0);
}

TEST_CASE("FakeQuantize: dtype and codes and axis are those of its observer") {
  const FakeQuantize fake(MovingAveragePerChannelMinMaxObserver::with_args(
      {.ch_axis = 1, .dtype = DType::QInt8, .qscheme = QScheme::PerChannelSymmetric}));
  CHECK(fake.dtype() == DType::QInt8);
  CHECK(fake.qscheme() == QScheme::PerChannelSymmetric);
  CHECK(fake.quant_min() == -128);
  CHECK(fake.quant_max() == 127);
  CHECK(fake.ch_axis() == 1);
  CHECK_FALSE(fake.has_data());
  CHECK(fake.observer()->name() == "MovingAveragePerChannelMinMaxObserver");
  const std::shared_ptr<Observer> halved = default_fake_quant()();
  CHECK(halved->quant_max() == 127);
  CHECK(default_dynamic_fake_quant()()->is_dynamic());
}

TEST_CASE("FakeQuantize: names and state are torch's") {
  const std::shared_ptr<Observer> plain = default_fake_quant()();
  const StateDict state = state_of(*plain);
  CHECK(names(state) == std::vector<std::string>{"fake_quant_enabled", "observer_enabled", "scale",
                                                 "zero_point", "activation_post_process.eps",
                                                 "activation_post_process.min_val",
                                                 "activation_post_process.max_val"});
  CHECK(state.at("fake_quant_enabled").dtype() == DType::UInt8);
  CHECK(state.at("zero_point").dtype() == DType::Int32);
  CHECK(state.at("scale").sizes() == Dims{1});
  CHECK(state_of(*default_fused_act_fake_quant()()).at("observer_enabled").dtype() == DType::Int64);
  CHECK(state_of(*default_embedding_fake_quant()()).at("zero_point").dtype() == DType::Float32);
  CHECK(names(state_of(*default_fixed_qparams_range_0to1_fake_quant()())) ==
        std::vector<std::string>{"fake_quant_enabled", "observer_enabled", "scale", "zero_point",
                                 "activation_post_process.scale",
                                 "activation_post_process.zero_point"});
  CHECK(names(state_of(LearnableFakeQuantize())) ==
        std::vector<std::string>{"scale", "zero_point", "fake_quant_enabled", "observer_enabled",
                                 "static_enabled", "learning_enabled", "eps",
                                 "activation_post_process.eps", "activation_post_process.min_val",
                                 "activation_post_process.max_val"});
}

TEST_CASE("fake quantizers: a loaded state and a clone give the same result") {
  Generator generator(81);
  const Tensor x = randn({3, 4, 5}, generator);
  for (const ObserverFactory& factory : all_factories()) {
    CAPTURE(factory.name);
    const auto source = std::dynamic_pointer_cast<FakeQuantizeBase>(factory());
    REQUIRE(source != nullptr);
    source->forward(x);
    source->disable_observer();
    const Tensor y = source->forward(x);

    const std::shared_ptr<Observer> loaded = factory();
    loaded->load_state(state_of(*source), "");
    CHECK(loaded->forward(x).equal(y));
    const auto copy = std::dynamic_pointer_cast<FakeQuantizeBase>(source->clone());
    REQUIRE(copy != nullptr);
    CHECK(copy->name() == source->name());
    CHECK_FALSE(copy->is_observer_enabled());
    CHECK(copy->forward(x).equal(y));
    // Nothing is shared with the copy.
    copy->enable_observer();
    copy->reset_min_max_vals();
    copy->forward(randn({3, 4, 5}, generator));
    CHECK(source->forward(x).equal(y));
  }
}

TEST_CASE("fake quantizers: a broken state is refused and changes nothing") {
  const Tensor x = test::random_tensor({3, 4}, 82);
  for (const ObserverFactory& factory : all_factories()) {
    CAPTURE(factory.name);
    const std::shared_ptr<Observer> fake = factory();
    fake->forward(x);
    const StateDict good = state_of(*fake);
    for (const std::string& name : names(good)) {
      if (name == "observer_enabled" && fake->name() == "LearnableFakeQuantize") continue;
      CAPTURE(name);
      StateDict missing = good;
      missing.erase(name);
      says([&] { fake->load_state(missing, ""); }, name.c_str());
      StateDict wrong = good;
      wrong.set(name, Tensor::ones({2, 3, 4}));
      says([&] { fake->load_state(wrong, ""); }, name.c_str());
    }
    const StateDict after = state_of(*fake);
    for (const auto& [name, value] : good) CHECK(after.at(name).equal(value));
  }
}

TEST_CASE("fake quantizers: tensors without elements pass") {
  for (const ObserverFactory& factory : all_factories()) {
    CAPTURE(factory.name);
    const std::shared_ptr<Observer> fake = factory();
    const Tensor per_channel_x = Tensor::empty({3, 0});
    fake->forward(randn({3, 2}));
    CHECK(fake->forward(per_channel_x).sizes() == Dims{3, 0});
  }
}

TEST_CASE("fake quantizers: many threads may call forward") {
  const Tensor x = test::random_tensor({3, 400}, 83);
  for (const ObserverFactory& factory : all_factories()) {
    CAPTURE(factory.name);
    const std::shared_ptr<Observer> fake = factory();
    fake->forward(x);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          fake->forward(x);
          fake->calculate_qparams();
          state_of(*fake);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Tensor y = fake->forward(x);
    CHECK(y.sizes() == x.sizes());
  }
}

TEST_CASE("FakeQuantize: wrong observers are refused when the factory is made") {
  says([] { FakeQuantize::with_args({}); }, "FakeQuantize: observer: expected the factory");
  says([] { FixedQParamsFakeQuantize::with_args(default_observer()); },
       "observer: expected a FixedQParamsObserver, got a MinMaxObserver");
  says([] { FusedMovingAvgObsFakeQuantize::with_args(default_observer()); },
       "observer: expected a MovingAverageMinMaxObserver");
  says(
      [] {
        FusedMovingAvgObsFakeQuantize::with_args(MovingAveragePerChannelMinMaxObserver::with_args(
            {.qscheme = QScheme::PerChannelAffineFloatQParams}));
      },
      "expected integer zero points");
  // More codes than the dtype has.
  says(
      [] {
        FakeQuantize::with_args(MinMaxObserver::with_args({.quant_min = 0, .quant_max = 300}));
      },
      "expected codes within 0..255 of QUInt8, got 0..300");
  const ObserverFactory placeholder = default_placeholder_observer();
  CHECK_THROWS_AS(FakeQuantize::with_args(placeholder), Error);
}

TEST_CASE("FakeQuantize: an input of other channels than before is refused") {
  const std::shared_ptr<Observer> fake = default_per_channel_weight_fake_quant()();
  fake->forward(Tensor::ones({3, 2}));
  says([&] { fake->forward(Tensor::ones({4, 2})); }, "expected 3 channels");
  says([&] { fake->forward(Tensor()); }, "expected a tensor, got an undefined one");
}

TEST_CASE("FixedQParamsFakeQuantize: parameters stay as they are") {
  const std::shared_ptr<Observer> fake = default_fixed_qparams_range_neg1to1_fake_quant()();
  CHECK(fake->has_data());
  const Tensor y = fake->forward(Tensor::from_values({-1.0F, 0.0F, 0.5F, 50.0F}));
  CHECK(y.equal(Tensor::from_values({-1.0F, 0.0F, 0.5F, 127.0F / 128.0F})));
  const ObservedQParams qparams = fake->calculate_qparams();
  CHECK(qparams.scale.item() == 2.0 / 256.0);
  CHECK(qparams.zero_point.to_int64_vector() == std::vector<std::int64_t>{128});
}

// Fused ------------------------------------------------------------------------------------------

TEST_CASE("fused_moving_avg_obs_fake_quant: parameters are those of dynamic quantization") {
  struct Row {
    std::vector<float> x;
    bool symmetric;
    double scale;
    std::int64_t zero_point;
  };
  const Row rows[] = {
      {{-1.0F, 2.0F}, true, 2.0 / 127.0, 0},    {{0.0F, 2.0F}, true, 2.0 / 255.0, -128},
      {{-2.0F, -1.0F}, true, 2.0 / 255.0, 127}, {{0.0F, 0.0F}, true, 0.1, 127},
      {{-5e-4F, 1e-3F}, true, 6.1e-5, 0},       {{-1.0F, 2.0F}, false, 3.0 / 255.0, -43},
  };
  for (const Row& row : rows) {
    CAPTURE(row.scale);
    MovingAverageState state{Tensor::full({}, kInfinity), Tensor::full({}, -kInfinity),
                             Tensor::ones({1}), Tensor::zeros({1}, DType::Int32)};
    fused_moving_avg_obs_fake_quant(
        Tensor::from_values(row.x, {2}), state,
        {.quant_min = -128, .quant_max = 127, .symmetric_quant = row.symmetric});
    CHECK(state.scale.item() == doctest::Approx(row.scale).epsilon(1e-6));
    CHECK(state.zero_point.to_int64_vector()[0] == row.zero_point);
  }
}

TEST_CASE("fused_moving_avg_obs_fake_quant: rows lie along any axis") {
  const Tensor x = test::random_tensor({3, 5, 4}, 84);
  for (const std::int64_t axis : {0, 1, -1}) {
    MovingAverageState state{Tensor::empty({0}), Tensor::empty({0}), Tensor::ones({1}),
                             Tensor::zeros({1}, DType::Int32)};
    FusedFakeQuantOptions options{.ch_axis = axis, .per_row_fake_quant = true};
    const Tensor y = fused_moving_avg_obs_fake_quant(x, state, options);
    CHECK(state.running_min.sizes() == Dims{x.size(axis)});
    for (std::int64_t c = 0; c < x.size(axis); ++c) {
      MovingAverageState one{Tensor::full({}, kInfinity), Tensor::full({}, -kInfinity),
                             Tensor::ones({1}), Tensor::zeros({1}, DType::Int32)};
      const Tensor expected = fused_moving_avg_obs_fake_quant(x.select(axis, c), one, {});
      CHECK(y.select(axis, c).equal(expected));
    }
  }
}

TEST_CASE("fused_moving_avg_obs_fake_quant: what it cannot observe leaves the state alone") {
  MovingAverageState state{Tensor::full({}, kInfinity), Tensor::full({}, -kInfinity),
                           Tensor::ones({1}), Tensor::zeros({1}, DType::Int32)};
  FusedFakeQuantOptions options;
  const Tensor x = Tensor::from_values({1.0F, -1.0F});
  const Tensor nan = Tensor::from_values({1.0F, std::numeric_limits<float>::quiet_NaN()});
  says([&] { fused_moving_avg_obs_fake_quant(nan, state, options); }, "x: expected finite values");
  const Tensor infinite = Tensor::full({2}, kInfinity);
  says([&] { fused_moving_avg_obs_fake_quant(infinite, state, options); },
       "x: expected finite values");
  options.observer_on = false;
  says([&] { fused_moving_avg_obs_fake_quant(x, state, options); },
       "running_min: expected a finite range");
  CHECK(std::isinf(state.running_min.item()));
  options.fake_quant_on = false;
  CHECK(fused_moving_avg_obs_fake_quant(x, state, options).is_same(x));
  options = {.averaging_const = 2.0};
  says([&] { fused_moving_avg_obs_fake_quant(x, state, options); }, "averaging_const: expected");
  options = {.quant_min = 5, .quant_max = 5};
  says([&] { fused_moving_avg_obs_fake_quant(x, state, options); }, "quant_min: expected");
}

TEST_CASE("FusedMovingAvgObsFakeQuantize: converting uses the observer's rule") {
  const std::shared_ptr<Observer> observer = default_fused_wt_fake_quant()();
  const auto fake = std::dynamic_pointer_cast<FakeQuantize>(observer);
  REQUIRE(fake != nullptr);
  fake->forward(Tensor::from_values({-1.0F, 2.0F}));
  CHECK(fake->scale().item() == doctest::Approx(2.0 / 127.0));
  CHECK(fake->calculate_qparams().scale.item() == doctest::Approx(2.0 / 127.5));
  CHECK(fake->has_data());
}

// Learnable --------------------------------------------------------------------------------------

TEST_CASE("LearnableFakeQuantize: the modes decide who sets scale and zero point") {
  LearnableFakeQuantize fake;
  const Tensor x = Tensor::from_values({-1.0F, 0.2F, 2.0F});
  CHECK_FALSE(fake.has_data());
  const Tensor y = fake.forward(x);
  CHECK(fake.has_data());
  CHECK(fake.scale().item() == doctest::Approx(3.0 / 255.0));
  CHECK(fake.zero_point().item() == 85.0);
  CHECK_FALSE(y.requires_grad());

  fake.enable_static_observation();
  CHECK(fake.forward(x).is_same(x));
  CHECK_FALSE(fake.scale().requires_grad());

  fake.enable_param_learning();
  CHECK(fake.is_learning_enabled());
  CHECK_FALSE(fake.is_observer_enabled());
  const Tensor trained = fake.forward(Tensor::from_values({-9.0F, 0.2F, 9.0F}));
  trained.backward(Tensor::from_values({1.0F, 1.0F, 3.0F}));
  // 0 - 85 below, 3 * (255 - 85) above, and the error of 0.2 in steps.
  CHECK(fake.scale().grad().item() == doctest::Approx(-85.0 + 510.0).epsilon(1e-2));
  CHECK(fake.zero_point().grad().item() == doctest::Approx(-4.0 * 3.0 / 255.0));

  fake.enable_static_estimate();
  CHECK(fake.is_observer_enabled());
  CHECK(fake.is_fake_quant_enabled());
}

TEST_CASE("LearnableFakeQuantize: bounds and symmetry and the gradient's factor are torch's") {
  LearnableFakeQuantize fake({.observer = default_weight_observer(), .use_grad_scaling = true});
  fake.enable_param_learning();
  fake.scale().detach().fill_(-1.0);
  fake.zero_point().detach().fill_(3.0);
  fake.forward(Tensor::ones({4}));
  CHECK(fake.scale().item() == doctest::Approx(1.1920928955078125e-07));
  CHECK(fake.zero_point().item() == 0.0);
  fake.scale().detach().fill_(0.5);
  fake.scale().clear_grad();
  fake.forward(Tensor::full({4}, 1000.0)).backward(Tensor::ones({4}));
  CHECK(fake.scale().grad().item() == doctest::Approx(4.0 * 127.0 / std::sqrt(4.0 * 127.0)));
}

TEST_CASE("LearnableFakeQuantize: a scale of the mean magnitude starts as in LSQ") {
  const std::vector<float> values{1.0F, -2.0F, 3.0F, 0.0F, 10.0F, -4.0F};
  const Tensor x = Tensor::from_values(values, {2, 3});
  const LsqOptions four{.weight_bits = 4};
  const auto whole = lsq_qconfig(four).weight();
  whole->forward(x);
  // 2 * (20 / 6) / sqrt(7)
  CHECK(whole->calculate_qparams().scale.item() == doctest::Approx(2.519763));
  const auto rows = lsq_qconfig({.weight_bits = 4, .per_channel = true}).weight();
  rows->forward(x);
  const std::vector<float> scales = rows->calculate_qparams().scale.to_float_vector();
  REQUIRE(scales.size() == 2);
  CHECK(scales[0] == doctest::Approx(2.0 * 2.0 / std::sqrt(7.0)));
  CHECK(scales[1] == doctest::Approx(2.0 * (14.0 / 3.0) / std::sqrt(7.0)));
  // The gradient of the paper's equation 3 times 1 / sqrt(6 * 7).
  auto& fake = dynamic_cast<LearnableFakeQuantize&>(*whole);
  fake.enable_param_learning();
  const double s = fake.scale().item();
  const Tensor y = fake.forward(x);
  y.backward(Tensor::ones({2, 3}));
  double want = 0.0;
  for (const float value : values) {
    const double steps = static_cast<double>(value) / s;
    want += steps <= -8.0 ? -8.0 : steps >= 7.0 ? 7.0 : std::nearbyint(steps) - steps;
  }
  CHECK(fake.scale().grad().item() == doctest::Approx(want / std::sqrt(6.0 * 7.0)));
  const Tensor zeros = Tensor::zeros({2, 3});
  fake.enable_static_estimate();
  fake.forward(zeros);
  CHECK(fake.calculate_qparams().scale.item() > 0.0);
}

TEST_CASE("lsq_qconfig: bits and schemes that LSQ does not have are refused by name") {
  CHECK_THROWS_WITH_AS(lsq_qconfig({.weight_bits = 1}),
                       doctest::Contains("lsq_qconfig: weight_bits: expected 2..8, got 1"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lsq_qconfig({.activation_bits = 9}),
                       doctest::Contains("lsq_qconfig: activation_bits: expected 2..8, got 9"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(LearnableFakeQuantize({.mean_magnitude_start = true}),
                       doctest::Contains("mean_magnitude_start: expected a symmetric scheme"),
                       ArgumentError);
}

TEST_CASE("LearnableFakeQuantize: channels are given or counted before training") {
  const ObserverFactory per_channel = default_per_channel_weight_observer();
  const LearnableFakeQuantize given({.observer = per_channel, .channel_len = 4});
  CHECK(given.scale().sizes() == Dims{4});
  LearnableFakeQuantize counted({.observer = per_channel});
  counted.forward(Tensor::ones({3, 2}));
  CHECK(counted.scale().sizes() == Dims{3});
  LearnableFakeQuantize late({.observer = per_channel});
  late.scale().set_requires_grad();
  says([&] { late.forward(Tensor::ones({3, 2})); }, "channel_len: expected 3");
  says([] { LearnableFakeQuantize({.channel_len = 2}); }, "channel_len: expected at least 1");
  says([] { LearnableFakeQuantize({.scale = 0.0}); }, "scale: expected a finite number > 0");
}

TEST_CASE("LearnableFakeQuantize: a step along the gradient lowers the error of the result") {
  const Tensor x = test::random_tensor({1000}, 85);
  LearnableFakeQuantize fake(
      {.observer = MovingAverageMinMaxObserver::with_args({.dtype = DType::QInt8,
                                                           .qscheme = QScheme::PerTensorSymmetric,
                                                           .quant_min = -8,
                                                           .quant_max = 7})});
  fake.forward(x);
  fake.enable_param_learning();
  const auto error = [&](const Tensor& y) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < 1000; ++i) {
      sum += std::pow(y.data<float>()[i] - x.data<float>()[i], 2.0);
    }
    return sum;
  };
  const double before = error(fake.forward(x).detach());
  for (int step = 0; step < 50; ++step) {
    const Tensor y = fake.forward(x);
    Tensor grad = Tensor::empty({1000});
    for (std::int64_t i = 0; i < 1000; ++i) {
      grad.mutable_data<float>()[i] = 2.0F * (y.data<float>()[i] - x.data<float>()[i]);
    }
    fake.scale().clear_grad();
    y.backward(grad);
    const float updated = fake.scale().detach().data<float>()[0] -
                          1e-4F * static_cast<float>(fake.scale().grad().item());
    fake.scale().detach().fill_(static_cast<double>(updated));
  }
  CHECK(error(fake.forward(x).detach()) < 0.8 * before);
}

// QConfigs ---------------------------------------------------------------------------------------

TEST_CASE("qat QConfigs: each pairs the fake quantizers that torch's pairs") {
  struct Row {
    const char* name;
    QConfig qconfig;
    ObserverFactory activation;
    ObserverFactory weight;
  };
  const ObserverFactory symmetric_activation =
      FusedMovingAvgObsFakeQuantize::with_args(MovingAverageMinMaxObserver::with_args(
          {.dtype = DType::QInt8, .quant_min = -128, .quant_max = 127, .eps = 0.000244140625}));
  const ObserverFactory noop = NoopObserver::with_args({.dtype = DType::Float32});
  const Row rows[] = {
      {"default_qat_qconfig", default_qat_qconfig(), default_fake_quant(),
       default_weight_fake_quant()},
      {"default_dynamic_qat_qconfig", default_dynamic_qat_qconfig(), default_dynamic_fake_quant(),
       default_weight_fake_quant()},
      {"default_weight_only_qconfig",
       default_weight_only_qconfig(),
       {},
       default_weight_fake_quant()},
      {"default_activation_only_qconfig",
       default_activation_only_qconfig(),
       default_fake_quant(),
       {}},
      {"default_qat_qconfig_v2", default_qat_qconfig_v2(), default_fused_act_fake_quant(),
       default_fused_wt_fake_quant()},
      {"default_embedding_qat_qconfig", default_embedding_qat_qconfig(), noop,
       default_embedding_fake_quant()},
      {"default_embedding_qat_qconfig_4bit", default_embedding_qat_qconfig_4bit(), noop,
       default_embedding_fake_quant_4bit()},
      {"default_symmetric_qnnpack_qat_qconfig", default_symmetric_qnnpack_qat_qconfig(),
       symmetric_activation, fused_wt_fake_quant_range_neg_127_to_127()},
      {"default_per_channel_symmetric_qnnpack_qat_qconfig",
       default_per_channel_symmetric_qnnpack_qat_qconfig(), symmetric_activation,
       fused_per_channel_wt_fake_quant_range_neg_127_to_127()},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CHECK(row.qconfig == QConfig{row.activation, row.weight});
    CHECK(qconfig_from_name(row.name) == row.qconfig);
  }
}

TEST_CASE("get_default_qat_qconfig: backend and version choose as in torch") {
  for (const char* backend : {"fbgemm", "x86"}) {
    const QConfig fused = get_default_qat_qconfig(backend);
    CHECK(fused.activation()->name() == "FusedMovingAvgObsFakeQuantize");
    CHECK(fused.activation()->quant_max() == 127);
    CHECK(fused.weight.name == default_fused_per_channel_wt_fake_quant().name);
    const QConfig plain = get_default_qat_qconfig(backend, 0);
    CHECK(plain.activation.name == default_fake_quant().name);
    CHECK(plain.weight.name == default_per_channel_weight_fake_quant().name);
  }
  CHECK(get_default_qat_qconfig("qnnpack").activation()->quant_max() == 255);
  CHECK(get_default_qat_qconfig("qnnpack").weight.name == default_fused_wt_fake_quant().name);
  CHECK(get_default_qat_qconfig("qnnpack", 0).weight.name == default_weight_fake_quant().name);
  CHECK(get_default_qat_qconfig("onednn").activation.name == default_fused_act_fake_quant().name);
  CHECK(get_default_qat_qconfig("onednn", 0).activation()->quant_max() == 255);
  says([] { get_default_qat_qconfig("cuda"); }, "backend: expected one of fbgemm");
  says([] { get_default_qat_qconfig("x86", 2); }, "version: expected 0 or 1, got 2");
}

TEST_CASE("activation_is_memoryless: a fake quantizer is asked for its observer") {
  CHECK(activation_is_memoryless(default_dynamic_qat_qconfig()));
  CHECK_FALSE(activation_is_memoryless(default_qat_qconfig()));
  CHECK_FALSE(activation_is_memoryless(default_weight_only_qconfig()));
}

TEST_CASE("FusedMovingAvgObsFakeQuantize: a refused input leaves no size behind") {
  MovingAveragePerChannelMinMaxObserver::Options options;
  options.dtype = DType::QInt8;
  options.qscheme = QScheme::PerChannelSymmetric;
  const auto make = [&options] {
    return FusedMovingAvgObsFakeQuantize(MovingAveragePerChannelMinMaxObserver::with_args(options));
  };
  const auto refused = [](FusedMovingAvgObsFakeQuantize& fake, const Tensor& x) {
    CHECK_THROWS_AS(fake.forward(x), ArgumentError);
    CHECK_FALSE(fake.has_data());
  };
  FusedMovingAvgObsFakeQuantize first = make();
  refused(first, Tensor());
  refused(first, Tensor::full({3, 2}, std::numeric_limits<double>::infinity()));
  CHECK(first.forward(Tensor::ones({5, 2})).sizes() == Dims{5, 2});
  FusedMovingAvgObsFakeQuantize second = make();
  second.disable_observer();
  refused(second, Tensor::ones({3, 2}));
  second.enable_observer();
  CHECK(second.forward(Tensor::ones({5, 2})).sizes() == Dims{5, 2});
}

}  // namespace quanta
