#include "quanta/fusion/accuracy/awq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "quanta/fusion/accuracy/detail/channel_scales.h"
#include "quanta/fusion/accuracy/detail/channel_sums.h"
#include "quanta/fusion/accuracy/detail/linear_groups.h"
#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/fusion/detail/weight_only_filter.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/matmul.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::ChannelChain;
using accuracy::ChannelUse;
using accuracy::WeightedLayer;

constexpr std::string_view kOp = "awq";
constexpr double kLeast = 1e-4;

// What a weight-only layer would make of the weight.
Tensor rounded(const Tensor& weight, const WeightOnlyOptions& options) {
  return quantize_weight_only(weight, {}, options).dequantize();
}

// What a layer takes, all data together.
struct Inputs {
  accuracy::ChannelSums sums;
  Tensor products;  // [K, K], the sum of x x^T
};

std::vector<Inputs> collect(nn::Module& model, const std::vector<WeightedLayer>& layers,
                            const Calibrate& run) {
  std::vector<Inputs> inputs(layers.size());
  ModuleHooks hooks;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    hooks.watch(*layers[i].layer, [&of = inputs[i]](const Tensor& input, const Tensor&) {
      of.sums.add(input, input.dim() - 1);
      const Tensor rows =
          input.contiguous().reshape({input.numel() / input.size(-1), input.size(-1)});
      const Tensor products = matmul(rows.t().contiguous(), rows);
      of.products = of.products.defined() ? add(of.products, products) : products;
    });
  }
  run(model);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    QUANTA_CHECK(inputs[i].sums.count > 0,
                 "{}: data.run: expected data that reaches '{}' (filter.skip leaves out what is "
                 "not used), got none",
                 kOp, layers[i].path);
    QUANTA_CHECK(std::isfinite(inputs[i].products.sum().item()),
                 "{}: data.run: expected finite values, got NaN or infinity into '{}'", kOp,
                 layers[i].path);
  }
  return inputs;
}

// The sum of squares of d x over all data, for each row d.
double loss(const Tensor& difference, const Tensor& products) {
  return mul(matmul(difference, products), difference).sum().item();
}

std::vector<float> scales_for(const std::vector<double>& means, double ratio) {
  std::vector<double> scales;
  for (const double mean : means) scales.push_back(std::max(std::pow(mean, ratio), kLeast));
  const auto [least, most] = std::ranges::minmax(scales);
  const double middle = std::sqrt(least * most);
  std::vector<float> found;
  for (const double s : scales) found.push_back(static_cast<float>(s / middle));
  return found;
}

double loss_with(const WeightedLayer& layer, const Inputs& inputs, std::span<const float> scales,
                 const WeightOnlyOptions& weight) {
  const Tensor divisor = Tensor::from_values(scales, {static_cast<std::int64_t>(scales.size())});
  const Tensor got = div(rounded(accuracy::scaled_inputs(layer, scales), weight), divisor);
  return loss(sub(got, layer.weight->detach()), inputs.products);
}

void search_scales(const ChannelChain& group, const std::vector<WeightedLayer>& layers,
                   const std::vector<Inputs>& inputs, const WeightOnlyOptions& weight,
                   std::int64_t steps) {
  std::vector<double> means(static_cast<std::size_t>(group.source.channels), 0.0);
  for (const ChannelUse& use : group.uses) {
    const accuracy::ChannelSums& sums = inputs[use.layer].sums;
    for (std::size_t i = 0; i < use.channels.size(); ++i) {
      double& mean = means[static_cast<std::size_t>(use.channels[i])];
      mean = std::max(mean, sums.mean_magnitude(i));
    }
  }
  std::vector<float> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < steps; ++i) {
    const std::vector<float> scales =
        scales_for(means, static_cast<double>(i) / static_cast<double>(steps));
    double sum = 0.0;
    for (const ChannelUse& use : group.uses) {
      sum +=
          loss_with(layers[use.layer], inputs[use.layer], accuracy::scales_of(use, scales), weight);
    }
    if (sum < least) {
      least = sum;
      best = scales;
    }
  }
  accuracy::move_scales(group, layers, best);
}

