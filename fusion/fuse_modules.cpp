#include "quanta/fusion/fuse_modules.h"

#include <algorithm>
#include <set>
#include <typeinfo>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;
using Modules = std::vector<ModulePtr>;

template <typename T>
constexpr std::int64_t transposed_groups(const T& layer) {
  if constexpr (std::is_same_v<T, nn::ConvTranspose1d> || std::is_same_v<T, nn::ConvTranspose2d> ||
                std::is_same_v<T, nn::ConvTranspose3d>) {
    return layer.options().groups;
  } else {
    static_cast<void>(layer);
    return 0;
  }
}

// A copy of the layer with the batch norm's arithmetic in its weight and bias.
template <typename Layer, typename BatchNorm>
ModulePtr fold(const Modules& modules) {
  const auto& layer = static_cast<const Layer&>(*modules[0]);
  const auto& norm = static_cast<const BatchNorm&>(*modules[1]);
  QUANTA_CHECK(
      !layer.is_training() && !norm.is_training(),
      "fuse_modules: model: expected eval mode to fold a batch norm (call eval()), got train mode");
  const FoldedWeights folded =
      fold_batch_norm(layer.weight, layer.bias, norm.running_mean, norm.running_var,
                      norm.options().eps, norm.weight, norm.bias, transposed_groups(layer));
  ModulePtr copy = layer.clone();
  copy->clear_pre_hooks();
  copy->clear_forward_hooks();
  auto& result = static_cast<Layer&>(*copy);
  result.weight = folded.weight;
  result.bias = folded.bias;
  return copy;
}

template <typename Fused>
ModulePtr pair(const Modules& modules) {
  auto fused = nn::make_module<Fused>(modules[0], modules[1]);
  fused->train(modules[0]->is_training());
  return fused;
}

template <typename Fused, typename Layer, typename BatchNorm>
ModulePtr fold_and_pair(const Modules& modules) {
  return pair<Fused>({fold<Layer, BatchNorm>(modules), modules[2]});
}

template <typename Layer, typename BatchNorm, typename Fused>
void add_convolution(FuserTable& table) {
  table.push_back({{typeid(Layer), typeid(BatchNorm)}, &fold<Layer, BatchNorm>});
  table.push_back({{typeid(Layer), typeid(BatchNorm), typeid(nn::ReLU)},
                   &fold_and_pair<Fused, Layer, BatchNorm>});
  table.push_back({{typeid(Layer), typeid(nn::ReLU)}, &pair<Fused>});
}

const FuserTable& default_fusers() {
  static const FuserTable fusers = [] {
    namespace ni = nn::intrinsic;
    FuserTable table;
    add_convolution<nn::Conv1d, nn::BatchNorm1d, ni::ConvReLU1d>(table);
    add_convolution<nn::Conv2d, nn::BatchNorm2d, ni::ConvReLU2d>(table);
    add_convolution<nn::Conv3d, nn::BatchNorm3d, ni::ConvReLU3d>(table);
    table.push_back(
        {{typeid(nn::Linear), typeid(nn::BatchNorm1d)}, &fold<nn::Linear, nn::BatchNorm1d>});
    table.push_back({{typeid(nn::Linear), typeid(nn::ReLU)}, &pair<ni::LinearReLU>});
    table.push_back({{typeid(nn::Linear), typeid(nn::LeakyReLU)}, &pair<ni::LinearLeakyReLU>});
    table.push_back({{typeid(nn::Linear), typeid(nn::Tanh)}, &pair<ni::LinearTanh>});
    table.push_back({{typeid(nn::BatchNorm2d), typeid(nn::ReLU)}, &pair<ni::BNReLU2d>});
    table.push_back({{typeid(nn::BatchNorm3d), typeid(nn::ReLU)}, &pair<ni::BNReLU3d>});
    table.push_back({{typeid(nn::ConvTranspose1d), typeid(nn::BatchNorm1d)},
                     &fold<nn::ConvTranspose1d, nn::BatchNorm1d>});
    table.push_back({{typeid(nn::ConvTranspose2d), typeid(nn::BatchNorm2d)},
                     &fold<nn::ConvTranspose2d, nn::BatchNorm2d>});
    table.push_back({{typeid(nn::ConvTranspose3d), typeid(nn::BatchNorm3d)},
                     &fold<nn::ConvTranspose3d, nn::BatchNorm3d>});
    return table;
  }();
  return fusers;
}

// A layer and the batch norm after it stay two, to be trained; `Fused` takes all modules.
template <typename Fused, typename Layer, typename BatchNorm>
ModulePtr keep_batch_norm(const Modules& modules) {
  const auto& layer = static_cast<const Layer&>(*modules[0]);
  const auto& norm = static_cast<const BatchNorm&>(*modules[1]);
  const std::int64_t channels = layer.weight.size(0);
  QUANTA_CHECK(norm.options().num_features == channels,
               "fuse_modules_qat: model: expected a batch norm of the layer's {} channels, got {}",
               channels, norm.options().num_features);
  QUANTA_CHECK(norm.options().affine && norm.options().track_running_stats,
               "fuse_modules_qat: model: expected a batch norm with affine parameters and running "
               "statistics, got affine={}, track_running_stats={}",
               norm.options().affine, norm.options().track_running_stats);
  ModulePtr fused;
  if constexpr (std::is_constructible_v<Fused, ModulePtr, ModulePtr, ModulePtr>) {
    fused = nn::make_module<Fused>(modules[0], modules[1], modules[2]);
  } else {
    fused = nn::make_module<Fused>(modules[0], modules[1]);
  }
  fused->train(modules[0]->is_training());
  return fused;
}

template <typename Layer, typename BatchNorm, typename ConvBn, typename ConvBnReLU,
          typename ConvReLU>
