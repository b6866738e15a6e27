#pragma once

#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/nn/module_forms.h"

// Takes a const model; may run in many threads at once.

namespace quanta {

/// Groups of module paths, as fuse_modules takes them.
using FusionGroups = std::vector<std::vector<std::string>>;

namespace detail {
/// find_fusion_groups on a copy that may be changed.
FusionGroups find_fusion_groups_in(nn::Module& copy, std::span<const Tensor> example,
                                   nn::FuseFor use);
/// Throws ArgumentError unless each module of a group alone takes the result of the one before it.
void require_adjacent(nn::Module& copy, std::span<const Tensor> example,
                      const FusionGroups& groups);
}  // namespace detail

/// The groups of `model` that can be fused: runs a copy of it once, in eval mode, on `example` (what
/// one call of the model takes) and finds the modules that follow each other there in one of the
/// known sequences (see fuse_modules), the longest ones first. Each module of a group is called once,
/// and the results within the group are used by nobody else:
///
///   fuse_modules(net, find_fusion_groups(net, x));
///
/// `use` Training: the groups for fuse_modules_qat. Modules that are fused, prepared or converted
/// already are left out. Throws ArgumentError for a module without a way to copy it, and what the
/// model throws; UnsupportedError for a run that cannot be recorded (see docs/freeze.md).
template <typename T>
requires std::is_base_of_v<nn::Module, T> FusionGroups find_fusion_groups(
    const T& model, std::span<const Tensor> example, nn::FuseFor use = nn::FuseFor::Inference) {
  T copy = nn::deep_copy(model);
  return detail::find_fusion_groups_in(copy, example, use);
}
template <typename T>
requires std::is_base_of_v<nn::Module, T> FusionGroups find_fusion_groups(
    const T& model, const Tensor& example, nn::FuseFor use = nn::FuseFor::Inference) {
  return find_fusion_groups(model, std::span<const Tensor>(&example, 1), use);
}

}  // namespace quanta
