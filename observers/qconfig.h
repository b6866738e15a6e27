#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "quanta/observers/observer.h"

// What throws says so. QConfigs are plain values, and many threads may call these functions at
// once.

namespace quanta {

/// Makes a fresh observer or fake quantizer each time it is called; `name` identifies it in
/// messages and comparisons ("HistogramObserver(reduce_range=True)"). An empty one stands for
/// torch's nn.Identity: nothing is observed.
struct ObserverFactory {
  std::string name;
  std::function<std::shared_ptr<Observer>()> make;

  explicit operator bool() const noexcept { return static_cast<bool>(make); }
  std::shared_ptr<Observer> operator()() const { return make(); }
};

/// How a module's output (activation) and weight are quantized. Immutable; copied freely.
struct QConfig {
  ObserverFactory activation;
  ObserverFactory weight;

  /// Same factories by name.
  bool operator==(const QConfig& other) const {
    return activation.name == other.activation.name && weight.name == other.weight.name;
  }
};

/// torch's older name of a QConfig for quantize_dynamic: by default nothing is observed, which for
/// an activation says that its range is that of each call.
struct QConfigDynamic : QConfig {
  explicit QConfigDynamic(ObserverFactory of_activation = {}, ObserverFactory of_weight = {})
      : QConfig{std::move(of_activation), std::move(of_weight)} {}
};

QConfig default_qconfig();
QConfig default_debug_qconfig();
QConfig default_per_channel_qconfig();
QConfig default_dynamic_qconfig();
QConfig per_channel_dynamic_qconfig();
QConfig float16_dynamic_qconfig();
QConfig float16_static_qconfig();
QConfig float_qparams_weight_only_qconfig();
QConfig float_qparams_weight_only_qconfig_4bit();
QConfig default_reuse_input_qconfig();
QConfig default_symmetric_qnnpack_qconfig();
QConfig default_per_channel_symmetric_qnnpack_qconfig();
QConfig default_quint8_weight_qconfig();

// For training: fake quantizers.
QConfig default_qat_qconfig();
QConfig default_dynamic_qat_qconfig();
/// Only weights, or only activations; the other factory is empty.
QConfig default_weight_only_qconfig();
QConfig default_activation_only_qconfig();
/// The fused forms.
QConfig default_qat_qconfig_v2();
QConfig default_embedding_qat_qconfig();
QConfig default_embedding_qat_qconfig_4bit();
QConfig default_symmetric_qnnpack_qat_qconfig();
QConfig default_per_channel_symmetric_qnnpack_qat_qconfig();

/// For backend "x86", "fbgemm", "onednn" or "qnnpack". Throws ArgumentError, listing them, for
/// another name, and for a version other than 0.
QConfig get_default_qconfig(std::string_view backend = "x86", int version = 0);

/// For training, and the same backends. Version 0: FakeQuantize, version 1:
/// FusedMovingAvgObsFakeQuantize. Throws ArgumentError for others.
QConfig get_default_qat_qconfig(std::string_view backend = "x86", int version = 1);

/// By torch's name ("default_qconfig", ...; also "fbgemm", "x86", "qnnpack", "onednn"), or
/// "mse_qconfig", "percentile_qconfig", "entropy_qconfig": qconfig_with_range_search of the default
/// one. Throws ArgumentError listing the names.
QConfig qconfig_from_name(std::string_view name);

/// Whether the activation observer, or the one inside of the fake quantizer, keeps nothing between
/// calls (a moving average with constant 1).
bool activation_is_memoryless(const QConfig& qconfig);

}  // namespace quanta
