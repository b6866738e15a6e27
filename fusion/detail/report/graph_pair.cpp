#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "quanta/fusion/detail/report/figures.h"
#include "quanta/fusion/detail/report/matched_values.h"
#include "quanta/fusion/detail/report/pair.h"
#include "quanta/fusion/graph/run.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/profiler.h"

namespace quanta::reporting {
namespace {

using graph::Graph;
using graph::index_of;
using graph::kNone;
using graph::Model;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

/// Only moves elements, or says something of sizes: no layer.
bool is_movement(const Node& node) {
  constexpr std::array<std::string_view, 14> kMoves{
      "Reshape", "Flatten", "Transpose",    "Squeeze",      "Unsqueeze", "Identity", "Slice",
      "Split",   "Expand",  "DepthToSpace", "SpaceToDepth", "Pad",       "Gather",   "Shape"};
  return node.module.empty() && node.domain.empty() &&
         std::find(kMoves.begin(), kMoves.end(), node.op) != kMoves.end();
}

ValueId first_output(const Node& node) { return node.outputs.empty() ? kNone : node.outputs[0]; }

std::string type_of(const Node& node, const nn::Module* module) {
  if (module != nullptr) return module->type_name();
  if (node.operation != nullptr) return std::string(node.operation->name());
  return node.op;
}

std::string name_of(const Node& node) {
  if (!node.module.empty()) return node.module;
  return node.name.empty() ? node.op : node.name;
}

/// Which node made each value.
std::vector<NodeId> producers_of(const Graph& graph) {
  std::vector<NodeId> producers(graph.values.size(), kNone);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId id : graph.nodes[n].outputs) {
      if (id != kNone) producers[index_of(id)] = static_cast<NodeId>(n);
    }
  }
  return producers;
}

/// Calls body(node, milliseconds) as nodes end.
template <typename Body>
std::vector<Tensor> run_timed(const Model& model, std::span<const Tensor> inputs,
                              const std::vector<NodeId>& producers, Body&& body) {
  auto last = std::chrono::steady_clock::now();
  return model.run(inputs, [&](ValueId id, const Tensor&) {
    const auto now = std::chrono::steady_clock::now();
    const NodeId node = producers[index_of(id)];
    if (node != kNone) {
      body(index_of(node), std::chrono::duration<double, std::milli>(now - last).count());
    }
    last = std::chrono::steady_clock::now();
  });
}

class GraphPair final : public Pair {
 public:
  GraphPair(const Model& in_float, const Model& quantized,
            const std::vector<std::pair<std::string, std::string>>& aliases)
      : float_(in_float),
        quantized_(quantized),
        stands_(matched_values(in_float.graph(), quantized.graph(), aliases)),
        float_modules_(float_.node_modules()),
        modules_(quantized_.node_modules()),
        float_producers_(producers_of(float_.graph())),
        producers_(producers_of(quantized_.graph())) {
    const std::vector<std::string> names = float_.input_names();
    for (const std::string& name : quantized_.input_names()) {
      const auto found = std::find(names.begin(), names.end(), name);
      QUANTA_CHECK(found != names.end(),
                   "make_report: quantized_model: expected the float network's inputs {}, got '{}'",
                   fmt::join(names, ", "), name);
      input_order_.push_back(static_cast<std::size_t>(found - names.begin()));
    }
    QUANTA_CHECK(input_order_.size() == names.size(),
                 "make_report: quantized_model: expected the float network's inputs {}, got {}",
                 fmt::join(names, ", "), fmt::join(quantized_.input_names(), ", "));
  }

  const nn::Module& in_float() const override { return float_; }
  const nn::Module& quantized() const override { return quantized_; }
  void find_layers(std::span<const Tensor> inputs) override;
  void time(std::span<const Tensor> inputs, int repeats, Times& in_float,
            Times& quantized) override;
  Outputs run(std::span<const Tensor> inputs, bool alone, const std::vector<bool>& wanted,
              const Visit& visit) override;

 private:
  using Owners = std::vector<std::optional<std::size_t>>;

