#include "quanta/fusion/accuracy/smooth_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/accuracy/detail/channel_sums.h"
#include "quanta/fusion/accuracy/detail/layer_data.h"
#include "quanta/fusion/accuracy/detail/linear_groups.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::ChannelChain;
using accuracy::ChannelUse;
using accuracy::WeightedLayer;

constexpr std::string_view kOp = "smooth_quant";
constexpr float kLeast = 1e-5F;
constexpr int kAlphas = 20;  // steps of the search

// The largest magnitudes of a group, by the source's channels.
struct Ranges {
  std::vector<float> activations, weights;
};

void take_larger(std::vector<float>& largest, const std::vector<float>& others) {
  for (std::size_t c = 0; c < largest.size(); ++c) largest[c] = std::max(largest[c], others[c]);
}

std::vector<float> scales_for(const Ranges& ranges, double alpha) {
  std::vector<float> scales;
  for (std::size_t c = 0; c < ranges.activations.size(); ++c) {
    if (ranges.activations[c] == 0.0F) {
      scales.push_back(1.0F);
      continue;
    }
    const double weight = static_cast<double>(std::max(ranges.weights[c], kLeast));
    const double scale =
        std::pow(static_cast<double>(ranges.activations[c]), alpha) / std::pow(weight, 1.0 - alpha);
    scales.push_back(std::max(static_cast<float>(scale), kLeast));
  }
  return scales;
}

constexpr double kCodes = 127.0;

Tensor rounded_activations(const Tensor& x) {
  const double largest = abs(x).max().item();
  if (largest == 0.0) return x;
  return fake_quantize_per_tensor_affine(x, Tensor::scalar(largest / kCodes),
                                         Tensor::scalar(0.0, DType::Int64), -127, 127);
}

Tensor rounded_weight(const Tensor& weight) {
  std::vector<float> scales = amax(abs(weight), {1}).to_float_vector();
  for (float& s : scales)
    s = s == 0.0F ? 1.0F : static_cast<float>(static_cast<double>(s) / kCodes);
  const auto count = static_cast<std::int64_t>(scales.size());
  return fake_quantize_per_channel_affine(weight, Tensor::from_values(scales, {count}),
                                          Tensor::zeros({count}, DType::Int64), 0, -127, 127);
}

// What rounding loses of a layer's results when its inputs are divided by `scales`.
double loss(const WeightedLayer& layer, const std::vector<Tensor>& inputs,
            std::span<const float> scales) {
  const Tensor divisor = Tensor::from_values(scales, {static_cast<std::int64_t>(scales.size())});
  const Tensor weight = rounded_weight(accuracy::scaled_inputs(layer, scales));
  double sum = 0.0;
  for (const Tensor& x : inputs) {
    const Tensor lost = sub(linear(rounded_activations(div(x, divisor)), weight),
                            linear(x, layer.weight->detach()));
    sum += mul(lost, lost).sum().item();
  }
  return sum;
}

double best_alpha(nn::Module& model, const ChannelChain& group,
                  const std::vector<WeightedLayer>& layers, const Ranges& ranges,
                  const Calibrate& run) {
  std::vector<std::vector<Tensor>> inputs;
  for (const ChannelUse& use : group.uses) {
    inputs.push_back(accuracy::inputs_of(model, layers[use.layer], run));
  }
  double best = 0.0;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kAlphas; ++i) {
    const double alpha = static_cast<double>(i) / kAlphas;
    const std::vector<float> scales = scales_for(ranges, alpha);
    double sum = 0.0;
    for (std::size_t u = 0; u < group.uses.size(); ++u) {
      const ChannelUse& use = group.uses[u];
      sum += loss(layers[use.layer], inputs[u], accuracy::scales_of(use, scales));
    }
    if (sum < least) {
      least = sum;
      best = alpha;
    }
  }
  return best;
}

}  // namespace

namespace detail {

void smooth_quant(nn::Module& model, const CalibrationData& data,
                  const SmoothQuantOptions& options) {
  const autograd::NoGradGuard no_grad;
  QUANTA_CHECK(options.alpha >= 0.0 && options.alpha <= 1.0, "{}: alpha: expected 0..1, got {}",
               kOp, options.alpha);
  const std::vector<WeightedLayer> layers = accuracy::weighted_layers(model);
  for (const WeightedLayer& layer : layers) accuracy::require_finite(layer, kOp);
  const std::vector<ChannelChain> groups = accuracy::linear_groups(
      accuracy::find_channel_chains(model, layers, data.example, kOp), layers, kOp);

  std::vector<WeightedLayer> users;
  for (const ChannelChain& group : groups) {
    for (const ChannelUse& use : group.uses) users.push_back(layers[use.layer]);
  }
  // Scaling a group changes nothing for others: all ranges are of one run.
  const std::vector<accuracy::ChannelSums> seen =
      accuracy::channel_sums(model, users, accuracy::Side::Inputs, data.run, kOp);
  std::size_t position = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const ChannelChain& group = groups[i];
    const auto channels = static_cast<std::size_t>(group.source.channels);
    Ranges ranges{std::vector<float>(channels, 0.0F), std::vector<float>(channels, 0.0F)};
    for (const ChannelUse& use : group.uses) {
      const accuracy::ChannelSums& sums = seen[position++];
      const bool is_finite =
          std::ranges::all_of(sums.sum, [](double v) { return std::isfinite(v); });
      QUANTA_CHECK(is_finite, "{}: data.run: expected finite values, got NaN or infinity into '{}'",
                   kOp, layers[use.layer].path);
      take_larger(ranges.activations, accuracy::largest_by_source(group, use, sums.largest));
      take_larger(ranges.weights, accuracy::largest_by_source(
                                      group, use, accuracy::largest_of_inputs(layers[use.layer])));
    }
    const double alpha =
        options.search_alpha ? best_alpha(model, group, layers, ranges, data.run) : options.alpha;
    accuracy::move_scales(group, layers, scales_for(ranges, alpha));
    data.report("smooth-quant: " + group.source.path, i + 1, groups.size());
  }
}

}  // namespace detail

AccuracyMethod smooth_quant_method(const SmoothQuantOptions& options) {
  return {"smooth-quant",
          [options](nn::Module& model, nn::Module&, const QConfigMapping&,
                    const CalibrationData& data) { detail::smooth_quant(model, data, options); }};
}

}  // namespace quanta
