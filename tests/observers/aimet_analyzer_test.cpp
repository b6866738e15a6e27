#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::aimet {
namespace {

using test::says;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor normal(const Dims& sizes, std::uint64_t seed) {
  Generator generator(seed);
  Tensor x = Tensor::empty(sizes);
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    float sum = -6.0F;
    for (int k = 0; k < 12; ++k) sum += static_cast<float>(generator.uniform());
    values[i] = sum;
  }
  return x;
}

std::vector<std::shared_ptr<EncodingAnalyzer>> analyzers(const Dims& shape,
                                                         const Dims& block_size = {}) {
  PercentileAnalyzerOptions percentile;
  percentile.histogram = {shape, block_size, 256};
  percentile.percentile = 99.0;
  return {std::make_shared<MinMaxAnalyzer>(shape, block_size),
          std::make_shared<PercentileAnalyzer>(percentile),
          std::make_shared<SqnrAnalyzer>(SqnrAnalyzerOptions::tf_enhanced(shape, block_size))};
}

TEST_CASE("analyzers: each entry of the shape is that of its elements alone") {
  const Tensor x = normal({4, 6, 10}, 1);
  const auto whole = analyzers({6, 1});
  const auto single = analyzers({});
  for (std::size_t k = 0; k < whole.size(); ++k) {
    whole[k]->update(x);
    const Range range = whole[k]->compute_range(255, false);
    for (std::int64_t channel = 0; channel < 6; ++channel) {
      const Range alone = single[k]->compute_range_of(x.select(1, channel), 255, false);
      CHECK(range.min[channel].item() == alone.min.item());
      CHECK(range.max[channel].item() == alone.max.item());
    }
  }
}

TEST_CASE("analyzers: channels on a later axis are merged by channel") {
  const auto whole = analyzers({6, 1});
  const auto single = analyzers({});
  for (std::size_t k = 0; k < whole.size(); ++k) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      whole[k]->update(normal({4, 6, 10}, seed));
      single[k]->update(normal({4, 6, 10}, seed).select(1, 2));
    }
    const Range range = whole[k]->compute_range(15, true);
    const Range alone = single[k]->compute_range(15, true);
    CHECK(range.max[2].item() == alone.max.item());
  }
}

TEST_CASE("analyzers: ranges include zero and symmetric ones fit the grid") {
  for (const auto& analyzer : analyzers({})) {
    for (const std::int64_t steps : {2, 15, 255, 65535}) {
      const Tensor positive = Tensor::from_values({1.0F, 2.0F, 2.5F});
      const Range range = analyzer->compute_range_of(positive, steps, false);
      CHECK(range.min.item() <= 0.0);
      CHECK(range.max.item() >= 0.0);
      const Range symmetric = analyzer->compute_range_of(positive, steps, true);
      const auto negative_steps = static_cast<double>((steps + 1) / 2);
      const auto positive_steps = static_cast<double>(steps / 2);
      CHECK(symmetric.min.item() / -negative_steps ==
            doctest::Approx(symmetric.max.item() / positive_steps).epsilon(1e-4));
    }
  }
}

TEST_CASE("MinMaxAnalyzer: the order of batches does not matter") {
  MinMaxAnalyzer forward({5});
  MinMaxAnalyzer backward({5});
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    forward.update(normal({7, 5}, seed));
    backward.update(normal({7, 5}, 3 - seed));
  }
  CHECK(forward.compute_range(255, false).min.equal(backward.compute_range(255, false).min));
  CHECK(forward.compute_range(255, false).max.equal(backward.compute_range(255, false).max));
}

TEST_CASE("MinMaxAnalyzer: a range of zeros is as wide as the smallest scale") {
  MinMaxAnalyzer analyzer;
  analyzer.update(Tensor::zeros({4}));
  const Range range = analyzer.compute_range(255, false);
  CHECK(range.max.item() == doctest::Approx(255.0 * 0x1p-23));
  CHECK(analyzer.compute_range(3, true).max.item() > 0.0);
}

TEST_CASE("histogram analyzers keep every value through merges and survive infinities") {
  PercentileAnalyzerOptions options;
  options.histogram.num_bins = 64;
  PercentileAnalyzer analyzer(options);
  double seen = 0.0;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    Tensor x = normal({300}, seed);
    x.mutable_data<float>()[0] = seed % 2 == 0 ? kInfinity : -kInfinity;
    analyzer.update(x);
    seen += 300.0;
    const std::vector<Histogram<float>> histograms = analyzer.histograms();
    double counted = 0.0;
    for (const float count : histograms.at(0).counts) counted += static_cast<double>(count);
    CHECK(counted == seen);
  }
  CHECK(std::isfinite(analyzer.compute_range(255, false).max.item()));
}

TEST_CASE("SqnrAnalyzer finds less noise than the whole range when there are outliers") {
  Tensor x = normal({4000}, 5);
  x.mutable_data<float>()[17] = 12.0F;
  const auto noise = [&](EncodingAnalyzer& analyzer) {
    const Range range = analyzer.compute_range_of(x, 15, true);
    AffineOptions options;
    options.qmin = -8;
    options.qmax = 7;
    const double scale = (range.max.item() - range.min.item()) / 15.0;
    const std::vector<float> y =
        quantize_dequantize_affine(x, Tensor::scalar(scale), Tensor::scalar(0.0), options)
            .to_float_vector();
    const std::vector<float> from = x.to_float_vector();
    double sum = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += static_cast<double>((y[i] - from[i]) * (y[i] - from[i]));
    }
    return sum;
  };
  MinMaxAnalyzer whole;
  SqnrAnalyzer searched({.gamma = 1.0});
  CHECK(noise(searched) < noise(whole));
}

TEST_CASE("analyzers name what is wrong") {
  for (const auto& analyzer : analyzers({5, 1})) {
    says([&] { static_cast<void>(analyzer->compute_range(255, false)); },
         "expected statistics to be collected");
    says(
        [&] {
          analyzer->update(Tensor::ones({4, 3}));
        },
        "shape: expected a shape that can be expanded to [4, 3], got [5, 1]");
    says(
        [&] {
          analyzer->update(Tensor::ones({5, 3}, DType::Int32));
        },
        "x: expected a floating tensor, got Int32");
    analyzer->update(Tensor::ones({5, 0}));
    CHECK_FALSE(analyzer->has_data());
    analyzer->update(Tensor::ones({5, 3}));
    says([&] { static_cast<void>(analyzer->compute_range(0, false)); },
         "num_steps: expected a number > 0, got 0");
  }
  const auto percentile = [](double p, std::int64_t bins, double growth) {
    return [=] { PercentileAnalyzer({{{}, {}, bins, growth}, p}); };
  };
  says(percentile(49.0, 16, kInfinity), "percentile: expected 50..100, got 49");
  says(percentile(101.0, 16, kInfinity), "percentile: expected 50..100, got 101");
  says(percentile(NAN, 16, kInfinity), "percentile: expected 50..100, got nan");
  says(percentile(99.0, 0, kInfinity), "num_bins: expected 1..2^24, got 0");
  says(percentile(99.0, 16, 0.5), "growth_limit: expected a number >= 1, got 0.5");
  says([] { SqnrAnalyzer({.symmetric_delta_candidates = 1}); }, "delta_candidates: expected");
  says([] { SqnrAnalyzer({.offset_candidates = 2}); }, "offset_candidates: expected at least 3");
  says([] { SqnrAnalyzer({.gamma = 0.0}); }, "gamma: expected gamma and p > 0");
}

}  // namespace
}  // namespace quanta::aimet
