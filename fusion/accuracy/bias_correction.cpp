#include "quanta/fusion/accuracy/bias_correction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/accuracy/detail/channel_sums.h"
#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/accuracy/detail/layer_data.h"
#include "quanta/fusion/accuracy/detail/rounded_activations.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::WeightedLayer;

constexpr std::string_view kOp = "bias_correction";

// A layer whose weight will be rounded.
struct Rounded {
  WeightedLayer layer;
  Tensor weight, rounded;
};

// Those that have a QConfig, in the order in which they are called.
std::vector<Rounded> rounded_layers(nn::Module& model, const QConfigMapping& qconfigs,
                                    const Calibrate& run) {
  std::vector<WeightedLayer> layers = accuracy::weighted_layers(model, qconfigs);
  std::vector<Rounded> found;
  for (const std::string& path : accuracy::order_of_calls(model, layers, run)) {
    WeightedLayer& layer = *std::ranges::find(layers, path, &WeightedLayer::path);
    const std::optional<accuracy::WeightGrid> grid = accuracy::weight_grid(layer);
    if (!grid) continue;
    accuracy::require_finite(layer, kOp);
    const Tensor weight = layer.weight->detach();
    found.push_back({std::move(layer), weight, grid->round(weight)});
  }
  QUANTA_CHECK(!found.empty(),
               "{}: qconfigs: expected a QConfig with a weight observer for some "
               "layer that the data reaches, got none",
               kOp);
  return found;
}

std::vector<WeightedLayer> layers_in(nn::Module& model, const std::vector<Rounded>& like) {
  std::vector<WeightedLayer> all = accuracy::weighted_layers(model);
  std::vector<WeightedLayer> found;
  for (const Rounded& entry : like) {
    found.push_back(*std::ranges::find(all, entry.layer.path, &WeightedLayer::path));
  }
  return found;
}

void correct_by_runs(nn::Module& model, nn::Module& reference, std::vector<Rounded>& entries,
                     const QConfigMapping& qconfigs, const CalibrationData& data,
                     bool quantize_activations) {
  const std::vector<accuracy::ChannelSums> wanted = accuracy::channel_sums(
      reference, layers_in(reference, entries), accuracy::Side::Outputs, data.run, kOp);
  std::optional<accuracy::RoundedActivations> rounding;
  if (quantize_activations) rounding.emplace(model, reference, qconfigs, data.run);
  for (Rounded& entry : entries) *entry.layer.weight = entry.rounded;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::vector<WeightedLayer> one{entries[i].layer};
    const accuracy::ChannelSums got =
        accuracy::channel_sums(model, one, accuracy::Side::Outputs, data.run, kOp)[0];
    std::vector<double> errors;
    for (std::size_t c = 0; c < got.sum.size(); ++c) {
      errors.push_back(wanted[i].mean(c) - got.mean(c));
    }
    accuracy::add_to_bias(entries[i].layer, errors);
    data.report("bias-correction: " + entries[i].layer.path, i + 1, entries.size());
  }
  for (Rounded& entry : entries) *entry.layer.weight = entry.weight;
}

