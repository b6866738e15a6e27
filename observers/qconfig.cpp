#include "quanta/observers/qconfig.h"

#include <array>

#include "quanta/observers/defaults.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/observers/range_search_observer.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

struct NamedQConfig {
  std::string_view name;
  QConfig (*make)();
};

constexpr std::array kQConfigs{
    NamedQConfig{"default_qconfig", default_qconfig},
    NamedQConfig{"default_debug_qconfig", default_debug_qconfig},
    NamedQConfig{"default_per_channel_qconfig", default_per_channel_qconfig},
    NamedQConfig{"default_dynamic_qconfig", default_dynamic_qconfig},
    NamedQConfig{"per_channel_dynamic_qconfig", per_channel_dynamic_qconfig},
    NamedQConfig{"float16_dynamic_qconfig", float16_dynamic_qconfig},
    NamedQConfig{"float16_static_qconfig", float16_static_qconfig},
    NamedQConfig{"float_qparams_weight_only_qconfig", float_qparams_weight_only_qconfig},
    NamedQConfig{"float_qparams_weight_only_qconfig_4bit", float_qparams_weight_only_qconfig_4bit},
    NamedQConfig{"default_reuse_input_qconfig", default_reuse_input_qconfig},
    NamedQConfig{"default_symmetric_qnnpack_qconfig", default_symmetric_qnnpack_qconfig},
    NamedQConfig{"default_per_channel_symmetric_qnnpack_qconfig",
                 default_per_channel_symmetric_qnnpack_qconfig},
    NamedQConfig{"default_quint8_weight_qconfig", default_quint8_weight_qconfig},
    NamedQConfig{"mse_qconfig", [] { return qconfig_with_range_search("mse"); }},
    NamedQConfig{"percentile_qconfig", [] { return qconfig_with_range_search("percentile"); }},
    NamedQConfig{"entropy_qconfig", [] { return qconfig_with_range_search("entropy"); }},
    NamedQConfig{"default_qat_qconfig", default_qat_qconfig},
    NamedQConfig{"default_dynamic_qat_qconfig", default_dynamic_qat_qconfig},
    NamedQConfig{"default_weight_only_qconfig", default_weight_only_qconfig},
    NamedQConfig{"default_activation_only_qconfig", default_activation_only_qconfig},
    NamedQConfig{"default_qat_qconfig_v2", default_qat_qconfig_v2},
    NamedQConfig{"default_embedding_qat_qconfig", default_embedding_qat_qconfig},
    NamedQConfig{"default_embedding_qat_qconfig_4bit", default_embedding_qat_qconfig_4bit},
    NamedQConfig{"default_symmetric_qnnpack_qat_qconfig", default_symmetric_qnnpack_qat_qconfig},
    NamedQConfig{"default_per_channel_symmetric_qnnpack_qat_qconfig",
                 default_per_channel_symmetric_qnnpack_qat_qconfig},
};

constexpr std::array<std::string_view, 4> kBackends{"fbgemm", "x86", "qnnpack", "onednn"};

bool is_backend(std::string_view name) {
  for (const std::string_view backend : kBackends) {
    if (backend == name) return true;
  }
  return false;
}

ObserverFactory float16_placeholder(bool is_dynamic) {
  return PlaceholderObserver::with_args({.dtype = DType::Float16, .is_dynamic = is_dynamic});
}

// torch lets the scale of activations grow no finer than 2^-12 for xnnpack.
constexpr double kSmallestActivationScale = 0.000244140625;

ObserverFactory symmetric_activation() {
  return HistogramObserver::with_args({.dtype = DType::QInt8, .eps = kSmallestActivationScale});
}

ObserverFactory symmetric_activation_fake_quant() {
  return FusedMovingAvgObsFakeQuantize::with_args(
      MovingAverageMinMaxObserver::with_args({.dtype = DType::QInt8,
                                              .quant_min = -128,
                                              .quant_max = 127,
                                              .eps = kSmallestActivationScale}));
}

ObserverFactory float_noop() { return NoopObserver::with_args({.dtype = DType::Float32}); }

void check_backend(std::string_view op, std::string_view backend) {
  QUANTA_CHECK(is_backend(backend), "{}: backend: expected one of {}, got '{}'", op,
               fmt::join(kBackends, ", "), backend);
}

}  // namespace

QConfig default_qconfig() { return {default_observer(), default_weight_observer()}; }

QConfig default_debug_qconfig() { return {default_debug_observer(), default_weight_observer()}; }

QConfig default_per_channel_qconfig() {
  return {default_observer(), default_per_channel_weight_observer()};
}

QConfig default_dynamic_qconfig() {
  return {default_dynamic_quant_observer(), default_weight_observer()};
}

QConfig per_channel_dynamic_qconfig() {
  return {default_dynamic_quant_observer(), default_per_channel_weight_observer()};
}

