#include "quanta/fusion/accuracy/detail/following_activation.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "quanta/fusion/accuracy/detail/layer_data.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/recorder.h"

namespace quanta::accuracy {
namespace {

constexpr std::array<std::string_view, 18> kActivations{
    "celu",      "clamp",    "elu",        "gelu",     "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "leaky_relu", "mish",     "relu",       "relu6",
    "selu",      "sigmoid",  "silu",       "softplus", "tanh",       "threshold"};

bool is_activation(const replay::Step& step) {
  return step.inputs.size() == 1 && step.outputs.size() == 1 &&
         std::find(kActivations.begin(), kActivations.end(), step.operation->name()) !=
             kActivations.end();
}

}  // namespace

std::map<std::string, std::shared_ptr<const Operation>> following_activations(
    nn::Module& model, const std::vector<WeightedLayer>& layers, std::span<const Tensor> example) {
  const autograd::NoGradGuard no_grad;
  std::vector<Tensor> inputs;
  for (const Tensor& x : example) inputs.push_back(x.detach().clone(x.suggested_format()));
  LayerWatch watch;
  for (const WeightedLayer& layer : layers) watch.watch(*layer.layer, layer.path);
  static_cast<void>(model(std::span<const Tensor>(inputs)));  // packs what is packed at first
  watch.clear();
  std::map<std::string, std::shared_ptr<const Operation>> found;
  try {
    const replay::Recording recording(inputs);
    std::map<const Storage*, std::vector<const replay::Step*>> readers;
    const std::vector<Tensor> results = model(std::span<const Tensor>(inputs));
    for (const replay::Step& step : recording.steps()) {
      for (const Tensor& x : step.inputs) {
        if (x.defined()) readers[x.storage().get()].push_back(&step);
      }
    }
    for (const Tensor& y : results) {
      if (y.defined()) readers[y.storage().get()].push_back(nullptr);
    }
    for (const std::string& path : watch.called()) {
      const std::vector<LayerWatch::Call>& calls = watch.calls(path);
      if (calls.size() != 1) continue;
      const std::vector<const replay::Step*>& steps = readers[calls[0].output.storage().get()];
      if (steps.size() == 1 && steps[0] != nullptr && is_activation(*steps[0])) {
        found[path] = steps[0]->operation;
      }
    }
  } catch (const UnsupportedError&) {
    found.clear();
  }
  return found;
}

}  // namespace quanta::accuracy
