#include "quanta/observers/collector.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "observers/collector_support.h"
#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/histogram.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/observer.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"

namespace quanta {
namespace {

using namespace test;

template <typename T>
concept HasFind = requires(T&& settings) {
  std::forward<T>(settings).find("axis");
};
static_assert(HasFind<const Settings&> && !HasFind<Settings>, "it points into the settings");

// Whether the class can be merged at all.
bool merge(Collector& collector, const Collector& other) {
  try {
    collector.merge(other);
    return true;
  } catch (const UnsupportedError&) {
    return false;
  }
}

}  // namespace

TEST_CASE("collectors: every kind is made by its name and has the settings it was given") {
  REQUIRE(collector_kinds().size() >= 17);
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = make_collector(kind.name);
    CHECK(collector->name() == kind.name);
    CHECK(make_collector(kind.name, collector->settings())->settings() == collector->settings());
    CHECK(to_string(*collector).starts_with(kind.name + "("));
    const Settings settings = collector->settings();
    for (const auto& [name, value] : kind.defaults) {
      CAPTURE_BINDING(name);
      const Setting* const found = settings.find(name);
      REQUIRE(found != nullptr);
      CHECK(*found == value);
    }
    CHECK_THROWS_WITH_AS(make_collector(kind.name, {{"no_such_setting", 1}}),
                         doctest::Contains("no_such_setting"), ArgumentError);
  }
}

TEST_CASE("collectors: empty tensors change nothing and integers are refused by every kind") {
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = fresh(kind);
    const StateDict before = state_of(*collector);
    if (takes_anything(*collector)) continue;
    CHECK_FALSE(collector->has_data());
    collector->update(Tensor::empty({0, 4}));
    check_equal(state_of(*collector), before);
    CHECK_THROWS_WITH_AS(
        collector->update(Tensor::ones({6, 4}, DType::Int32)),
        doctest::Contains((kind.name + ": x: expected a floating tensor, got Int32").c_str()),
        ArgumentError);
    CHECK_THROWS_AS(collector->update(Tensor()), ArgumentError);
    check_equal(state_of(*collector), before);
  }
}

TEST_CASE("collectors: a batch with NaN or infinity leaves what was seen before") {
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = fresh(kind);
    // AIMET's analyzers take what AIMET's take.
    const bool is_aimet = dynamic_cast<const aimet::EncodingAnalyzer*>(collector.get()) != nullptr;
    if (is_aimet || takes_anything(*collector)) continue;
    collector->update(batch(1));
    for (const float odd :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      CAPTURE(odd);
      const StateDict before = state_of(*collector);
      const Tensor x = batch(2);
      x.mutable_data<float>()[7] = odd;
      try {
        collector->update(x);
        // As torch has it: only infinite values are left out.
        CHECK((kind.name == "HistogramObserver" || kind.name == "RangeSearchObserver"));
        for (const auto& [name, tensor] : state_of(*collector)) {
          CAPTURE_BINDING(name);
          for (const float value : tensor.to_float_vector()) CHECK(std::isfinite(value));
        }
      } catch (const ArgumentError& error) {
        CHECK(std::string(error.what()).find(kind.name + ": x: expected") != std::string::npos);
        check_equal(state_of(*collector), before);
      }
    }
  }
}

TEST_CASE("observers: no scale is infinite or NaN however wide the finite values lie") {
  std::size_t refused = 0;
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = fresh(kind);
    const auto* observer = dynamic_cast<const Observer*>(collector.get());
    if (observer == nullptr || takes_anything(*collector)) continue;
    const Tensor x = batch(1);
    x.mutable_data<float>()[3] = -3.3e38F;
    x.mutable_data<float>()[4] = 3.3e38F;
    try {
      collector->update(x);
      const ObservedQParams qparams = observer->calculate_qparams();
      for (const float scale : qparams.scale.to_float_vector()) {
        CHECK((std::isfinite(scale) && scale > 0.0F));
      }
    } catch (const ArgumentError& error) {
      CAPTURE(std::string(error.what()));
      CHECK(std::string(error.what()).find(kind.name) != std::string::npos);
      ++refused;
    } catch (const UnsupportedError&) {
      continue;  // has no parameters
    }
  }
  CHECK(refused >= 3);
}

TEST_CASE("collectors: a clone goes its own way and reset forgets everything") {
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = fresh(kind);
    const StateDict empty = state_of(*collector);
    const bool had_data = collector->has_data();
    collector->update(batch(1));
    const StateDict first = state_of(*collector);
    const CollectorPtr copy = collector->clone();
    check_equal(state_of(*copy), first);
    CHECK(copy->settings() == collector->settings());
    if (!takes_one_batch(*collector)) collector->update(batch(2, 3.0));
    check_equal(state_of(*copy), first);
    collector->reset();
    check_equal(state_of(*collector), empty);
    CHECK(collector->has_data() == had_data);
  }
}

