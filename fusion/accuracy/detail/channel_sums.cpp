#include "quanta/fusion/accuracy/detail/channel_sums.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {

void ChannelSums::add(const Tensor& x, std::int64_t dim) {
  const auto channels = static_cast<std::size_t>(x.size(dim));
  sum.resize(channels);
  squares.resize(channels);
  magnitudes.resize(channels);
  largest.resize(channels);
  if (x.numel() == 0) return;
  const auto note = [&](std::size_t c, float v) {
    const auto value = static_cast<double>(v);
    sum[c] += value;
    squares[c] += value * value;
    magnitudes[c] += std::abs(value);
    largest[c] = std::max(largest[c], std::abs(v));
  };
  count += x.numel() / x.size(dim);
  if (x.is_dense() && x.strides()[static_cast<std::size_t>(dim)] == 1) {
    const float* values = x.data<float>();
    for (std::int64_t row = 0; row < x.numel(); row += x.size(dim)) {
      for (std::size_t c = 0; c < channels; ++c) note(c, *values++);
    }
    return;
  }
  const Tensor dense = x.contiguous();
  const float* values = dense.data<float>();
  std::int64_t inner = 1;
  for (std::int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  for (std::int64_t outer = x.numel() / (x.size(dim) * inner); outer > 0; --outer) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::int64_t i = 0; i < inner; ++i) note(c, *values++);
    }
  }
}

ChannelStatistics ChannelSums::statistics() const {
  ChannelStatistics found;
  for (std::size_t c = 0; c < sum.size(); ++c) {
    const double average = mean(c);
    const double variance = squares[c] / static_cast<double>(count) - average * average;
    found.mean.push_back(static_cast<float>(average));
    found.deviation.push_back(static_cast<float>(std::sqrt(std::max(variance, 0.0))));
  }
  return found;
}

std::int64_t channel_dim(const WeightedLayer& layer, const Tensor& x) {
  return layer.kind == WeightedLayer::Kind::Linear ? x.dim() - 1
                                                   : x.dim() - layer.weight->dim() + 1;
}

std::vector<ChannelSums> channel_sums(nn::Module& model, const std::vector<WeightedLayer>& layers,
                                      Side side, const Calibrate& run, std::string_view op) {
  const autograd::NoGradGuard no_grad;
  std::vector<ChannelSums> sums(layers.size());
  ModuleHooks hooks;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    hooks.watch(*layers[i].layer, [&layer = layers[i], &of = sums[i], side](const Tensor& input,
                                                                            const Tensor& output) {
      const Tensor& x = side == Side::Inputs ? input : output;
      of.add(x, channel_dim(layer, x));
    });
  }
  run(model);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    QUANTA_CHECK(sums[i].count > 0, "{}: data.run: expected data that reaches '{}', got none", op,
                 layers[i].path);
  }
  return sums;
}

}  // namespace quanta::accuracy
