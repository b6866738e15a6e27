#include "quanta/fusion/compare_layers.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <typeinfo>
#include <utility>

#include "quanta/nn/float_functional.h"
#include "quanta/nn/misc.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

/// The results of every module in one run.
struct Capture {
  std::vector<std::string> order;
  std::map<std::string, std::vector<Tensor>> outputs;

  void note(const std::string& path, const Tensor& output) {
    std::vector<Tensor>& calls = outputs[path];
    if (calls.empty()) order.push_back(path);
    calls.push_back(output);
  }
  void clear() {
    order.clear();
    outputs.clear();
  }
};

// Passes on what the observer in whose place it stands makes of a tensor (there may be none), and
// remembers it.
class CapturingObserver final : public Observer {
 public:
  CapturingObserver(Capture& capture, std::string path, std::shared_ptr<Observer> inner)
      : capture_(&capture), path_(std::move(path)), inner_(std::move(inner)) {}
  std::string name() const override { return "CapturingObserver"; }
  Tensor forward(const Tensor& x) override {
    const Tensor y = inner_ == nullptr ? x : inner_->forward(x);
    capture_->note(path_, y);
    return y;
  }
  void update(const Tensor& x) override { static_cast<void>(forward(x)); }
  ObservedQParams calculate_qparams() const override { return {}; }
  bool has_data() const override { return true; }
  void reset() override {}

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Capture* capture_;
  std::string path_;
  std::shared_ptr<Observer> inner_;
};

void capture_outputs(nn::Module& model, Capture& capture) {
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    if (entry.path.empty()) continue;
    // FloatFunctional and QFunctional are called by their own functions, not by forward.
    const auto observation = dynamic_cast<const nn::FloatFunctional*>(entry.module) != nullptr
                                 ? nn::Module::Observation::Explicit
                                 : nn::Module::Observation::Output;
    entry.module->set_activation_post_process(
        std::make_shared<CapturingObserver>(capture, entry.path,
                                            entry.module->activation_post_process()),
        observation);
  }
}

// The paths of modules whose results are fake-quantized.
std::set<std::string> fake_quantized_modules(const nn::Module& model) {
  std::set<std::string> paths;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    const Observer* observer = entry.module->activation_post_process().get();
    if (dynamic_cast<const FakeQuantizeBase*>(observer) != nullptr) paths.insert(entry.path);
  }
  return paths;
}

bool is_identity(const nn::Module& module) {
  return dynamic_cast<const nn::Identity*>(&module) != nullptr;
}

/// The layers that are compared, without figures, by path.
std::map<std::string, LayerComparison> layers_to_compare(const nn::Module& float_model,
                                                         const nn::Module& quantized_model) {
  const std::set<std::string> simulated = fake_quantized_modules(quantized_model);
  std::map<std::string, const nn::Module*> before;
  for (const auto& entry : float_model.named_modules()) before[entry.path] = entry.module;
  std::map<std::string, LayerComparison> layers;
  for (const auto& entry : quantized_model.named_modules()) {
    const auto found = before.find(entry.path);
    if (entry.path.empty() || found == before.end()) continue;
    const nn::Module& layer = *found->second;
    QUANTA_CHECK(!is_identity(*entry.module) || is_identity(layer),
                 "compare_layers: float_model: expected it fused as the quantized model was, got a "
                 "{} at {}, where the quantized model has nothing any more (fuse_modules)",
                 layer.type_name(), entry.path);
    if (typeid(layer) == typeid(*entry.module) && !simulated.contains(entry.path)) continue;
    layers[entry.path] = {.path = entry.path,
                          .float_type = layer.type_name(),
                          .type = entry.module->type_name(),
                          .scale = {},
                          .zero_point = {}};
  }
  return layers;
}

void note_qparams(LayerComparison& layer, const Tensor& output) {
  if (!output.is_quantized() || layer.scale) return;
  const Quantizer& quantizer = output.impl()->quantizer;
  if (is_per_channel(quantizer.scheme)) return;
  layer.scale = quantizer.scale;
  layer.zero_point = quantizer.zero_point;
}

}  // namespace

namespace detail {

std::vector<LayerComparison> compare_layers_of(nn::Module& float_model, nn::Module& quantized_model,
                                               const std::vector<RunModel>& runs) {
  QUANTA_CHECK(!runs.empty(), "compare_layers: inputs: expected at least one tensor, got none");
  const autograd::NoGradGuard no_grad;
  float_model.eval();
  quantized_model.eval();
  std::map<std::string, LayerComparison> layers = layers_to_compare(float_model, quantized_model);
  Capture want, got;
  capture_outputs(float_model, want);
  capture_outputs(quantized_model, got);
  std::map<std::string, SqnrSum> sums;
  std::vector<std::string> order;
  for (const RunModel& run : runs) {
    want.clear();
    got.clear();
    run(float_model);
    run(quantized_model);
    for (const std::string& path : got.order) {
      const auto layer = layers.find(path);
      const auto reference = want.outputs.find(path);
      if (layer == layers.end() || reference == want.outputs.end()) continue;
      const std::vector<Tensor>& outputs = got.outputs.at(path);
      QUANTA_CHECK(outputs.size() == reference->second.size(),
                   "compare_layers: quantized_model: expected it to call {} as often as the float "
                   "model does, {} times, got {}",
                   path, reference->second.size(), outputs.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        QUANTA_CHECK(outputs[i].sizes() == reference->second[i].sizes(),
                     "compare_layers: quantized_model: expected results of {} with the float "
                     "model's sizes {}, got {}",
                     path, to_string(reference->second[i].sizes()), to_string(outputs[i].sizes()));
        sums[path].add(reference->second[i], outputs[i]);
      }
      note_qparams(layer->second, outputs.front());
      if (std::find(order.begin(), order.end(), path) == order.end()) order.push_back(path);
    }
  }
  std::vector<LayerComparison> result;
  for (const std::string& path : order) {
    result.push_back(std::move(layers.at(path)));
    result.back().sqnr = sums.at(path).decibels();
  }
  return result;
}

}  // namespace detail

std::string to_string(const std::vector<LayerComparison>& layers) {
  std::size_t path_width = 5, type_width = 4;
  for (const LayerComparison& layer : layers) {
    path_width = std::max(path_width, layer.path.size());
    type_width = std::max(type_width, layer.type.size());
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>12}  {:>10}  {:>7}\n", "layer", path_width,
                                 "type", type_width, "scale", "zero point", "SQNR dB");
  for (const LayerComparison& layer : layers) {
    text +=
        fmt::format("{:<{}}  {:<{}}  {:>12}  {:>10}  {:>7.1f}\n", layer.path, path_width,
                    layer.type, type_width, layer.scale ? fmt::format("{:.6g}", *layer.scale) : "-",
                    layer.zero_point ? std::to_string(*layer.zero_point) : "-", layer.sqnr);
  }
  return text;
}

}  // namespace quanta
