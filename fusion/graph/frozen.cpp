#include "quanta/fusion/graph/frozen.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/replay_plan.h"

namespace quanta::graph {
namespace {

constexpr std::size_t kPlans = 8;

/// What a plan is for.
struct Shape {
  Dims sizes;
  Dims strides;
  DType dtype = DType::Float32;
  Quantizer quantizer;
};

bool fits(std::span<const Shape> shapes, std::span<const Tensor> inputs) {
  return std::equal(shapes.begin(), shapes.end(), inputs.begin(), inputs.end(),
                    [](const Shape& shape, const Tensor& x) {
                      return shape.dtype == x.dtype() && shape.sizes == x.sizes() &&
                             shape.strides == x.strides() &&
                             (!x.is_quantized() || shape.quantizer == x.impl()->quantizer);
                    });
}

/// Nodes that follow each other: a graph of their own, whose inputs and outputs are values of the
/// whole one.
struct Segment {
  Graph graph;
  std::vector<ValueId> takes;
  std::vector<ValueId> gives;
  std::vector<const nn::Module*> modules;
  bool is_eager = false;

  struct Plan {
    std::vector<Shape> shapes;
    std::shared_ptr<const replay::ReplayPlan> plan;
  };
  std::list<Plan> plans;  ///< the last used first
};

Segment make_segment(const Graph& whole, std::size_t first, std::size_t last,
                     std::span<const nn::Module* const> modules) {
  Segment segment;
  std::vector<bool> taken_later(whole.values.size(), false);
  for (const ValueId id : whole.outputs) taken_later[index_of(id)] = true;
  for (std::size_t n = last; n < whole.nodes.size(); ++n) {
    for (const ValueId id : whole.nodes[n].inputs) {
      if (id != kNone) taken_later[index_of(id)] = true;
    }
  }
  std::vector<ValueId> inner(whole.values.size(), kNone);
  const auto value = [&](ValueId id) {
    if (id != kNone && inner[index_of(id)] == kNone) {
      inner[index_of(id)] = segment.graph.add_value(whole.values[index_of(id)]);
    }
    return id == kNone ? kNone : inner[index_of(id)];
  };
  for (std::size_t n = first; n < last; ++n) {
    Node node = whole.nodes[n];
    for (ValueId& id : node.inputs) {
      const bool is_new = id != kNone && inner[index_of(id)] == kNone;
      const ValueId outside = id;
      id = value(id);
      if (is_new && !whole.is_constant(outside)) {
        segment.takes.push_back(outside);
        segment.graph.inputs.push_back(id);
      }
    }
    for (ValueId& id : node.outputs) {
      const ValueId outside = id;
      id = value(id);
      if (outside != kNone && taken_later[index_of(outside)]) {
        segment.gives.push_back(outside);
        segment.graph.outputs.push_back(id);
      }
    }
    segment.graph.nodes.push_back(std::move(node));
    segment.modules.push_back(modules[n]);
  }
  return segment;
}

void require_plain(const Model& model) {
  for (const auto& [path, module] : model.named_modules()) {
    QUANTA_CHECK(!module->is_training(),
                 "FrozenGraph: model: expected a model in eval mode, got {} in train mode", path);
    QUANTA_CHECK(module->is_plain_call(),
                 "FrozenGraph: model: expected no hooks and observers, got one on {}", path);
  }
}

}  // namespace

struct FrozenGraph::State {
  Model model;
  std::mutex mutex;
  std::vector<std::shared_ptr<Segment>> segments;

  explicit State(const Model& given) : model(given) {
    const auto& graph = model.graph();
    modules = model.node_modules();
    segments.push_back(
        std::make_shared<Segment>(make_segment(graph, 0, graph.nodes.size(), modules)));
    first_nodes.push_back(0);
  }

  std::vector<Tensor> run(std::span<const Tensor> inputs) {
    const Graph& graph = model.graph();
    model.check_inputs(inputs);
    std::vector<Tensor> values(graph.values.size());
    // Segments have the constants that they take.
    for (const ValueId id : graph.outputs)
      values[index_of(id)] = graph.values[index_of(id)].constant;
    for (std::size_t i = 0; i < inputs.size(); ++i) values[index_of(graph.inputs[i])] = inputs[i];
    for (std::size_t node = 0; node < graph.nodes.size();) {
      const auto [segment, next] = segment_at(node);
      std::vector<Tensor> given;
      for (const ValueId id : segment->takes) given.push_back(values[index_of(id)]);
      const std::optional<std::vector<Tensor>> results = run_segment(*segment, node, given);
      if (!results) continue;  // it was cut; the first part of it is tried next
      for (std::size_t i = 0; i < results->size(); ++i) {
        values[index_of(segment->gives[i])] = (*results)[i];
      }
      node = next;
    }
    std::vector<Tensor> results;
    for (const ValueId id : graph.outputs) results.push_back(values[index_of(id)]);
    return results;
  }

  std::vector<const nn::Module*> modules;
  std::vector<std::size_t> first_nodes;  ///< of each segment

 private:
  std::pair<std::shared_ptr<Segment>, std::size_t> segment_at(std::size_t node) {
    const std::lock_guard lock(mutex);
    const auto found = std::upper_bound(first_nodes.begin(), first_nodes.end(), node) - 1;
    const auto position = static_cast<std::size_t>(found - first_nodes.begin());
    const std::size_t next =
        position + 1 < first_nodes.size() ? first_nodes[position + 1] : model.graph().nodes.size();
    return {segments[position], next};
  }

