#include "quanta/fusion/accuracy/detail/layer_chains.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"

namespace quanta::accuracy {
namespace {

using nn::Module;

std::vector<Tensor> call(const Module& model, std::span<const Tensor> inputs) {
  // A graph with several inputs has no forward of all of them.
  if (const auto* graph = dynamic_cast<const graph::Model*>(&model)) {
    const nn::detail::PathScope scope(graph);
    return graph->run(inputs);
  }
  return model(inputs);
}

const Storage* storage_of(const Tensor& x) { return x.storage().get(); }

// How often each tensor is a parameter of a module that has no modules below.
std::map<const Storage*, int> count_parameters(Module& model) {
  std::map<const Storage*, int> counts;
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (!entry.module->named_children().empty()) continue;
    for (const auto& [path, tensor] : entry.module->named_parameters()) {
      ++counts[storage_of(tensor)];
    }
  }
  return counts;
}

// One run: what each layer took and gave, and all steps.
class Run {
 public:
  struct Call {
    Tensor input, output;
    std::set<const Storage*> made;  // by the steps of the call
  };

  Run(Module& model, const std::vector<WeightedLayer>& layers, std::span<const Tensor> example,
      std::string_view op)
      : calls_(layers.size()) {
    const autograd::NoGradGuard no_grad;
    model.eval();
    std::vector<Tensor> inputs;
    for (const Tensor& x : example) {
      QUANTA_CHECK(x.defined(), "{}: data.example: expected a tensor, got an undefined one", op);
      inputs.push_back(x.detach().clone(x.suggested_format()));
    }
    QUANTA_CHECK(!inputs.empty(), "{}: data.example: expected what one call takes, got no tensor",
                 op);
    static_cast<void>(call(model, inputs));  // packs what is packed at the first call
    const replay::Recording recording(inputs);
    ModuleHooks hooks;
    for (std::size_t i = 0; i < layers.size(); ++i) watch(hooks, *layers[i].layer, i, recording);
    results_ = call(model, inputs);
    steps_ = recording.steps();
  }

  const std::vector<replay::Step>& steps() const noexcept { return steps_; }
  const std::vector<Tensor>& results() const noexcept { return results_; }
  const std::vector<Call>& calls(std::size_t layer) const { return calls_[layer]; }
  // The layer in whose call the step runs.
  std::optional<std::size_t> layer_of(const replay::Step& step) const {
    for (const Tensor& y : step.outputs) {
      const auto found = makers_.find(storage_of(y));
      if (found != makers_.end()) return found->second;
    }
    return std::nullopt;
  }

 private:
  void watch(ModuleHooks& hooks, Module& module, std::size_t layer,
             const replay::Recording& recording) {
    hooks.watch_before(module, [this, layer, &recording](const Tensor& input) {
      begin_ = recording.steps().size();
      calls_[layer].push_back({input, {}, {}});
    });
    hooks.watch(module, [this, layer, &recording](const Tensor&, const Tensor& output) {
      calls_[layer].back().output = output;
      for (std::size_t i = begin_; i < recording.steps().size(); ++i) {
        for (const Tensor& y : recording.steps()[i].outputs) makers_[storage_of(y)] = layer;
      }
    });
  }

  std::vector<std::vector<Call>> calls_;
  std::map<const Storage*, std::size_t> makers_;
  std::size_t begin_ = 0;
  std::vector<replay::Step> steps_;  // they keep every storage, so that no address comes twice
  std::vector<Tensor> results_;
};

// The channels that the elements of a storage belong to: those of a dense tensor along `dim`.
struct Labels {
  Tensor tensor;
  std::int64_t dim = 0;
  std::vector<std::int64_t> channels;
  std::vector<PassedOp> passed{};

