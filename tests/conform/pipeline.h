#pragma once

#include <string>
#include <vector>

#include "network.h"
#include "quanta/observers/observer.h"
#include "suite.h"
#include "value.h"

// What the pipeline cases share, of whichever workflow.
namespace quanta::conform {

/// attrs.fuse; nothing when there is none.
std::vector<std::vector<std::string>> groups_to_fuse(const Case& test);

/// Type, parameters and range of an observer.
Object observer_entry(const Observer& observer);
/// Those of every observer, by the path of the observed module.
Object observers_of(const Network& prepared);

/// What a converted model holds: modules with output parameters of their own, and their weights.
Object quantized_modules_of(const Network& converted);

/// Runs a converted network and notes the quantized results on the way.
class Recorder {
 public:
  explicit Recorder(Network& converted);
  /// The tensor that entered the last DeQuantStub, or the result if there is none.
  Tensor operator()(const Tensor& x);
  Object take_activations() { return std::move(activations_); }

 private:
  void watch(const std::string& path, nn::Module& module);
  void note(const std::string& path, const Tensor& y);

  Network* net_;
  Object activations_;
  Tensor into_dequant_;
};

}  // namespace quanta::conform