// The sum of squares of each group of columns of each row: [rows * groups].
std::vector<double> group_losses(const Tensor& difference, const Tensor& products,
                                 std::int64_t group_size) {
  const std::int64_t rows = difference.size(0);
  const std::int64_t columns = difference.size(1);
  const float* d = difference.data<float>();
  const float* p = products.data<float>();
  std::vector<double> losses;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < columns; first += group_size) {
      const float* of_group = d + row * columns + first;
      double sum = 0.0;
      for (std::int64_t i = 0; i < group_size; ++i) {
        const float* products_of_i = p + (first + i) * columns + first;
        float along = 0.0F;
        for (std::int64_t j = 0; j < group_size; ++j) along += products_of_i[j] * of_group[j];
        sum += static_cast<double>(along) * static_cast<double>(of_group[i]);
      }
      losses.push_back(sum);
    }
  }
  return losses;
}

void search_ranges(const WeightedLayer& layer, const Tensor& products,
                   const WeightOnlyOptions& weight, const AwqOptions& options) {
  const Tensor original = layer.weight->detach().contiguous();
  const std::int64_t columns = original.size(1);
  const std::int64_t group_size = weight.group_size == 0 ? columns : weight.group_size;
  const auto groups = static_cast<std::size_t>(original.numel() / group_size);
  const auto width = static_cast<std::size_t>(group_size);
  const std::span<const float> w = original.span<float>();
  std::vector<float> largest(groups, 0.0F);
  for (std::size_t i = 0; i < w.size(); ++i) {
    largest[i / width] = std::max(largest[i / width], std::abs(w[i]));
  }
  const auto clipped = [&](const std::vector<float>& ranges) {
    Tensor result = Tensor::empty(original.sizes());
    const std::span<float> out = result.mutable_span<float>();
    for (std::size_t i = 0; i < w.size(); ++i) {
      out[i] = std::clamp(w[i], -ranges[i / width], ranges[i / width]);
    }
    return result;
  };
  std::vector<float> best = largest;
  std::vector<double> least(groups, std::numeric_limits<double>::infinity());
  const auto steps = static_cast<double>(options.range_steps);
  for (std::int64_t i = 0; static_cast<double>(i) < std::max(options.largest_cut * steps, 1.0);
       ++i) {
    const auto share = static_cast<float>(1.0 - static_cast<double>(i) / steps);
    std::vector<float> ranges = largest;
    for (float& range : ranges) range *= share;
    const Tensor difference = sub(rounded(clipped(ranges), weight), original);
    const std::vector<double> losses = group_losses(difference, products, group_size);
    for (std::size_t g = 0; g < groups; ++g) {
      if (losses[g] >= least[g]) continue;
      least[g] = losses[g];
      best[g] = ranges[g];
    }
  }
  *layer.weight = clipped(best);
}

bool keeps_range(const std::string& path, const std::vector<std::string>& parts) {
  return std::ranges::any_of(
      parts, [&](const std::string& part) { return path.find(part) != std::string::npos; });
}

// The layers that quantize_weight_only takes.
std::vector<WeightedLayer> linear_layers(nn::Module& model, const WeightOnlyOptions& weight,
                                         const WeightOnlyFilter& filter) {
  check_names(model, filter);
  std::vector<WeightedLayer> layers;
  for (const WeightedLayer& layer : accuracy::weighted_layers(model)) {
    const nn::Module& module = *layer.layer;
    if (typeid(module) != typeid(nn::Linear) || layer.unit != layer.layer || layer.path.empty() ||
        !takes(filter, layer.path, module)) {
      continue;
    }
    accuracy::require_finite(layer, kOp);
    const std::int64_t columns = layer.weight->size(1);
    QUANTA_CHECK(
        weight.group_size >= 0 && (weight.group_size == 0 || columns % weight.group_size == 0),
        "{}: weight.group_size: expected 0 or a divisor of the {} columns of '{}', got {}", kOp,
        columns, layer.path, weight.group_size);
    layers.push_back(layer);
  }
  QUANTA_CHECK(!layers.empty(),
               "{}: model: expected nn::Linear layers that the filter takes, got none", kOp);
  return layers;
}

