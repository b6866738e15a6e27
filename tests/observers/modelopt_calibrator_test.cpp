#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/modelopt/detail/histogram_search.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/modelopt/reduce.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

namespace quanta::modelopt {
namespace {

using test::random_tensor;

// The edge with the least divergence, the last of equal ones, from the definition.
double plain_entropy_amax(std::vector<float> counts, const std::vector<float>& edges,
                          std::size_t levels, std::size_t start) {
  counts[0] = counts[1];
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  double best_loss = std::numeric_limits<double>::infinity();
  std::size_t best = counts.size();
  for (std::size_t bins = start; bins <= counts.size(); ++bins) {
    const double width = static_cast<double>(bins) / static_cast<double>(levels);
    std::vector<double> sums(levels);
    std::vector<double> used(levels);
    std::vector<std::size_t> level_of(bins);
    std::size_t level = 0;
    for (std::size_t j = 0; j < bins; ++j) {
      while (level + 1 < levels &&
             static_cast<double>(level + 1) * width <= static_cast<double>(j)) {
        ++level;
      }
      level_of[j] = level;
      sums[level] += static_cast<double>(counts[j]);
      used[level] += counts[j] != 0.0F ? 1.0 : 0.0;
    }
    std::vector<double> quantized(bins);
    for (std::size_t j = 0; j < bins; ++j) {
      if (counts[j] != 0.0F) quantized[j] = sums[level_of[j]] / used[level_of[j]];
    }
    const double kept = std::accumulate(quantized.begin(), quantized.end(), 0.0);
    const double outliers =
        std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(bins), counts.end(), 0.0);
    double loss = 0.0;
    for (std::size_t j = 0; j < bins; ++j) {
      const double p = (static_cast<double>(counts[j]) + (j + 1 == bins ? outliers : 0.0)) / total;
      if (p == 0.0) continue;
      const double q = quantized[j] / kept;
      loss += q > 0.0 ? p * std::log(p / q) : std::numeric_limits<double>::infinity();
    }
    if (std::isnan(loss)) loss = std::numeric_limits<double>::infinity();
    if (loss > best_loss) continue;
    best_loss = loss;
    best = bins;
  }
  return static_cast<double>(edges[best]);
}

TEST_CASE("reduce_amax: the largest magnitudes are those of a plain loop over every axis") {
  const Tensor x = random_tensor({3, 5, 19}, 1);
  const std::vector<float> values = x.to_float_vector();
  for (const Dims& kept : {Dims{}, Dims{0}, Dims{1}, Dims{-1}, Dims{0, 2}, Dims{2, 0, 1}}) {
    const Tensor amax = reduce_amax(x, kept);
    const Dims axes = wrap_axes(kept, 3, "test", "kept");
    const auto keeps = [&](std::int64_t axis) {
      return std::find(axes.begin(), axes.end(), axis) != axes.end();
    };
    const std::int64_t index[] = {keeps(0) ? 3 : 1, keeps(1) ? 5 : 1, keeps(2) ? 19 : 1};
    std::vector<float> want(static_cast<std::size_t>(index[0] * index[1] * index[2]));
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 5; ++j) {
        for (std::int64_t k = 0; k < 19; ++k) {
          const std::int64_t at =
              ((keeps(0) ? i : 0) * index[1] + (keeps(1) ? j : 0)) * index[2] + (keeps(2) ? k : 0);
          float& to = want[static_cast<std::size_t>(at)];
          to = std::max(to, std::fabs(values[static_cast<std::size_t>((i * 5 + j) * 19 + k)]));
        }
      }
    }
    CHECK(amax.to_float_vector() == want);
    CHECK(reduce_amax(x.permute({2, 0, 1}), {}).item() == reduce_amax(x).item());
  }
  CHECK(std::isnan(reduce_amax(Tensor::from_values({1.0F, std::nanf(""), 2.0F})).item()));
  CHECK(reduce_amax(Tensor::ones({200000})).item() == 1.0);
}

