#pragma once

// Private: what the modules of a network are given and give in one run.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/runtime/tensor.h"

namespace quanta::reporting {

/// One call of a module. Only `outputs` where nobody asked for inputs.
struct CapturedCall {
  std::vector<Tensor> inputs, outputs;
  /// Calculates the module's result from other inputs; empty where inputs are not known.
  std::function<std::vector<Tensor>(std::span<const Tensor> inputs)> again{};
};

/// The calls by the modules' paths.
struct Capture {
  std::vector<std::string> order;  ///< paths by first call
  std::map<std::string, std::vector<CapturedCall>> calls;
  bool paused = false;  ///< nothing is noted

  void note(const std::string& path, CapturedCall call);
  void clear();
};

/// From now on the calls of all modules below `model` are noted, as long as `capture` lives.
/// FloatFunctional modules are replaced by others: the model is spoiled. With `keep_inputs` inputs
/// are noted too.
void capture_calls(nn::Module& model, Capture& capture, bool keep_inputs);

}  // namespace quanta::reporting