  std::vector<Tensor> reordered(std::span<const Tensor> inputs) const;
  std::optional<LayerReport> layer_of(std::size_t n, const std::vector<bool>& coded) const;
  /// The float module that does what node n does.
  const nn::Module* float_module(std::size_t n) const;
  void find_owners();
  std::string float_type(std::size_t layer) const;
  static void time_once(const Model& model, std::span<const Tensor> inputs,
                        const std::vector<NodeId>& producers, const Owners& owners,
                        std::size_t layers, Times& times);
  static void count_work(const Model& model, std::span<const Tensor> inputs,
                         const std::vector<NodeId>& producers, const Owners& owners,
                         std::size_t layers, Times& times);
  Tensor alone(std::size_t n, const std::vector<Tensor>& floats,
               const std::vector<Tensor>& values) const;

  Model float_, quantized_;
  std::vector<ValueId> stands_;  ///< for each value the float graph's, or kNone
  std::vector<const nn::Module*> float_modules_, modules_;
  std::vector<NodeId> float_producers_, producers_;
  std::vector<std::size_t> input_order_;
  std::vector<std::size_t> layer_nodes_;
  Owners float_owners_, owners_;  ///< for each node the layer that its time counts for
};

std::vector<Tensor> GraphPair::reordered(std::span<const Tensor> inputs) const {
  float_.check_inputs(inputs);
  std::vector<Tensor> result;
  for (const std::size_t i : input_order_) result.push_back(inputs[i]);
  return result;
}

const nn::Module* GraphPair::float_module(std::size_t n) const {
  const std::string& name = quantized_.graph().nodes[n].module;
  if (!name.empty() && float_.has_child(name)) return float_.get_submodule(name).get();
  const ValueId id = first_output(quantized_.graph().nodes[n]);
  const ValueId same = id == kNone ? kNone : stands_[index_of(id)];
  const NodeId node = same == kNone ? kNone : float_producers_[index_of(same)];
  return node == kNone ? nullptr : float_modules_[index_of(node)];
}

std::optional<LayerReport> GraphPair::layer_of(std::size_t n,
                                               const std::vector<bool>& coded) const {
  const Graph& graph = quantized_.graph();
  const Node& node = graph.nodes[n];
  const ValueId id = first_output(node);
  if (id == kNone || stands_[index_of(id)] == kNone || is_movement(node)) return std::nullopt;
  const auto is_coded = [&](ValueId value) { return value != kNone && coded[index_of(value)]; };
  const bool takes = std::any_of(node.inputs.begin(), node.inputs.end(), is_coded);
  const bool gives = is_coded(id);
  if (is_same_value(node) && (takes || !gives)) return std::nullopt;
  LayerReport layer;
  layer.name = name_of(node);
  layer.type = type_of(node, modules_[n]);
  const nn::Module* before = float_module(n);
  if (modules_[n] != nullptr && before != nullptr) {
    const Tensor weight = weight_of(*modules_[n]);
    const Tensor float_weight = weight_of(*before);
    layer.weight = compare_weights(float_weight, weight, channel_axis(*before));
  }
  layer.kind = takes || gives ? LayerKind::Codes : LayerKind::CodedWeight;
  if (layer.kind == LayerKind::Codes) return layer;
  if (modules_[n] == nullptr || before == nullptr) return std::nullopt;
  const bool other_class = before->type_name() != layer.type;
  const bool other_weight = layer.weight && std::isfinite(layer.weight->sqnr);
  if (!other_class && !other_weight) return std::nullopt;
  return layer;
}

void GraphPair::find_layers(std::span<const Tensor> inputs) {
  const Graph& graph = quantized_.graph();
  std::vector<bool> coded(graph.values.size(), false);
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Tensor& constant = graph.values[i].constant;
    coded[i] = constant.defined() && constant.is_quantized();
  }
  static_cast<void>(quantized_.run(reordered(inputs), [&](ValueId id, const Tensor& value) {
    coded[index_of(id)] = value.defined() && value.is_quantized();
  }));
  nodes.clear();
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    ReportNode drawn{
        .name = name_of(node), .type = type_of(node, modules_[n]), .inputs = {}, .layer = {}};
    if (std::optional<LayerReport> layer = layer_of(n, coded)) {
      drawn.layer = layers.size();
      drawn.kind = layer->kind;
      layers.push_back(std::move(*layer));
      layer_nodes_.push_back(n);
    } else if (const ValueId id = first_output(node); id != kNone && coded[index_of(id)]) {
      drawn.kind = LayerKind::Codes;
    }
    for (const ValueId id : node.inputs) {
      const NodeId from = id == kNone ? kNone : producers_[index_of(id)];
      if (from == kNone) continue;
      if (std::find(drawn.inputs.begin(), drawn.inputs.end(), index_of(from)) ==
          drawn.inputs.end()) {
        drawn.inputs.push_back(index_of(from));
      }
    }
    nodes.push_back(std::move(drawn));
  }
  find_owners();
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].float_type = float_type(i);
}

