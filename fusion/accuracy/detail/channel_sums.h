#pragma once

// Private: means and deviations of channels while data runs through a model.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/batch_norm_statistics.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/module.h"

namespace quanta::accuracy {

/// Sums over all that was added, for each channel.
struct ChannelSums {
  std::vector<double> sum, squares;
  std::vector<double> magnitudes;
  std::vector<float> largest;  ///< magnitude
  std::int64_t count = 0;

  /// The channels of `x`, Float32, lie along `dim`.
  void add(const Tensor& x, std::int64_t dim);
  double mean(std::size_t channel) const { return sum[channel] / static_cast<double>(count); }
  double mean_magnitude(std::size_t channel) const {
    return magnitudes[channel] / static_cast<double>(count);
  }
  ChannelStatistics statistics() const;
};

enum class Side : bool { Inputs, Outputs };
/// The dimension along which the channels of what the layer takes or gives lie.
std::int64_t channel_dim(const WeightedLayer& layer, const Tensor& x);

/// Of what each of `layers` takes or gives while `run` feeds `model`, by their positions. Throws
/// ArgumentError, naming `op` and the layer, for one that is not reached, and what `run` throws.
std::vector<ChannelSums> channel_sums(nn::Module& model, const std::vector<WeightedLayer>& layers,
                                      Side side, const Calibrate& run, std::string_view op);

}  // namespace quanta::accuracy
