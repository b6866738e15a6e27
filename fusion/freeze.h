#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/runtime/replay_plan.h"

namespace quanta {

class FrozenModel;

struct FreezeOptions {
  /// Sizes of dimension 0, the batch, to make a plan for each; the plans share the packed weights.
  /// Any other number of rows runs too: many are divided, few are filled up to the next size. Empty:
  /// one plan, for the example's sizes.
  std::vector<std::int64_t> batch_sizes{};
};

namespace detail {
/// `copy` makes a module of its own of the model.
using CopyModule = std::shared_ptr<const nn::Module> (*)(const nn::Module&);
FrozenModel freeze(const nn::Module& model, std::span<const Tensor> example,
                   const FreezeOptions& options, CopyModule copy);
}  // namespace detail

/// A network as a plan for inputs of one size, or of a few: what freeze() returns. It keeps the
/// packed weights of the network's layers, but not the network: changes of that are not seen. Copies
/// share the plans. Safe to call from many threads at once.
class FrozenModel {
 public:
  /// The network's result, as the eager run gives it to the last bit. x must have the sizes and
  /// dtype of the example, but for the batch of a model that was frozen for several. In debug builds
  /// every call of a model with one plan is compared with an eager run of a copy of the network, and
  /// throws Error when they differ. Throws ArgumentError for other inputs.
  Tensor operator()(const Tensor& x) const;
  /// All results of a network with several inputs or outputs.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) const {
    return (*this)(std::span<const Tensor>(inputs.begin(), inputs.size()));
  }
  /// The only result of a network with several inputs. Throws ArgumentError when there are more.
  template <std::convertible_to<Tensor>... More>
  requires(sizeof...(More) > 0) Tensor operator()(const Tensor& first, const More&... more) const {
    return only_result((*this)({first, Tensor(more)...}));
  }

  /// Steps before and after joining, bytes of planned memory; of the largest batch.
  const replay::ReplayPlan::Info& info() const { return largest().info(); }
  /// The plan of the largest batch, a line for each step.
  std::string to_string() const { return largest().to_string(); }
  /// The batches that there are plans for, ascending; empty unless frozen for several.
  std::vector<std::int64_t> batch_sizes() const;

 private:
  friend FrozenModel detail::freeze(const nn::Module& model, std::span<const Tensor> example,
                                    const FreezeOptions& options, detail::CopyModule copy);
  struct Plan {
    std::int64_t batch = 0;
    std::shared_ptr<const replay::ReplayPlan> plan;
  };
  static Tensor only_result(std::vector<Tensor> results);
  std::vector<Tensor> run_batches(std::span<const Tensor> inputs) const;
  const Plan& plan_for(std::int64_t rows) const;
  const replay::ReplayPlan& largest() const;

  std::vector<Plan> plans_;  // by batch; one without when there is no range
  bool has_range_ = false;
  std::vector<bool> is_batched_;             // for each input: whether dimension 0 is the batch
  std::shared_ptr<const nn::Module> eager_;  // debug builds only
};

/// Runs `model` once on `example` (what one call takes) and notes the steps: kernels with their
/// packed weights and parameters. The result runs them without modules, checks and allocations
/// between them: results lie in one planned block of memory, equal steps are done once, quantize
/// after dequantize and lookups of codes are joined with the step before them.
///
///   auto int8 = convert(prepared);
///   auto frozen = freeze(int8, x);                              // x [1, 3, 224, 224]
///   Tensor y = frozen(x);                                       // as int8(x), sooner
///   auto several = freeze(int8, x, {.batch_sizes = {1, 8, 32}});  // any number of images
///   auto masked = freeze(bert, {ids, mask});                    // masked({ids, mask})[0]
///
/// Inputs whose dimension 0 is that of the first one are divided with the batch; give an example of
/// two rows or more where another input has one row for all.
///
/// The network has to be in eval mode, without hooks and observers, and its steps may not depend on
/// values that it calculates. For a range of batches every output has the batch as dimension 0, and
/// no row depends on the others (which is so with dynamic quantization per tensor). Throws
/// ArgumentError or UnsupportedError that names what cannot be frozen; see docs/freeze.md for the
/// operations that can.
template <typename Model>
requires(std::is_base_of_v<nn::Module, Model>&& std::is_copy_constructible_v<Model>) FrozenModel
    freeze(const Model& model, std::span<const Tensor> example, const FreezeOptions& options = {}) {
  return detail::freeze(model, example, options,
                        [](const nn::Module& given) -> std::shared_ptr<const nn::Module> {
                          if (typeid(given) != typeid(Model)) return given.clone();
                          return nn::make_module<Model>(static_cast<const Model&>(given))->clone();
                        });
}
/// The same of a module whose type is not known; made through Child, make_module or clone(), or
/// debug builds do not compare.
FrozenModel freeze(const nn::Module& model, std::span<const Tensor> example,
                   const FreezeOptions& options = {});

template <typename Model>
requires std::is_base_of_v<nn::Module, Model> FrozenModel
freeze(const Model& model, const Tensor& example, const FreezeOptions& options = {}) {
  return freeze(model, std::span<const Tensor>(&example, 1), options);
}
template <typename Model>
requires std::is_base_of_v<nn::Module, Model> FrozenModel freeze(
    const Model& model, std::initializer_list<Tensor> example, const FreezeOptions& options = {}) {
  return freeze(model, std::span<const Tensor>(example.begin(), example.size()), options);
}

}  // namespace quanta
