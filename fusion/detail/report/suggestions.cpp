#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/fusion/detail/report/pair.h"
#include "quanta/runtime/check.h"

// The rules of docs/report.md. Each is told for the layers that it fits, the worst first.

namespace quanta::reporting {
namespace {

/// dB below which a layer alone is worth a remedy: 1 % of the signal's power.
constexpr double kPoor = 20.0;
/// A layer alone that loses so much more than the middle one is worth one too, below kGood.
constexpr double kOutstanding = 10.0;
constexpr double kGood = 35.0;
constexpr std::size_t kMostLayers = 8;

double alone(const LayerReport& layer) { return layer.sqnr_alone.value_or(layer.sqnr); }

double middle(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// How many times the widest channel's range is that of the middle one.
double spread(const WeightReport& weight) {
  std::vector<double> ranges;
  for (const WeightReport::Channel& channel : weight.channels) {
    ranges.push_back(std::max(std::fabs(channel.low), std::fabs(channel.high)));
  }
  const double typical = middle(ranges);
  if (ranges.empty() || !(typical > 0.0)) return 1.0;
  return *std::max_element(ranges.begin(), ranges.end()) / typical;
}

/// dB of the middle channel: the largest ones rule the figure of the whole weight.
double middle_channel(const WeightReport& weight) {
  std::vector<double> figures;
  for (const WeightReport::Channel& channel : weight.channels) {
    if (!std::isnan(channel.sqnr)) figures.push_back(channel.sqnr);
  }
  return middle(std::move(figures));
}

/// The largest result in units of their root mean square.
double peak(const LayerReport& layer) {
  const double largest = std::max(std::fabs(layer.low), std::fabs(layer.high));
  return layer.rms > 0.0 ? largest / layer.rms : 0.0;
}

bool is_linear(const LayerReport& layer) { return layer.type.find("Linear") != std::string::npos; }

Suggestion about(const LayerReport& layer, const char* method, std::string text) {
  return {.layer = layer.name, .method = method, .text = std::move(text)};
}

bool has_unequal_channels(const LayerReport& layer) {
  constexpr double kUnequal = 4.0;
  return layer.weight && layer.weight->per_channel == false && spread(*layer.weight) > kUnequal &&
         middle_channel(*layer.weight) < kPoor;
}

/// What to do about a layer that is poor by itself.
Suggestion remedy(const LayerReport& layer) {
  const double figure = alone(layer);
  // The weight's error shows in the result about as large as it is.
  constexpr double kNear = 6.0, kManySaturated = 0.01, kPeak = 15.0;
  if (layer.weight && std::isfinite(layer.weight->sqnr) && layer.weight->sqnr < figure + kNear) {
    return about(
        layer, "adaround",
        fmt::format("its weight alone has {:.1f} dB: learned rounding (adaround), or 8 bits "
                    "where it has fewer",
                    layer.weight->sqnr));
  }
  if (layer.saturated.value_or(0.0) > kManySaturated) {
    return about(
        layer, "minmax",
        fmt::format("{:.1f} % of its results lie beyond its codes: calibrate with data that "
                    "reaches further, or with the minmax observer",
                    100.0 * *layer.saturated));
  }
  if (peak(layer) > kPeak) {
    const bool linear = is_linear(layer);
    return about(layer, linear ? "smooth-quant" : "percentile",
                 fmt::format("its largest result is {:.0f} times the root mean square, so that few "
                             "codes are left for the others: a histogram or percentile observer{}",
                             peak(layer), linear ? ", or smooth-quant before it" : ""));
  }
  return about(
      layer, "float",
      fmt::format("it loses {} by itself, and none of the rules explains it: try adaround, "
                  "or leave it in float (its QConfig is std::nullopt; --exclude)",
                  std::isfinite(figure) ? fmt::format("all but {:.1f} dB", figure)
                                        : std::string("everything")));
}

/// Layers by figure, the smallest first; those without one are left out.
std::vector<const LayerReport*> worst_first(const std::vector<LayerReport>& layers) {
  std::vector<const LayerReport*> sorted;
  for (const LayerReport& layer : layers) {
    if (!std::isnan(alone(layer))) sorted.push_back(&layer);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const LayerReport* a, const LayerReport* b) {
    return alone(*a) < alone(*b);
  });
  return sorted;
}

/// Weights with one scale whose wide channels leave few codes to the others. It need not show in the
/// layer's own figure, which the wide channels rule.
void suggest_equalization(const Report& report, std::vector<Suggestion>& result) {
  std::size_t told = 0;
  for (const LayerReport* layer : worst_first(report.layers)) {
    if (!has_unequal_channels(*layer) || told == kMostLayers) continue;
    ++told;
    result.push_back(about(
        *layer, "cle",
        fmt::format("its weight has one scale, and its widest channel is {:.0f} times the middle "
                    "one, which has {:.1f} dB: a scale for each channel (per-channel), or "
                    "cross-layer equalization (cle)",
                    spread(*layer->weight), middle_channel(*layer->weight))));
  }
}

void suggest_remedies(const Report& report, std::vector<Suggestion>& result) {
  std::vector<double> figures;
  for (const LayerReport& layer : report.layers) {
    if (std::isfinite(alone(layer))) figures.push_back(alone(layer));
  }
  const double typical = middle(figures);
  std::size_t told = 0;
  for (const LayerReport* layer : worst_first(report.layers)) {
    const double figure = alone(*layer);
    const bool stands_out = figure < typical - kOutstanding && figure < kGood;
    if ((figure >= kPoor && !stands_out) || told == kMostLayers) break;
    if (has_unequal_channels(*layer)) continue;
    result.push_back(remedy(*layer));
    ++told;
  }
}

/// Errors that are the same everywhere in a channel.
void suggest_bias(const Report& report, std::vector<Suggestion>& result) {
  constexpr double kLarge = 0.3, kClean = 40.0;
  std::size_t count = 0;
  const LayerReport* most = nullptr;
  for (const LayerReport& layer : report.layers) {
    if (!layer.weight || layer.bias_share < kLarge || !(layer.sqnr < kClean)) continue;
    ++count;
    if (most == nullptr || layer.bias_share > most->bias_share) most = &layer;
  }
  if (most == nullptr) return;
  result.push_back(
      {.layer = "",
       .method = "bias-correction",
       .text = fmt::format("in {} layer{} more than {:.0f} % of the error is a shift of whole "
                           "channels ({:.0f} % in {}): bias correction takes it away",
                           count, count == 1 ? "" : "s", 100.0 * kLarge, 100.0 * most->bias_share,
                           most->name)});
}

/// Good layers whose inputs are spoiled.
void suggest_source(const Report& report, std::vector<Suggestion>& result) {
  if (!result.empty() || report.outputs.empty()) return;
  const double output = report.outputs.front().sqnr;
  if (!(output < kPoor)) return;
  result.push_back(
      {.layer = "",
       .method = "adaround",
       .text = fmt::format("no layer stands out, and the output has {:.1f} dB: small "
                           "errors add up; bias-correction and adaround on all layers, "
                           "or training with fake quantizers (QAT)",
                           output)});
}

void suggest_speed(const Report& report, std::vector<Suggestion>& result) {
  constexpr double kSlower = 1.2, kShare = 0.02;
  std::vector<const LayerReport*> slow;
  for (const LayerReport& layer : report.layers) {
    if (!layer.float_ms || !layer.ms || !report.ms || layer.kind == LayerKind::Simulated) continue;
    if (*layer.float_ms > 0.0 && *layer.ms > kSlower * *layer.float_ms &&
        *layer.ms > kShare * *report.ms) {
      slow.push_back(&layer);
    }
  }
  std::stable_sort(slow.begin(), slow.end(), [](const LayerReport* a, const LayerReport* b) {
    return *a->ms - *a->float_ms > *b->ms - *b->float_ms;
  });
  slow.resize(std::min<std::size_t>(slow.size(), 3));
  for (const LayerReport* layer : slow) {
    result.push_back(about(*layer, "float",
                           fmt::format("it is slower than in float here ({:.3f} ms beside {:.3f}): "
                                       "in float it costs no accuracy either",
                                       *layer->ms, *layer->float_ms)));
  }
}

}  // namespace

std::vector<Suggestion> suggestions_for(const Report& report) {
  std::vector<Suggestion> result;
  suggest_equalization(report, result);
  suggest_remedies(report, result);
  suggest_bias(report, result);
  suggest_source(report, result);
  suggest_speed(report, result);
  return result;
}

}  // namespace quanta::reporting
