#include "quanta/observers/mse_observer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/qparams.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::random_tensor;
using Options = AffineQuantizedMSEObserverOptions;

struct Chosen {
  float min;
  float max;
};

// The search element by element, with sums in double.
Chosen reference(const std::vector<float>& x, std::int64_t steps, const QParamsRule& rule) {
  Chosen best{x[0], x[0]};
  for (const float v : x) best = {std::min(best.min, v), std::max(best.max, v)};
  const float largest = std::max(std::abs(best.min), best.max);
  double least = 1e9;
  for (std::int64_t i = 1; i <= steps; ++i) {
    const float t = largest / static_cast<float>(steps) * static_cast<float>(i);
    const ObservedScale scale = calculate_qparams(-t, t, rule);
    double sum = 0.0;
    for (const float v : x) {
      double code =
          std::nearbyint(v * (1.0F / scale.scale)) + static_cast<double>(scale.zero_point);
      code = std::min(std::max(code, static_cast<double>(rule.range.min)),
                      static_cast<double>(rule.range.max));
      const double back = (code - static_cast<double>(scale.zero_point)) * scale.scale;
      sum += (back - v) * (back - v);
    }
    if (sum / static_cast<double>(x.size()) < least) {
      least = sum / static_cast<double>(x.size());
      best = {-t, t};
    }
  }
  return best;
}

void check_range(const AffineQuantizedMSEObserver& observer, const std::vector<Chosen>& expected) {
  const std::vector<float> min = observer.min_val().to_float_vector();
  const std::vector<float> max = observer.max_val().to_float_vector();
  REQUIRE(min.size() == expected.size());
  for (std::size_t c = 0; c < expected.size(); ++c) {
    CAPTURE(c);
    CHECK(min[c] == expected[c].min);
    CHECK(max[c] == expected[c].max);
  }
}

std::vector<std::vector<float>> channels_of(const Tensor& x, std::int64_t axis) {
  std::vector<std::vector<float>> rows;
  for (std::int64_t c = 0; c < x.size(axis); ++c)
    rows.push_back(x.select(axis, c).to_float_vector());
  return rows;
}

}  // namespace

TEST_CASE("AffineQuantizedMSEObserver: the range of a tensor is that of the plain search") {
  for (const Options& options :
       {Options{}, Options{.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric},
        Options{.steps = 7, .quant_min = 0, .quant_max = 15}}) {
    for (const std::int64_t count : {1, 17, 4001}) {
      CAPTURE(count);
      Tensor x = random_tensor({count}, static_cast<std::uint64_t>(count));
      if (count > 1) x.mutable_data<float>()[count / 2] = 11.0F;  // an outlier
      AffineQuantizedMSEObserver observer(options);
      observer.forward(x);
      check_range(observer, {reference(x.to_float_vector(), options.steps, observer.rule())});
    }
  }
}

TEST_CASE("AffineQuantizedMSEObserver: each channel has its own range along any axis") {
  Tensor x = random_tensor({3, 5, 4, 6}, 3);
  for (std::int64_t i = 0; i < 24; ++i) x.mutable_data<float>()[24 + i] = 0.0F;  // [0, 1]
  for (const std::int64_t axis : {0, 1, -1}) {
    CAPTURE(axis);
    for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
      const Options options{.dtype = DType::QInt8,
                            .qscheme = QScheme::PerChannelSymmetric,
                            .ch_axis = axis,
                            .quant_min = -8,
                            .quant_max = 7};
      AffineQuantizedMSEObserver observer(options);
      observer.update(x.contiguous(format));
      std::vector<Chosen> expected;
      for (const std::vector<float>& row : channels_of(x, axis < 0 ? axis + x.dim() : axis)) {
        expected.push_back(reference(row, options.steps, observer.rule()));
      }
      check_range(observer, expected);
      const ObservedQParams qparams = observer.calculate_qparams();
      for (std::size_t c = 0; c < expected.size(); ++c) {
        const ObservedScale scale =
            calculate_qparams(expected[c].min, expected[c].max, observer.rule());
        CHECK(qparams.scale.to_float_vector()[c] == scale.scale);
        CHECK(qparams.zero_point.to_int64_vector()[c] == scale.zero_point);
      }
    }
  }
}

