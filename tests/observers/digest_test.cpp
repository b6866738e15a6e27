#include "quanta/observers/digest.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "observers/collector_support.h"
#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/format_fake_quantize.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/observers/mse_observer.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "support/capture_binding.h"

namespace quanta {
namespace {

using namespace test;
using modelopt::ConfigValue;
using modelopt::HistogramCalibrator;
using modelopt::MaxCalibrator;
using modelopt::QuantizerConfig;
using modelopt::TensorQuantizer;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Make = std::function<CollectorPtr()>;

template <typename Options>
Make quantizer(const Options& options) {
  return [options] {
    auto made = std::make_shared<TensorQuantizer>(options);
    made->enable_calib();
    made->disable_quant();
    return made;
  };
}

Make fake(const ObserverFactory& factory) {
  return [factory]() -> CollectorPtr {
    const auto made = std::dynamic_pointer_cast<FakeQuantizeBase>(factory());
    REQUIRE(made != nullptr);
    made->disable_fake_quant();
    return made;
  };
}

QuantizerConfig config(std::initializer_list<std::pair<ConfigValue, ConfigValue>> entries) {
  return QuantizerConfig::from_dict(ConfigValue::dict(entries));
}

// Every kind as it comes, and with settings that make it work in another way.
std::map<std::string, Make> all_makers() {
  std::map<std::string, Make> makers;
  for (const CollectorKind& kind : collector_kinds())
    makers[kind.name] = [kind] { return fresh(kind); };
  const auto add = [&](const std::string& name, const std::string& kind, const Settings& settings) {
    makers[name] = [kind, settings] { return make_collector(kind, settings); };
  };
  add("per channel", "PerChannelMinMaxObserver", {{"ch_axis", 1}});
  add("fast average", "MovingAverageMinMaxObserver", {{"averaging_constant", 0.3}});
  add("few bins", "HistogramObserver", {{"bins", 37}});
  add("first only", "AffineQuantizedMSEObserver", {{"run_once", true}});
  add("every amax", "MaxCalibrator", {{"axis", Dims{0}}, {"track_amax", true}});
  add("bias of columns", "BiasCalibrator", {{"axis", Dims{0}}});
  add("numpy", "HistogramCalibrator", {{"torch_hist", false}, {"num_bins", 100}});
  add("without zeros", "HistogramCalibrator", {{"skip_zeros", true}, {"num_bins", 64}});
  add("rows", "PercentileAnalyzer", {{"shape", Dims{6, 1}}, {"num_bins", 50}});
  add("limited", "SqnrAnalyzer", {{"num_bins", 33}, {"growth_limit", 3.0}});
  add("ranges of rows", "MinMaxAnalyzer", {{"shape", Dims{6, 1}}});

  makers["fake"] = fake(FakeQuantize::with_args());
  makers["fake of histogram"] = fake(FakeQuantize::with_args(HistogramObserver::with_args()));
  makers["fake per channel"] = fake(FakeQuantize::with_args(PerChannelMinMaxObserver::with_args()));
  makers["fake of fixed"] =
      fake(FakeQuantize::with_args(FixedQParamsObserver::with_args({.scale = 1.0 / 256})));
  makers["fused"] = fake(FusedMovingAvgObsFakeQuantize::with_args());
  makers["fused per channel"] = fake(FusedMovingAvgObsFakeQuantize::with_args(
      MovingAveragePerChannelMinMaxObserver::with_args({.averaging_constant = 0.2})));
  makers["learnable"] = fake(LearnableFakeQuantize::with_args());
  makers["learnable of magnitudes"] = fake(LearnableFakeQuantize::with_args(
      {.observer = MovingAverageMinMaxObserver::with_args(
           {.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric}),
       .mean_magnitude_start = true}));
  makers["learnable per channel"] = fake(LearnableFakeQuantize::with_args(
      {.observer = MovingAveragePerChannelMinMaxObserver::with_args()}));
  makers["format"] = fake(FormatFakeQuantize::with_args({}));

  makers["quantizer"] = quantizer(QuantizerConfig());
  makers["quantizer of an axis"] = quantizer(config({{"axis", 0}}));
  makers["quantizer of a histogram"] = quantizer(config({{"calibrator", "histogram"}}));
  makers["quantizer of blocks"] =
      quantizer(config({{"num_bits", 4}, {"block_sizes", ConfigValue::dict({{-1, 8}})}}));
  return makers;
}

std::vector<std::byte> bits_of(const Collector& collector) {
  StateDict state;
  collector.save_gathered(state, "x.");
  return serialize_safetensors(state);
}

// Ranges that grow in either direction, on several of the ranks, and a batch of zeros.
std::vector<Tensor> batches_for(const Collector& collector) {
  if (takes_one_batch(collector)) return {batch(1)};
  std::vector<Tensor> batches;
  std::uint64_t seed = 0;
  for (const double spread : {0.0, 1.0, 0.4, 3.0, 0.2, 2.0, 6.0, 0.1, 1.0, 9.0, 9.5, 0.5, 4.0}) {
    batches.push_back(batch(++seed, spread));
  }
  return batches;
}

CollectorPtr seen_in_order(const Make& make, const std::vector<Tensor>& batches) {
  CollectorPtr collector = make();
  for (const Tensor& x : batches) collector->update(x);
  return collector;
}

void take(Collector& collector, const Digest& digest) {
  if (digest.is_empty()) return;
  const bool absorbed = collector.absorb(digest);
  REQUIRE(absorbed);
}

// What `ranks` that see a part of the batches each find out, absorbed by one collector: first the
// ranges, which fix the frame in which each rank begins, then the rest.
CollectorPtr shared_by(int ranks, const Make& make, const std::vector<Tensor>& batches) {
  const auto begin_of = [&](int rank) {
    return batches.size() * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
  };
  std::vector<ValueRange> ranges;
  std::vector<Digest> digests;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t begin = begin_of(rank);
    const std::size_t end = begin_of(rank + 1);
    const CollectorPtr collector = make();
    if (collector->digests() == DigestKind::Framed) {
      for (const ValueRange& range : ranges) collector->move_frame(range);
      const CollectorPtr alone = make();
      for (std::size_t i = begin; i < end; ++i) {
        const Digest found = alone->digest(batches[i]);
        if (!found.is_empty()) ranges.push_back(found.range);
        take(*alone, found);
      }
    }
    std::optional<Digest> last;
    for (std::size_t i = begin; i < end; ++i) {
      Digest found = collector->digest(batches[i]);
      take(*collector, found);
      if (found.is_empty() || (last && collector->join(*last, found))) continue;
      if (last) digests.push_back(std::move(*last));
      last = std::move(found);
    }
    if (last) digests.push_back(std::move(*last));
  }
  CollectorPtr together = make();
  for (const Digest& digest : digests) take(*together, digest);
  return together;
}

}  // namespace

