#pragma once

// Private: how long each module of a network takes.

#include <map>
#include <span>
#include <string>

#include "quanta/nn/module.h"

namespace quanta::accuracy {

/// The least over several runs of one call of the network, of the operations that each module runs: what
/// other programs take of a busy machine is no cost of a layer.
class LayerTimes {
 public:
  LayerTimes(const nn::Module& model, std::span<const Tensor> example, int runs);
  /// Milliseconds of the module at that path with all below; 0 where it runs nothing.
  double of(const std::string& path) const;

 private:
  std::map<std::string, double> milliseconds_;
};

}  // namespace quanta::accuracy
