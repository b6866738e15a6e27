#include "quanta/observers/statistics_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "observers/collector_support.h"
#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/detail/state.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "support/capture_binding.h"
#include "support/files.h"

namespace quanta {
namespace {

using namespace test;

// A class of a user's own, as short as can be.
struct CounterOptions {
  std::int64_t step = 1;
};
void describe(CounterOptions& options, SettingFields& fields) { fields("step", options.step); }

class Counter final : public Collector {
 public:
  using Options = CounterOptions;
  explicit Counter(const Options& options) : options_(options) {}
  std::string name() const override { return "Counter"; }
  Settings settings() const override { return settings_of(options_); }
  void update(const Tensor& x) override {
    require_floating(x);
    const std::lock_guard lock(mutex_);
    count_ += static_cast<double>(options_.step * x.numel());
  }
  bool has_data() const override {
    const std::lock_guard lock(mutex_);
    return count_ > 0.0;
  }
  void reset() override {
    const std::lock_guard lock(mutex_);
    count_ = 0.0;
  }
  void save_state(StateDict& state, const std::string& prefix) const override {
    const std::lock_guard lock(mutex_);
    state.set(prefix + "count", Tensor::scalar(count_));
  }
  void load_state(const StateDict& state, const std::string& prefix) override {
    const float count = detail::scalar_state(state, prefix + "count");
    const std::lock_guard lock(mutex_);
    count_ = static_cast<double>(count);
  }

 protected:
  CollectorPtr copy() const override { return copy_of(*this); }

 private:
  Options options_;
  double count_ = 0.0;
};

}  // namespace

TEST_CASE("statistics: collectors of every kind come back from one file") {
  const TemporaryFile file;
  Statistics collectors;
  for (const CollectorKind& kind : collector_kinds()) {
    const CollectorPtr collector = fresh(kind);
    collector->update(batch(1));
    collectors.emplace("net." + kind.name, collector);
  }
  collectors.emplace("limited", std::make_shared<aimet::SqnrAnalyzer>(
                                    aimet::SqnrAnalyzerOptions::tf_enhanced({6, 1})));
  collectors.emplace("weights",
                     std::make_shared<PerChannelMinMaxObserver>(
                         PerChannelMinMaxObserverOptions{.dtype = DType::QInt8,
                                                         .qscheme = QScheme::PerChannelSymmetric,
                                                         .quant_min = -127,
                                                         .quant_max = 127}));
  collectors.at("limited")->update(batch(3));
  save_statistics(collectors, file.path);
  const Statistics loaded = load_statistics(file.path);
  REQUIRE(loaded.size() == collectors.size());
  for (const auto& [name, collector] : collectors) {
    CAPTURE_BINDING(name);
    CHECK(loaded.at(name)->name() == collector->name());
    CHECK(loaded.at(name)->settings() == collector->settings());
    check_equal(state_of(*loaded.at(name)), state_of(*collector));
  }
}

TEST_CASE("load_state: an undefined tensor is refused by collectors of every kind") {
  int count = 0;
  for (const CollectorKind& kind : collector_kinds()) {
    CAPTURE(kind.name);
    const CollectorPtr collector = fresh(kind);
    collector->update(batch(1));
    const StateDict before = state_of(*collector);
    for (const auto& [name, tensor] : before) {
      CAPTURE_BINDING(name);
      StateDict state = before;
      state.set(name, Tensor());
      CHECK_THROWS_AS(collector->load_state(state, "x."), ArgumentError);
      check_equal(state_of(*collector), before);
      ++count;
    }
  }
  CHECK(count > 50);
}

TEST_CASE("statistics: what is no file of statistics is refused") {
  const TemporaryFile file;
  CHECK_THROWS_WITH_AS(save_statistics({{"a", nullptr}}, file.path), doctest::Contains("null"),
                       ArgumentError);
  write_safetensors({}, file.path);
  CHECK_THROWS_WITH_AS(load_statistics(file.path), doctest::Contains("quanta.collectors"),
                       FileError);
  const auto refuses = [&](const char* text, const char* reason) {
    write_safetensors({}, file.path, {{"quanta.collectors", text}});
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(load_statistics(file.path), doctest::Contains(reason), Error);
  };
  refuses("[]", "expected an object");
  refuses("{", "expected");
  refuses(R"({"a": 3})", "a: expected an object with the text kind");
  refuses(R"({"a": {"kind": "Foo", "settings": {}}})", "expected one of");
  refuses(R"({"a": {"kind": "MinMaxObserver", "settings": {"eps": "x"}}})",
          "eps: expected a number");
  refuses(R"({"a": {"kind": "MinMaxObserver", "settings": {"foo": 1}}})", "got foo");
  refuses(R"({"a": {"kind": "MinMaxObserver", "settings": {"dtype": {}}}})", "expected a setting");
  refuses(R"({"a": {"kind": "MaxCalibrator", "settings": {"axis": [0.5]}}})", "whole numbers");
  refuses(R"({"a": {"kind": "MinMaxObserver", "settings": {}}})", "a.eps");
}

TEST_CASE("add_collector_kind: a class of one's own is made and stored by name") {
  const CollectorKind kind = collector_kind<Counter>("Counter");
  const auto known = collector_kinds();
  if (std::none_of(known.begin(), known.end(),
                   [](const CollectorKind& each) { return each.name == "Counter"; })) {
    add_collector_kind(kind);
  }
  CHECK_THROWS_WITH_AS(add_collector_kind(kind), doctest::Contains("Counter"), ArgumentError);
  const CollectorPtr counter = make_collector("Counter", {{"step", 2}});
  counter->update(batch(1));
  const TemporaryFile file;
  save_statistics({{"c", counter}}, file.path);
  check_equal(state_of(*load_statistics(file.path).at("c")), state_of(*counter));
  CHECK(to_string(*counter) == "Counter(step=2)");
}

}  // namespace quanta