TEST_CASE("digests: shares of the batches give the bits of one collector that sees them in order") {
  for (const auto& [name, make] : all_makers()) {
    CAPTURE_BINDING(name);
    const std::vector<Tensor> batches = batches_for(*make());
    const CollectorPtr expected = seen_in_order(make, batches);
    for (int ranks = 1; ranks <= 5; ++ranks) {
      CAPTURE(ranks);
      const CollectorPtr together = shared_by(ranks, make, batches);
      CHECK(bits_of(*together) == bits_of(*expected));
      CHECK(together->has_data() == expected->has_data());
    }
    // Statistics that every batch leaves as they are would be alike for any ranks.
    const bool changes = !takes_anything(*expected) || expected->name() == "RecordingObserver";
    if (changes) CHECK(bits_of(*make()) != bits_of(*expected));
  }
}

TEST_CASE("digests: more ranks than batches leave ranks that give nothing") {
  for (const auto& [name, make] : all_makers()) {
    CAPTURE_BINDING(name);
    const std::vector<Tensor> batches{batch(3, 2.0)};
    CHECK(bits_of(*shared_by(4, make, batches)) == bits_of(*seen_in_order(make, batches)));
    CHECK(make()->digest(Tensor::ones({6, 40})).is_empty() == false);
  }
}

