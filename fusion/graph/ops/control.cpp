// Control flow: If, Loop and Scan, over graphs of their own. What they capture are the node's last
// inputs.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/run.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shuffle.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

const Graph& body_of(const NodeCall& call, std::string_view name) {
  const auto found = call.node().graphs.find(name);
  if (found == call.node().graphs.end()) {
    call.fail(fmt::format("attribute {}: expected a graph, got none", name));
  }
  return *found->second;
}

std::span<const Tensor> captured(const NodeCall& call) {
  return call.inputs().last(call.node().captured);
}

/// The inputs that are the node's own.
std::span<const Tensor> own(const NodeCall& call) {
  return call.inputs().first(call.input_count() - call.node().captured);
}

bool truth(const NodeCall& call, const Tensor& condition) {
  if (condition.numel() != 1) call.fail("condition: expected one truth value");
  const NodeCall reader(call.node(), {&condition, 1}, {});
  return reader.integers(0, "cond").front() != 0;
}

Outputs evaluate_if(const NodeCall& call) {
  const bool condition = truth(call, call.input(0, "cond"));
  const Graph& body = body_of(call, condition ? "then_branch" : "else_branch");
  return run_graph(body, captured(call));
}

/// What a body's outputs of each step are stacked from.
class Stacks {
 public:
  explicit Stacks(std::size_t count) : steps_(count) {}
  void add(std::size_t i, Tensor step) { steps_[i].push_back(std::move(step)); }
  /// Along a new dimension. A loop that did not run gives an empty tensor of what is known of the
  /// sizes.
  Tensor stacked(std::size_t i, std::int64_t axis, const Value& declared) const {
    if (!steps_[i].empty()) return stack(steps_[i], axis);
    Dims sizes{0};
    if (declared.sizes) {
      for (const OnnxDim& dim : *declared.sizes) sizes.push_back(dim.size.value_or(0));
    }
    return Tensor::empty(sizes, dtype_of(declared.type).value_or(DType::Float32));
  }

 private:
  std::vector<std::vector<Tensor>> steps_;
};

