#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/accuracy/detail/layer_pairs.h"
#include "quanta/fusion/accuracy/outliers.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::ChannelChain;
using accuracy::LayerPair;
using accuracy::WeightedLayer;

constexpr std::string_view kOp = "split_outlier_channels";

bool can_split(const LayerPair& pair, const std::vector<WeightedLayer>& layers) {
  const auto is_plain = [](const WeightedLayer& layer) {
    return layer.groups == 1 && layer.kind != WeightedLayer::Kind::ConvTranspose;
  };
  const std::vector<std::int64_t>& channels = pair.use().channels;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    if (channels[i] != static_cast<std::int64_t>(i)) return false;
  }
  return is_plain(layers[pair.first]) && is_plain(layers[pair.second]) &&
         static_cast<std::int64_t>(channels.size()) == pair.chain->source.channels &&
         !pair.chain->passes("prelu") && !pair.chain->passes("mul");
}

template <int N>
std::shared_ptr<nn::Module> conv_of(const nn::ConvNdOptions& options) {
  return nn::make_module<nn::Conv<N>>(options);
}

// A layer of the same settings with this weight and bias.
std::shared_ptr<nn::Module> remade(const nn::Module& layer, const Tensor& weight,
                                   const Tensor& bias) {
  std::shared_ptr<nn::Module> made;
  if (const auto* conv = dynamic_cast<const nn::ConvNd*>(&layer)) {
    nn::ConvNdOptions options = conv->options();
    options.out_channels = weight.size(0);
    options.in_channels = weight.size(1);
    options.bias = bias.defined();
    made = conv->spatial() == 1   ? conv_of<1>(options)
           : conv->spatial() == 2 ? conv_of<2>(options)
                                  : conv_of<3>(options);
    auto& convolution = dynamic_cast<nn::ConvNd&>(*made);
    convolution.weight = weight;
    convolution.bias = bias;
  } else {
    made = nn::make_module<nn::Linear>(
        nn::LinearOptions{weight.size(1), weight.size(0), bias.defined()});
    auto& linear = dynamic_cast<nn::Linear&>(*made);
    linear.weight = weight;
    linear.bias = bias;
  }
  made->train(layer.is_training());
  made->take_pre_hooks_from(layer);
  made->take_forward_hooks_from(layer);
  made->take_qconfig_from(layer);
  return made;
}

// Wherever the layer stands, at any depth. The modules of the list have to live until it is through.
void replace(nn::Module& model, const nn::Module& layer, const std::shared_ptr<nn::Module>& made) {
  std::shared_ptr<nn::Module> kept;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    for (const nn::Module::NamedChild& child : entry.module->named_children()) {
      if (child.module.get() != &layer) continue;
      kept = child.module;
      entry.module->replace_child(child.name, made);
    }
  }
}

Tensor with_copies(const Tensor& x, std::int64_t dim, const std::vector<std::int64_t>& channels) {
  std::vector<Tensor> parts{x};
  for (const std::int64_t c : channels) {
    parts.push_back(cat(parts, dim).narrow(dim, c, 1));
  }
  return cat(parts, dim).contiguous();
}

// Splits the channels of the second weight one after the other, and says which ones.
std::vector<std::int64_t> split(Tensor& weight, std::size_t count) {
  std::vector<std::int64_t> chosen;
  while (chosen.size() < count) {
    std::vector<Tensor> columns;
    float largest = -1.0F;
    std::int64_t most = 0;
    const std::int64_t rows = weight.size(0);
    const std::int64_t channels = weight.size(1);
    const std::int64_t kernel = weight.numel() / (rows * channels);
    const float* w = weight.data<float>();
    for (std::int64_t i = 0; i < weight.numel(); ++i) {
      if (std::abs(w[i]) <= largest) continue;
      largest = std::abs(w[i]);
      most = i / kernel % channels;
    }
    weight = with_copies(weight, 1, {most});
    float* halved = weight.mutable_data<float>();
    for (std::int64_t i = 0; i < weight.numel(); ++i) {
      const std::int64_t channel = i / kernel % (channels + 1);
      if (channel == most || channel == channels) halved[i] *= 0.5F;
    }
    chosen.push_back(most);
  }
  return chosen;
}

}  // namespace

namespace detail {

void split_outlier_channels(nn::Module& model, const CalibrationData& data,
                            const SplitOutliersOptions& options) {
  const autograd::NoGradGuard no_grad;
  QUANTA_CHECK(options.expand > 0.0 && options.expand <= 1.0,
               "{}: expand: expected a number in (0, 1], got {}", kOp, options.expand);
  std::vector<WeightedLayer> layers = accuracy::weighted_layers(model);
  for (const WeightedLayer& layer : layers) accuracy::require_finite(layer, kOp);
  const std::vector<ChannelChain> chains =
      accuracy::find_channel_chains(model, layers, data.example, kOp);
  std::vector<LayerPair> pairs = accuracy::layer_pairs(chains);
  std::erase_if(pairs, [&](const LayerPair& pair) { return !can_split(pair, layers); });
  if (pairs.empty()) accuracy::throw_no_pairs(kOp, chains);

  std::vector<bool> is_changed(layers.size(), false);
  std::vector<Tensor> weights, biases;
  for (const WeightedLayer& layer : layers) {
    weights.push_back(layer.weight->detach().contiguous());
    biases.push_back(layer.bias->defined() ? layer.bias->detach() : Tensor());
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [first, second, chain] = pairs[i];
    const auto count = static_cast<std::size_t>(
        std::ceil(options.expand * static_cast<double>(chain->source.channels)));
    const std::vector<std::int64_t> channels = split(weights[second], count);
    weights[first] = with_copies(weights[first], 0, channels);
    if (biases[first].defined()) biases[first] = with_copies(biases[first], 0, channels);
    is_changed[first] = is_changed[second] = true;
    data.report("outlier-split: " + layers[second].path, i + 1, pairs.size());
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (is_changed[i]) {
      replace(model, *layers[i].layer, remade(*layers[i].layer, weights[i], biases[i]));
    }
  }
  try {
    static_cast<void>(
        accuracy::find_channel_chains(model, accuracy::weighted_layers(model), data.example, kOp));
  } catch (const ArgumentError& error) {
    throw UnsupportedError(fmt::format(
        "{}: model: expected a network that runs with other numbers of channels, got: {}", kOp,
        error.what()));
  }
}

}  // namespace detail

AccuracyMethod split_outlier_channels_method(const SplitOutliersOptions& options) {
  return {"outlier-split", [options](nn::Module& model, nn::Module&, const QConfigMapping&,
                                     const CalibrationData& data) {
            detail::split_outlier_channels(model, data, options);
          }};
}

}  // namespace quanta
