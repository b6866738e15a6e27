#pragma once

// Private: a calibrated network whose layers are quantized or not, one by one, in float arithmetic.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/module.h"
#include "quanta/observers/fake_quantize.h"

namespace quanta::accuracy {

/// The layers of a prepared network whose activations have fake quantizers. While it lives, weights of
/// the network are what the switches say; then they are as they were.
class LayerSwitches {
 public:
  struct Layer {
    std::string path;
    std::string type;
    /// Of the result; null where it has the codes of what comes in.
    FakeQuantizeBase* result = nullptr;
    std::optional<WeightedLayer> weighted{};
    /// Whether a mapping can name it: stubs that prepare_jit has put in are always quantized.
    bool can_choose = true;
    /// Whether the module of that name in `named` was given a QConfig itself.
    bool has_own_qconfig = false;
  };

  /// Calibrates `prepared` with `run`, while nothing is quantized. Layers come in the order in which
  /// they are called; those below `named` paths only can be chosen. Throws what `run` throws, and
  /// ArgumentError where no layer is quantized or one saw no data.
  LayerSwitches(nn::Module& prepared, const nn::Module& named, const Calibrate& run);
  ~LayerSwitches();
  LayerSwitches(const LayerSwitches&) = delete;
  LayerSwitches& operator=(const LayerSwitches&) = delete;

  const std::vector<Layer>& layers() const noexcept { return layers_; }
  /// The positions of those that can be chosen.
  const std::vector<std::size_t>& choosable() const noexcept { return choosable_; }
  /// Float: neither weight nor result are quantized.
  void set_float(std::size_t layer);
  /// As the QConfig that the layer was prepared with says, with this weight observer's grid; none:
  /// that of the QConfig.
  void set_quantized(std::size_t layer, const ObserverFactory& weight = {});

 private:
  std::vector<Layer> layers_;
  std::vector<Tensor> weights_;  // as they were; undefined for layers without
  std::vector<std::size_t> choosable_;
};

}  // namespace quanta::accuracy