/// Time of nodes that no layer is made of counts for the next layer, as that of a convolution does
/// whose ReLU the quantized layer has within it.
void GraphPair::find_owners() {
  const Graph& graph = quantized_.graph();
  std::vector<bool> is_matched(float_.graph().values.size(), false);
  for (std::size_t v = 0; v < stands_.size(); ++v) {
    if (stands_[v] != kNone && producers_[v] != kNone) is_matched[index_of(stands_[v])] = true;
  }
  owners_.assign(graph.nodes.size(), std::nullopt);
  std::map<ValueId, std::size_t> layer_of_value;
  for (std::size_t i = 0; i < layer_nodes_.size(); ++i) {
    owners_[layer_nodes_[i]] = i;
    layer_of_value.emplace(stands_[index_of(first_output(graph.nodes[layer_nodes_[i]]))], i);
  }
  const auto follow = [](const Graph& of, Owners& owners, const auto& is_free) {
    const graph::Uses uses(of);
    for (std::size_t n = of.nodes.size(); n-- > 0;) {
      const ValueId id = first_output(of.nodes[n]);
      if (owners[n] || id == kNone || !is_free(n, id)) continue;
      const auto users = uses.users(id);
      if (users.size() == 1) owners[n] = owners[index_of(users[0])];
    }
  };
  follow(graph, owners_, [&](std::size_t, ValueId id) { return stands_[index_of(id)] == kNone; });
  const Graph& floats = float_.graph();
  float_owners_.assign(floats.nodes.size(), std::nullopt);
  for (std::size_t n = 0; n < floats.nodes.size(); ++n) {
    const auto found = layer_of_value.find(first_output(floats.nodes[n]));
    if (found != layer_of_value.end()) float_owners_[n] = found->second;
  }
  follow(floats, float_owners_, [&](std::size_t, ValueId id) { return !is_matched[index_of(id)]; });
}

std::string GraphPair::float_type(std::size_t layer) const {
  std::string text;
  for (std::size_t n = 0; n < float_owners_.size(); ++n) {
    if (float_owners_[n] != layer) continue;
    text += (text.empty() ? "" : " + ") + type_of(float_.graph().nodes[n], float_modules_[n]);
  }
  return text.empty() ? "(input)" : text;
}

void GraphPair::time_once(const Model& model, std::span<const Tensor> inputs,
                          const std::vector<NodeId>& producers, const Owners& owners,
                          std::size_t layers, Times& times) {
  std::vector<double> ms(layers, 0.0);
  double whole = 0.0;
  static_cast<void>(run_timed(model, inputs, producers, [&](std::size_t node, double took) {
    whole += took;
    if (owners[node]) ms[*owners[node]] += took;
  }));
  times.layers.resize(layers);
  for (std::size_t i = 0; i < layers; ++i) times.layers[i].ms.push_back(ms[i]);
  times.whole_ms.push_back(whole);
}

void GraphPair::count_work(const Model& model, std::span<const Tensor> inputs,
                           const std::vector<NodeId>& producers, const Owners& owners,
                           std::size_t layers, Times& times) {
  times.layers.resize(layers);
  Profiler profiler;
  std::size_t seen = 0;
  static_cast<void>(run_timed(model, inputs, producers, [&](std::size_t node, double) {
    const std::vector<ProfileEvent>& events = profiler.events();
    for (; seen < events.size(); ++seen) {
      const ProfileEvent& event = events[seen];
      if (event.kind != ProfileEvent::Kind::Op || event.depth != 0 || !owners[node]) continue;
      times.layers[*owners[node]].multiply_adds += event.work.multiply_adds;
    }
  }));
}

