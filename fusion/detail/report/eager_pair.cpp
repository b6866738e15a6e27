#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <typeinfo>
#include <utility>

#include "quanta/fusion/detail/layers_to_compare.h"
#include "quanta/fusion/detail/report/capture.h"
#include "quanta/fusion/detail/report/figures.h"
#include "quanta/fusion/detail/report/pair.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/profiler.h"

namespace quanta::reporting {
namespace {

/// The grid of a module's own fake quantizer with one scale and integer codes.
std::optional<ReportGrid> simulated_grid(const nn::Module& module) {
  const Observer* observer = module.activation_post_process().get();
  if (dynamic_cast<const FakeQuantize*>(observer) == nullptr || !observer->has_data() ||
      is_per_channel(observer->qscheme())) {
    return std::nullopt;
  }
  const ObservedQParams qparams = observer->calculate_qparams();
  if (!qparams.scale.defined() || qparams.scale.numel() != 1 || !qparams.zero_point.defined()) {
    return std::nullopt;
  }
  return ReportGrid{.scale = qparams.scale.reshape({}).item(),
                    .zero_point = static_cast<std::int64_t>(qparams.zero_point.reshape({}).item()),
                    .quant_min = observer->quant_min(),
                    .quant_max = observer->quant_max()};
}

bool is_below(const std::string& path, const std::string& parent) {
  return path == parent || (path.starts_with(parent) && path[parent.size()] == '.');
}

double since_ms(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

class EagerPair final : public Pair {
 public:
  EagerPair(std::shared_ptr<nn::Module> in_float, std::shared_ptr<nn::Module> quantized)
      : float_(std::move(in_float)), quantized_(std::move(quantized)) {
    float_->eval();
    quantized_->eval();
    types_ = detail::layers_to_compare("make_report", *float_, *quantized_);
  }

  const nn::Module& in_float() const override { return *float_; }
  const nn::Module& quantized() const override { return *quantized_; }
  void time(std::span<const Tensor> inputs, int repeats, Times& in_float,
            Times& quantized) override;
  void find_layers(std::span<const Tensor> inputs) override;
  Outputs run(std::span<const Tensor> inputs, bool alone, const std::vector<bool>& wanted,
              const Visit& visit) override;

 private:
  void watch();
  void time_once(const nn::Module& model, std::span<const Tensor> inputs, Profiler& profiler,
                 Times& times) const;
  void show(std::size_t layer, bool alone, const Visit& visit) const;
  LayerReport layer_at(const std::string& path) const;
  std::vector<ReportNode> nodes_of(const std::vector<std::string>& order) const;

  std::shared_ptr<nn::Module> float_, quantized_;
  std::map<std::string, detail::LayerTypes> types_;
  std::vector<std::optional<ReportGrid>> simulated_;
  bool watched_ = false;
  Capture want_, got_;
};

void EagerPair::find_layers(std::span<const Tensor> inputs) {
  Profiler profiler;
  static_cast<void>((*quantized_)(inputs));
  profiler.stop();
  std::vector<ProfileEvent> calls;
  for (const ProfileEvent& event : profiler.events()) {
    if (event.kind == ProfileEvent::Kind::Module && !event.module.empty()) calls.push_back(event);
  }
  std::stable_sort(calls.begin(), calls.end(), [](const ProfileEvent& a, const ProfileEvent& b) {
    return a.start_us < b.start_us;
  });
  std::set<std::string> seen;
  std::vector<std::string> called;
  for (const ProfileEvent& event : calls) {
    if (seen.insert(event.module).second) called.push_back(event.module);
  }
  for (const std::string& path : called) {
    if (types_.contains(path)) layers.push_back(layer_at(path));
  }
  nodes = nodes_of(called);
}

LayerReport EagerPair::layer_at(const std::string& path) const {
  const nn::Module& before = *float_->get_submodule(path);
  const nn::Module& after = *quantized_->get_submodule(path);
  LayerReport layer;
  layer.name = path;
  layer.float_type = before.type_name();
  layer.type = after.type_name();
  const Tensor weight = weight_of(after);
  layer.weight = compare_weights(weight_of(before), weight, channel_axis(before));
  const bool is_fake =
      dynamic_cast<const FakeQuantizeBase*>(after.activation_post_process().get()) != nullptr;
  layer.kind = is_fake ? LayerKind::Simulated : LayerKind::CodedWeight;
  return layer;
}

std::vector<ReportNode> EagerPair::nodes_of(const std::vector<std::string>& order) const {
  std::vector<ReportNode> result;
  for (const std::string& path : order) {
    const nn::Module& module = *quantized_->get_submodule(path);
    const auto layer = std::find_if(layers.begin(), layers.end(),
                                    [&](const LayerReport& known) { return known.name == path; });
    const bool is_layer = layer != layers.end();
    // Containers are drawn by what is in them, layers as one.
    const auto parent = std::find_if(layers.begin(), layers.end(), [&](const LayerReport& known) {
      return known.name != path && is_below(path, known.name);
    });
    if (parent != layers.end() || (!is_layer && !module.named_children().empty())) continue;
    if (!is_layer && module.type_name() == "Identity") continue;
    ReportNode node{.name = path, .type = module.type_name(), .inputs = {}, .layer = {}};
    if (!result.empty()) node.inputs = {result.size() - 1};
    if (is_layer) node.layer = static_cast<std::size_t>(layer - layers.begin());
    result.push_back(std::move(node));
  }
  return result;
}

void EagerPair::time_once(const nn::Module& model, std::span<const Tensor> inputs,
                          Profiler& profiler, Times& times) const {
  auto start = std::chrono::steady_clock::now();
  static_cast<void>(model(inputs));
  times.whole_ms.push_back(since_ms(start));
  profiler.clear();
  profiler.start();
  static_cast<void>(model(inputs));
  profiler.stop();
  times.layers.resize(layers.size());
  const std::vector<ModuleProfile> modules = profiler.modules();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    double us = 0.0;
    std::int64_t multiply_adds = 0;
    for (const ModuleProfile& module : modules) {
      if (!is_below(module.path, layers[i].name)) continue;
      us += module.op_us;
      multiply_adds += module.work.multiply_adds;
    }
    times.layers[i].ms.push_back(us / 1000.0);
    times.layers[i].multiply_adds = multiply_adds;
  }
}

void EagerPair::time(std::span<const Tensor> inputs, int repeats, Times& in_float,
                     Times& quantized) {
  Profiler float_profiler;
  float_profiler.stop();
  Profiler quantized_profiler;
  quantized_profiler.stop();
  static_cast<void>((*float_)(inputs));
  static_cast<void>((*quantized_)(inputs));
  for (int i = 0; i < repeats; ++i) {
    time_once(*float_, inputs, float_profiler, in_float);
    time_once(*quantized_, inputs, quantized_profiler, quantized);
  }
}

void EagerPair::watch() {
  watched_ = true;
  for (const LayerReport& layer : layers) {
    simulated_.push_back(simulated_grid(*quantized_->get_submodule(layer.name)));
  }
  capture_calls(*float_, want_, true);
  capture_calls(*quantized_, got_, true);
}

void EagerPair::show(std::size_t i, bool alone, const Visit& visit) const {
  const std::string& path = layers[i].name;
  const auto found = got_.calls.find(path);
  const auto reference = want_.calls.find(path);
  if (found == got_.calls.end() || reference == want_.calls.end()) return;
  const std::size_t count = reference->second.size();
  detail::check_calls("make_report", path, count, found->second.size());
  for (std::size_t c = 0; c < count; ++c) {
    const CapturedCall& before = reference->second[c];
    const CapturedCall& after = found->second[c];
    std::vector<Tensor> results;
    if (const auto inputs = as_taken(before.inputs, after.inputs); alone && inputs) {
      try {
        results = after.again(*inputs);
      } catch (const Error&) {
        // Called in a way of its own, with more than tensors: not known.
      }
    }
    const std::size_t outputs = std::min(before.outputs.size(), after.outputs.size());
    for (std::size_t o = 0; o < outputs; ++o) {
      const Tensor& want = before.outputs[o];
      const Tensor& got = after.outputs[o];
      if (!want.defined() || !got.defined() || !want.is_floating_point()) continue;
      detail::check_result_sizes("make_report", path, want.sizes(), got.sizes());
      const bool has_alone =
          o < results.size() && results[o].defined() && results[o].sizes() == want.sizes();
      std::optional<ReportGrid> grid = grid_of(got);
      if (!grid) grid = simulated_[i];
      visit({.layer = i,
             .reference = want,
             .value = got,
             .alone = has_alone ? results[o] : Tensor(),
             .grid = grid});
    }
  }
}

Outputs EagerPair::run(std::span<const Tensor> inputs, bool alone, const std::vector<bool>& wanted,
                       const Visit& visit) {
  if (!watched_) watch();
  want_.clear();
  got_.clear();
  Outputs outputs{.names = {}, .reference = (*float_)(inputs), .value = (*quantized_)(inputs)};
  for (std::size_t i = 0; i < outputs.reference.size(); ++i) {
    outputs.names.push_back(fmt::format("output {}", i));
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (wanted.empty() || wanted[i]) show(i, alone, visit);
    // Who gives or takes codes is known by now.
    const auto found = got_.calls.find(layers[i].name);
    if (found == got_.calls.end() || layers[i].kind != LayerKind::CodedWeight) continue;
    const auto is_coded = [](const Tensor& x) { return x.defined() && x.is_quantized(); };
    for (const CapturedCall& call : found->second) {
      if (std::any_of(call.inputs.begin(), call.inputs.end(), is_coded) ||
          std::any_of(call.outputs.begin(), call.outputs.end(), is_coded)) {
        layers[i].kind = LayerKind::Codes;
      }
    }
  }
  for (ReportNode& node : nodes) {
    if (node.layer) node.kind = layers[*node.layer].kind;
    const auto found = got_.calls.find(node.name);
    if (found == got_.calls.end() || node.layer) continue;
    for (const CapturedCall& call : found->second) {
      if (!call.outputs.empty() && call.outputs[0].defined() && call.outputs[0].is_quantized()) {
        node.kind = LayerKind::Codes;
      }
    }
  }
  want_.clear();
  got_.clear();
  return outputs;
}

}  // namespace

std::optional<std::vector<Tensor>> as_taken(std::span<const Tensor> in_float,
                                            std::span<const Tensor> taken) {
  if (in_float.size() != taken.size() || taken.empty()) return std::nullopt;
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const Tensor& x = in_float[i];
    if (!taken[i].defined() || !taken[i].is_quantized()) {
      inputs.push_back(x);
      continue;
    }
    const Quantizer& quantizer = taken[i].impl()->quantizer;
    if (!x.defined() || x.dtype() != DType::Float32 || is_per_channel(quantizer.scheme)) {
      return std::nullopt;
    }
    inputs.push_back(
        quantize_per_tensor(x, quantizer.scale, quantizer.zero_point, taken[i].dtype()));
  }
  return inputs;
}

std::unique_ptr<Pair> eager_pair(std::shared_ptr<nn::Module> in_float,
                                 std::shared_ptr<nn::Module> quantized) {
  return std::make_unique<EagerPair>(std::move(in_float), std::move(quantized));
}

}  // namespace quanta::reporting