  std::int64_t at(std::int64_t element) const {
    const auto d = static_cast<std::size_t>(dim);
    const std::int64_t offset = element - tensor.storage_offset();
    return channels[static_cast<std::size_t>(offset / tensor.strides()[d] % tensor.sizes()[d])];
  }
};

bool can_label(const Tensor& x) {
  return x.defined() && x.dim() > 0 && x.numel() > 0 && x.dtype() == DType::Float32 && x.is_dense();
}

// The channels along dimension `dim` of a view, if they do not depend on any other dimension.
std::optional<std::vector<std::int64_t>> labels_along(const Labels& labels, const Tensor& view,
                                                      std::int64_t dim) {
  const auto element = [&](std::int64_t i, std::int64_t other, std::int64_t j) {
    return view.storage_offset() + i * view.strides()[static_cast<std::size_t>(dim)] +
           j * view.strides()[static_cast<std::size_t>(other)];
  };
  std::vector<std::int64_t> found;
  for (std::int64_t i = 0; i < view.size(dim); ++i) {
    found.push_back(labels.at(element(i, dim, 0)));
    for (std::int64_t other = 0; other < view.dim(); ++other) {
      if (other == dim) continue;
      for (std::int64_t j = 1; j < view.size(other); ++j) {
        if (labels.at(element(i, other, j)) != found.back()) return std::nullopt;
      }
    }
  }
  return found;
}

// The first dimension of a view that the channels lie along.
std::optional<std::int64_t> channel_dim(const Labels& labels, const Tensor& view) {
  for (std::int64_t dim = 0; dim < view.dim(); ++dim) {
    if (labels_along(labels, view, dim)) return dim;
  }
  return std::nullopt;
}

enum class Passes : std::uint8_t { No, SameSizes, Pooled, Mean, Product };

Passes how_it_passes(const replay::Step& step) {
  static const std::map<std::string_view, Passes> known{
      {"relu", Passes::SameSizes},       {"relu_", Passes::SameSizes}, {"relu6", Passes::SameSizes},
      {"leaky_relu", Passes::SameSizes}, {"prelu", Passes::SameSizes}, {"clone", Passes::SameSizes},
      {"mul", Passes::Product},          {"mean", Passes::Mean}};
  const std::string_view name = step.operation->name();
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  for (const std::string_view pool :
       {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"}) {
    const bool is_pool = name.starts_with(pool) && name.size() == pool.size() + 2 &&
                         name.ends_with("d") && step.outputs.size() == 1;
    if (is_pool) return Passes::Pooled;
  }
  return Passes::No;
}

// ONNX writes a ReLU6 as a Clip, and torch's is a Hardtanh.
bool is_relu6(const Operation& operation) {
  const std::string_view name = operation.name();
  if (name == "relu6") return true;
  if (name != "clamp" && name != "hardtanh") return false;
  double least = 1.0;
  double most = 0.0;
  for (const AttributeInfo& info : operation.attributes()) {
    const Attribute value = info.get(operation);
    const auto* number = std::get_if<double>(&value);
    if (number == nullptr) continue;
    if (info.name.starts_with("min")) least = *number;
    if (info.name.starts_with("max")) most = *number;
  }
  return least == 0.0 && most == 6.0;
}

// Follows the channels of one source through the run.
class Walk {
 public:
  Walk(const Run& run, const std::vector<WeightedLayer>& layers, ChannelChain& chain)
      : run_(run), layers_(layers), chain_(chain) {}

  void start(const Tensor& output, std::int64_t dim) {
    if (!can_label(output) || output.size(dim) != chain_.source.channels) {
      leave("a result that is not dense");
      return;
    }
    Labels labels{.tensor = output, .dim = dim, .channels = {}};
    for (std::int64_t c = 0; c < chain_.source.channels; ++c) labels.channels.push_back(c);
    labels_.emplace(storage_of(output), std::move(labels));
  }

  void follow(const replay::Step* source) {
    for (const replay::Step& step : run_.steps()) {
      if (!chain_.is_closed) return;
      // In the run of the source itself its result is only made.
      if (&step == source || (chain_.source.layer && run_.layer_of(step) == chain_.source.layer)) {
        continue;
      }
      visit(step);
    }
    for (const Tensor& y : run_.results()) {
      if (y.defined() && labels_.contains(storage_of(y))) leave("the model's result");
    }
  }

 private:
  void leave(std::string reason) {
    if (!chain_.is_closed) return;
    chain_.is_closed = false;
    chain_.open_at = std::move(reason);
  }

  void visit(const replay::Step& step) {
    const Labels* labels = nullptr;
    std::size_t position = 0;
    int count = 0;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const Tensor& x = step.inputs[i];
      if (!x.defined()) continue;
      const auto found = labels_.find(storage_of(x));
      if (found == labels_.end()) continue;
      labels = &found->second;
      position = i;
      ++count;
    }
    if (count == 0) return;
    const std::string text = step.path.empty()
                                 ? std::string(step.operation->name())
                                 : fmt::format("{} of '{}'", step.operation->name(), step.path);
    if (const std::optional<std::size_t> layer = run_.layer_of(step)) {
      take(*layer, *labels, text);
      return;
    }
    if (count != 1 || !pass(step, *labels, position)) leave(text);
  }

  void take(std::size_t layer, const Labels& labels, const std::string& text) {
    const bool is_known =
        std::ranges::any_of(chain_.uses, [&](const ChannelUse& use) { return use.layer == layer; });
    if (is_known) return;  // another step of the same call
    const std::vector<Run::Call>& calls = run_.calls(layer);
    if (calls.size() != 1 || storage_of(calls[0].input) != storage_of(labels.tensor)) {
      leave(text);
      return;
    }
    const WeightedLayer& user = layers_[layer];
    const Tensor& input = calls[0].input;
    const std::int64_t dim = user.kind == WeightedLayer::Kind::Linear
                                 ? input.dim() - 1
                                 : input.dim() - user.weight->dim() + 1;
    std::optional<std::vector<std::int64_t>> channels = labels_along(labels, input, dim);
    if (!channels) {
      leave(text);
      return;
    }
    chain_.uses.push_back({layer, std::move(*channels), labels.passed});
  }

  bool pass(const replay::Step& step, const Labels& labels, std::size_t position) {
    const bool six = is_relu6(*step.operation);
    const Passes passes = six ? Passes::SameSizes : how_it_passes(step);
    if (passes == Passes::No || step.outputs.size() != 1) return false;
    const Tensor& x = step.inputs[position];
    const Tensor& y = step.outputs[0];
    if (passes != Passes::Product && position != 0) return false;
    std::optional<std::int64_t> dim;
    if (passes == Passes::Pooled) {
      // "max_pool2d": so many dimensions are pooled.
      const std::string_view name = step.operation->name();
      dim = x.dim() - (name[name.size() - 2] - '0') - 1;
    } else {
      dim = channel_dim(labels, x);
    }
    if (!dim || !can_label(y)) return false;
    std::optional<std::vector<std::int64_t>> channels = labels_along(labels, x, *dim);
    if (!channels) return false;
    Labels next{
        .tensor = y, .dim = *dim, .channels = std::move(*channels), .passed = labels.passed};
    if (passes == Passes::Mean) {
      if (!keep_dim(step, x, y, next.dim)) return false;
    } else if (passes != Passes::Pooled && y.sizes() != x.sizes()) {
      return false;
    }
    if (y.size(next.dim) != static_cast<std::int64_t>(next.channels.size())) return false;
    next.passed.push_back({six ? "relu6" : std::string(step.operation->name()), step.path});
    labels_.insert_or_assign(storage_of(y), std::move(next));
    return true;
  }

  // Where the channels lie after a mean over other dimensions.
  static bool keep_dim(const replay::Step& step, const Tensor& x, const Tensor& y,
                       std::int64_t& dim) {
    const Attribute dims = attribute_of(*step.operation, "dim");
    const auto* reduced = std::get_if<Dims>(&dims);
    if (reduced == nullptr || reduced->empty()) return false;
    std::int64_t before = 0;
    for (std::int64_t d : *reduced) {
      if (d < 0) d += x.dim();
      if (d == dim) return false;
      before += d < dim ? 1 : 0;
    }
    if (y.dim() != x.dim()) dim -= before;
    return true;
  }

  const Run& run_;
  const std::vector<WeightedLayer>& layers_;
  ChannelChain& chain_;
  std::map<const Storage*, Labels> labels_;
};

// Where weight and bias stand among the arguments of a norm.
struct NormArguments {
  std::size_t weight, bias;
};
const NormArguments* norm_arguments(std::string_view name) {
  static const std::map<std::string_view, NormArguments> known{
      {"layer_norm", {1, 2}}, {"rms_norm", {1, 2}}, {"batch_norm", {3, 4}}};
  const auto found = known.find(name);
  return found == known.end() ? nullptr : &found->second;
}

}  // namespace

