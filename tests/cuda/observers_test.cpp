// Observers that watch tensors on a CUDA device: what they hold and answer is the CPU's, to the last
// bit.

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <vector>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/mse_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/state_dict.h"
#include "schedule_scope.h"
#include "support/compare.h"
#include "support/test_device.h"

namespace quanta {
namespace {

const Device kDevice = test::test_device();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// That both hold the same state after the same batches, one on the CPU, the other on the device.
void check_same_state(Collector& here, Collector& there, const std::vector<Tensor>& batches) {
  for (const Tensor& batch : batches) {
    here.update(batch);
    there.update(batch.to(kDevice));
  }
  StateDict expected;
  StateDict got;
  here.save_state(expected, "");
  there.save_state(got, "");
  REQUIRE(got.size() == expected.size());
  CHECK(!expected.empty());
  for (const auto& [name, value] : expected) {
    CAPTURE(name);
    CHECK(got.at(name).equal(value));
  }
}

template <typename Watcher, typename... Arguments>
void check_same(const std::vector<Tensor>& batches, const Arguments&... arguments) {
  Watcher here(arguments...);
  Watcher there(arguments...);
  check_same_state(here, there, batches);
}

// Odd sizes, more elements than one block of threads takes, other layouts and dtypes, nothing.
std::vector<Tensor> batches_of(Generator& generator) {
  const Tensor image = randn({3, 7, 5, 9}, generator);
  return {image,
          image.contiguous(MemoryFormat::ChannelsLast),
          randn({2, 7, 41, 23}, generator) * 3.0,
          Tensor::zeros({0, 7, 3, 3}),
          randn({1, 7, 1, 1}, generator).to(DType::Float16),
          image.transpose(0, 3).transpose(0, 3).slice(3, 1, 8, 2)};
}

}  // namespace

TEST_CASE("cuda observers: ranges of tensors, of channels, and their averages") {
  Generator generator(1);
  const std::vector<Tensor> batches = batches_of(generator);
  check_same<MinMaxObserver>(batches);
  check_same<MovingAverageMinMaxObserver>(batches);
  for (const std::int64_t axis : {0, 1, 2, 3}) {
    CAPTURE(axis);
    const std::vector<Tensor> same_sizes(batches.begin(), batches.begin() + 2);
    check_same<PerChannelMinMaxObserver>(same_sizes,
                                         PerChannelMinMaxObserverOptions{.ch_axis = axis});
    check_same<MovingAveragePerChannelMinMaxObserver>(
        same_sizes, MovingAveragePerChannelMinMaxObserverOptions{.ch_axis = axis});
  }
  // Entries so long that several threads share each.
  check_same<PerChannelMinMaxObserver>({randn({3, 70, 200}, generator)},
                                       PerChannelMinMaxObserverOptions{.ch_axis = 0});
  check_same<PerChannelMinMaxObserver>({randn({9000, 5}, generator)},
                                       PerChannelMinMaxObserverOptions{.ch_axis = 1});
}

TEST_CASE("cuda observers: histograms that grow, and values without a bin") {
  Generator generator(2);
  std::vector<Tensor> batches = batches_of(generator);
  batches.push_back(Tensor::from_values({-kInfinity, 0.5F, -2.0F, kInfinity}, {4}));
  batches.push_back(Tensor::from_values({kInfinity, kInfinity}, {2}));
  for (const std::int64_t bins : {1, 7, 2048, 3000, 9000}) {
    CAPTURE(bins);
    check_same<HistogramObserver>(batches, HistogramObserverOptions{.bins = bins});
  }
  // One value alone, one so large that a bin has no width, and a range beyond float32.
  for (const float value : {0.0F, -3.5F, 3e38F}) {
    CAPTURE(value);
    check_same<HistogramObserver>({Tensor::full({5, 3}, value, DType::Float32)},
                                  HistogramObserverOptions{.bins = 11});
  }
  check_same<HistogramObserver>({Tensor::from_values({-1e38F, 0.0F, 1e37F, 1.5e38F}, {4})},
                                HistogramObserverOptions{.bins = 16});
}

TEST_CASE("cuda observers: a histogram does not depend on the order in which threads run") {
  Generator generator(3);
  const Tensor x = randn({9001}, generator);
  using Schedule = cuda::emulation::Schedule;
  for (const Schedule schedule : {Schedule::Greedy, Schedule::Lockstep}) {
    const test::ScheduleScope scope(schedule, 5);
    check_same<HistogramObserver>({x}, HistogramObserverOptions{.bins = 64});
    check_same<MinMaxObserver>({x});
    check_same<PerChannelMinMaxObserver>({x.view({-1, 1})});
  }
}

TEST_CASE("cuda observers: calibrators of ModelOpt and analyzers of AIMET") {
  Generator generator(4);
  const std::vector<Tensor> batches{randn({6, 5, 33}, generator), randn({6, 5, 33}, generator)};
  check_same<modelopt::MaxCalibrator>(batches);
  aimet::MinMaxAnalyzer here({6, 1, 1});
  aimet::MinMaxAnalyzer there({6, 1, 1});
  for (const Tensor& batch : batches) {
    here.update(batch);
    there.update(batch.to(kDevice));
  }
  const auto expected = here.compute_range(256, false);
  const auto got = there.compute_range(256, false);
  CHECK(got.min.equal(expected.min));
  CHECK(got.max.equal(expected.max));
}

TEST_CASE("cuda observers: NaN and infinity are refused, and what was seen stays") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Generator generator(5);
  const Tensor good = randn({40, 3}, generator).to(kDevice);
  for (const float bad : {nan, kInfinity, -kInfinity}) {
    CAPTURE(bad);
    Tensor values = Tensor::ones({40, 3});
    values.mutable_data<float>()[77] = bad;
    MinMaxObserver observer;
    PerChannelMinMaxObserver channels({.ch_axis = 1});
    observer.update(good);
    channels.update(good);
    const Tensor seen = observer.max_val();
    test::fails({"MinMaxObserver", "finite"}, [&] { observer.update(values.to(kDevice)); });
    test::fails({"PerChannelMinMaxObserver", "finite"},
                [&] { channels.update(values.to(kDevice)); });
    CHECK(observer.max_val().equal(seen));
  }
  HistogramObserver histogram;
  test::fails({"HistogramObserver", "NaN"},
              [&] { histogram.update(Tensor::full({3}, nan, DType::Float32).to(kDevice)); });
  CHECK(!histogram.has_data());
}

TEST_CASE("cuda observers: classes that look at each value on the host refuse a device by name") {
  AffineQuantizedMSEObserver observer;
  test::fails({"AffineQuantizedMSEObserver", "cpu()", to_string(kDevice)},
              [&] { observer.update(Tensor::ones({3}).to(kDevice)); });
}

}  // namespace quanta
