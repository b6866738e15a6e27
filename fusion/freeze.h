#pragma once

#include <memory>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/runtime/replay_plan.h"

namespace quanta {

/// A network as a plan for inputs of one size: what freeze() returns. It keeps the packed weights
/// of the network's layers, but not the network: changes of that are not seen. Copies share the
/// plan. Safe to call from many threads at once.
class FrozenModel {
 public:
  /// The network's result, as the eager run gives it to the last bit. x must have the sizes and
  /// dtype of the example. In debug builds every call is compared with an eager run of a copy of
  /// the network, and throws Error when they differ.
  Tensor operator()(const Tensor& x) const;

  /// Steps before and after joining, bytes of planned memory.
  const replay::ReplayPlan::Info& info() const noexcept { return plan_->info(); }
  /// The plan, a line for each step.
  std::string to_string() const { return plan_->to_string(); }

 private:
  friend FrozenModel freeze(const nn::Module& model, const Tensor& example_input);
  std::shared_ptr<const replay::ReplayPlan> plan_;
  std::shared_ptr<const nn::Module> eager_;  // debug builds only
};

/// Runs `model` once on `example_input` and notes the steps: kernels with their packed weights and
/// parameters. The result runs them without modules, checks and allocations between them: results
/// lie in one planned block of memory, equal steps are done once, quantize after dequantize and
/// lookups of codes are joined with the step before them.
///
///   auto int8 = convert(prepared);
///   auto frozen = freeze(int8, x);      // x [1, 3, 224, 224]
///   Tensor y = frozen(x);               // as int8(x), sooner
///
/// The network has to be in eval mode, without hooks and observers, and its steps may not depend on
/// values that it calculates. Throws ArgumentError or UnsupportedError that names what cannot be
/// frozen; see docs/freeze.md for the operations that can.
FrozenModel freeze(const nn::Module& model, const Tensor& example_input);

}  // namespace quanta
