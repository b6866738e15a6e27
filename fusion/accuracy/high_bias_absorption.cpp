#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/cross_layer_equalization.h"
#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/accuracy/detail/channel_sums.h"
#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/accuracy/detail/layer_pairs.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::ChannelChain;
using accuracy::LayerPair;
using accuracy::WeightedLayer;

constexpr std::string_view kOp = "absorb_high_biases";

// Whether adding c behind the ReLU is adding c to what the second layer takes.
bool keeps_shifts(const LayerPair& pair) {
  const std::vector<accuracy::PassedOp>& passed = pair.use().passed;
  const auto is_shifted_alike = [](const accuracy::PassedOp& op) {
    return op.name == "relu" || op.name == "relu_" || op.name == "clone" || op.name == "mean" ||
           op.name.find("_pool") != std::string::npos;
  };
  return std::ranges::any_of(
             passed, [](const auto& op) { return op.name == "relu" || op.name == "relu_"; }) &&
         std::ranges::all_of(passed, is_shifted_alike);
}

void absorb(const LayerPair& pair, const std::vector<WeightedLayer>& layers,
            const ChannelStatistics& statistics, double deviations) {
  const WeightedLayer& first = layers[pair.first];
  const WeightedLayer& second = layers[pair.second];
  const auto channels = static_cast<std::size_t>(first.out_channels());
  QUANTA_CHECK(statistics.mean.size() == channels && statistics.deviation.size() == channels,
               "{}: statistics: expected {} channels for '{}', got {} and {}", kOp, channels,
               first.path, statistics.mean.size(), statistics.deviation.size());
  std::vector<float> shifts;
  for (std::size_t c = 0; c < channels; ++c) {
    const double rest = static_cast<double>(statistics.mean[c]) -
                        deviations * static_cast<double>(statistics.deviation[c]);
    shifts.push_back(static_cast<float>(std::max(rest, 0.0)));
  }
  if (std::ranges::all_of(shifts, [](float c) { return c == 0.0F; })) return;

  const std::vector<float> taken = accuracy::scales_of(pair.use(), shifts);
  std::vector<double> moved(static_cast<std::size_t>(second.out_channels()), 0.0);
  const Tensor weight = second.weight->detach().contiguous();
  accuracy::for_each_weight(
      second, weight.data<float>(), [&](float w, std::int64_t out, std::int64_t in) {
        moved[static_cast<std::size_t>(out)] +=
            static_cast<double>(w) * static_cast<double>(taken[static_cast<std::size_t>(in)]);
      });
  accuracy::add_to_bias(second, moved);
  std::vector<double> lost;
  for (const float c : shifts) lost.push_back(-static_cast<double>(c));
  accuracy::add_to_bias(first, lost);
}

}  // namespace

namespace detail {

void absorb_high_biases(nn::Module& model, const CalibrationData& data,
                        const HighBiasAbsorptionOptions& options) {
  QUANTA_CHECK(options.deviations >= 0.0, "{}: deviations: expected a number >= 0, got {}", kOp,
               options.deviations);
  const std::vector<WeightedLayer> layers = accuracy::weighted_layers(model);
  for (const WeightedLayer& layer : layers) accuracy::require_finite(layer, kOp);
  const std::vector<ChannelChain> chains =
      accuracy::find_channel_chains(model, layers, data.example, kOp);
  std::vector<LayerPair> pairs = accuracy::layer_pairs(chains);
  if (pairs.empty()) accuracy::throw_no_pairs(kOp, chains);
  std::erase_if(pairs, [](const LayerPair& pair) { return !keeps_shifts(pair); });
  QUANTA_CHECK(!pairs.empty(),
               "{}: model: expected layers with a ReLU between them, got none (a ReLU6 becomes a "
               "ReLU in cross_layer_equalization)",
               kOp);

  std::vector<WeightedLayer> measured;
  std::vector<std::size_t> positions;
  for (const LayerPair& pair : pairs) {
    if (options.statistics.layers.contains(layers[pair.first].path)) continue;
    measured.push_back(layers[pair.first]);
    positions.push_back(pair.first);
  }
  std::vector<accuracy::ChannelSums> sums;
  if (!measured.empty()) {
    QUANTA_CHECK(data.run,
                 "{}: data.run: expected a function that feeds data, or statistics of "
                 "'{}', got neither",
                 kOp, measured[0].path);
    sums = accuracy::channel_sums(model, measured, accuracy::Side::Outputs, data.run, kOp);
  }
  std::map<std::size_t, ChannelStatistics> statistics;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    statistics[positions[i]] = sums[i].statistics();
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto given = options.statistics.layers.find(layers[pairs[i].first].path);
    absorb(pairs[i], layers,
           given == options.statistics.layers.end() ? statistics.at(pairs[i].first) : given->second,
           options.deviations);
    data.report("bias-absorption", i + 1, pairs.size());
  }
}

}  // namespace detail

AccuracyMethod high_bias_absorption_method(const HighBiasAbsorptionOptions& options) {
  return {"bias-absorption", [options](nn::Module& model, nn::Module&, const QConfigMapping&,
                                       const CalibrationData& data) {
            detail::absorb_high_biases(model, data, options);
          }};
}

}  // namespace quanta