Outputs evaluate_loop(const NodeCall& call) {
  const Graph& body = body_of(call, "body");
  const std::span<const Tensor> given = own(call);
  const std::int64_t trips =
      call.has(0) ? call.integers(0, "M").at(0) : std::numeric_limits<std::int64_t>::max();
  bool go_on = !call.has(1) || truth(call, call.input(1, "cond"));
  if (given.size() < 2) call.fail("expected inputs M and cond");
  const std::size_t states = given.size() - 2;
  if (body.inputs.size() != 2 + states + call.node().captured || body.outputs.size() < 1 + states) {
    call.fail(fmt::format("body: expected {} inputs and at least {} outputs, got {} and {}",
                          2 + states, 1 + states, body.inputs.size() - call.node().captured,
                          body.outputs.size()));
  }
  const std::size_t scans = body.outputs.size() - 1 - states;
  std::vector<Tensor> state(given.begin() + 2, given.end());
  Stacks stacks(scans);
  for (std::int64_t i = 0; i < trips && go_on; ++i) {
    std::vector<Tensor> inputs{Tensor::scalar(static_cast<double>(i), DType::Int64),
                               Tensor::scalar(1, DType::Bool)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    inputs.insert(inputs.end(), captured(call).begin(), captured(call).end());
    std::vector<Tensor> results = run_graph(body, inputs);
    go_on = truth(call, results[0]);
    for (std::size_t s = 0; s < states; ++s) state[s] = results[1 + s];
    for (std::size_t s = 0; s < scans; ++s) stacks.add(s, std::move(results[1 + states + s]));
  }
  Outputs outputs = std::move(state);
  for (std::size_t s = 0; s < scans; ++s) {
    const ValueId declared = body.outputs[1 + states + s];
    outputs.push_back(stacks.stacked(s, 0, body.values[static_cast<std::size_t>(declared)]));
  }
  return outputs;
}

std::vector<std::int64_t> per_scan(const NodeCall& call, std::string_view name, std::size_t count) {
  auto list = call.integer_list(name, std::vector<std::int64_t>(count, 0));
  if (list.size() != count) {
    call.fail(fmt::format("attribute {}: expected {} numbers, got {}", name, count, list.size()));
  }
  return list;
}

/// Scan from opset 9: states, then tensors that are walked along an axis.
Outputs scan(const NodeCall& call, std::span<const Tensor> given) {
  const Graph& body = body_of(call, "body");
  const auto walked = call.integer("num_scan_inputs");
  if (walked < 1 || walked > static_cast<std::int64_t>(given.size())) {
    call.fail(
        fmt::format("attribute num_scan_inputs: expected 1..{}, got {}", given.size(), walked));
  }
  const auto count = static_cast<std::size_t>(walked);
  const std::size_t states = given.size() - count;
  if (body.inputs.size() != given.size() + call.node().captured || body.outputs.size() < states) {
    call.fail(fmt::format("body: expected {} inputs, got {}", given.size(),
                          body.inputs.size() - call.node().captured));
  }
  const std::size_t made = body.outputs.size() - states;
  const auto axes = per_scan(call, "scan_input_axes", count);
  const auto directions =
      per_scan(call, call.opset() < 9 ? "directions" : "scan_input_directions", count);
  const auto made_axes = per_scan(call, "scan_output_axes", made);
  const auto made_directions = per_scan(call, "scan_output_directions", made);

  std::vector<Tensor> state(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(states));
  const std::span<const Tensor> scanned = given.subspan(states);
  const std::int64_t steps = scanned[0].size(axes[0]);
  for (std::size_t i = 0; i < count; ++i) {
    if (scanned[i].size(axes[i]) != steps) {
      call.fail(fmt::format("scan input {}: expected {} steps, got {}", i, steps,
                            scanned[i].size(axes[i])));
    }
  }
  Stacks stacks(made);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<Tensor> inputs = state;
    for (std::size_t i = 0; i < count; ++i) {
      inputs.push_back(scanned[i].select(axes[i], directions[i] != 0 ? steps - 1 - step : step));
    }
    inputs.insert(inputs.end(), captured(call).begin(), captured(call).end());
    std::vector<Tensor> results = run_graph(body, inputs);
    for (std::size_t s = 0; s < states; ++s) state[s] = results[s];
    for (std::size_t s = 0; s < made; ++s) stacks.add(s, std::move(results[states + s]));
  }
  Outputs outputs = std::move(state);
  for (std::size_t s = 0; s < made; ++s) {
    const ValueId declared = body.outputs[states + s];
    Tensor all = stacks.stacked(s, made_axes[s], body.values[static_cast<std::size_t>(declared)]);
    outputs.push_back(made_directions[s] != 0 ? flip(all, {made_axes[s]}) : all);
  }
  return outputs;
}

Outputs evaluate_scan(const NodeCall& call) { return scan(call, own(call)); }

/// Scan of opset 8: a batch dimension in front of everything, and lengths that may differ.
Outputs evaluate_scan_8(const NodeCall& call) {
  const std::span<const Tensor> given = own(call);
  if (call.has(0)) call.unsupported("sequence_lens: only sequences of one length are supported");
  if (given.size() < 2) call.fail("expected states and scan inputs");
  const std::int64_t batch = given[1].size(0);
  std::vector<std::vector<Tensor>> of_batch;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<Tensor> one;
    for (const Tensor& x : given.subspan(1)) one.push_back(x.select(0, b));
    Outputs results = scan(call, one);
    of_batch.resize(results.size());
    for (std::size_t i = 0; i < results.size(); ++i) of_batch[i].push_back(std::move(results[i]));
  }
  Outputs outputs;
  for (const auto& list : of_batch) outputs.push_back(stack(list, 0));
  return outputs;
}

}  // namespace

void add_control_ops(OpTable& table) {
  table.add({.name = "If", .evaluate = evaluate_if, .widens = false});
  table.add({.name = "Loop", .evaluate = evaluate_loop, .widens = false});
  table.add({.name = "Scan", .evaluate = evaluate_scan_8, .last = 8, .widens = false});
  table.add({.name = "Scan", .evaluate = evaluate_scan, .since = 9, .widens = false});
}

}  // namespace quanta::graph
