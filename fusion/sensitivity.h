#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/fusion/accuracy/method.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/mapping.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/module.h"

// Takes const models; what runs is for one thread.

/// Which layers quantization hurts, and which of them to leave in float or to give fewer bits.
///
/// Networks are tried in float arithmetic with fake quantizers where codes would be: a calibration,
/// and then a run of the metric for each question, without converting anything. Two things differ from
/// the int8 network: means of codes (average pools) are not rounded, and a layer that is left in float
/// gives floats here, while there its result becomes codes again where the next layer takes codes.
namespace quanta {

/// How a layer is calculated.
enum class Precision : std::uint8_t {
  Float,
  Int8,  ///< as its QConfig says
  Int4,  ///< the same with a weight of 4 bits (with_weight_bits)
};
std::string_view to_string(Precision precision);

/// The QConfig with a weight of 2 to 8 bits, symmetric around 0: codes -2^(bits-1) to 2^(bits-1)-1, one
/// scale for each channel where the QConfig has that, else one. Throws ArgumentError for other bits,
/// UnsupportedError for a QConfig without a weight observer, one that trains, or one with other than
/// QInt8 codes.
QConfig with_weight_bits(const QConfig& qconfig, int bits);

/// How good a network is: larger is better ("top-1 in percent", "minus the loss"). Called many times.
template <typename T>
using Metric = std::function<double(const T& model)>;

struct SensitivityOptions {
  /// Called after each run of the metric, for a progress bar: "conv1 alone", 3 of 40.
  std::function<void(std::string_view what, std::size_t done, std::size_t total)> progress{};
  /// A file that holds what was measured so far. If it is there, of the same network and QConfigs,
  /// its answers are not asked for again. The metric and the data have to be the same: it does not
  /// know them. Empty: none.
  std::filesystem::path resume{};
  /// How a graph::Model is made ready, as for prepare_jit.
  graph::PrepareJitOptions prepare{};
};

struct LayerSensitivity {
  std::string path;
  std::string type;       ///< "ConvReLU2d"
  double alone = 0.0;     ///< the metric with this layer quantized and all others in float
  double left_out = 0.0;  ///< the metric with all layers quantized but this one
};

struct Sensitivity {
  double float_metric = 0.0;
  double quantized_metric = 0.0;
  std::vector<LayerSensitivity> layers;  ///< in the order in which they are called
};

/// A table, the most sensitive layers first: those that lose most alone.
std::string to_string(const Sensitivity& sensitivity);

/// What a network costs.
struct PrecisionCost {
  /// Of weights and their scales, at their number of bits. Quanta's own int8 layers keep a byte for
  /// each code of 4 bits too.
  double bytes = 0.0;
  /// Sum over the layers of their time in the float or the int8 network on this machine, with one
  /// call of the example; without the quantize and dequantize around float layers.
  double milliseconds = 0.0;
};

/// What has to be reached. At least one is given.
struct PrecisionBudget {
  std::optional<double> metric{};        ///< at least
  std::optional<double> milliseconds{};  ///< at most, as PrecisionCost
  std::optional<double> bytes{};         ///< at most, as PrecisionCost
};

struct MixedPrecisionOptions {
  /// What a layer may become, besides Float.
  std::vector<Precision> choices{Precision::Int8};
  /// Runs of the example for each layer's time; the shortest counts.
  int timing_runs = 10;
  SensitivityOptions run{};
};

/// One network on the way from the cheapest to the most exact one.
struct PrecisionPoint {
  std::map<std::string, Precision> choices;  ///< by path
  PrecisionCost cost;
  double metric = 0.0;
};

struct MixedPrecision {
  /// For prepare, quantize, quantize_jit and save_qconfig_mapping. Where every layer is left in float
  /// there is nothing to quantize, and these say so.
  QConfigMapping qconfigs;
  std::map<std::string, Precision> choices;
  PrecisionCost cost;
  /// Of the converted network, not of the simulated one.
  double metric = 0.0;
  double float_metric = 0.0;
  /// Points that none other beats in metric, bytes and milliseconds, by ascending bytes.
  std::vector<PrecisionPoint> pareto;
};

/// A table of the points, and how many layers have which precision.
std::string to_string(const MixedPrecision& result);

namespace detail {

using AnyMetric = std::function<double(const nn::Module&)>;

/// The same mapping with fake quantizers around the observers of activations.
QConfigMapping with_fake_quantizers(const QConfigMapping& qconfigs);
/// The same of QConfigs that modules of `model` have of their own.
void wrap_own_qconfigs(nn::Module& model);

/// A prepared copy whose activations have fake quantizers, and the float one of the same structure.
template <typename T>
struct Switchable {
  T ready;
  T prepared;
};
template <typename T>
Switchable<T> make_switchable(const T& model, const QConfigMapping& qconfigs,
                              const CalibrationData& data, const SensitivityOptions& options) {
  T ready = nn::deep_copy(model);
  if constexpr (std::is_base_of_v<graph::Model, T>) {
    ready.eval();
    ready = graph::fuse_conv_bn_jit(ready);
    T wrapped = nn::deep_copy(ready);
    wrap_own_qconfigs(wrapped);
    return {std::move(ready),
            graph::prepare_jit(wrapped, with_fake_quantizers(qconfigs), options.prepare)};
  } else {
    make_ready(ready, data.example, {.qconfigs = qconfigs});
    T wrapped = nn::deep_copy(ready);
    wrap_own_qconfigs(wrapped);
    T prepared = prepare(wrapped, with_fake_quantizers(qconfigs), data.example);
    return {std::move(ready), std::move(prepared)};
  }
}

/// The int8 network.
template <typename T>
T convert_chosen(const T& ready, const QConfigMapping& qconfigs, const CalibrationData& data,
                 const SensitivityOptions& options) {
  if constexpr (std::is_base_of_v<graph::Model, T>) {
    return graph::quantize_jit(ready, qconfigs, [&](const graph::Model& m) { data.run(m); },
                               {.prepare = options.prepare});
  } else {
    return quantize<T>(ready, std::span<const Tensor>(data.example),
                       [&](const T& m) { data.run(m); }, {.qconfigs = qconfigs, .fuse = false});
  }
}

Sensitivity sensitivity_of(const nn::Module& ready, nn::Module& prepared,
                           const CalibrationData& data, const AnyMetric& metric,
                           const SensitivityOptions& options);

/// Converts with a mapping and gives the metric of what came out.
using TryMapping = std::function<double(const QConfigMapping&)>;
MixedPrecision mixed_precision_of(const nn::Module& ready, nn::Module& prepared,
                                  const std::function<void(const AnyMetric&)>& with_int8,
                                  const QConfigMapping& qconfigs, const CalibrationData& data,
                                  const AnyMetric& metric, const TryMapping& try_mapping,
                                  const PrecisionBudget& budget,
                                  const MixedPrecisionOptions& options);

void require_metric(bool has_metric, const CalibrationData& data, std::string_view op);

}  // namespace detail

/// Each layer that `qconfigs` would quantize alone, and each left out, for a float network (groups
/// are fused first, as quantize does it) or a graph::Model:
///
///   const auto all = sensitivity(net, get_default_qconfig(), CalibrationData(batches),
///                                [&](const Net& m) { return top1(m, test); });
///
/// Runs the metric 2 + 2 * layers times. Throws ArgumentError for missing data or metric, what
/// prepare throws, what the metric throws, and FileError for a file to resume from that belongs to
/// something else. `model` stays as it is.
template <typename T>
requires std::is_base_of_v<nn::Module, T> Sensitivity
sensitivity(const T& model, const QConfigMapping& qconfigs, const CalibrationData& data,
            const Metric<T>& metric, const SensitivityOptions& options = {}) {
  detail::require_metric(static_cast<bool>(metric), data, "sensitivity");
  detail::Switchable<T> made = detail::make_switchable(model, qconfigs, data, options);
  return detail::sensitivity_of(
      made.ready, made.prepared, data,
      [&](const nn::Module& m) { return metric(static_cast<const T&>(m)); }, options);
}

/// Chooses a precision for each layer with a weight; what has none, and layers with a QConfig of their
/// own, stay as `qconfigs` and these say. Beginning with the cheapest choices, the layer whose own loss
/// falls most for what it costs gets the next better one, until the budget of the metric is met
/// (then the network is converted, and the search goes on where the int8 network falls short), or
/// the next step would cost more than the budget allows. The points on the way are the Pareto list.
///
///   const auto chosen = auto_mixed_precision(net, get_default_qconfig(), CalibrationData(batches),
///                                            top1_of, {.metric = 92.0});
///   save_qconfig_mapping(chosen.qconfigs, "mixed.json");
///   const auto int8 = quantize(net, batches[0], batches, {.qconfigs = chosen.qconfigs});
///
/// Throws ArgumentError for a budget that even the float network, or the cheapest one, does not
/// meet, saying what could be reached; and as sensitivity.
template <typename T>
requires std::is_base_of_v<nn::Module, T> MixedPrecision
auto_mixed_precision(const T& model, const QConfigMapping& qconfigs, const CalibrationData& data,
                     const Metric<T>& metric, const PrecisionBudget& budget,
                     const MixedPrecisionOptions& options = {}) {
  detail::require_metric(static_cast<bool>(metric), data, "auto_mixed_precision");
  detail::Switchable<T> made = detail::make_switchable(model, qconfigs, data, options.run);
  const auto int8 = [&](const QConfigMapping& chosen) {
    return detail::convert_chosen(made.ready, chosen, data, options.run);
  };
  return detail::mixed_precision_of(
      made.ready, made.prepared,
      [&](const detail::AnyMetric& look) { static_cast<void>(look(int8(qconfigs))); }, qconfigs,
      data, [&](const nn::Module& m) { return metric(static_cast<const T&>(m)); },
      [&](const QConfigMapping& chosen) { return metric(int8(chosen)); }, budget, options);
}

}  // namespace quanta
