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
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/mse_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/state_dict.h"
#include "schedule_scope.h"
#include "support/capture_binding.h"
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
    CAPTURE_BINDING(name);
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

TEST_CASE("cuda observers: ranges that lose least") {
  Generator generator(6);
  const std::vector<Tensor> batches = batches_of(generator);
  check_same<AffineQuantizedMSEObserver>(batches, AffineQuantizedMSEObserverOptions{.steps = 7});
  const std::vector<Tensor> same_sizes(batches.begin(), batches.begin() + 2);
  for (const std::int64_t axis : {0, 1, 3}) {
    CAPTURE(axis);
    check_same<AffineQuantizedMSEObserver>(
        same_sizes, AffineQuantizedMSEObserverOptions{
                        .qscheme = QScheme::PerChannelSymmetric, .ch_axis = axis, .steps = 5});
  }
  AffineQuantizedMSEObserver observer;
  test::fails({"AffineQuantizedMSEObserver", "finite"},
              [&] { observer.update(Tensor::full({3}, kInfinity, DType::Float32).to(kDevice)); });
  CHECK(!observer.has_data());
}

TEST_CASE("cuda observers: histograms of ModelOpt with bins of both libraries") {
  using modelopt::HistogramCalibrator;
  Generator generator(7);
  std::vector<Tensor> batches = batches_of(generator);
  // Zeros of both signs, nothing else, and a batch beyond the range of those before.
  const Tensor some_zeros = randn({50, 7}, generator);
  for (std::int64_t i = 0; i < some_zeros.numel(); i += 3) {
    some_zeros.mutable_data<float>()[i] = i % 2 == 0 ? 0.0F : -0.0F;
  }
  batches.push_back(some_zeros);
  batches.push_back(Tensor::zeros({5}));
  batches.push_back(randn({41, 23}, generator) * 9.0);
  std::vector<Tensor> turned(batches.rbegin(), batches.rend());
  turned.insert(turned.begin(), Tensor::zeros({3}));
  for (const auto kind : {HistogramCalibrator::Kind::Torch, HistogramCalibrator::Kind::Numpy}) {
    for (const bool skip_zeros : {false, true}) {
      for (const std::int64_t bins : {2, 37, 2048, 9000}) {
        CAPTURE(skip_zeros);
        CAPTURE(bins);
        HistogramCalibrator::Options options;
        options.kind = kind;
        options.skip_zeros = skip_zeros;
        options.num_bins = bins;
        check_same<HistogramCalibrator>(batches, options);
        check_same<HistogramCalibrator>(turned, options);
      }
    }
  }
  HistogramCalibrator calibrator(HistogramCalibrator::Options{});
  calibrator.update(batches[0].to(kDevice));
  const Tensor seen = calibrator.histogram();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    Tensor values = Tensor::ones({40, 3});
    values.mutable_data<float>()[77] = bad;
    test::fails({"HistogramCalibrator", "finite"}, [&] { calibrator.update(values.to(kDevice)); });
  }
  CHECK(calibrator.histogram().equal(seen));
}

TEST_CASE("cuda observers: histograms of AIMET for tensors and channels and blocks") {
  Generator generator(8);
  std::vector<Tensor> batches{randn({6, 10, 33}, generator),
                              randn({6, 10, 33}, generator) * 2.5,
                              Tensor::zeros({6, 10, 33}),
                              Tensor::zeros({0, 10, 33}),
                              randn({6, 10, 33}, generator).to(DType::Float16),
                              randn({33, 10, 6}, generator).transpose(0, 2)};
  const Tensor odd = randn({6, 10, 33}, generator);
  for (std::int64_t i = 0; i < 330; ++i) odd.mutable_data<float>()[i] = kInfinity;
  odd.mutable_data<float>()[400] = std::numeric_limits<float>::quiet_NaN();
  odd.mutable_data<float>()[999] = -kInfinity;
  batches.push_back(odd);
  std::vector<Tensor> turned(batches.rbegin(), batches.rend());
  struct Shape {
    Dims shape, block_size;
  };
  for (const Shape& each : {Shape{{}, {}}, Shape{{6, 1, 1}, {}}, Shape{{10, 1}, {}},
                            Shape{{33}, {}}, Shape{{3, 5, 1}, {2, 2, 33}}}) {
    for (const std::int64_t bins : {1, 16, 300}) {
      CAPTURE(bins);
      CAPTURE(each.shape.size());
      aimet::PercentileAnalyzerOptions options;
      options.histogram = {.shape = each.shape, .block_size = each.block_size, .num_bins = bins};
      if (bins > 1) options.histogram.growth_limit = 1.5;
      check_same<aimet::PercentileAnalyzer>(batches, options);
      check_same<aimet::PercentileAnalyzer>(turned, options);
    }
  }
}

TEST_CASE("cuda observers: calibrators that try amax, and those of biases") {
  Generator generator(9);
  const std::vector<Tensor> batches{randn({6, 5, 33}, generator), randn({6, 5, 33}, generator)};
  check_same<modelopt::BiasCalibrator>(batches, modelopt::BiasCalibrator::Method::Mean, Dims{0, 2});
  check_same<modelopt::BiasCalibrator>(batches, modelopt::BiasCalibrator::Method::MaxMin, Dims{});
  modelopt::MseCalibrator::Options options;
  options.axis = {0};
  options.quant_func = [](const Tensor& x, const Tensor& amax) {
    return fake_tensor_quant(x, amax);
  };
  const Tensor amax = Tensor::full({6, 1, 1}, 2.5, DType::Float32);
  modelopt::MseCalibrator here(amax, options);
  modelopt::MseCalibrator there(amax, options);
  for (const Tensor& batch : batches) {
    here.update(batch);
    there.update(batch.to(kDevice));
  }
  CHECK(there.compute_amax().equal(here.compute_amax()));
}

}  // namespace quanta
