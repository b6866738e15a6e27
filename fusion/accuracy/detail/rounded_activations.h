#pragma once

// Private: a float network whose modules round their results as the quantized network would.

#include <utility>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/module.h"

namespace quanta::accuracy {

/// While it lives, each module of `model` that prepare would observe rounds its result to the grid
/// that its observer found while `run` fed `reference`, another copy, which stays prepared.
/// Throws what prepare and `run` throw, and ArgumentError for a model with observers already.
class RoundedActivations {
 public:
  RoundedActivations(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                     const Calibrate& run);
  RoundedActivations(const RoundedActivations&) = delete;
  RoundedActivations& operator=(const RoundedActivations&) = delete;
  ~RoundedActivations();

 private:
  std::vector<nn::Module*> modules_;
};

}  // namespace quanta::accuracy