QConfig float16_dynamic_qconfig() {
  return {float16_placeholder(true), float16_placeholder(false)};
}

QConfig float16_static_qconfig() {
  return {float16_placeholder(false), float16_placeholder(false)};
}

QConfig float_qparams_weight_only_qconfig() {
  return {default_placeholder_observer(), default_float_qparams_observer()};
}

QConfig float_qparams_weight_only_qconfig_4bit() {
  return {default_placeholder_observer(), default_float_qparams_observer_4bit()};
}

QConfig default_reuse_input_qconfig() {
  return {default_reuse_input_observer(), NoopObserver::with_args()};
}

QConfig default_symmetric_qnnpack_qconfig() {
  return {symmetric_activation(), weight_observer_range_neg_127_to_127()};
}

QConfig default_per_channel_symmetric_qnnpack_qconfig() {
  return {symmetric_activation(), per_channel_weight_observer_range_neg_127_to_127()};
}

QConfig default_quint8_weight_qconfig() {
  return {HistogramObserver::with_args(), MinMaxObserver::with_args()};
}

QConfig get_default_qconfig(std::string_view backend, int version) {
  QUANTA_CHECK(version == 0, "get_default_qconfig: version: expected 0, got {}", version);
  check_backend("get_default_qconfig", backend);
  if (backend == "qnnpack") return {HistogramObserver::with_args(), default_weight_observer()};
  if (backend == "onednn") {
    return {HistogramObserver::with_args(), default_per_channel_weight_observer()};
  }
  // 7 bits leave room in the 16-bit sums of machines without VNNI.
  return {HistogramObserver::with_args({.reduce_range = true}),
          default_per_channel_weight_observer()};
}

QConfig default_qat_qconfig() { return {default_fake_quant(), default_weight_fake_quant()}; }

QConfig default_dynamic_qat_qconfig() {
  return {default_dynamic_fake_quant(), default_weight_fake_quant()};
}

QConfig default_weight_only_qconfig() { return {{}, default_weight_fake_quant()}; }

QConfig default_activation_only_qconfig() { return {default_fake_quant(), {}}; }

QConfig default_qat_qconfig_v2() {
  return {default_fused_act_fake_quant(), default_fused_wt_fake_quant()};
}

QConfig default_embedding_qat_qconfig() { return {float_noop(), default_embedding_fake_quant()}; }

QConfig default_embedding_qat_qconfig_4bit() {
  return {float_noop(), default_embedding_fake_quant_4bit()};
}

QConfig default_symmetric_qnnpack_qat_qconfig() {
  return {symmetric_activation_fake_quant(), fused_wt_fake_quant_range_neg_127_to_127()};
}

QConfig default_per_channel_symmetric_qnnpack_qat_qconfig() {
  return {symmetric_activation_fake_quant(),
          fused_per_channel_wt_fake_quant_range_neg_127_to_127()};
}

QConfig get_default_qat_qconfig(std::string_view backend, int version) {
  QUANTA_CHECK(version == 0 || version == 1,
               "get_default_qat_qconfig: version: expected 0 or 1, got {}", version);
  check_backend("get_default_qat_qconfig", backend);
  // Only fbgemm's and x86's activations give up a bit, see get_default_qconfig; torch's version 0
  // of onednn takes a bare FakeQuantize, which has the same codes.
  const ObserverFactory observer = MovingAverageMinMaxObserver::with_args(
      {.reduce_range = backend == "fbgemm" || backend == "x86", .quant_min = 0, .quant_max = 255});
  if (version == 0) {
    return {FakeQuantize::with_args(observer), backend == "qnnpack"
                                                   ? default_weight_fake_quant()
                                                   : default_per_channel_weight_fake_quant()};
  }
  return {FusedMovingAvgObsFakeQuantize::with_args(observer),
          backend == "qnnpack" ? default_fused_wt_fake_quant()
                               : default_fused_per_channel_wt_fake_quant()};
}

QConfig qconfig_from_name(std::string_view name) {
  if (is_backend(name)) return get_default_qconfig(name);
  for (const NamedQConfig& known : kQConfigs) {
    if (known.name == name) return known.make();
  }
  std::string names = fmt::format("{}", fmt::join(kBackends, ", "));
  for (const NamedQConfig& known : kQConfigs) names += fmt::format(", {}", known.name);
  throw ArgumentError(
      fmt::format("qconfig_from_name: name: expected one of {}, got '{}'", names, name));
}

bool activation_is_memoryless(const QConfig& qconfig) {
  if (!qconfig.activation) return false;
  std::shared_ptr<Observer> observer = qconfig.activation();
  if (const auto* fake = dynamic_cast<const FakeQuantizeBase*>(observer.get())) {
    observer = fake->observer();
  }
  if (observer == nullptr) return false;
  const Settings settings = observer->settings();
  const Setting* constant = settings.find("averaging_constant");
  return constant != nullptr && *constant == Setting(1.0);
}

}  // namespace quanta
