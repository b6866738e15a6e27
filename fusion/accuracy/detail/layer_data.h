#pragma once

// Private: what layers are given and what they make of it, while data runs through a model.

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/module.h"

namespace quanta::accuracy {

/// Hooks on modules of a model that note inputs and results of their calls; they go with this
/// object. For one thread.
class LayerWatch {
 public:
  struct Call {
    Tensor input, output;
  };
  /// From now on the calls of `module`, under this name.
  void watch(nn::Module& module, const std::string& name);
  /// In the order in which they were called first.
  const std::vector<std::string>& called() const noexcept { return called_; }
  const std::vector<Call>& calls(const std::string& name) const;
  void clear();

 private:
  ModuleHooks hooks_;
  std::vector<std::string> called_;
  std::map<std::string, std::vector<Call>> calls_;
};

/// The inputs of `layer` while `run` feeds `model`, which is in eval mode: one tensor for each call.
/// Throws ArgumentError, naming the layer, when it was not called, and what `run` throws.
std::vector<Tensor> inputs_of(nn::Module& model, const WeightedLayer& layer, const Calibrate& run);
/// The names of modules in the order in which `run` calls them first. Nothing is kept of what passes.
using NamedModules = std::vector<std::pair<std::string, nn::Module*>>;
std::vector<std::string> order_of_calls(nn::Module& model, const NamedModules& modules,
                                        const Calibrate& run);
/// The same of layers, by path.
std::vector<std::string> order_of_calls(nn::Module& model, const std::vector<WeightedLayer>& layers,
                                        const Calibrate& run);

}  // namespace quanta::accuracy
