#include "quanta/fusion/accuracy/detail/layer_data.h"

#include <algorithm>
#include <utility>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {

void LayerWatch::watch(nn::Module& module, const std::string& name) {
  hooks_.watch(module, [this, name](const Tensor& input, const Tensor& output) {
    std::vector<Call>& calls = calls_[name];
    if (calls.empty()) called_.push_back(name);
    calls.push_back({input, output});
  });
}

const std::vector<LayerWatch::Call>& LayerWatch::calls(const std::string& name) const {
  static const std::vector<Call> none;
  const auto found = calls_.find(name);
  return found == calls_.end() ? none : found->second;
}

void LayerWatch::clear() {
  called_.clear();
  calls_.clear();
}

std::vector<Tensor> inputs_of(nn::Module& model, const WeightedLayer& layer, const Calibrate& run) {
  const autograd::NoGradGuard no_grad;
  LayerWatch watch;
  watch.watch(*layer.layer, layer.path);
  run(model);
  std::vector<Tensor> inputs;
  for (const LayerWatch::Call& call : watch.calls(layer.path)) inputs.push_back(call.input);
  QUANTA_CHECK(!inputs.empty(),
               "run: expected data that reaches every layer (one that is not used gets the QConfig "
               "std::nullopt), got none at '{}'",
               layer.path);
  return inputs;
}

std::vector<std::string> order_of_calls(nn::Module& model, const std::vector<WeightedLayer>& layers,
                                        const Calibrate& run) {
  NamedModules modules;
  for (const WeightedLayer& layer : layers) modules.emplace_back(layer.path, layer.layer);
  return order_of_calls(model, modules, run);
}

std::vector<std::string> order_of_calls(nn::Module& model, const NamedModules& modules,
                                        const Calibrate& run) {
  const autograd::NoGradGuard no_grad;
  std::vector<std::string> order;
  ModuleHooks hooks;
  for (const auto& [name, module] : modules) {
    hooks.watch(*module, [&order, name = name](const Tensor&, const Tensor&) {
      if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
    });
  }
  run(model);
  return order;
}

}  // namespace quanta::accuracy