bool ChannelChain::passes(std::string_view op) const {
  return std::ranges::any_of(uses, [&](const ChannelUse& use) {
    return std::ranges::any_of(use.passed,
                               [&](const PassedOp& passed) { return passed.name == op; });
  });
}

std::vector<ChannelChain> find_channel_chains(Module& model,
                                              const std::vector<WeightedLayer>& layers,
                                              std::span<const Tensor> example,
                                              std::string_view op) {
  const Run run(model, layers, example, op);
  const std::map<const Storage*, int> counts = count_parameters(model);
  const auto is_tied = [&](const Tensor& x) {
    const auto found = x.defined() ? counts.find(storage_of(x)) : counts.end();
    return found != counts.end() && found->second > 1;
  };
  std::set<const Storage*> parameters;
  for (const auto& [path, tensor] : model.named_parameters()) parameters.insert(storage_of(tensor));
  std::map<const Storage*, int> norm_calls;
  for (const replay::Step& step : run.steps()) {
    const NormArguments* at = norm_arguments(step.operation->name());
    if (at == nullptr || at->weight >= step.inputs.size()) continue;
    const Tensor& weight = step.inputs[at->weight];
    if (weight.defined()) ++norm_calls[storage_of(weight)];
  }

  std::vector<ChannelChain> chains;
  std::set<std::size_t> seen;
  const auto add = [&](ChannelSource source, const Tensor& output, std::int64_t dim,
                       const replay::Step* step) {
    ChannelChain chain{.source = std::move(source)};
    Walk walk(run, layers, chain);
    walk.start(output, dim);
    walk.follow(step);
    for (const ChannelUse& use : chain.uses) {
      const WeightedLayer& layer = layers[use.layer];
      if (chain.is_closed && is_tied(*layer.weight)) {
        chain.is_closed = false;
        chain.open_at = fmt::format("'{}', which shares its weight", layer.path);
      }
    }
    if (chain.is_closed && chain.uses.empty()) {
      chain.is_closed = false;
      chain.open_at = "nobody";
    }
    chains.push_back(std::move(chain));
  };
  for (const replay::Step& step : run.steps()) {
    if (const std::optional<std::size_t> position = run.layer_of(step)) {
      if (!seen.insert(*position).second || run.calls(*position).size() != 1) continue;
      const WeightedLayer& layer = layers[*position];
      const Tensor& output = run.calls(*position)[0].output;
      if (is_tied(*layer.weight) || is_tied(*layer.bias) || !output.defined()) continue;
      const std::int64_t dim = layer.kind == WeightedLayer::Kind::Linear
                                   ? output.dim() - 1
                                   : output.dim() - layer.weight->dim() + 1;
      add({.layer = *position, .path = layer.path, .channels = layer.out_channels()}, output, dim,
          nullptr);
      continue;
    }
    const NormArguments* at = norm_arguments(step.operation->name());
    if (at == nullptr || at->weight >= step.inputs.size()) continue;
    const Tensor& weight = step.inputs[at->weight];
    const Tensor bias = at->bias < step.inputs.size() ? step.inputs[at->bias] : Tensor();
    const bool is_own =
        weight.defined() && weight.dim() == 1 && parameters.contains(storage_of(weight)) &&
        !is_tied(weight) && norm_calls[storage_of(weight)] == 1 &&
        (!bias.defined() || (parameters.contains(storage_of(bias)) && !is_tied(bias)));
    if (!is_own) continue;
    const Tensor& output = step.outputs[0];
    const std::int64_t dim =
        step.operation->name() == "batch_norm" ? std::int64_t{1} : output.dim() - 1;
    add({.layer = {},
         .path = step.path,
         .weight = weight,
         .bias = bias,
         .channels = weight.numel()},
        output, dim, &step);
  }
  return chains;
}

}  // namespace quanta::accuracy