void GraphPair::time(std::span<const Tensor> inputs, int repeats, Times& in_float,
                     Times& quantized) {
  const std::vector<Tensor> other = reordered(inputs);
  count_work(float_, inputs, float_producers_, float_owners_, layers.size(), in_float);
  count_work(quantized_, other, producers_, owners_, layers.size(), quantized);
  for (int i = 0; i < repeats; ++i) {
    time_once(float_, inputs, float_producers_, float_owners_, layers.size(), in_float);
    time_once(quantized_, other, producers_, owners_, layers.size(), quantized);
  }
}

Tensor GraphPair::alone(std::size_t n, const std::vector<Tensor>& floats,
                        const std::vector<Tensor>& values) const {
  const Graph& graph = quantized_.graph();
  const Node& node = graph.nodes[n];
  std::vector<Tensor> given;
  std::vector<OnnxType> types;
  for (const ValueId id : node.inputs) {
    types.push_back(id == kNone ? OnnxType::Undefined : graph.values[index_of(id)].type);
    if (id == kNone) {
      given.emplace_back();
      continue;
    }
    const Tensor& constant = graph.values[index_of(id)].constant;
    const Tensor& taken = values[index_of(id)];
    if (constant.defined() ||
        (taken.defined() && !taken.is_quantized() && !taken.is_floating_point())) {
      given.push_back(constant.defined() ? constant : taken);
      continue;
    }
    const ValueId same = stands_[index_of(id)];
    if (same == kNone || !floats[index_of(same)].defined() ||
        floats[index_of(same)].sizes() != taken.sizes()) {
      return {};
    }
    const auto inputs = as_taken(std::span(&floats[index_of(same)], 1), std::span(&taken, 1));
    if (!inputs) return {};
    given.push_back(inputs->front());
  }
  try {
    return graph::run_node(node, modules_[n], given, types).front();
  } catch (const Error&) {
    return {};
  }
}

Outputs GraphPair::run(std::span<const Tensor> inputs, bool with_alone,
                       const std::vector<bool>& wanted, const Visit& visit) {
  std::vector<bool> is_needed(float_.graph().values.size(), false);
  for (const ValueId id : stands_) {
    if (id != kNone) is_needed[index_of(id)] = true;
  }
  std::vector<Tensor> floats(is_needed.size());
  std::vector<Tensor> values(stands_.size());
  const std::vector<Tensor> reference = float_.run(inputs, [&](ValueId id, const Tensor& x) {
    if (is_needed[index_of(id)]) floats[index_of(id)] = x;
  });
  const std::vector<Tensor> got = quantized_.run(
      reordered(inputs), [&](ValueId id, const Tensor& x) { values[index_of(id)] = x; });
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!wanted.empty() && !wanted[i]) continue;
    const ValueId id = first_output(quantized_.graph().nodes[layer_nodes_[i]]);
    const Tensor& want = floats[index_of(stands_[index_of(id)])];
    const Tensor& value = values[index_of(id)];
    if (!want.defined() || !value.defined() || want.sizes() != value.sizes() ||
        !want.is_floating_point()) {
      continue;
    }
    Tensor by_itself = with_alone ? alone(layer_nodes_[i], floats, values) : Tensor();
    if (by_itself.defined() && by_itself.sizes() != want.sizes()) by_itself = Tensor();
    visit({.layer = i,
           .reference = want,
           .value = value,
           .alone = by_itself,
           .grid = grid_of(value)});
  }
  Outputs outputs;
  const std::vector<std::string> names = quantized_.output_names();
  const std::vector<std::string> float_names = float_.output_names();
  for (std::size_t i = 0; i < float_names.size(); ++i) {
    const auto found = std::find(names.begin(), names.end(), float_names[i]);
    const auto at = found == names.end() && names.size() == float_names.size()
                        ? i
                        : static_cast<std::size_t>(found - names.begin());
    if (at >= got.size()) continue;
    outputs.names.push_back(float_names[i]);
    outputs.reference.push_back(reference[i]);
    outputs.value.push_back(got[at]);
  }
  return outputs;
}

}  // namespace

std::unique_ptr<Pair> graph_pair(const graph::Model& in_float, const graph::Model& quantized,
                                 const std::vector<std::pair<std::string, std::string>>& aliases) {
  return std::make_unique<GraphPair>(in_float, quantized, aliases);
}

}  // namespace quanta::reporting
