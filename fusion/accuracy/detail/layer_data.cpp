#include "quanta/fusion/accuracy/detail/layer_data.h"

#include <algorithm>
#include <utility>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {

LayerWatch::~LayerWatch() {
  for (const auto& [module, hook] : hooks_) module->remove_hook(hook);
}

void LayerWatch::watch(nn::Module& module, const std::string& name) {
  const nn::Module::HookId hook = module.register_forward_hook(
      [this, name](const nn::Module&, const Tensor& input, const Tensor& output) {
        std::vector<Call>& calls = calls_[name];
        if (calls.empty()) called_.push_back(name);
        calls.push_back({input, output});
        return output;
      });
  hooks_.emplace_back(&module, hook);
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
  std::vector<std::pair<nn::Module*, nn::Module::HookId>> hooks;
  struct Unhook {
    std::vector<std::pair<nn::Module*, nn::Module::HookId>>& hooks;
    ~Unhook() {
      for (const auto& [module, hook] : hooks) module->remove_hook(hook);
    }
  } const unhook{hooks};
  for (const auto& [name, module] : modules) {
    hooks.emplace_back(
        module, module->register_forward_hook(
                    [&order, name = name](const nn::Module&, const Tensor&, const Tensor& output) {
                      if (std::find(order.begin(), order.end(), name) == order.end()) {
                        order.push_back(name);
                      }
                      return output;
                    }));
  }
  run(model);
  return order;
}

}  // namespace quanta::accuracy