TEST_CASE("reduce_block_amax: blocks that do not divide are padded with zeros") {
  const Tensor x = Tensor::from_values({1.0F, -2.0F, 3.0F, 4.0F, 5.0F, -6.0F}, {2, 3});
  CHECK(reduce_block_padding(x, {{-1, 2}}).sizes() == Dims{2, 4});
  CHECK(reduce_block_amax(x, {{-1, 2}}).to_float_vector() ==
        std::vector<float>{2.0F, 3.0F, 5.0F, 6.0F});
  CHECK(reduce_block_amax(x, {{0, 2}, {1, 3}}).to_float_vector() == std::vector<float>{6.0F});
  CHECK_THROWS_WITH_AS(split_blocks(x, {{-1, 2}}),
                       doctest::Contains("block_sizes: expected a divisor of 3"), ArgumentError);
  CHECK_THROWS_WITH_AS(reduce_block_amax(x, {{-1, 0}}), doctest::Contains("got 0"), ArgumentError);
  CHECK_THROWS_AS(reduce_block_amax(x, {{2, 2}}), ArgumentError);
  CHECK_THROWS_WITH_AS(reduce_block_amax(x, {{1, 3}, {-1, 3}}), doctest::Contains("once"),
                       ArgumentError);
}

TEST_CASE("MaxCalibrator: amax is that of all batches and earlier results stay") {
  MaxCalibrator calibrator({0}, MaxCalibrator::Track::EveryAmax);
  CHECK(!calibrator.compute_amax().defined());
  calibrator.collect(Tensor::from_values({1.0F, -3.0F, 2.0F, 0.5F}, {2, 2}));
  const Tensor first = calibrator.compute_amax();
  calibrator.collect(Tensor::from_values({4.0F, 0.0F, 1.0F, 1.0F}, {2, 2}));
  calibrator.collect(Tensor::empty({2, 0}));
  CHECK(first.to_float_vector() == std::vector<float>{3.0F, 2.0F});
  CHECK(calibrator.compute_amax().to_float_vector() == std::vector<float>{4.0F, 2.0F});
  CHECK(calibrator.amaxs().size() == 2);
  CHECK_THROWS_WITH_AS(calibrator.collect(Tensor::full({2, 2}, INFINITY)),
                       doctest::Contains("finite"), ArgumentError);
  CHECK_THROWS_WITH_AS(calibrator.collect(Tensor::ones({3, 2})), doctest::Contains("shape"),
                       ArgumentError);
  CHECK_THROWS_AS(calibrator.collect(Tensor::ones({2}).to(DType::Int32)), ArgumentError);
  const auto copy = calibrator.clone();
  calibrator.reset();
  CHECK(!calibrator.compute_amax().defined());
  CHECK(copy->compute_amax().to_float_vector() == std::vector<float>{4.0F, 2.0F});
}

TEST_CASE("HistogramCalibrator: every value is counted once however often the range grows") {
  for (const auto kind : {HistogramCalibrator::Kind::Torch, HistogramCalibrator::Kind::Numpy}) {
    HistogramCalibrator::Options options;
    options.num_bins = 300;
    options.kind = kind;
    HistogramCalibrator calibrator(options);
    std::int64_t count = 0;
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      const Tensor x = random_tensor({static_cast<std::int64_t>(100 * seed)}, seed);
      calibrator.collect(x);
      count += x.numel();
    }
    double total = 0.0;
    for (const float each : calibrator.histogram().to_float_vector()) {
      total += static_cast<double>(each);
    }
    // numpy's range begins at the first batch's smallest magnitude: fewer than a percent lie below.
    CHECK(total <= static_cast<double>(count));
    CHECK(total >=
          (kind == HistogramCalibrator::Kind::Torch ? 1.0 : 0.97) * static_cast<double>(count));
    CHECK(calibrator.bin_edges().numel() >= calibrator.histogram().numel() + 1);
  }
}

