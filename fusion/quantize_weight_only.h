#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/ops/linear_weight_only.h"

// What changes a model (names that end in an underscore) is for one thread at a time for each
// model, while nobody calls it; what takes a const model may run in many threads at once.

namespace quanta {

/// Which layers quantize_weight_only takes. Names are paths in the tree and stand for the module
/// and everything below it: "encoder" means "encoder.0.fc1" as well.
struct WeightOnlyFilter {
  std::vector<std::string> names{};  ///< only these; empty: all
  std::vector<std::string> skip{};   ///< none of these, whatever `names` says
  /// Asked for each layer that is left; empty: yes.
  std::function<bool(const std::string& path, const nn::Module& layer)> accept{};
};

/// In place: replaces each nn::Linear by a weight_only::Linear with its weight in 8 or 4 bits, and
/// each nn::MultiheadAttention by one whose four projections are such layers; hooks stay. Nothing needs to be prepared or calibrated. The exact type counts: layers that
/// derive from nn::Linear, those inside fused modules and the root itself are left alone. Throws
/// ArgumentError, and changes nothing: a name that is not in the tree, no layer at all, a layer
/// that cannot be quantized so (all are listed: a group size that does not divide, ...).
void quantize_weight_only_(nn::Module& model, const WeightOnlyOptions& options = {},
                           const WeightOnlyFilter& filter = {});

/// quantize_weight_only_ on a copy of the same type; `model` stays as it is.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T quantize_weight_only(
    const T& model, const WeightOnlyOptions& options = {}, const WeightOnlyFilter& filter = {}) {
  T copy = nn::deep_copy(model);
  quantize_weight_only_(copy, options, filter);
  return copy;
}

}  // namespace quanta
