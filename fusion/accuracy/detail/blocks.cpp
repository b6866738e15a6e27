#include "quanta/fusion/accuracy/detail/blocks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "quanta/fusion/accuracy/detail/layer_data.h"
#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/nn/container.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {
namespace {

bool lies_in(std::string_view path, std::string_view parent) {
  return path == parent ||
         (path.size() > parent.size() && path.starts_with(parent) && path[parent.size()] == '.');
}

bool is_list(const nn::Module& module) {
  return dynamic_cast<const nn::Sequential*>(&module) != nullptr ||
         dynamic_cast<const nn::ModuleList*>(&module) != nullptr;
}

std::vector<const GriddedLayer*> layers_in(const std::vector<GriddedLayer>& layers,
                                           std::string_view path) {
  std::vector<const GriddedLayer*> found;
  for (const GriddedLayer& layer : layers) {
    if (lies_in(layer.layer.path, path)) found.push_back(&layer);
  }
  return found;
}

// The lowest modules that hold two layers or more.
std::vector<std::string> lowest_modules(nn::Module& model,
                                        const std::vector<GriddedLayer>& layers) {
  std::vector<std::string> found;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    if (entry.path.empty() || is_list(*entry.module)) continue;
    if (layers_in(layers, entry.path).size() >= 2) found.push_back(entry.path);
  }
  std::vector<std::string> lowest;
  for (const std::string& path : found) {
    const bool holds_another = std::ranges::any_of(
        found, [&](const std::string& other) { return other != path && lies_in(other, path); });
    if (!holds_another) lowest.push_back(path);
  }
  return lowest;
}

// dB between two runs of the same module, whose sums may be taken in another order.
constexpr double kSame = 80.0;

// Whether the first call of a module depends on its first input alone: it is called again.
std::set<std::string> of_one_input(nn::Module& model, const std::vector<std::string>& paths,
                                   const Calibrate& run) {
  std::map<std::string, LayerWatch::Call> calls;
  {
    ModuleHooks hooks;
    for (const std::string& path : paths) {
      hooks.watch(*model.get_submodule(path), [&calls, path](const Tensor& x, const Tensor& y) {
        if (!calls.contains(path)) calls.emplace(path, LayerWatch::Call{x.clone(), y.clone()});
      });
    }
    run(model);
  }
  std::set<std::string> found;
  for (const auto& [path, call] : calls) {
    try {
      const Tensor again = (*model.get_submodule(path))(call.input);
      if (sqnr(call.output, again) >= kSame) found.insert(path);
    } catch (const Error&) {
      // It takes more than that.
    }
  }
  return found;
}

void check_paths(std::string_view op, nn::Module& model, const std::vector<GriddedLayer>& layers,
                 const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    bool is_there = true;
    try {
      static_cast<void>(model.get_submodule(path));
    } catch (const Error&) {
      is_there = false;
    }
    QUANTA_CHECK(is_there && !path.empty() && !layers_in(layers, path).empty(),
                 "{}: blocks: expected paths of modules with integer weights in them, got '{}'", op,
                 path);
    const auto holding = std::ranges::count_if(
        paths, [&](const std::string& other) { return lies_in(path, other); });
    QUANTA_CHECK(holding == 1,
                 "{}: blocks: expected modules apart from one another, got '{}' in another", op,
                 path);
  }
}

}  // namespace

std::vector<Block> find_blocks(std::string_view op, nn::Module& model, nn::Module& reference,
                               const std::vector<GriddedLayer>& layers,
                               const std::vector<std::string>& paths, const Calibrate& run) {
  const autograd::NoGradGuard no_grad;
  check_paths(op, model, layers, paths);
  const std::vector<std::string> candidates = paths.empty() ? lowest_modules(model, layers) : paths;
  const std::set<std::string> usable = of_one_input(reference, candidates, run);
  std::vector<Block> blocks;
  std::set<const GriddedLayer*> taken;
  for (const std::string& path : candidates) {
    if (!usable.contains(path)) {
      QUANTA_CHECK(paths.empty(),
                   "{}: blocks: expected modules that are called and depend on their first input "
                   "alone, got '{}'",
                   op, path);
      continue;
    }
    blocks.push_back({path, model.get_submodule(path).get(), reference.get_submodule(path).get(),
                      layers_in(layers, path)});
    taken.insert(blocks.back().layers.begin(), blocks.back().layers.end());
  }
  for (const GriddedLayer& layer : layers) {
    if (taken.contains(&layer)) continue;
    blocks.push_back({layer.layer.path, layer.layer.unit, layer.reference.unit, {&layer}});
  }
  NamedModules modules;
  for (const Block& block : blocks) modules.emplace_back(block.path, block.reference);
  const std::vector<std::string> order = order_of_calls(reference, modules, run);
  for (const Block& block : blocks) {
    QUANTA_CHECK(std::ranges::find(order, block.path) != order.end(),
                 "{}: data.run: expected data that reaches every layer (one that is not used gets "
                 "the QConfig std::nullopt), got none at '{}'",
                 op, block.path);
  }
  std::ranges::sort(blocks, {}, [&](const Block& block) {
    return std::ranges::find(order, block.path) - order.begin();
  });
  return blocks;
}

}  // namespace quanta::accuracy
