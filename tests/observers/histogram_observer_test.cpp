#include "quanta/observers/histogram_observer.h"

#include <doctest/doctest.h>

#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "quanta/observers/detail/bin_math.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "support/threads.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor linspace(float start, float end, std::int64_t count) {
  Tensor x = Tensor::empty({count});
  const float step = (end - start) / static_cast<float>(count - 1);
  auto* data = x.mutable_data<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    data[i] = i < count / 2 ? start + step * static_cast<float>(i)
                            : end - step * static_cast<float>(count - 1 - i);
  }
  return x;
}

Tensor random_tensor(const Dims& sizes, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  Tensor x = Tensor::empty(sizes);
  auto* data = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) data[i] = normal(generator);
  return x;
}

double mass(const HistogramObserver& observer) {
  const std::vector<float> counts = observer.histogram().to_float_vector();
  return std::accumulate(counts.begin(), counts.end(), 0.0);
}

}  // namespace

TEST_CASE("HistogramObserver: a batch that widens the range gives torch's counts and search") {
  HistogramObserver observer({.bins = 16});
  observer.forward(linspace(-1, 1, 50));
  std::vector<float> second = linspace(-0.5F, 0.5F, 60).to_float_vector();
  second.push_back(6.0F);
  observer.forward(Tensor::from_values(second, {61}));
  CHECK(observer.histogram().to_float_vector() ==
        std::vector<float>{11.5, 33.5, 35.5, 22.5, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  CHECK(observer.min_val().item() == -1.0);
  CHECK(observer.max_val().item() == 6.0);
  CHECK(observer.search_range().min == -1.0F);
  CHECK(observer.search_range().max == 5.5625F);
  const ObservedQParams qparams = observer.calculate_qparams();
  CHECK(qparams.scale.item() == doctest::Approx(0.025735294).epsilon(1e-6));
  CHECK(qparams.zero_point.to_int64_vector() == std::vector<std::int64_t>{39});
}

TEST_CASE("HistogramObserver: counts follow histc with the last bin closed") {
  for (const std::int64_t bins : {1, 7, 100, 2048, 5000}) {
    for (const std::int64_t count : {5, 37, 1030, 200003}) {
      CAPTURE(bins);
      CAPTURE(count);
      const Tensor x = random_tensor({count}, 3);
      HistogramObserver observer({.bins = bins});
      observer.forward(x);
      const auto low = static_cast<float>(observer.min_val().item());
      const auto high = static_cast<float>(observer.max_val().item());
      std::vector<float> want(static_cast<std::size_t>(bins));
      for (const float value : x.to_float_vector()) {
        auto bin =
            static_cast<std::size_t>((value - low) * static_cast<float>(bins) / (high - low));
        if (bin == static_cast<std::size_t>(bins)) --bin;
        want[bin] += 1.0F;
      }
      CHECK(observer.histogram().to_float_vector() == want);
    }
  }
}

TEST_CASE("HistogramObserver: a constant fills the middle bin and moves as a whole") {
  HistogramObserver observer({.bins = 10});
  observer.forward(Tensor::full({20}, 3.0));
  CHECK(observer.histogram().to_float_vector() ==
        std::vector<float>{0, 0, 0, 0, 0, 20, 0, 0, 0, 0});
  observer.forward(Tensor::from_values({0, 10}));
  CHECK(observer.histogram().to_float_vector() ==
        std::vector<float>{1, 0, 0, 20, 0, 0, 0, 0, 0, 1});
  HistogramObserver huge({.bins = 10});
  huge.forward(Tensor::full({20}, 1e30));
  CHECK(mass(huge) == 20.0);
  CHECK(huge.histogram().to_float_vector()[5] == 20.0F);
}

TEST_CASE("HistogramObserver: widening keeps the mass") {
  HistogramObserver observer;
  double count = 0.0;
  for (std::uint32_t batch = 0; batch < 10; ++batch) {
    Tensor x = random_tensor({1000}, batch);
    auto* data = x.mutable_data<float>();
    for (std::int64_t i = 0; i < 1000; ++i) data[i] *= 1.0F + static_cast<float>(batch);
    observer.forward(x);
    count += 1000.0;
    CHECK(mass(observer) == doctest::Approx(count).epsilon(1e-5));
  }
}

TEST_CASE("HistogramObserver: infinite values are skipped and NaN is refused") {
  HistogramObserver observer({.bins = 4});
  observer.forward(Tensor::from_values({-kInfinity, 0, 1, 2, kInfinity, 4}));
  CHECK(observer.max_val().item() == 4.0);
  CHECK(mass(observer) == 4.0);
  observer.forward(Tensor::from_values({kInfinity, -kInfinity}));
  CHECK(mass(observer) == 4.0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(observer.forward(Tensor::from_values({1, nan, kInfinity})),
                       doctest::Contains("HistogramObserver: x: expected numbers, got NaN"),
                       ArgumentError);
  CHECK(mass(observer) == 4.0);
}

TEST_CASE("HistogramObserver: values whose range leaves float32 are still counted") {
  HistogramObserver observer({.bins = 4});
  observer.forward(Tensor::from_values({-3e38F, 0, 1, 3e38F}));
  CHECK(observer.histogram().to_float_vector() == std::vector<float>{1, 0, 2, 1});
}

TEST_CASE("HistogramObserver: empty tensors change nothing and no data gives 1 and 0") {
  HistogramObserver observer;
  observer.forward(Tensor::empty({0}));
  CHECK_FALSE(observer.has_data());
  CHECK(observer.calculate_qparams().scale.item() == 1.0);
  CHECK(observer.calculate_qparams().zero_point.item() == 0.0);
  CHECK_THROWS_AS(observer.search_range(), ArgumentError);
  CHECK_THROWS_AS(observer.forward(Tensor::ones({1}, DType::Int64)), ArgumentError);
}

TEST_CASE("HistogramObserver: the search drops a far outlier") {
  HistogramObserver observer;
  // A million values: clipping one by 35 costs less than steps that are five times coarser.
  Tensor x = random_tensor({1000000}, 9);
  x.mutable_data<float>()[0] = 40.0F;
  observer.forward(x);
  MinMaxObserver plain;
  plain.forward(x);
  CHECK(observer.calculate_qparams().scale.item() < 0.5 * plain.calculate_qparams().scale.item());
}

TEST_CASE("HistogramObserver: threads and memory order do not change the result") {
  const Tensor x = random_tensor({4, 16, 50, 50}, 21);
  const test::Threads guard(1);
  HistogramObserver one;
  one.forward(x);
  set_num_threads(3);
  HistogramObserver three;
  three.forward(x.contiguous(MemoryFormat::ChannelsLast));
  CHECK(one.histogram().equal(three.histogram()));
  CHECK(one.search_range().min == three.search_range().min);
  CHECK(one.search_range().max == three.search_range().max);
}

TEST_CASE("HistogramObserver: settings that make no sense are refused at construction") {
  CHECK_THROWS_AS(HistogramObserver({.bins = 0}), ArgumentError);
  CHECK_THROWS_AS(HistogramObserver({.bins = 1 << 25}), ArgumentError);
  CHECK_THROWS_AS(HistogramObserver({.qscheme = QScheme::PerChannelAffine}), UnsupportedError);
  CHECK_THROWS_WITH_AS(HistogramObserver({.is_dynamic = true}), doctest::Contains("is_dynamic"),
                       UnsupportedError);
  CHECK_THROWS_AS(HistogramObserver({.dtype = DType::Float16}), ArgumentError);
  CHECK_THROWS_AS(HistogramObserver({.dtype = DType::Float8E5M2, .quant_min = -8, .quant_max = 7}),
                  UnsupportedError);
}

TEST_CASE("HistogramObserver: merging parts with one range gives exactly the whole") {
  std::mt19937 generator(4);
  for (int round = 0; round < 10; ++round) {
    HistogramObserver whole;
    HistogramObserver first;
    HistogramObserver second;
    for (int batch = 0; batch < 6; ++batch) {
      Tensor x = random_tensor({500}, static_cast<std::uint32_t>(generator()));
      // Every batch reaches the same ends.
      auto* data = x.mutable_data<float>();
      data[0] = -6.0F;
      data[1] = 7.0F;
      whole.forward(x);
      (batch < 1 || (batch < 5 && generator() % 2 == 0) ? first : second).forward(x);
    }
    first.merge(second);
    CHECK(first.histogram().equal(whole.histogram()));
    CHECK(first.calculate_qparams().scale.equal(whole.calculate_qparams().scale));
  }
}

TEST_CASE("HistogramObserver: merging other ranges keeps the range and the mass") {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const Tensor a = random_tensor({3000}, seed);
    const Tensor b = random_tensor({2000}, seed + 100);
    HistogramObserver whole;
    whole.forward(a);
    whole.forward(b);
    HistogramObserver first;
    first.forward(a);
    HistogramObserver second;
    second.forward(b);
    first.merge(second);
    CHECK(first.min_val().equal(whole.min_val()));
    CHECK(first.max_val().equal(whole.max_val()));
    CHECK(mass(first) == doctest::Approx(5000.0));
    CHECK(first.calculate_qparams().scale.item() ==
          doctest::Approx(whole.calculate_qparams().scale.item()).epsilon(0.02));
  }
}

TEST_CASE("HistogramObserver: merging with an empty one and with other settings") {
  HistogramObserver filled;
  filled.forward(linspace(-1, 1, 50));
  HistogramObserver empty;
  filled.merge(empty);
  CHECK(mass(filled) == 50.0);
  empty.merge(filled);
  CHECK(empty.histogram().equal(filled.histogram()));
  CHECK_THROWS_AS(filled.merge(HistogramObserver({.bins = 64})), ArgumentError);
  CHECK_THROWS_AS(filled.merge(HistogramObserver({.reduce_range = true})), ArgumentError);
  CHECK_THROWS_AS(filled.merge(MinMaxObserver()), ArgumentError);
}

TEST_CASE("HistogramObserver: state can be saved and loaded") {
  HistogramObserver observer({.bins = 32});
  observer.forward(random_tensor({100}, 1));
  StateDict state;
  observer.save_state(state, "x.");
  CHECK(state.at("x.histogram").sizes() == Dims{32});
  CHECK(state.at("x.min_val").dim() == 0);
  CHECK(state.at("x.eps").sizes() == Dims{1});
  HistogramObserver loaded({.bins = 32});
  loaded.load_state(state, "x.");
  CHECK(loaded.histogram().equal(observer.histogram()));
  CHECK(loaded.calculate_qparams().scale.equal(observer.calculate_qparams().scale));

  HistogramObserver other({.bins = 16});
  CHECK_THROWS_WITH_AS(other.load_state(state, "x."),
                       doctest::Contains("x.histogram: expected 16 bins, got 32"), ArgumentError);
  StateDict broken = state;
  broken.set("x.histogram", Tensor::full({32}, -1.0));
  CHECK_THROWS_AS(loaded.load_state(broken, "x."), ArgumentError);
  broken = state;
  broken.set("x.max_val", Tensor::scalar(-100));
  CHECK_THROWS_AS(loaded.load_state(broken, "x."), ArgumentError);
  broken.erase("x.max_val");
  CHECK_THROWS_AS(loaded.load_state(broken, "x."), ArgumentError);
  CHECK(loaded.histogram().equal(observer.histogram()));
}

TEST_CASE("HistogramObserver: many threads at once lose no value") {
  std::vector<Tensor> batches;
  for (std::uint32_t i = 0; i < 40; ++i) {
    Tensor x = random_tensor({1000}, i);
    x.mutable_data<float>()[0] = -10.0F;
    x.mutable_data<float>()[1] = 10.0F;
    batches.push_back(x);
  }
  HistogramObserver serial;
  for (const Tensor& batch : batches) serial.forward(batch);
  HistogramObserver shared;
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (std::size_t i = worker; i < batches.size(); i += 4) shared.forward(batches[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(shared.histogram().equal(serial.histogram()));
}

TEST_CASE("bin_of: values outside of the range and NaN have a bin") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const bool is_wide : {false, true}) {
    const detail::BinScale scale{-1.0F, 1.0F, 2.0F, 10, is_wide};
    CHECK(detail::bin_of(-1.0F, scale) == 0);
    CHECK(detail::bin_of(-0.5F, scale) == 2);
    CHECK(detail::bin_of(1.0F, scale) == 9);
    CHECK(detail::bin_of(3e38F, scale) == 9);
    CHECK(detail::bin_of(kInf, scale) == 9);
    CHECK(detail::bin_of(-3e38F, scale) == 0);
    CHECK(detail::bin_of(-kInf, scale) == 0);
    CHECK(detail::bin_of(std::numeric_limits<float>::quiet_NaN(), scale) == 0);
  }
}

}  // namespace quanta
