#pragma once

// Private: which layers follow each other, channel by channel, in one recorded run of a model.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/nn/module.h"

namespace quanta::accuracy {

/// An operation between two layers that gives each channel times s what it gives the channel, times
/// s, for every s > 0: a ReLU, LeakyReLU or PReLU, a pool, a mean over other dimensions, a product
/// with something else. "relu6" is listed although it does so below 6 only.
struct PassedOp {
  std::string name;  ///< the operation's
  std::string path;  ///< of the module that runs it
};

/// What gives channels their values: a layer, or the weight and bias of a norm.
struct ChannelSource {
  std::optional<std::size_t> layer;  ///< its position among the layers; none: a norm
  std::string path;                  ///< the layer's, or that of the module that runs the norm
  Tensor weight{}, bias{};           ///< of the norm: they share memory with the model's
  std::int64_t channels = 0;
};

/// A layer that takes them.
struct ChannelUse {
  std::size_t layer = 0;  ///< its position among the layers
  /// For each of its input channels that of the source.
  std::vector<std::int64_t> channels{};
  std::vector<PassedOp> passed{};
};

struct ChannelChain {
  ChannelSource source;
  std::vector<ChannelUse> uses{};
  /// Layers alone take what the source gives: its channels may be scaled where theirs are scaled
  /// back. Otherwise `open_at` says what else takes them.
  bool is_closed = true;
  std::string open_at{};

  bool passes(std::string_view op) const;
};

/// A chain for each of `layers` and each norm (layer_norm, rms_norm, batch_norm) with a weight, in
/// the order in which they run on `example`, what one call of the model takes. Left out: what is
/// called more than once or not at all, and layers that share a weight. The model is in eval mode
/// when it is done. Throws ArgumentError, naming `op`, for an example without tensors, what the
/// model throws, and UnsupportedError for a run that cannot be recorded (docs/freeze.md).
std::vector<ChannelChain> find_channel_chains(nn::Module& model,
                                              const std::vector<WeightedLayer>& layers,
                                              std::span<const Tensor> example, std::string_view op);

}  // namespace quanta::accuracy