TEST_CASE("digests: values that are not finite count in analyzers as they do in order") {
  for (const char* name : {"rows", "limited", "PercentileAnalyzer", "HistogramObserver"}) {
    CAPTURE(name);
    const Make make = all_makers().at(name);
    std::vector<Tensor> batches;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      batches.push_back(batch(seed, static_cast<double>(seed % 4)));
      auto* values = batches.back().mutable_data<float>();
      values[seed] = seed % 2 == 0 ? kInfinity : -kInfinity;
      // A whole row without a finite number.
      if (seed % 3 == 0) std::fill_n(values, 40, kInfinity);
    }
    const std::vector<std::byte> expected = bits_of(*seen_in_order(make, batches));
    for (int ranks = 2; ranks <= 4; ++ranks) {
      CHECK(bits_of(*shared_by(ranks, make, batches)) == expected);
    }
  }
}

TEST_CASE("digests: counts beyond 2^24 stop growing whichever digest they come from") {
  const Make make = [] { return make_collector("PercentileAnalyzer", {{"num_bins", 2}}); };
  const Tensor ends = Tensor::from_values({-1.0F, 1.0F}, {2});
  const Tensor many = Tensor::ones({(std::int64_t{1} << 22) + 1});
  const std::vector<Tensor> batches{ends, many, many, many, many, many};
  CHECK(bits_of(*shared_by(2, make, batches)) == bits_of(*seen_in_order(make, batches)));
}

TEST_CASE("digests: one of another frame is not absorbed and changes nothing") {
  for (const char* name : {"HistogramObserver", "HistogramCalibrator", "numpy", "rows", "limited",
                           "fake of histogram", "quantizer of a histogram"}) {
    CAPTURE(name);
    const CollectorPtr collector = all_makers().at(name)();
    REQUIRE(collector->digests() == DigestKind::Framed);
    collector->update(batch(1));
    const Digest early = collector->digest(batch(2, 0.5));
    collector->update(batch(3, 2.0));
    const std::vector<std::byte> before = bits_of(*collector);
    const bool absorbed = collector->absorb(early);
    CHECK_FALSE(absorbed);
    CHECK(bits_of(*collector) == before);
    take(*collector, collector->digest(batch(2, 0.5)));
    CHECK(bits_of(*collector) != before);
  }
}

TEST_CASE("digests: a frame that is moved counts nothing") {
  for (const char* name : {"HistogramObserver", "HistogramCalibrator", "numpy", "limited"}) {
    CAPTURE(name);
    const CollectorPtr collector = all_makers().at(name)();
    collector->update(batch(1));
    const auto sum = [&] {
      StateDict state;
      collector->save_state(state, "");
      const Tensor counts = state.at("histogram").to(DType::Float64);
      double total = 0.0;
      for (std::int64_t i = 0; i < counts.numel(); ++i) total += counts.data<double>()[i];
      return total;
    };
    CHECK(sum() == 240.0);
    const std::vector<std::byte> before = bits_of(*collector);
    collector->move_frame({{0.0F}, {20.0F}});
    CHECK(sum() == 240.0);
    CHECK(bits_of(*collector) != before);
  }
  CHECK_THROWS_AS(MinMaxObserver().move_frame({{0.0F}, {1.0F}}), UnsupportedError);
}

