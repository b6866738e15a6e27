#include "quanta/fusion/accuracy/detail/layer_switches.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "quanta/fusion/accuracy/detail/layer_data.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {
namespace {

using nn::Module;

FakeQuantizeBase* result_quantizer(const Module& module) {
  return dynamic_cast<FakeQuantizeBase*>(module.activation_post_process().get());
}

}  // namespace

LayerSwitches::LayerSwitches(Module& prepared, const Module& named, const Calibrate& run) {
  prepared.eval();
  std::map<std::string, const Module*> names;
  for (const Module::NamedModule& entry : named.named_modules()) names[entry.path] = entry.module;
  std::map<std::string, WeightedLayer> weighted;
  for (WeightedLayer& layer : weighted_layers(prepared)) {
    if (const QConfig* qconfig = layer.unit->qconfig()) {
      layer.qconfig = *qconfig;
      weighted.emplace(layer.path, std::move(layer));
    }
  }
  std::vector<Layer> found;
  for (const Module::NamedModule& entry : prepared.named_modules()) {
    FakeQuantizeBase* result = result_quantizer(*entry.module);
    const auto weight = weighted.find(entry.path);
    if (result == nullptr && weight == weighted.end()) continue;
    Layer layer{.path = entry.path, .type = entry.module->type_name(), .result = result};
    if (weight != weighted.end()) layer.weighted = weight->second;
    const auto name = names.find(entry.path);
    layer.can_choose = name != names.end();
    layer.has_own_qconfig = layer.can_choose && name->second->has_qconfig_attribute();
    found.push_back(std::move(layer));
  }
  QUANTA_CHECK(!found.empty(),
               "sensitivity: qconfigs: expected a layer that is quantized, got none");

  const autograd::NoGradGuard no_grad;
  NamedModules modules;
  for (const Layer& layer : found) {
    if (layer.result != nullptr) {
      layer.result->enable_observer();
      layer.result->disable_fake_quant();
    }
    modules.emplace_back(layer.path, prepared.get_submodule(layer.path).get());
  }
  const std::vector<std::string> order = order_of_calls(prepared, modules, run);
  std::string missing;
  for (const Layer& layer : found) {
    if (layer.result == nullptr) continue;
    if (!layer.result->has_data()) missing += (missing.empty() ? "" : ", ") + layer.path;
    layer.result->disable_observer();
  }
  QUANTA_CHECK(
      missing.empty(),
      "sensitivity: data.run: expected data for every layer (one that is not used gets the "
      "QConfig std::nullopt), got none at {}",
      missing);
  // Sums show their results themselves, without hooks: they keep their place in the tree.
  std::map<std::string, std::ptrdiff_t> positions;
  std::ptrdiff_t last = -1;
  for (const Layer& layer : found) {
    const auto called = std::find(order.begin(), order.end(), layer.path);
    if (called != order.end()) last = called - order.begin();
    positions[layer.path] = last;
  }
  std::stable_sort(found.begin(), found.end(), [&](const Layer& a, const Layer& b) {
    return positions.at(a.path) < positions.at(b.path);
  });
  layers_ = std::move(found);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    weights_.push_back(layers_[i].weighted ? *layers_[i].weighted->weight : Tensor());
    if (layers_[i].can_choose) choosable_.push_back(i);
    set_float(i);
  }
}

LayerSwitches::~LayerSwitches() {
  for (std::size_t i = 0; i < layers_.size(); ++i) set_float(i);
}

void LayerSwitches::set_float(std::size_t layer) {
  Layer& one = layers_[layer];
  if (one.result != nullptr) one.result->disable_fake_quant();
  if (one.weighted) *one.weighted->weight = weights_[layer];
}

void LayerSwitches::set_quantized(std::size_t layer, const ObserverFactory& weight) {
  Layer& one = layers_[layer];
  if (one.result != nullptr) one.result->enable_fake_quant();
  if (!one.weighted) return;
  WeightedLayer changed = *one.weighted;
  *changed.weight = weights_[layer];
  if (weight) changed.qconfig->weight = weight;
  const autograd::NoGradGuard no_grad;
  if (const auto grid = weight_grid(changed)) *changed.weight = grid->round(weights_[layer]);
}

}  // namespace quanta::accuracy
