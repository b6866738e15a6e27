#include "quanta/fusion/accuracy/cross_layer_equalization.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/accuracy/detail/layer_pairs.h"
#include "quanta/fusion/accuracy/detail/replace_relu6.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::ChannelChain;
using accuracy::LayerPair;
using accuracy::WeightedLayer;

constexpr std::string_view kOp = "cross_layer_equalization";

// What is equalized together: two layers, or three around a depthwise convolution.
struct Set {
  LayerPair pair;
  const LayerPair* behind = nullptr;  // of the depthwise convolution and the third layer
};

std::vector<Set> sets_of(const std::vector<LayerPair>& pairs,
                         const std::vector<WeightedLayer>& layers) {
  std::vector<Set> sets;
  std::set<std::size_t> in_between;
  for (const LayerPair& pair : pairs) {
    if (in_between.contains(pair.first)) continue;
    Set set{pair};
    if (accuracy::is_depthwise(layers[pair.second])) {
      const auto behind = std::ranges::find(pairs, pair.second, &LayerPair::first);
      if (behind != pairs.end()) {
        set.behind = &*behind;
        in_between.insert(pair.second);
      }
    }
    sets.push_back(set);
  }
  return sets;
}

// The largest magnitude of each of the source's channels in the weight of the layer that takes them.
std::vector<float> largest_taken(const LayerPair& pair, const std::vector<WeightedLayer>& layers) {
  const std::vector<float> inputs = accuracy::largest_of_inputs(layers[pair.second]);
  const accuracy::ChannelUse& use = pair.use();
  std::vector<float> largest(static_cast<std::size_t>(pair.chain->source.channels), 0.0F);
  for (std::size_t i = 0; i < use.channels.size(); ++i) {
    float& most = largest[static_cast<std::size_t>(use.channels[i])];
    most = std::max(most, inputs[i]);
  }
  return largest;
}

// How far the farthest scale is from 1.
double distance(std::span<const float> scales) {
  double farthest = 0.0;
  for (const float s : scales)
    farthest = std::max(farthest, std::abs(static_cast<double>(s) - 1.0));
  return farthest;
}

void rescale(BatchNormStatistics& statistics, const std::string& path,
             std::span<const float> scales) {
  const auto found = statistics.layers.find(path);
  if (found == statistics.layers.end()) return;
  ChannelStatistics& channels = found->second;
  QUANTA_CHECK(channels.mean.size() == scales.size() && channels.deviation.size() == scales.size(),
               "{}: statistics: expected {} channels for '{}', got {} and {}", kOp, scales.size(),
               path, channels.mean.size(), channels.deviation.size());
  for (std::size_t c = 0; c < scales.size(); ++c) {
    channels.mean[c] /= scales[c];
    channels.deviation[c] /= scales[c];
  }
}

// Gives the largest change.
double equalize(const Set& set, const std::vector<WeightedLayer>& layers,
                BatchNormStatistics& statistics) {
  const std::vector<float> r1 = accuracy::largest_of_outputs(layers[set.pair.first]);
  const std::vector<float> r2 = largest_taken(set.pair, layers);
  const std::size_t count = r1.size();
  std::vector<float> scales(count, 1.0F);
  std::vector<float> scales_behind(count, 1.0F);
  std::vector<float> r3;
  if (set.behind != nullptr) r3 = largest_taken(*set.behind, layers);
  for (std::size_t c = 0; c < count; ++c) {
    if (set.behind == nullptr) {
      const float product = r1[c] * r2[c];
      if (product > 0.0F) scales[c] = r1[c] / std::sqrt(product);
    } else {
      const float root = std::cbrt(r1[c] * r2[c] * r3[c]);
      if (root > 0.0F) {
        scales[c] = r1[c] / root;
        scales_behind[c] = root / r3[c];
      }
    }
  }
  accuracy::move_scales(*set.pair.chain, layers, scales);
  rescale(statistics, set.pair.chain->source.path, scales);
  if (set.behind == nullptr) return distance(scales);
  accuracy::move_scales(*set.behind->chain, layers, scales_behind);
  rescale(statistics, set.behind->chain->source.path, scales_behind);
  return std::max(distance(scales), distance(scales_behind));
}

// The ReLU6 modules between pairs.
std::set<std::string> relu6_paths(const std::vector<LayerPair>& pairs) {
  std::set<std::string> paths;
  for (const LayerPair& pair : pairs) {
    for (const accuracy::PassedOp& passed : pair.use().passed) {
      if (passed.name == "relu6") paths.insert(passed.path);
    }
  }
  return paths;
}

}  // namespace

namespace detail {

void cross_layer_equalization(nn::Module& model, const CalibrationData& data,
                              const CrossLayerEqualizationOptions& options) {
  QUANTA_CHECK(options.max_iterations >= 1, "{}: max_iterations: expected at least 1, got {}", kOp,
               options.max_iterations);
  QUANTA_CHECK(options.tolerance >= 0.0, "{}: tolerance: expected a number >= 0, got {}", kOp,
               options.tolerance);
  std::vector<WeightedLayer> layers = accuracy::weighted_layers(model);
  for (const WeightedLayer& layer : layers) accuracy::require_finite(layer, kOp);
  std::vector<ChannelChain> chains =
      accuracy::find_channel_chains(model, layers, data.example, kOp);
  const bool is_changed =
      options.replace_relu6 &&
      accuracy::replace_relu6(model, relu6_paths(accuracy::layer_pairs(chains)), data.example);
  if (is_changed) {
    layers = accuracy::weighted_layers(model);
    chains = accuracy::find_channel_chains(model, layers, data.example, kOp);
  }
  std::vector<LayerPair> pairs = accuracy::layer_pairs(chains);
  std::erase_if(pairs, [](const LayerPair& pair) { return pair.chain->passes("relu6"); });
  if (pairs.empty()) accuracy::throw_no_pairs(kOp, chains);

  BatchNormStatistics statistics =
      options.statistics == nullptr ? BatchNormStatistics{} : *options.statistics;
  const std::vector<Set> sets = sets_of(pairs, layers);
  const auto total = static_cast<std::size_t>(options.max_iterations);
  for (std::size_t i = 0; i < total; ++i) {
    double change = 0.0;
    for (const Set& set : sets) change = std::max(change, equalize(set, layers, statistics));
    const bool is_done = change <= options.tolerance;
    data.report("cle", is_done ? total : i + 1, total);
    if (is_done) break;
  }
  if (options.statistics != nullptr) *options.statistics = std::move(statistics);
}

}  // namespace detail

AccuracyMethod cross_layer_equalization_method(const CrossLayerEqualizationOptions& options) {
  return {"cle", [options](nn::Module& model, nn::Module&, const QConfigMapping&,
                           const CalibrationData& data) {
            detail::cross_layer_equalization(model, data, options);
          }};
}

}  // namespace quanta
