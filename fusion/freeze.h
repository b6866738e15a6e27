#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>

#include "quanta/nn/module.h"
#include "quanta/runtime/replay_plan.h"

namespace quanta {

class FrozenModel;

namespace detail {
/// `copy` makes a module of its own of the model.
using CopyModule = std::shared_ptr<const nn::Module> (*)(const nn::Module&);
FrozenModel freeze(const nn::Module& model, const Tensor& example_input, CopyModule copy);
}  // namespace detail

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
  friend FrozenModel detail::freeze(const nn::Module& model, const Tensor& example_input,
                                    detail::CopyModule copy);
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
template <typename Model>
requires(std::is_base_of_v<nn::Module, Model>&& std::is_copy_constructible_v<Model>) FrozenModel
    freeze(const Model& model, const Tensor& example_input) {
  return detail::freeze(model, example_input,
                        [](const nn::Module& given) -> std::shared_ptr<const nn::Module> {
                          if (typeid(given) != typeid(Model)) return given.clone();
                          return nn::make_module<Model>(static_cast<const Model&>(given))->clone();
                        });
}
/// The same of a module whose type is not known; made through Child, make_module or clone(), or
/// debug builds do not compare.
FrozenModel freeze(const nn::Module& model, const Tensor& example_input);

}  // namespace quanta
