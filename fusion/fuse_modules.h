#pragma once

#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/fusion/find_fusion_groups.h"
#include "quanta/nn/fold_batch_norm.h"
#include "quanta/nn/module.h"
#include "quanta/nn/module_forms.h"

// What changes a model (names that end in an underscore) is for one thread at a time for each
// model, while nobody calls it; what takes a const model may run in many threads at once.

namespace quanta {

/// Sequences of exact types with their fusers; later entries replace earlier ones.
using FuserTable = std::vector<std::pair<std::vector<std::type_index>, Fuser>>;

/// Replaces sequences of modules in place, as torch.ao.quantization.fuse_modules does in eval mode:
/// the fused module takes the first name, the others become Identity. Groups are dotted paths:
///
///   fuse_modules(net, {{"conv1", "bn1", "relu"}, {"layer1.0.conv2", "layer1.0.bn2"}});
///
/// Known: Conv1d/2d/3d + BatchNorm (folded), + ReLU; Conv + ReLU; Linear + ReLU; Linear +
/// BatchNorm1d (folded); BatchNorm2d/3d + ReLU; ConvTranspose + BatchNorm (folded); Linear +
/// LeakyReLU; Linear + Tanh; and what nn::register_fusion added. `additional` extends the table for
/// this call. Pre-forward hooks of the first and
/// forward hooks of the last module move to the fused one. Throws ArgumentError for an unknown path
/// or sequence, modules in train mode where a BatchNorm is folded, unequal channel counts, or a
/// prepared model; then nothing was changed.
void fuse_modules(nn::Module& model, const std::vector<std::vector<std::string>>& groups,
                  const FuserTable& additional = {});

/// fuse_modules after a run of `example` on a copy has shown that in each group every module alone
/// takes the result of the one before it. Throws ArgumentError, naming the modules, when not.
template <typename T>
requires std::is_base_of_v<nn::Module, T>
void fuse_modules(T& model, const FusionGroups& groups, const Tensor& example) {
  T copy = nn::deep_copy(model);
  detail::require_adjacent(copy, std::span<const Tensor>(&example, 1), groups);
  fuse_modules(model, groups);
}

/// fuse_modules for training with quantization in the loop: batch norms are not folded but trained
/// with their layer (intrinsic::ConvBn2d, ConvBnReLU2d, LinearBn1d ...), as torch's
/// fuse_modules_qat. Conv + ReLU, Linear + ReLU and BatchNorm + ReLU as above; ConvTranspose +
/// BatchNorm is refused. Takes models in either mode, all of a group's modules in the same. Throws
/// ArgumentError also for a batch norm without affine parameters or running statistics.
void fuse_modules_qat(nn::Module& model, const std::vector<std::vector<std::string>>& groups,
                      const FuserTable& additional = {});

}  // namespace quanta