TEST_CASE("HistogramCalibrator: methods leave out a lone outlier and 100 percent does not") {
  HistogramCalibrator calibrator(HistogramCalibrator::Options{});
  Tensor x = random_tensor({20000}, 7);
  x.mutable_data<float>()[5] = 60.0F;
  calibrator.collect(x);
  CHECK(calibrator.compute_amax(HistogramMethod::Entropy).item() < 20.0);
  CHECK(calibrator.compute_amax(HistogramMethod::Percentile, {1, 128, 99.9}).item() < 5.0);
  CHECK(calibrator.compute_amax(HistogramMethod::Percentile, {1, 128, 100.0}).item() > 59.0);
  // Of 4 bits, the least error of the centres clips.
  HistogramCalibrator::Options four;
  four.num_bits = NumBits::integer(4);
  HistogramCalibrator small(four);
  small.collect(x);
  CHECK(small.compute_amax(HistogramMethod::Mse).item() < 20.0);
  CHECK_THROWS_WITH_AS(calibrator.compute_amax(HistogramMethod::Mse, {0}),
                       doctest::Contains("stride"), ArgumentError);
  CHECK_THROWS_WITH_AS(calibrator.compute_amax(HistogramMethod::Entropy, {1, 5000}),
                       doctest::Contains("start_bin"), ArgumentError);
  CHECK_THROWS_WITH_AS(calibrator.collect(Tensor::full({1}, 1e30)), doctest::Contains("bins"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(calibrator.collect(Tensor::full({1}, NAN)), doctest::Contains("finite"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(histogram_method_from_name("foo"), doctest::Contains("got foo"),
                       ArgumentError);
}

TEST_CASE(
    "HistogramCalibrator: the entropy of every candidate is compared as if it were calculated") {
  const auto sparse = [](const Tensor& x) { return mul(x, x.relu()); };
  const std::vector<Tensor> inputs{random_tensor({3000}, 3), random_tensor({60}, 4),
                                   sparse(random_tensor({500}, 5)), Tensor::full({40}, 2.0),
                                   Tensor::from_values({0.01F, 0.02F, 90.0F})};
  for (const Tensor& x : inputs) {
    for (const std::int64_t bits : {2, 4, 8, 12}) {
      for (const std::int64_t bins : {150, 700}) {
        CAPTURE(bits);
        CAPTURE(bins);
        HistogramCalibrator::Options options;
        options.num_bits = NumBits::integer(static_cast<int>(bits));
        options.num_bins = bins;
        HistogramCalibrator calibrator(options);
        calibrator.collect(x);
        const double expected = plain_entropy_amax(
            calibrator.histogram().to_float_vector(), calibrator.bin_edges().to_float_vector(),
            std::size_t{1} << static_cast<unsigned>(bits - 1), 100);
        CHECK(calibrator.compute_amax(HistogramMethod::Entropy, {1, 100}).item() == expected);
      }
    }
  }
}

TEST_CASE("HistogramCalibrator: a search through many bins ends soon or is refused") {
  HistogramCalibrator::Options options;
  options.num_bins = 61440;
  HistogramCalibrator calibrator(options);
  calibrator.collect(random_tensor({100000}, 8));
  CHECK(calibrator.compute_amax(HistogramMethod::Entropy).item() > 1.0);
  options.num_bins = std::int64_t{1} << 24U;
  options.num_bits = NumBits::integer(16);
  HistogramCalibrator large(options);
  large.collect(random_tensor({1000}, 8));
  CHECK_THROWS_WITH_AS(large.compute_amax(HistogramMethod::Entropy),
                       doctest::Contains("stride: expected one with which entropy takes at most"),
                       ArgumentError);
  CHECK(large.compute_amax(HistogramMethod::Entropy, {1 << 18U, 128}).item() > 0.0);
  CHECK_THROWS_WITH_AS(large.compute_amax(HistogramMethod::Mse),
                       doctest::Contains("stride: expected one with which mse takes at most"),
                       ArgumentError);
}

TEST_CASE("HistogramCalibrator: candidates that tie count as what comparing them takes") {
  // Nothing is lost where clipping begins behind the last bin that is used.
  const auto histogram_of = [](std::size_t bins) {
    detail::Counts histogram;
    histogram.counts.assign(bins, 0);
    std::fill_n(histogram.counts.begin(), bins / 2, 1);
    for (std::size_t i = 0; i <= bins; ++i) histogram.edges.push_back(static_cast<float>(i));
    return histogram;
  };
  const detail::SearchGrid grid{.num_bits = NumBits::integer(8)};
  CHECK(detail::amax_by_entropy(histogram_of(2000), grid) == 2000.0F);  // the last of equal ones
  CHECK_THROWS_WITH_AS(detail::amax_by_entropy(histogram_of(140000), grid),
                       doctest::Contains("stride: expected one with which entropy takes at most"),
                       ArgumentError);
  CHECK(detail::amax_by_entropy(histogram_of(70000),
                                {.num_bits = NumBits::integer(8), .stride = 997}) > 60000.0F);
}

TEST_CASE("HistogramCalibrator: batches of zeros are data with an amax of 0") {
  HistogramCalibrator calibrator(HistogramCalibrator::Options{});
  calibrator.collect(Tensor::zeros({5}));
  calibrator.collect(Tensor::zeros({5}));
  CHECK(calibrator.compute_amax(HistogramMethod::Percentile).item() == 0.0);
  calibrator.collect(Tensor::from_values({2.0F}));
  CHECK(calibrator.compute_amax(HistogramMethod::Percentile, {1, 128, 100.0}).item() > 1.9);
}

TEST_CASE("MseCalibrator: the chosen candidate has the least error of all") {
  const Tensor x = random_tensor({6, 200}, 9);
  const Tensor amax = reduce_amax(x, {0});
  const auto quantize = [](const Tensor& values, const Tensor& largest) {
    return fake_tensor_quant(values, largest, {{3, false, false}});
  };
  MseCalibrator calibrator(amax, {{0}, 0.1, 0.25, 1.0, quantize});
  calibrator.collect(x);
  const std::vector<float> losses = calibrator.losses().to_float_vector();
  const std::vector<float> best = calibrator.compute_amax().to_float_vector();
  for (std::size_t row = 0; row < 6; ++row) {
    const Tensor values = x[static_cast<std::int64_t>(row)];
    const auto error = [&](float largest) {
      const std::vector<float> from = values.to_float_vector();
      const std::vector<float> to =
          quantize(values, Tensor::scalar(static_cast<double>(largest))).to_float_vector();
      double sum = 0.0;
      for (std::size_t i = 0; i < from.size(); ++i) sum += std::pow(from[i] - to[i], 2.0);
      return sum;
    };
    for (std::size_t i = 0; i < losses.size() / 6; ++i) {
      CHECK(error(best[row]) <= static_cast<double>(losses[i * 6 + row]) * (1.0 + 1e-5));
    }
  }
  CHECK_THROWS_WITH_AS(MseCalibrator(amax, {{0}, 0.0}), doctest::Contains("step_size"),
                       ArgumentError);
  NvFp4MseCalibrator nvfp4(amax, reduce_amax(x), {{0}, 0.1, 0.25, 4.0, quantize});
  nvfp4.collect(x);
  CHECK(nvfp4.losses().size(0) == 126);
  CHECK_THROWS_AS(nvfp4.collect(x), ArgumentError);
}

TEST_CASE("calibrate_weight: each channel is looked at alone") {
  const Tensor weight = random_tensor({4, 3, 50}, 10);
  const Tensor largest = calibrate_weight(weight, {WeightMethod::Max, {0}});
  const Tensor percentile = calibrate_weight(weight, {WeightMethod::Percentile, {0}, 90.0});
  CHECK(percentile.sizes() == Dims{4, 1, 1});
  for (std::int64_t c = 0; c < 4; ++c) {
    const Tensor alone = calibrate_weight(weight[c], {WeightMethod::Percentile, {}, 90.0});
    CHECK(percentile[c].reshape({}).item() == alone.item());
    CHECK(percentile[c].reshape({}).item() < largest[c].reshape({}).item());
  }
  CHECK(calibrate_weight(weight, {WeightMethod::Mse, {}}).dim() == 0);
}

TEST_CASE("BiasCalibrator: without an axis the bias is one number for the whole tensor") {
  BiasCalibrator middle(BiasCalibrator::Method::MaxMin, {});
  BiasCalibrator average(BiasCalibrator::Method::Mean, {});
  for (BiasCalibrator* each : {&middle, &average}) {
    each->collect(Tensor::from_values({1.0F, 2.0F, 3.0F, 6.0F}, {2, 2}));
    each->collect(Tensor::from_values({-4.0F, 0.0F, 1.0F}));
    CHECK(each->compute_bias().sizes() == Dims{});
  }
  CHECK(middle.compute_bias().item() == 1.0);
  CHECK(average.compute_bias().item() == 1.0);
}

TEST_CASE("BiasCalibrator: a count of batches that no double holds is refused") {
  BiasCalibrator calibrator(BiasCalibrator::Method::Mean, {});
  calibrator.collect(Tensor::from_values({1.0F, 3.0F}));
  StateDict state;
  calibrator.save_state(state, "");
  state.set("batches", Tensor::from_int64(std::array{std::numeric_limits<std::int64_t>::max()}));
  BiasCalibrator other(BiasCalibrator::Method::Mean, {});
  CHECK_THROWS_WITH_AS(other.load_state(state, ""),
                       doctest::Contains("batches: expected a whole number from 0 to 2^53"),
                       ArgumentError);
}

TEST_CASE("BiasCalibrator: a shape that changes is refused") {
  BiasCalibrator calibrator(BiasCalibrator::Method::MaxMin, {-1});
  calibrator.collect(Tensor::from_values({1.0F, 3.0F, -2.0F, 0.0F}, {2, 2}));
  CHECK(calibrator.compute_bias().to_float_vector() == std::vector<float>{2.0F, -1.0F});
  CHECK_THROWS_WITH_AS(calibrator.collect(Tensor::ones({3, 2})), doctest::Contains("[3, 1]"),
                       ArgumentError);
}

}  // namespace
}  // namespace quanta::modelopt