void add_qat_convolution(FuserTable& table) {
  table.push_back({{typeid(Layer), typeid(BatchNorm)}, &keep_batch_norm<ConvBn, Layer, BatchNorm>});
  table.push_back({{typeid(Layer), typeid(BatchNorm), typeid(nn::ReLU)},
                   &keep_batch_norm<ConvBnReLU, Layer, BatchNorm>});
  table.push_back({{typeid(Layer), typeid(nn::ReLU)}, &pair<ConvReLU>});
}

const FuserTable& qat_fusers() {
  static const FuserTable fusers = [] {
    namespace ni = nn::intrinsic;
    FuserTable table;
    add_qat_convolution<nn::Conv1d, nn::BatchNorm1d, ni::ConvBn1d, ni::ConvBnReLU1d,
                        ni::ConvReLU1d>(table);
    add_qat_convolution<nn::Conv2d, nn::BatchNorm2d, ni::ConvBn2d, ni::ConvBnReLU2d,
                        ni::ConvReLU2d>(table);
    add_qat_convolution<nn::Conv3d, nn::BatchNorm3d, ni::ConvBn3d, ni::ConvBnReLU3d,
                        ni::ConvReLU3d>(table);
    table.push_back({{typeid(nn::Linear), typeid(nn::BatchNorm1d)},
                     &keep_batch_norm<ni::LinearBn1d, nn::Linear, nn::BatchNorm1d>});
    table.push_back({{typeid(nn::Linear), typeid(nn::ReLU)}, &pair<ni::LinearReLU>});
    table.push_back({{typeid(nn::BatchNorm2d), typeid(nn::ReLU)}, &pair<ni::BNReLU2d>});
    table.push_back({{typeid(nn::BatchNorm3d), typeid(nn::ReLU)}, &pair<ni::BNReLU3d>});
    return table;
  }();
  return fusers;
}

const Fuser* find_fuser(const FuserTable& table, const std::vector<std::type_index>& types) {
  const auto found = std::find_if(table.rbegin(), table.rend(),
                                  [&](const auto& entry) { return entry.first == types; });
  return found == table.rend() ? nullptr : &found->second;
}

// A module's parent and its name there.
struct Place {
  Module* parent;
  std::string name;
};

Place find_place(Module& model, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {&model, path};
  return {model.get_submodule(path.substr(0, dot)).get(), path.substr(dot + 1)};
}

void fuse(Module& model, const std::vector<std::vector<std::string>>& groups,
          const FuserTable& additional, const FuserTable& known) {
  struct Replacement {
    Place place;
    ModulePtr module;
  };
  // All replacements are made before the first is put in place.
  std::vector<Replacement> replacements;
  std::vector<std::pair<ModulePtr, ModulePtr>> moved_hooks;  // first and last of each group
  std::set<std::string> seen;
  for (const std::vector<std::string>& group : groups) {
    Modules modules;
    std::vector<std::type_index> types;
    std::string type_names;
    for (const std::string& path : group) {
      QUANTA_CHECK(seen.insert(path).second,
                   "fuse_modules: groups: expected each module once, got '{}' twice", path);
      modules.push_back(model.get_submodule(path));
      const Module& module = *modules.back();
      types.emplace_back(typeid(module));
      type_names += (type_names.empty() ? "" : ", ") + module.type_name();
    }
    QUANTA_CHECK(group.size() >= 2, "fuse_modules: groups: expected two or more modules, got [{}]",
                 fmt::join(group, ", "));
    const Fuser* fuser = find_fuser(additional, types);
    if (fuser == nullptr) fuser = find_fuser(known, types);
    QUANTA_CHECK(fuser != nullptr,
                 "fuse_modules: groups: expected a known sequence (Conv, BatchNorm, ReLU; Linear, "
                 "ReLU; ...), got [{}] = ({})",
                 fmt::join(group, ", "), type_names);
    for (const ModulePtr& module : modules) {
      QUANTA_CHECK(module->is_training() == modules[0]->is_training(),
                   "fuse_modules: groups: expected all of [{}] in train or all in eval mode",
                   fmt::join(group, ", "));
    }
    ModulePtr fused;
    try {
      fused = (*fuser)(modules);
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("{} (fusing [{}])", error.what(), fmt::join(group, ", ")));
    }
    QUANTA_CHECK(fused != nullptr,
                 "fuse_modules: additional: expected a fuser that returns a module for ({}), got "
                 "null",
                 type_names);
    fused->take_pre_hooks_from(*modules.front());
    fused->take_forward_hooks_from(*modules.back());
    moved_hooks.emplace_back(modules.front(), modules.back());
    if (modules.front()->has_qconfig_attribute()) {
      const QConfig* qconfig = modules.front()->qconfig();
      fused->set_qconfig(qconfig == nullptr ? std::nullopt : std::optional(*qconfig));
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      ModulePtr module = fused;
      if (i > 0) {
        module = nn::make_module<nn::Identity>();
        module->train(modules[i]->is_training());
      }
      replacements.push_back({find_place(model, group[i]), std::move(module)});
    }
  }
  for (const auto& [first, last] : moved_hooks) {
    first->clear_pre_hooks();
    last->clear_forward_hooks();
  }
  for (Replacement& replacement : replacements) {
    replacement.place.parent->replace_child(replacement.place.name, std::move(replacement.module));
  }
}

}  // namespace

void fuse_modules(Module& model, const std::vector<std::vector<std::string>>& groups,
                  const FuserTable& additional) {
  fuse(model, groups, additional, default_fusers());
}

void fuse_modules_qat(Module& model, const std::vector<std::vector<std::string>>& groups,
                      const FuserTable& additional) {
  fuse(model, groups, additional, qat_fusers());
}

}  // namespace quanta