// Groups of `layers` behind one norm or layer; `all` are the model's.
std::vector<ChannelChain> find_groups(nn::Module& model, const std::vector<WeightedLayer>& layers,
                                      const std::vector<WeightedLayer>& all,
                                      const std::vector<Tensor>& example) {
  std::vector<ChannelChain> groups =
      accuracy::linear_groups(accuracy::find_channel_chains(model, all, example, kOp), all, kOp);
  std::erase_if(groups, [&](const ChannelChain& group) {
    return std::ranges::any_of(group.uses, [&](const ChannelUse& use) {
      return std::ranges::find(layers, all[use.layer].path, &WeightedLayer::path) == layers.end();
    });
  });
  QUANTA_CHECK(
      !groups.empty(),
      "{}: model: expected layers that the filter takes behind a norm or a layer, got none", kOp);
  return groups;
}

void run_awq(nn::Module& model, const WeightOnlyOptions& weight, const CalibrationData& data,
             const AwqOptions& options, const WeightOnlyFilter& filter) {
  const autograd::NoGradGuard no_grad;
  QUANTA_CHECK(options.scale_steps >= 1 && options.range_steps >= 1,
               "{}: scale_steps, range_steps: expected at least 1, got {} and {}", kOp,
               options.scale_steps, options.range_steps);
  QUANTA_CHECK(options.largest_cut >= 0.0 && options.largest_cut <= 1.0,
               "{}: largest_cut: expected 0..1, got {}", kOp, options.largest_cut);
  const std::vector<WeightedLayer> layers = linear_layers(model, weight, filter);
  std::vector<ChannelChain> groups;
  if (options.search_scales) {
    // Layers of other kinds may be what comes before: all are followed.
    const std::vector<WeightedLayer> all = accuracy::weighted_layers(model);
    try {
      groups = find_groups(model, layers, all, data.example);
    } catch (const Error& error) {
      if (!options.search_ranges) throw;
      data.report(fmt::format("awq: no scales: {}", error.what()), 0, layers.size());
    }
    if (!groups.empty()) {
      std::vector<Inputs> inputs(all.size());
      std::vector<Inputs> collected = collect(model, layers, data.run);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto at = std::ranges::find(all, layers[i].path, &WeightedLayer::path);
        inputs[static_cast<std::size_t>(at - all.begin())] = std::move(collected[i]);
      }
      for (std::size_t i = 0; i < groups.size(); ++i) {
        search_scales(groups[i], all, inputs, weight, options.scale_steps);
        data.report("awq: " + groups[i].source.path, i + 1, groups.size() + layers.size());
      }
    }
  }
  if (!options.search_ranges) return;
  const std::vector<Inputs> inputs = collect(model, layers, data.run);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!keeps_range(layers[i].path, options.keep_ranges)) {
      search_ranges(layers[i], inputs[i].products, weight, options);
    }
    data.report("awq: " + layers[i].path, groups.size() + i + 1, groups.size() + layers.size());
  }
}

}  // namespace

AccuracyMethod awq_method(const WeightOnlyOptions& weight, const AwqOptions& options,
                          const WeightOnlyFilter& filter) {
  return {"awq", [weight, options, filter](nn::Module& model, nn::Module&, const QConfigMapping&,
                                           const CalibrationData& data) {
            run_awq(model, weight, data, options, filter);
          }};
}

}  // namespace quanta