TEST_CASE("AffineQuantizedMSEObserver: an outlier that costs more than it is worth is cut off") {
  Tensor x = random_tensor({4096}, 5);
  x.mutable_data<float>()[100] = 40.0F;
  AffineQuantizedMSEObserver narrow({.quant_min = 0, .quant_max = 15});
  narrow.update(x);
  CHECK(narrow.max_val().item() < 20.0);
  CHECK(narrow.min_val().item() == -narrow.max_val().item());
  // 255 steps are fine enough for all of it.
  AffineQuantizedMSEObserver wide;
  wide.update(x);
  CHECK(wide.max_val().item() > 2.0 * narrow.max_val().item());
}

TEST_CASE("AffineQuantizedMSEObserver: threads and other dtypes choose the same range") {
  const Tensor x = random_tensor({64, 500}, 6).to(DType::BFloat16);
  const Options options{.qscheme = QScheme::PerChannelAffine, .steps = 20};
  AffineQuantizedMSEObserver one(options);
  AffineQuantizedMSEObserver wide(options);
  AffineQuantizedMSEObserver many(options);
  const int before = get_num_threads();
  set_num_threads(1);
  one.update(x);
  wide.update(x.to(DType::Float64));
  set_num_threads(4);
  many.update(x);
  set_num_threads(before);
  CHECK(one.min_val().equal(many.min_val()));
  CHECK(one.max_val().equal(many.max_val()));
  CHECK(one.max_val().equal(wide.max_val()));
}

TEST_CASE("AffineQuantizedMSEObserver: the last tensor counts or with run_once the first one") {
  const Tensor first = random_tensor({100}, 7);
  const Tensor second = random_tensor({100}, 8);
  const auto range = [](const AffineQuantizedMSEObserver& observer) {
    return observer.max_val().item();
  };
  AffineQuantizedMSEObserver only_first;
  only_first.update(first);
  AffineQuantizedMSEObserver only_second;
  only_second.update(second);
  REQUIRE(range(only_first) != range(only_second));

  AffineQuantizedMSEObserver both;
  both.update(first);
  both.update(second);
  CHECK(range(both) == range(only_second));
  AffineQuantizedMSEObserver once({.run_once = true});
  CHECK_FALSE(once.has_data());
  once.update(first);
  once.update(second);
  CHECK(range(once) == range(only_first));
  once.reset();
  once.update(second);
  CHECK(range(once) == range(only_second));
}

TEST_CASE("AffineQuantizedMSEObserver: NaN and infinity are refused") {
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Tensor x = random_tensor({10}, 9);
    x.mutable_data<float>()[3] = odd;
    AffineQuantizedMSEObserver observer;
    CHECK_THROWS_WITH_AS(observer.update(x), doctest::Contains("x: expected finite values"),
                         ArgumentError);
    CHECK_FALSE(observer.has_data());
  }
}

TEST_CASE("AffineQuantizedMSEObserver: settings that cannot be are refused by name") {
  CHECK_THROWS_WITH_AS(AffineQuantizedMSEObserver({.steps = 0}),
                       "AffineQuantizedMSEObserver: steps: expected at least 1, got 0",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(
      AffineQuantizedMSEObserver({.qscheme = QScheme::PerChannelAffineFloatQParams}),
      doctest::Contains("qscheme: expected a scheme with integer zero points"), UnsupportedError);
  AffineQuantizedMSEObserver one;
  const AffineQuantizedMSEObserver other;
  CHECK_THROWS_WITH_AS(one.merge(other),
                       doctest::Contains("merge: expected an observer that does not depend"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(
      AffineQuantizedMSEObserver({.qscheme = QScheme::PerChannelAffine, .ch_axis = 3})
          .update(Tensor::ones({2, 2})),
      doctest::Contains("AffineQuantizedMSEObserver: ch_axis"), ArgumentError);
  CHECK_THROWS_WITH_AS(one.set_batch_reduction([](ValueRange&) {}),
                       doctest::Contains("set_batch_reduction: expected an observer of the"),
                       UnsupportedError);
  const ObserverFactory factory = AffineQuantizedMSEObserver::with_args({.steps = 50});
  CHECK(factory.name == "AffineQuantizedMSEObserver(steps=50)");
  CHECK(factory()->name() == "AffineQuantizedMSEObserver");
}

}  // namespace quanta
