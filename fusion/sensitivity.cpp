#include "quanta/fusion/sensitivity.h"

#include <algorithm>

#include "quanta/fusion/accuracy/detail/layer_switches.h"
#include "quanta/fusion/accuracy/detail/metric_memory.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::LayerSwitches;
using accuracy::MetricMemory;

// Observers that calculate parameters get a fake quantizer around them; others say something else of
// a result (that it has the codes of the input, that it is Float16), which stays.
ObserverFactory fake_quantizer_of(const ObserverFactory& factory) {
  if (!factory) return factory;
  const std::shared_ptr<Observer> observer = factory();
  const bool has_codes = observer->dtype() == DType::QUInt8 || observer->dtype() == DType::QInt8;
  if (!has_codes || dynamic_cast<const FakeQuantizeBase*>(observer.get()) != nullptr)
    return factory;
  try {
    static_cast<void>(observer->calculate_qparams());
  } catch (const UnsupportedError&) {
    return factory;
  }
  return FakeQuantize::with_args(factory);
}

QConfig with_fake_quantizer(const QConfig& qconfig) {
  return {fake_quantizer_of(qconfig.activation), qconfig.weight};
}

}  // namespace

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::Float:
      return "float";
    case Precision::Int8:
      return "int8";
    case Precision::Int4:
      return "int4";
  }
  return "?";
}

QConfig with_weight_bits(const QConfig& qconfig, int bits) {
  QUANTA_CHECK(bits >= 2 && bits <= 8, "with_weight_bits: bits: expected 2 to 8, got {}", bits);
  QUANTA_SUPPORTED(static_cast<bool>(qconfig.weight),
                   "with_weight_bits: qconfig: expected a weight observer, got none");
  const std::shared_ptr<Observer> observer = qconfig.weight();
  QUANTA_SUPPORTED(observer->dtype() == DType::QInt8 &&
                       dynamic_cast<const FakeQuantizeBase*>(observer.get()) == nullptr,
                   "with_weight_bits: qconfig: expected a weight observer with QInt8 codes, got {}",
                   qconfig.weight.name);
  const std::int64_t half = std::int64_t{1} << (bits - 1);
  QConfig result = qconfig;
  if (is_per_channel(observer->qscheme())) {
    result.weight = PerChannelMinMaxObserver::with_args({.ch_axis = observer->ch_axis(),
                                                         .dtype = DType::QInt8,
                                                         .qscheme = QScheme::PerChannelSymmetric,
                                                         .quant_min = -half,
                                                         .quant_max = half - 1});
  } else {
    result.weight = MinMaxObserver::with_args({.dtype = DType::QInt8,
                                               .qscheme = QScheme::PerTensorSymmetric,
                                               .quant_min = -half,
                                               .quant_max = half - 1});
  }
  return result;
}

namespace detail {

void require_metric(bool has_metric, const CalibrationData& data, std::string_view op) {
  QUANTA_CHECK(has_metric, "{}: metric: expected a function, got none", op);
  QUANTA_CHECK(static_cast<bool>(data.run),
               "{}: data.run: expected a function that feeds data, got none", op);
}

QConfigMapping with_fake_quantizers(const QConfigMapping& qconfigs) {
  return qconfigs.transformed(with_fake_quantizer);
}

void wrap_own_qconfigs(nn::Module& model) {
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    if (entry.module->qconfig() == nullptr) continue;
    entry.module->set_qconfig(with_fake_quantizer(*entry.module->qconfig()));
  }
}

Sensitivity sensitivity_of(const nn::Module& ready, nn::Module& prepared,
                           const CalibrationData& data, const AnyMetric& metric,
                           const SensitivityOptions& options) {
  LayerSwitches switches(prepared, ready, data.run);
  MetricMemory memory(switches, metric, options);
  const std::vector<std::size_t>& chosen = switches.choosable();
  memory.expect(2 + 2 * chosen.size());
  Sensitivity result;
  for (std::size_t i = 0; i < switches.layers().size(); ++i) switches.set_float(i);
  result.float_metric = memory.measure(prepared, "float");
  for (const std::size_t i : chosen) {
    const LayerSwitches::Layer& layer = switches.layers()[i];
    switches.set_quantized(i);
    result.layers.push_back({.path = layer.path, .type = layer.type});
    result.layers.back().alone = memory.measure(prepared, layer.path + " alone");
    switches.set_float(i);
  }
  for (std::size_t i = 0; i < switches.layers().size(); ++i) switches.set_quantized(i);
  result.quantized_metric = memory.measure(prepared, "quantized");
  for (std::size_t n = 0; n < chosen.size(); ++n) {
    switches.set_float(chosen[n]);
    result.layers[n].left_out = memory.measure(prepared, result.layers[n].path + " left out");
    switches.set_quantized(chosen[n]);
  }
  return result;
}

}  // namespace detail

std::string to_string(const Sensitivity& sensitivity) {
  std::vector<const LayerSensitivity*> layers;
  std::size_t path_width = 5, type_width = 4;
  for (const LayerSensitivity& layer : sensitivity.layers) {
    layers.push_back(&layer);
    path_width = std::max(path_width, layer.path.size());
    type_width = std::max(type_width, layer.type.size());
  }
  std::stable_sort(layers.begin(), layers.end(),
                   [](const auto* a, const auto* b) { return a->alone < b->alone; });
  std::string text = fmt::format("float {:.4f}, quantized {:.4f}\n{:<{}}  {:<{}}  {:>10}  {:>10}\n",
                                 sensitivity.float_metric, sensitivity.quantized_metric, "layer",
                                 path_width, "type", type_width, "alone", "left out");
  for (const LayerSensitivity* layer : layers) {
    text += fmt::format("{:<{}}  {:<{}}  {:>10.4f}  {:>10.4f}\n", layer->path, path_width,
                        layer->type, type_width, layer->alone, layer->left_out);
  }
  return text;
}

}  // namespace quanta
