#include "quanta/observers/qconfig.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "quanta/observers/defaults.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/runtime/error.h"

namespace quanta {

TEST_CASE("with_args: a factory is named after its class and what differs from the defaults") {
  CHECK(HistogramObserver::with_args().name == "HistogramObserver()");
  CHECK(HistogramObserver::with_args({.reduce_range = true}).name ==
        "HistogramObserver(reduce_range=True)");
  CHECK(default_weight_observer().name ==
        "MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)");
  CHECK(weight_observer_range_neg_127_to_127().name ==
        "MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-127, "
        "quant_max=127, eps=0.000244140625)");
  CHECK(default_fixed_qparams_range_0to1_observer().name ==
        "FixedQParamsObserver(scale=0.00390625, zero_point=0)");
  CHECK(default_reuse_input_observer().name == "ReuseInputObserver()");
}

TEST_CASE("default observers: each is what torch predefines") {
  struct Row {
    ObserverFactory factory;
    std::string name;
    DType dtype;
    QScheme qscheme;
    IntRange range;
  };
  const std::vector<Row> rows{
      {default_observer(), "MinMaxObserver", DType::QUInt8, QScheme::PerTensorAffine, {0, 127}},
      {default_weight_observer(),
       "MinMaxObserver",
       DType::QInt8,
       QScheme::PerTensorSymmetric,
       {-128, 127}},
      {default_histogram_observer(),
       "HistogramObserver",
       DType::QUInt8,
       QScheme::PerTensorAffine,
       {0, 127}},
      {default_per_channel_weight_observer(),
       "PerChannelMinMaxObserver",
       DType::QInt8,
       QScheme::PerChannelSymmetric,
       {-128, 127}},
      {weight_observer_range_neg_127_to_127(),
       "MinMaxObserver",
       DType::QInt8,
       QScheme::PerTensorSymmetric,
       {-127, 127}},
      {per_channel_weight_observer_range_neg_127_to_127(),
       "PerChannelMinMaxObserver",
       DType::QInt8,
       QScheme::PerChannelSymmetric,
       {-127, 127}},
      {default_dynamic_quant_observer(),
       "PlaceholderObserver",
       DType::QUInt8,
       QScheme::PerTensorAffine,
       {0, 255}},
      {default_float_qparams_observer(),
       "PerChannelMinMaxObserver",
       DType::QUInt8,
       QScheme::PerChannelAffineFloatQParams,
       {0, 255}},
      {default_float_qparams_observer_4bit(),
       "PerChannelMinMaxObserver",
       DType::QUInt4x2,
       QScheme::PerChannelAffineFloatQParams,
       {0, 15}},
      {default_fixed_qparams_range_neg1to1_observer(),
       "FixedQParamsObserver",
       DType::QUInt8,
       QScheme::PerTensorAffine,
       {0, 255}},
      {default_debug_observer(),
       "RecordingObserver",
       DType::QUInt8,
       QScheme::PerTensorAffine,
       {0, 255}},
      {default_placeholder_observer(),
       "PlaceholderObserver",
       DType::Float32,
       QScheme::PerTensorAffine,
       {0, 0}},
      {default_reuse_input_observer(),
       "ReuseInputObserver",
       DType::QUInt8,
       QScheme::PerTensorAffine,
       {0, 255}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.factory.name);
    const std::shared_ptr<Observer> observer = row.factory();
    CHECK(observer->name() == row.name);
    CHECK(observer->dtype() == row.dtype);
    CHECK(observer->qscheme() == row.qscheme);
    CHECK(observer->quant_min() == row.range.min);
    CHECK(observer->quant_max() == row.range.max);
    CHECK(observer->has_data() == (row.name == "FixedQParamsObserver"));
    CHECK(observer->clone()->name() == row.name);
  }
  CHECK(default_dynamic_quant_observer()()->is_dynamic());
}

TEST_CASE("get_default_qconfig: each backend has its observers") {
  const QConfig fbgemm = get_default_qconfig("fbgemm");
  CHECK(fbgemm == get_default_qconfig("x86"));
  CHECK(fbgemm == get_default_qconfig());
  CHECK(fbgemm.activation()->quant_max() == 127);
  CHECK(fbgemm.weight()->name() == "PerChannelMinMaxObserver");
  const QConfig qnnpack = get_default_qconfig("qnnpack");
  CHECK(qnnpack.activation()->quant_max() == 255);
  CHECK(qnnpack.weight()->name() == "MinMaxObserver");
  const QConfig onednn = get_default_qconfig("onednn");
  CHECK(onednn.activation.name == qnnpack.activation.name);
  CHECK(onednn.weight.name == fbgemm.weight.name);
  CHECK_FALSE(onednn == fbgemm);
  CHECK_THROWS_WITH_AS(get_default_qconfig("tensorrt"),
                       doctest::Contains("expected one of fbgemm, x86, qnnpack, onednn"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(get_default_qconfig("x86", 1), doctest::Contains("version: expected 0"),
                       ArgumentError);
}

TEST_CASE("qconfig_from_name: torch's names are found and others listed") {
  CHECK(qconfig_from_name("fbgemm") == get_default_qconfig("fbgemm"));
  CHECK(qconfig_from_name("default_qconfig") == default_qconfig());
  CHECK(qconfig_from_name("float16_dynamic_qconfig").activation()->is_dynamic());
  CHECK_FALSE(qconfig_from_name("float16_static_qconfig").activation()->is_dynamic());
  CHECK(qconfig_from_name("default_symmetric_qnnpack_qconfig").activation()->dtype() ==
        DType::QInt8);
  CHECK(qconfig_from_name("default_reuse_input_qconfig").weight()->name() == "NoopObserver");
  CHECK_THROWS_WITH_AS(qconfig_from_name("default_gpu_qconfig"),
                       doctest::Contains("default_quint8_weight_qconfig"), ArgumentError);
}

TEST_CASE("activation_is_memoryless: only a moving average with constant 1 keeps nothing") {
  const ObserverFactory weight = default_weight_observer();
  CHECK_FALSE(activation_is_memoryless(default_qconfig()));
  CHECK_FALSE(activation_is_memoryless({{}, weight}));
  CHECK_FALSE(activation_is_memoryless({MovingAverageMinMaxObserver::with_args(), weight}));
  CHECK(activation_is_memoryless(
      {MovingAverageMinMaxObserver::with_args({.averaging_constant = 1.0}), weight}));
  CHECK(activation_is_memoryless(
      {MovingAveragePerChannelMinMaxObserver::with_args({.averaging_constant = 1.0}), weight}));
}

TEST_CASE("FixedQParamsObserver: parameters never follow the data") {
  FixedQParamsObserver observer({.scale = 2.0 / 256.0, .zero_point = 128});
  const Tensor x = Tensor::from_values({-50, 50});
  CHECK(observer.forward(x).is_same(x));
  CHECK(observer.calculate_qparams().scale.item() == 0.0078125);
  CHECK(observer.calculate_qparams().zero_point.to_int64_vector() ==
        std::vector<std::int64_t>{128});
  CHECK(quantize_with(x, observer).to_int64_vector() == std::vector<std::int64_t>{0, 255});
  StateDict state;
  observer.save_state(state, "");
  CHECK(state.at("zero_point").dtype() == DType::Int32);
  FixedQParamsObserver other({.scale = 1.0});
  CHECK_THROWS_AS(other.merge(observer), ArgumentError);
  other.load_state(state, "");
  CHECK_NOTHROW(other.merge(observer));
  CHECK(other.calculate_qparams().scale.item() == 0.0078125);
  state.set("zero_point", Tensor::full({1}, 300, DType::Int32));
  CHECK_THROWS_AS(other.load_state(state, ""), ArgumentError);
  CHECK_THROWS_WITH_AS(FixedQParamsObserver({.scale = 0.0}), doctest::Contains("scale"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(FixedQParamsObserver({.zero_point = 256}), doctest::Contains("zero_point"),
                       ArgumentError);
  CHECK_THROWS_AS(FixedQParamsObserver({.is_dynamic = true}), UnsupportedError);
}

TEST_CASE("observers without parameters: forward passes through and calculate_qparams says why") {
  const Tensor x = Tensor::from_values({1, 2});
  const std::vector<ObserverFactory> factories{
      PlaceholderObserver::with_args(), RecordingObserver::with_args(), NoopObserver::with_args(),
      ReuseInputObserver::with_args()};
  for (const ObserverFactory& factory : factories) {
    const std::shared_ptr<Observer> observer = factory();
    CHECK(observer->forward(x).is_same(x));
    CHECK_THROWS_WITH_AS(observer->calculate_qparams(), doctest::Contains(observer->name().c_str()),
                         UnsupportedError);
    StateDict state;
    observer->save_state(state, "x.");
    CHECK(state.empty());
    CHECK_NOTHROW(observer->load_state(state, "x."));
    CHECK_NOTHROW(observer->merge(*factory()));
    CHECK_THROWS_AS(observer->merge(MinMaxObserver()), ArgumentError);
  }
}

TEST_CASE("RecordingObserver: it keeps copies in order") {
  RecordingObserver observer;
  Tensor x = Tensor::from_values({1, 2});
  observer.forward(x);
  x.fill_(9.0);
  observer.forward(x);
  const std::vector<Tensor> seen = observer.get_tensor_value();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].to_float_vector() == std::vector<float>{1, 2});
  CHECK(seen[1].to_float_vector() == std::vector<float>{9, 9});
  RecordingObserver other;
  other.merge(observer);
  CHECK(other.get_tensor_value().size() == 2);
  observer.reset_min_max_vals();
  CHECK(observer.get_tensor_value().empty());
}

}  // namespace quanta