TEST_CASE("digests: a listener hears what update has absorbed and copies have none") {
  MinMaxObserver observer;
  std::vector<Digest> heard;
  observer.set_listener([&](const Digest& digest) { heard.push_back(digest); });
  observer.forward(Tensor::from_values({-1.0F, 4.0F}, {2}));
  observer.update(Tensor::empty({0}));
  observer.clone()->update(Tensor::ones({3}));
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].range == ValueRange{{-1.0F}, {4.0F}});
  observer.set_listener({});
  observer.update(Tensor::ones({3}));
  CHECK(heard.size() == 1);

  // Fake quantizers and quantizers tell it as well, when they are called as a network calls them.
  for (const char* name : {"fake", "fused", "learnable", "quantizer", "quantizer of blocks"}) {
    CAPTURE(name);
    heard.clear();
    const CollectorPtr collector = all_makers().at(name)();
    collector->set_listener([&](const Digest& digest) { heard.push_back(digest); });
    std::static_pointer_cast<Observer>(collector)->forward(batch(1));
    CHECK(heard.size() == 1);
  }
}

TEST_CASE("digests: threads that share a histogram lose no value") {
  for (const char* name : {"HistogramObserver", "HistogramCalibrator", "rows"}) {
    CAPTURE(name);
    const CollectorPtr collector = all_makers().at(name)();
    std::vector<std::thread> threads;
    for (std::uint64_t i = 1; i <= 4; ++i) {
      threads.emplace_back([&, i] {
        for (std::uint64_t step = 0; step < 5; ++step) {
          collector->update(batch(10 * i + step, static_cast<double>(1 + step)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    StateDict state;
    collector->save_state(state, "");
    const Tensor counts = state.at("histogram").to(DType::Float64);
    double total = 0.0;
    for (std::int64_t i = 0; i < counts.numel(); ++i) total += counts.data<double>()[i];
    CHECK(total == doctest::Approx(4 * 5 * 240.0).epsilon(1e-5));
  }
}

TEST_CASE("digests: what was gathered goes on in another object") {
  for (const auto& [name, make] : all_makers()) {
    CAPTURE_BINDING(name);
    const CollectorPtr first = make();
    if (takes_one_batch(*first)) continue;
    for (const int count : {0, 1, 2}) {
      CAPTURE(count);
      const CollectorPtr before = make();
      for (int i = 0; i < count; ++i) before->update(batch(static_cast<std::uint64_t>(i + 1)));
      StateDict state;
      before->save_gathered(state, "x.");
      const CollectorPtr after = make();
      after->update(batch(9, 5.0));
      after->load_gathered(state, "x.");
      CHECK(bits_of(*after) == bits_of(*before));
      before->update(batch(4, 3.0));
      after->update(batch(4, 3.0));
      CHECK(bits_of(*after) == bits_of(*before));
    }
  }
}

namespace {

// Of a user's own, as they were written before there were digests.
class CountingObserver : public MinMaxObserver {
 public:
  DigestKind digests() const override { return DigestKind::None; }
  void update(const Tensor& x) override { count_ += x.numel(); }
  bool has_data() const override { return count_ > 0; }
  std::string name() const override { return "CountingObserver"; }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  std::int64_t count_ = 0;
};

}  // namespace

TEST_CASE("digests: classes with an update of their own work inside fake quantizers") {
  const ObserverFactory factory{"CountingObserver",
                                [] { return std::make_shared<CountingObserver>(); }};
  FakeQuantize plain(factory);
  CHECK(plain.digests() == DigestKind::None);
  plain.update(batch(1));
  CHECK(plain.has_data());
  LearnableFakeQuantize learnable({.observer = factory});
  learnable.update(batch(1));
  CHECK(learnable.has_data());
}

TEST_CASE("digests: a quantizer with a static bias has none") {
  QuantizerConfig with_bias;
  with_bias.bias = QuantizerConfig::Bias{{{-1, std::nullopt}}};
  TensorQuantizer biased(with_bias);
  CHECK(biased.digests() == DigestKind::None);
  CHECK_THROWS_WITH_AS(static_cast<void>(biased.digest(batch(1))),
                       doctest::Contains("TensorQuantizer: digest: expected a collector whose "
                                         "update has two halves"),
                       UnsupportedError);
  biased.update(batch(1));
  CHECK(biased.has_data());
}

}  // namespace quanta