TEST_CASE("collectors: a state comes back and a broken one changes nothing") {
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr source = fresh(kind);
    source->update(batch(1));
    if (!takes_one_batch(*source)) source->update(batch(2, 3.0));
    const StateDict saved = state_of(*source);
    const CollectorPtr target = make_collector(kind.name, source->settings());
    target->load_state(saved, "x.");
    check_equal(state_of(*target), saved);
    CHECK(target->has_data() == (source->has_data() && !saved.empty()));

    for (const auto& [name, tensor] : saved) {
      CAPTURE_BINDING(name);
      const CollectorPtr other = fresh(kind);
      const StateDict before = state_of(*other);
      StateDict broken = saved;
      broken.set(name, Tensor::ones({2, 3, 5, 7}, DType::UInt8));
      CHECK_THROWS_WITH_AS(other->load_state(broken, "x."), doctest::Contains(name.c_str()),
                           ArgumentError);
      check_equal(state_of(*other), before);
    }
  }
}

TEST_CASE("collectors: merging two that saw one batch is the same as seeing it twice") {
  std::size_t merged = 0;
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr one = fresh(kind);
    const CollectorPtr other = fresh(kind);
    const CollectorPtr twice = fresh(kind);
    if (takes_one_batch(*one)) continue;
    one->update(batch(1));
    other->update(batch(1));
    const StateDict seen = state_of(*other);
    if (!merge(*one, *other)) continue;
    ++merged;
    twice->update(batch(1));
    twice->update(batch(1));
    check_equal(state_of(*one), state_of(*twice));
    check_equal(state_of(*other), seen);
    // With none, in either order.
    const CollectorPtr none = fresh(kind);
    other->merge(*none);
    check_equal(state_of(*other), seen);
    none->merge(*other);
    check_equal(state_of(*none), seen);
  }
  CHECK(merged >= 13);
}

TEST_CASE("collectors: another class and other settings are refused by every merge") {
  struct Stranger final : Collector {
    std::string name() const override { return "Stranger"; }
    void update(const Tensor& /*x*/) override {}
    bool has_data() const override { return false; }
    void reset() override {}
    CollectorPtr copy() const override { return copy_of(*this); }
  };
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = fresh(kind);
    CHECK_THROWS_AS(collector->merge(Stranger()), Error);
    CHECK_THROWS_AS(Stranger().merge(*collector), UnsupportedError);
    if (kind.defaults.find("reduce_range") == nullptr) continue;
    CHECK_THROWS_AS(collector->merge(*kind.make({{"dtype", "torch.qint32"}})), Error);
  }
}

TEST_CASE("collectors: many threads may share one of every kind") {
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = fresh(kind);
    if (takes_one_batch(*collector)) continue;
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      threads.emplace_back([&, seed] {
        collector->update(batch(seed));
        static_cast<void>(collector->has_data());
        static_cast<void>(state_of(*collector->clone()));
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK((collector->has_data() || takes_anything(*collector)));
  }
}

TEST_CASE("histograms that are merged over different ranges keep every value") {
  const auto total = [](const std::vector<float>& counts) {
    double sum = 0.0;
    for (const float count : counts) sum += static_cast<double>(count);
    return sum;
  };
  aimet::PercentileAnalyzer analyzer({.histogram = {.num_bins = 64}});
  aimet::PercentileAnalyzer other_analyzer({.histogram = {.num_bins = 64}});
  modelopt::HistogramCalibrator calibrator({.num_bins = 100});
  modelopt::HistogramCalibrator other_calibrator({.num_bins = 100});
  HistogramObserver observer({.bins = 64});
  HistogramObserver other_observer({.bins = 64});
  for (Collector* each : {static_cast<Collector*>(&analyzer), static_cast<Collector*>(&calibrator),
                          static_cast<Collector*>(&observer)}) {
    each->update(batch(1));
  }
  for (Collector* each :
       {static_cast<Collector*>(&other_analyzer), static_cast<Collector*>(&other_calibrator),
        static_cast<Collector*>(&other_observer)}) {
    each->update(batch(2, 2.5));
  }
  analyzer.merge(other_analyzer);
  calibrator.merge(other_calibrator);
  observer.merge(other_observer);
  const double values = 2.0 * static_cast<double>(batch(1).numel());
  CHECK(total(analyzer.histograms().at(0).counts) == values);
  CHECK(total(calibrator.histogram().to_float_vector()) == values);
  CHECK(total(observer.histogram().to_float_vector()) == doctest::Approx(values).epsilon(1e-6));
  CHECK(calibrator.bin_edges().to_float_vector().back() >=
        other_calibrator.bin_edges().to_float_vector().back());
  CHECK(analyzer.histograms().at(0).max == other_analyzer.histograms().at(0).max);
}

TEST_CASE("float32 counts stop at 2^24 however they grow") {
  for (const float start : {0.0F, 16777214.0F, 16777216.0F, 16777218.0F, 0.5F}) {
    std::vector<float> counts{start};
    float expected = start;
    for (int i = 0; i < 5; ++i) expected += 1.0F;
    detail::add_counts(counts, {5});
    CHECK(counts[0] == expected);
  }
}

}  // namespace quanta
