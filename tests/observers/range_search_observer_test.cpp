#include "quanta/observers/range_search_observer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/mse_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta {
namespace {

Tensor normal(std::int64_t count, std::uint64_t seed = 1) {
  Generator generator(seed);
  return randn({count}, generator);
}

// A bell and an outlier far away.
Tensor with_outlier(float outlier) {
  return cat(std::vector<Tensor>{normal(20000), Tensor::from_values({outlier})}, 0);
}

RangeSearchObserver observed(const RangeSearchObserverOptions& options, const Tensor& x) {
  RangeSearchObserver observer(options);
  observer.update(x);
  return observer;
}

double error_of(const Tensor& x, const Observer& observer) {
  const ObservedQParams found = observer.calculate_qparams();
  const Tensor rounded = fake_quantize_per_tensor_affine(
      x, found.scale, found.zero_point, observer.quant_min(), observer.quant_max());
  const Tensor lost = sub(rounded, x);
  return mul(lost, lost).mean().item();
}

TEST_CASE("RangeSearchObserver: mse loses no more than any range of a grid") {
  const Tensor x = with_outlier(40.0F);
  for (const QScheme scheme : {QScheme::PerTensorAffine, QScheme::PerTensorSymmetric}) {
    CAPTURE(to_string(scheme));
    const RangeSearchObserverOptions options{
        .dtype = DType::QInt8, .qscheme = scheme, .quant_min = -8, .quant_max = 7};
    const RangeSearchObserver found = observed(options, x);
    MinMaxObserver whole(
        {.dtype = DType::QInt8, .qscheme = scheme, .quant_min = -8, .quant_max = 7});
    whole.update(x);
    const double best = error_of(x, found);
    CHECK(best < 0.2 * error_of(x, whole));
    for (int low = 1; low <= 20; ++low) {
      for (int high = 1; high <= 20; ++high) {
        MinMaxObserver tried(
            {.dtype = DType::QInt8, .qscheme = scheme, .quant_min = -8, .quant_max = 7});
        tried.update(Tensor::from_values(
            {-0.25F * static_cast<float>(low), 0.25F * static_cast<float>(high)}));
        // Centres of bins stand for what is in them, and ends move one after the other.
        CHECK(best <= 1.05 * error_of(x, tried));
      }
    }
  }
}

TEST_CASE("RangeSearchObserver: percentile leaves out as many values below as above") {
  std::vector<float> values;
  for (int i = 0; i <= 1000; ++i) values.push_back(static_cast<float>(i - 300));
  const RangeSearchObserverOptions options{
      .method = RangeSearch::Percentile, .percentile = 90.0, .bins = 1000};
  const auto range = observed(options, Tensor::from_span(values)).search_range();
  CHECK(std::abs(range.min - -250.0F) <= 1.5F);
  CHECK(std::abs(range.max - 650.0F) <= 1.5F);
  RangeSearchObserverOptions all = options;
  all.percentile = 100.0;
  const auto whole = observed(all, Tensor::from_span(values)).search_range();
  CHECK(whole.min == -300.0F);
  CHECK(whole.max == 700.0F);
  RangeSearchObserverOptions symmetric = options;
  symmetric.dtype = DType::QInt8;
  symmetric.qscheme = QScheme::PerTensorSymmetric;
  // 90 of 100 magnitudes are up to 600.
  const auto both = observed(symmetric, Tensor::from_span(values)).search_range();
  CHECK(both.min == -300.0F);
  CHECK(std::abs(both.max - 600.0F) <= 2.0F);
}

TEST_CASE("RangeSearchObserver: entropy finds the amax of ModelOpt's calibrator") {
  // From 0 on the bins are the calibrator's.
  const Tensor x = with_outlier(12.0F).abs();
  const Tensor from_zero = cat(std::vector<Tensor>{x, Tensor::zeros({1})}, 0);
  const auto found = observed({.method = RangeSearch::Entropy}, from_zero).search_range();
  modelopt::HistogramCalibrator calibrator(
      {.num_bits = NumBits::integer(8), .is_unsigned = true, .num_bins = 2048});
  calibrator.update(from_zero);
  CHECK(found.max == doctest::Approx(calibrator.compute_amax().item()).epsilon(1e-3));
  CHECK(found.max < 8.0F);
  CHECK(found.min == 0.0F);
}

TEST_CASE("RangeSearchObserver: one value and none at all are ranges as for other observers") {
  for (const RangeSearch method :
       {RangeSearch::Mse, RangeSearch::Percentile, RangeSearch::Entropy}) {
    RangeSearchObserver observer({.method = method});
    CHECK_FALSE(observer.has_data());
    CHECK(observer.calculate_qparams().scale.item() == 1.0);
    test::refuses({"RangeSearchObserver: search_range"}, [&] { observer.search_range(); });
    observer.update(Tensor::full({7}, 2.0));
    MinMaxObserver whole;
    whole.update(Tensor::full({7}, 2.0));
    CHECK(observer.calculate_qparams().scale.equal(whole.calculate_qparams().scale));
    test::refuses({"RangeSearchObserver", "NaN"},
                  [&] { observer.update(Tensor::from_values({NAN})); });
    RangeSearchObserver more({.method = method});
    more.update(normal(1000));
    RangeSearchObserver copy({.method = method});
    StateDict state;
    more.save_state(state, "");
    copy.load_state(state, "");
    CHECK(copy.calculate_qparams().scale.equal(more.calculate_qparams().scale));
    CHECK(more.clone()->calculate_qparams().scale.equal(more.calculate_qparams().scale));
  }
}

TEST_CASE("RangeSearchObserver: wrong options are refused by name") {
  test::refuses({"bins", "got 8"}, [] { RangeSearchObserver({.bins = 8}); });
  test::refuses({"percentile", "got 0"}, [] { RangeSearchObserver({.percentile = 0.0}); });
  test::refuses({"percentile"}, [] { RangeSearchObserver({.percentile = NAN}); });
  test::refuses({"mse, percentile, entropy", "got 'best'"},
                [] { static_cast<void>(range_search_from_name("best")); });
}

TEST_CASE("qconfig_with_range_search keeps dtype and codes of the base") {
  const QConfig found = qconfig_with_range_search("percentile", get_default_qconfig(),
                                                  {.percentile = 99.0, .weights = true});
  const auto activation = found.activation();
  const auto& search = dynamic_cast<const RangeSearchObserver&>(*activation);
  CHECK(search.quant_max() == 127);
  CHECK(found.activation.name ==
        "RangeSearchObserver(method=percentile, percentile=99, reduce_range=True)");
  const auto weight = found.weight();
  CHECK(dynamic_cast<const AffineQuantizedMSEObserver*>(weight.get()) != nullptr);
  CHECK(weight->dtype() == DType::QInt8);
  CHECK(is_per_channel(weight->qscheme()));
  CHECK(qconfig_with_range_search("mse").weight.name == get_default_qconfig().weight.name);
  CHECK(qconfig_from_name("entropy_qconfig") == qconfig_with_range_search("entropy"));
  test::fails({"qconfig_with_range_search: base.activation", "observer of value ranges"},
              [] { static_cast<void>(qconfig_with_range_search("mse", default_qat_qconfig())); });
  test::refuses({"got 'l2'"}, [] { static_cast<void>(qconfig_with_range_search("l2")); });
}

}  // namespace
}  // namespace quanta
