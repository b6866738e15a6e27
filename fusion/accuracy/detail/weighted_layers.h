#pragma once

// Private: the layers that methods for accuracy work on, found in any tree of modules: a network
// written as a class, or a graph::Model.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"
#include "quanta/observers/observer.h"

namespace quanta::accuracy {

/// A convolution, transposed convolution or linear layer with a float weight.
struct WeightedLayer {
  enum class Kind : std::uint8_t { Linear, Conv, ConvTranspose };
  Kind kind = Kind::Linear;
  /// The path of what prepare observes and convert replaces: the fused module it is a part of, or
  /// the layer itself. Under this name stand its QConfig and its result.
  std::string path;
  nn::Module* unit = nullptr;   ///< what stands at `path`
  nn::Module* layer = nullptr;  ///< the nn::Conv2d, nn::Linear ... itself
  Tensor* weight = nullptr;     ///< the layer's member
  Tensor* bias = nullptr;       ///< the layer's member; the tensor is undefined where it has none
  std::int64_t groups = 1;
  /// Of the QConfig: empty where the layer stays in float.
  std::optional<QConfig> qconfig{};

  /// The axis of the weight that output channels lie on: 0, for transposed convolutions 1.
  std::int64_t channel_axis() const noexcept { return kind == Kind::ConvTranspose ? 1 : 0; }
  std::int64_t out_channels() const;
};

/// All of `model`, in the order of the tree, each once; of fused modules those whose first part is
/// one. Their QConfigs are those that prepare would give them. Modules that are converted, that
/// train with a fake-quantized weight or are fused with a batch norm are left out. Throws what prepare throws for the mapping.
std::vector<WeightedLayer> weighted_layers(nn::Module& model, const QConfigMapping& qconfigs);
/// Without QConfigs.
std::vector<WeightedLayer> weighted_layers(nn::Module& model);
/// A layer as a function of its parameters, without hooks and without what is fused behind it.
class LayerFunction {
 public:
  /// Settings (stride, groups ...) are the layer's.
  explicit LayerFunction(const WeightedLayer& layer);
  /// Recorded on the tape like any operation. An undefined bias: none.
  Tensor operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const;

 private:
  std::shared_ptr<nn::Module> layer_;
  Tensor* weight_;
  Tensor* bias_;
};

/// The grid of a weight: scale, zero point and codes, per tensor or for each channel.
struct WeightGrid {
  ObservedQParams qparams;
  std::optional<std::int64_t> axis;  ///< of the channels; none: one scale
  std::int64_t quant_min = 0, quant_max = 0;
  ObserverFactory keep;  ///< observers that give just this grid

  /// What quantizing the weight makes of it, in float.
  Tensor round(const Tensor& weight) const;
  /// Scale and zero point (Float32) with sizes that broadcast with a weight of `dims` dimensions.
  Tensor scale_for(std::int64_t dims) const;
  Tensor zero_point_for(std::int64_t dims) const;
};
/// What the weight observer of the layer's QConfig chooses for its weight. None for a layer without
/// a QConfig or weight observer.
/// Throws UnsupportedError, naming the layer, for an observer without an integer grid (Float16,
/// float qparams, fake quantizers of float formats).
std::optional<WeightGrid> weight_grid(const WeightedLayer& layer);
/// The module's own QConfig becomes the layer's with this grid: convert gives each element of a
/// weight that lies on it the code it lies on.
void keep_grid(const WeightedLayer& layer, const WeightGrid& grid);

}  // namespace quanta::accuracy
