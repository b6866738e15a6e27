#include "quanta/observers/given_qparams_observer.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

GivenQParamsObserver::Options two_channels() {
  return {.qparams = {Tensor::from_values({0.5F, 0.25F}),
                      Tensor::from_int64(std::array<std::int64_t, 2>{0, 0})},
          .qscheme = QScheme::PerChannelSymmetric,
          .quant_min = -8,
          .quant_max = 7};
}

TEST_CASE("GivenQParamsObserver gives what it was made with, whatever passes") {
  GivenQParamsObserver observer(two_channels());
  observer.update(Tensor::from_values({100.0F, -3.0F}).reshape({2, 1}));
  CHECK(observer.has_data());
  CHECK(observer.calculate_qparams().scale.to_float_vector() == std::vector<float>{0.5F, 0.25F});
  const Tensor w = Tensor::from_values({1.5F, -0.5F}).reshape({2, 1});
  CHECK(int_repr(quantize_with(w, observer)).to_int64_vector() == std::vector<std::int64_t>{3, -2});
}

TEST_CASE("given_qparams_of keeps what an observer chose for other weights too") {
  PerChannelMinMaxObserver chosen({.dtype = DType::QInt8,
                                   .qscheme = QScheme::PerChannelSymmetric,
                                   .quant_min = -8,
                                   .quant_max = 7});
  chosen.update(Tensor::from_values({1.0F, -2.0F, 0.5F, 0.25F}).reshape({2, 2}));
  const ObserverFactory factory = given_qparams_of(chosen);
  const auto observer = factory();
  observer->update(Tensor::from_values({9.0F, 9.0F, 9.0F, 9.0F}).reshape({2, 2}));
  CHECK(observer->calculate_qparams().scale.equal(chosen.calculate_qparams().scale));
  CHECK(observer->qscheme() == QScheme::PerChannelSymmetric);
  CHECK(observer->quant_min() == -8);
}

TEST_CASE("Factories of other numbers have other names") {
  const ObserverFactory a = GivenQParamsObserver::with_args(two_channels());
  GivenQParamsObserver::Options other = two_channels();
  CHECK(GivenQParamsObserver::with_args(other).name == a.name);
  other.qparams.scale = Tensor::from_values({0.5F, 0.125F});
  CHECK(GivenQParamsObserver::with_args(other).name != a.name);
}

TEST_CASE("GivenQParamsObserver's state comes back, and a wrong one changes nothing") {
  const GivenQParamsObserver source(two_channels());
  StateDict state;
  source.save_state(state, "w.");
  GivenQParamsObserver::Options ones = two_channels();
  ones.qparams.scale = Tensor::from_values({1.0F, 1.0F});
  GivenQParamsObserver observer(ones);
  StateDict wrong = state;
  wrong.set("w.scale", Tensor::from_values({1.0F}));
  CHECK_THROWS_AS(observer.load_state(wrong, "w."), ArgumentError);
  wrong.set("w.scale", Tensor::from_values({1.0F, -1.0F}));
  CHECK_THROWS_AS(observer.load_state(wrong, "w."), ArgumentError);
  CHECK(observer.calculate_qparams().scale.to_float_vector() == std::vector<float>{1.0F, 1.0F});
  observer.load_state(state, "w.");
  CHECK(observer.calculate_qparams().scale.to_float_vector() == std::vector<float>{0.5F, 0.25F});
}

TEST_CASE("GivenQParamsObserver refuses what no grid is") {
  GivenQParamsObserver::Options options = two_channels();
  SUBCASE("scales") {
    options.qparams.scale = Tensor::from_values({0.5F, std::numeric_limits<float>::infinity()});
  }
  SUBCASE("zero points") {
    options.qparams.zero_point = Tensor::from_int64(std::array<std::int64_t, 2>{0, 8});
  }
  SUBCASE("as many zero points as scales") {
    options.qparams.zero_point = Tensor::from_int64(std::array<std::int64_t, 1>{0});
  }
  SUBCASE("one scale per tensor") { options.qscheme = QScheme::PerTensorSymmetric; }
  SUBCASE("an undefined scale") { options.qparams.scale = Tensor(); }
  CHECK_THROWS_AS(GivenQParamsObserver{options}, ArgumentError);
}

}  // namespace
}  // namespace quanta