double normal_density(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
}
double normal_below(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// The mean of a normal variable that is clipped to 0 .. top.
double clipped_mean(double mean, double deviation, double top) {
  if (deviation <= 0.0) return std::clamp(mean, 0.0, top);
  const double low = -mean / deviation;
  const double high = (top - mean) / deviation;
  double clipped = deviation * normal_density(low) - mean * normal_below(low);
  if (std::isinf(top)) return clipped + mean;
  clipped += mean * normal_below(high) - deviation * normal_density(high);
  return clipped + top * (1.0 - normal_below(high));
}

// The means of a layer's input channels that the statistics give, if they do.
std::optional<std::vector<double>> known_means(const std::vector<accuracy::ChannelChain>& chains,
                                               std::size_t layer,
                                               const BatchNormStatistics& statistics) {
  for (const accuracy::ChannelChain& chain : chains) {
    const auto given = statistics.layers.find(chain.source.path);
    const auto use = std::ranges::find(chain.uses, layer, &accuracy::ChannelUse::layer);
    if (!chain.source.layer || given == statistics.layers.end() || use == chain.uses.end())
      continue;
    const auto channels = static_cast<std::size_t>(chain.source.channels);
    QUANTA_CHECK(
        given->second.mean.size() == channels && given->second.deviation.size() == channels,
        "{}: statistics: expected {} channels for '{}', got {} and {}", kOp, channels,
        chain.source.path, given->second.mean.size(), given->second.deviation.size());
    double top = std::numeric_limits<double>::infinity();
    bool is_clipped = false;
    for (const accuracy::PassedOp& op : use->passed) {
      const bool keeps_means =
          op.name == "mean" || op.name == "clone" || op.name.find("avg_pool") != std::string::npos;
      if (keeps_means) continue;
      if (op.name != "relu" && op.name != "relu_" && op.name != "relu6") return std::nullopt;
      is_clipped = true;
      if (op.name == "relu6") top = 6.0;
    }
    std::vector<double> means;
    for (const std::int64_t c : use->channels) {
      const auto mean = static_cast<double>(given->second.mean[static_cast<std::size_t>(c)]);
      const auto deviation =
          static_cast<double>(given->second.deviation[static_cast<std::size_t>(c)]);
      means.push_back(is_clipped ? clipped_mean(mean, deviation, top) : mean);
    }
    return means;
  }
  return std::nullopt;
}

void correct_by_means(nn::Module& reference, std::vector<Rounded>& entries,
                      const CalibrationData& data, const BatchNormStatistics& statistics) {
  const std::vector<WeightedLayer> layers = layers_in(reference, entries);
  std::vector<accuracy::ChannelChain> chains;
  std::vector<WeightedLayer> all = accuracy::weighted_layers(reference);
  if (!statistics.layers.empty()) {
    chains = accuracy::find_channel_chains(reference, all, data.example, kOp);
  }
  const std::vector<accuracy::ChannelSums> measured =
      accuracy::channel_sums(reference, layers, accuracy::Side::Inputs, data.run, kOp);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Rounded& entry = entries[i];
    const auto position = static_cast<std::size_t>(
        std::ranges::find(all, entry.layer.path, &WeightedLayer::path) - all.begin());
    std::optional<std::vector<double>> means = known_means(chains, position, statistics);
    if (!means) {
      means.emplace();
      for (std::size_t c = 0; c < measured[i].sum.size(); ++c)
        means->push_back(measured[i].mean(c));
    }
    std::vector<double> errors(static_cast<std::size_t>(entry.layer.out_channels()), 0.0);
    const Tensor weight = entry.weight.contiguous();
    const Tensor rounded = entry.rounded.contiguous();
    const float* before = weight.data<float>();
    accuracy::for_each_weight(entry.layer, rounded.data<float>(),
                              [&](float w, std::int64_t out, std::int64_t in) {
                                errors[static_cast<std::size_t>(out)] -=
                                    (static_cast<double>(w) - static_cast<double>(*before++)) *
                                    (*means)[static_cast<std::size_t>(in)];
                              });
    accuracy::add_to_bias(entry.layer, errors);
    data.report("bias-correction: " + entry.layer.path, i + 1, entries.size());
  }
}

}  // namespace

namespace detail {

void bias_correction(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                     const CalibrationData& data, const BiasCorrectionOptions& options) {
  const autograd::NoGradGuard no_grad;
  std::vector<Rounded> entries = rounded_layers(model, qconfigs, data.run);
  if (options.error == BiasError::Empirical) {
    correct_by_runs(model, reference, entries, qconfigs, data, options.quantize_activations);
  } else {
    correct_by_means(reference, entries, data, options.statistics);
  }
}

}  // namespace detail

AccuracyMethod bias_correction_method(const BiasCorrectionOptions& options) {
  return {.name = "bias-correction",
          .apply =
              [options](nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                        const CalibrationData& data) {
                detail::bias_correction(model, reference, qconfigs, data, options);
              },
          .compensates = true};
}

}  // namespace quanta