  /// Nothing when the segment had to be cut, so that another has to be looked for.
  std::optional<std::vector<Tensor>> run_segment(Segment& segment, std::size_t first,
                                                 std::span<const Tensor> inputs) {
    if (segment.is_eager) return run_graph(segment.graph, inputs, segment.modules);
    if (const auto plan = find_plan(segment, inputs)) return plan->run(inputs);
    // The run that the caller gets also packs what is packed at the first call.
    std::vector<Tensor> results = run_graph(segment.graph, inputs, segment.modules);
    const std::optional<std::size_t> stuck = record(segment, inputs);
    if (!stuck) return results;
    cut(first, first + *stuck);
    return std::nullopt;
  }

  std::shared_ptr<const replay::ReplayPlan> find_plan(Segment& segment,
                                                      std::span<const Tensor> inputs) {
    const std::lock_guard lock(mutex);
    for (auto plan = segment.plans.begin(); plan != segment.plans.end(); ++plan) {
      if (!fits(plan->shapes, inputs)) continue;
      segment.plans.splice(segment.plans.begin(), segment.plans, plan);
      return segment.plans.front().plan;
    }
    return nullptr;
  }

  /// Makes a plan for inputs like these. The node that cannot be recorded, if there is one.
  std::optional<std::size_t> record(Segment& segment, std::span<const Tensor> inputs) {
    std::vector<Tensor> own;
    std::vector<Shape> shapes;
    for (const Tensor& x : inputs) {
      own.push_back(x.detach().clone(x.suggested_format()));
      shapes.push_back({x.sizes(), x.strides(), x.dtype(), x.impl()->quantizer});
    }
    std::shared_ptr<const replay::ReplayPlan> plan;
    std::size_t done = 0;  // nodes whose last result was seen
    try {
      const replay::Recording recording(own);
      const Uses uses(segment.graph);
      const std::vector<Tensor> results =
          run_graph(segment.graph, own, segment.modules, [&](ValueId id, const Tensor&) {
            if (uses.producer(id) != kNone) done = index_of(uses.producer(id)) + 1;
          });
      plan = std::make_shared<const replay::ReplayPlan>(recording, own, results);
    } catch (const UnsupportedError&) {
      return std::min(done, segment.graph.nodes.size() - 1);
    }
    const std::lock_guard lock(mutex);
    segment.plans.push_front({std::move(shapes), std::move(plan)});
    if (segment.plans.size() > kPlans) segment.plans.pop_back();
    return std::nullopt;
  }

  /// The segment that begins at node `first` becomes what stands before node `stuck`, that node on
  /// its own, and what follows.
  void cut(std::size_t first, std::size_t stuck) {
    const std::lock_guard lock(mutex);
    const auto found = std::find(first_nodes.begin(), first_nodes.end(), first);
    const auto position = static_cast<std::size_t>(found - first_nodes.begin());
    const Graph& graph = model.graph();
    const std::size_t last =
        position + 1 < first_nodes.size() ? first_nodes[position + 1] : graph.nodes.size();
    if (stuck >= last || segments[position]->is_eager) return;  // another thread has cut it
    std::vector<std::size_t> begins;
    std::vector<std::shared_ptr<Segment>> parts;
    const auto add = [&](std::size_t begin, std::size_t end, bool is_eager) {
      if (begin == end) return;
      parts.push_back(std::make_shared<Segment>(make_segment(graph, begin, end, modules)));
      parts.back()->is_eager = is_eager;
      begins.push_back(begin);
    };
    add(first, stuck, false);
    add(stuck, stuck + 1, true);
    add(stuck + 1, last, false);
    const auto at = static_cast<std::ptrdiff_t>(position);
    segments.erase(segments.begin() + at);
    first_nodes.erase(first_nodes.begin() + at);
    segments.insert(segments.begin() + at, parts.begin(), parts.end());
    first_nodes.insert(first_nodes.begin() + at, begins.begin(), begins.end());
  }
};

FrozenGraph::FrozenGraph(const Model& model) {
  require_plain(model);
  state_ = std::make_shared<State>(model);
}

std::vector<Tensor> FrozenGraph::run(std::span<const Tensor> inputs) const {
  const autograd::NoGradGuard no_grad;
  const AllocationLimit limit(default_allocation_limit());
  return state_->run(inputs);
}

Tensor FrozenGraph::operator()(const Tensor& x) const {
  QUANTA_CHECK(model().graph().inputs.size() == 1 && model().graph().outputs.size() == 1,
               "FrozenGraph: x: expected a graph with one input and one output, got {} and {}: use "
               "run",
               model().graph().inputs.size(), model().graph().outputs.size());
  return run(std::span<const Tensor>(&x, 1)).front();
}

NamedTensors FrozenGraph::run(const NamedTensors& inputs) const {
  return model().name_results(run(model().in_order(inputs)));
}

const Model& FrozenGraph::model() const noexcept { return state_->model; }

FrozenGraph::Info FrozenGraph::info() const {
  const std::lock_guard lock(state_->mutex);
  Info info;
  for (const auto& segment : state_->segments) {
    info.plans += segment->plans.size();
    if (segment->is_eager) info.eager_nodes += segment->graph.nodes.size();
    if (!segment->plans.empty()) info.steps += segment->plans.front().plan->info().steps;
  }
  return info;
}

std::string FrozenGraph::to_string() const {
  const std::lock_guard lock(state_->mutex);
  std::string text;
  for (const auto& segment : state_->segments) {
    if (segment->is_eager) {
      for (const Node& node : segment->graph.nodes) {
        text += fmt::format("eager: {} '{}'\n", node.op, node.name);
      }
    } else if (!segment->plans.empty()) {
      text += segment->plans.front().plan->to_string();
    }
  }
  return text;
}

}  // namespace quanta::graph
