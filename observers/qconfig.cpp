#include "quanta/observers/qconfig.h"

#include <array>

#include "quanta/observers/defaults.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"
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
ObserverFactory symmetric_activation() {
  return HistogramObserver::with_args({.dtype = DType::QInt8, .eps = 0.000244140625});
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
  QUANTA_CHECK(is_backend(backend), "get_default_qconfig: backend: expected one of {}, got '{}'",
               fmt::join(kBackends, ", "), backend);
  if (backend == "qnnpack") return {HistogramObserver::with_args(), default_weight_observer()};
  if (backend == "onednn") {
    return {HistogramObserver::with_args(), default_per_channel_weight_observer()};
  }
  // 7 bits leave room in the 16-bit sums of machines without VNNI.
  return {HistogramObserver::with_args({.reduce_range = true}),
          default_per_channel_weight_observer()};
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
  const std::shared_ptr<Observer> observer = qconfig.activation();
  if (const auto* one = dynamic_cast<const MovingAverageMinMaxObserver*>(observer.get())) {
    return one->averaging_constant() == 1.0;
  }
  if (const auto* one =
          dynamic_cast<const MovingAveragePerChannelMinMaxObserver*>(observer.get())) {
    return one->averaging_constant() == 1.0;
  }
  return false;
}

}  // namespace quanta
