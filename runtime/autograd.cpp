#include "quanta/runtime/autograd.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/gradient_math.h"

namespace quanta::autograd {

struct Node;

// What a tensor that requires a gradient knows of the tape.
struct Meta {
  std::shared_ptr<Node> node;  // the recorded op that made it; null: a leaf
  std::size_t output = 0;      // which of the node's outputs it is
  Tensor grad;
  bool retain_grad = false;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);  // whether this tensor still is
  std::vector<std::pair<std::uint64_t, Hook>> hooks;
};

void MetaDelete::operator()(Meta* meta) const noexcept { delete meta; }

struct BackwardContext::SavedTensor {
  Tensor tensor;
  std::uint32_t version = 0;
};

namespace {

thread_local bool grad_enabled = true;
std::atomic<std::uint64_t> next_sequence{0};
std::atomic<std::uint64_t> next_hook{1};

Meta* meta_of(const Tensor& tensor) { return tensor.impl()->autograd.get(); }

Meta& require_meta(const Tensor& tensor, std::string_view op) {
  QUANTA_CHECK(tensor.defined() && meta_of(tensor) != nullptr,
               "{}: x: expected a tensor that requires a gradient (set_requires_grad)", op);
  return *meta_of(tensor);
}

// Sizes and dtype that a gradient has to have.
struct Kind {
  Dims sizes;
  DType dtype = DType::Float32;
};

Kind kind_of(const Tensor& tensor) { return {tensor.sizes(), tensor.dtype()}; }

}  // namespace

// A recorded op. Inputs are held as where their gradient goes: to the node that made them, or to
// the leaf itself. Outputs are held weakly, as they hold the node.
struct Node {
  struct Edge {
    std::shared_ptr<Node> node;
    std::size_t output = 0;
    Tensor leaf;
    Kind kind;

    bool wanted() const { return node != nullptr || leaf.defined(); }
  };

  std::string op;
  std::uint64_t sequence = 0;
  std::vector<Edge> inputs;
  std::vector<Kind> outputs;
  std::vector<BackwardContext::SavedTensor> saved;
  BackwardFunction backward;
  bool freed = false;
  // Of each output: its hooks, kept here so that they run when the tensor itself is gone.
  std::vector<std::vector<std::pair<std::uint64_t, Hook>>> hooks;
  ~Node();
};

namespace {

// A long tape is a long chain of owners: taken apart in a loop, not by recursion.
struct Graveyard {
  std::vector<std::shared_ptr<Node>> nodes;
  bool busy = false;
};
thread_local Graveyard graveyard;

}  // namespace

Node::~Node() {
  for (Edge& edge : inputs) {
    if (edge.node != nullptr) graveyard.nodes.push_back(std::move(edge.node));
  }
  if (graveyard.busy) return;
  graveyard.busy = true;
  while (!graveyard.nodes.empty()) {
    const std::shared_ptr<Node> next = std::move(graveyard.nodes.back());
    graveyard.nodes.pop_back();
  }
  graveyard.busy = false;
}

bool is_grad_enabled() noexcept { return grad_enabled; }

NoGradGuard::NoGradGuard() noexcept : before_(std::exchange(grad_enabled, false)) {}
NoGradGuard::~NoGradGuard() { grad_enabled = before_; }
EnableGradGuard::EnableGradGuard() noexcept : before_(std::exchange(grad_enabled, true)) {}
EnableGradGuard::~EnableGradGuard() { grad_enabled = before_; }

bool needs_grad(std::span<const Tensor> tensors) noexcept {
  return grad_enabled && std::any_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
           return tensor.defined() && tensor.requires_grad();
         });
}

Tensor BackwardContext::saved(std::size_t index) const {
  const SavedTensor& entry = saved_[index];
  QUANTA_CHECK(!entry.tensor.defined() || entry.tensor.version() == entry.version,
               "backward: {}: expected saved tensor {} {} as it was in forward (version {}), got "
               "one that was changed in place since (version {})",
               op_, index, entry.tensor.sizes(), entry.version, entry.tensor.version());
  return entry.tensor;
}

void record(std::string_view op, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            std::span<const Tensor> saved, BackwardFunction backward) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  node->inputs.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    Node::Edge& edge = node->inputs[i];
    edge.kind = kind_of(inputs[i]);
    const Meta* meta = meta_of(inputs[i]);
    if (meta == nullptr) continue;
    edge.node = meta->node;
    edge.output = meta->output;
    if (meta->node == nullptr) edge.leaf = inputs[i];
  }
  for (const Tensor& tensor : saved) {
    node->saved.push_back(
        {tensor.defined() ? tensor.detach() : tensor, tensor.defined() ? tensor.version() : 0});
  }
  node->backward = std::move(backward);
  node->hooks.resize(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    node->outputs.push_back(kind_of(outputs[i]));
    // Results of other dtypes (indices of a maximum) have no gradient.
    if (!outputs[i].is_floating_point()) continue;
    auto& meta = outputs[i].impl()->autograd;
    meta.reset(new Meta);
    meta->node = node;
    meta->output = i;
  }
}

Tensor record(std::string_view op, std::initializer_list<Tensor> inputs, Tensor output,
              std::initializer_list<Tensor> saved, BackwardFunction backward) {
  record(op, std::span<const Tensor>(inputs.begin(), inputs.size()), {&output, 1},
         std::span<const Tensor>(saved.begin(), saved.size()), std::move(backward));
  return output;
}

void throw_not_differentiable(std::string_view op) {
  throw UnsupportedError(with_module_path(fmt::format(
      "{}: x: expected tensors that require no gradient, as {} has no backward (use detach() or an "
      "autograd::NoGradGuard), got one that does",
      op, op)));
}

void require_changeable(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(
      !needs_grad(x),
      "{}: x: expected a tensor that requires no gradient, or an autograd::NoGradGuard, as "
      "the tape cannot follow a change in place, got one that is recorded",
      op);
}

// The engine -------------------------------------------------------------------------------------

struct Engine {
  using Hooks = std::vector<std::pair<std::uint64_t, Hook>>;

  explicit Engine(bool retain_graph) : retain_graph(retain_graph) {}

  static Tensor through_hooks(Tensor gradient, const Hooks& hooks) {
    for (const auto& [id, hook] : hooks) {
      const Tensor changed = hook(gradient);
      if (!changed.defined()) continue;
      QUANTA_CHECK(changed.sizes() == gradient.sizes() && changed.dtype() == gradient.dtype(),
                   "backward: hook: expected a gradient {} {}, got {} {}", gradient.dtype(),
                   gradient.sizes(), changed.dtype(), changed.sizes());
      gradient = changed;
    }
    return gradient;
  }

  void add(const std::shared_ptr<Node>& node, std::size_t output, const Tensor& gradient) {
    auto [entry, is_new] = pending.try_emplace(node.get());
    if (is_new) {
      entry->second.resize(node->outputs.size());
      queue.push(node);
    }
    detail::accumulate(entry->second[output], gradient);
  }

  // A leaf's gradient is complete only at the end, when hooks see the sum.
  void add_to_leaf(const Tensor& leaf, const Tensor& gradient) {
    auto [entry, is_new] = leaves.try_emplace(leaf.impl().get());
    if (is_new) entry->second.leaf = leaf;
    detail::accumulate(entry->second.gradient, gradient);
  }

  void add_to(const Tensor& tensor, const Tensor& gradient) {
    const Meta& meta = *meta_of(tensor);
    if (meta.node != nullptr) {
      add(meta.node, meta.output, gradient);
    } else {
      add_to_leaf(tensor, gradient);
    }
  }

  std::vector<Tensor> call(Node& node, std::vector<Tensor> gradients) {
    QUANTA_CHECK(!node.freed,
                 "backward: graph: expected one that was not freed, got {} again (give "
                 "retain_graph=true to the first backward)",
                 node.op);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) {
        gradients[i] = Tensor::zeros(node.outputs[i].sizes, node.outputs[i].dtype);
      }
    }
    BackwardContext context;
    context.op_ = node.op;
    context.grads_ = gradients;
    for (const Node::Edge& edge : node.inputs) context.needs_.push_back(edge.wanted());
    context.saved_ = node.saved;
    std::vector<Tensor> result = node.backward(context);
    QUANTA_CHECK(result.size() == node.inputs.size(),
                 "backward: {}: expected a gradient for each of {} inputs, got {}", node.op,
                 node.inputs.size(), result.size());
    return result;
  }

  void visit(const std::shared_ptr<Node>& node) {
    std::vector<Tensor> gradients = std::move(pending.at(node.get()));
    pending.erase(node.get());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      gradients[i] = through_hooks(gradients[i], node->hooks[i]);
      const auto found = captures.find({node.get(), i});
      if (found != captures.end()) *found->second = gradients[i];
    }
    const std::vector<Tensor> results = call(*node, std::move(gradients));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Node::Edge& edge = node->inputs[i];
      if (!edge.wanted() || !results[i].defined()) continue;
      QUANTA_CHECK(results[i].sizes() == edge.kind.sizes && results[i].dtype() == edge.kind.dtype,
                   "backward: {}: expected a gradient {} {} for input {}, got {} {}", node->op,
                   edge.kind.dtype, edge.kind.sizes, i, results[i].dtype(), results[i].sizes());
      if (edge.node != nullptr) {
        add(edge.node, edge.output, results[i]);
      } else {
        add_to_leaf(edge.leaf, results[i]);
      }
    }
    if (!retain_graph) {
      visited.push_back(node);
    }
  }

  // Later ops first: every gradient is complete when its node's turn comes.
  void run() {
    const NoGradGuard guard;
    while (!queue.empty()) {
      const std::shared_ptr<Node> node = queue.top();
      queue.pop();
      visit(node);
    }
    for (auto& [impl, entry] : leaves) {
      entry.gradient = through_hooks(entry.gradient, meta_of(entry.leaf)->hooks);
    }
    // Only now, so that a backward that failed leaves the tape as it was.
    for (const std::shared_ptr<Node>& node : visited) {
      node->freed = true;
      node->saved.clear();
      node->backward = nullptr;
    }
  }

  struct Earlier {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->sequence < b->sequence;
    }
  };
  struct Leaf {
    Tensor leaf;
    Tensor gradient;
  };

  bool retain_graph;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Earlier> queue;
  std::unordered_map<Node*, std::vector<Tensor>> pending;
  std::unordered_map<TensorImpl*, Leaf> leaves;
  std::map<std::pair<Node*, std::size_t>, Tensor*> captures;
  std::vector<std::shared_ptr<Node>> visited;
};

namespace {

// The gradient to start with.
Tensor initial_gradient(const Tensor& output, const Tensor& given) {
  if (!given.defined()) {
    QUANTA_CHECK(output.numel() == 1,
                 "backward: gradient: expected one for a tensor of sizes {} (it may be left out "
                 "for a single element only), got none",
                 output.sizes());
    return Tensor::full(output.sizes(), 1.0, output.dtype());
  }
  QUANTA_CHECK(given.sizes() == output.sizes() && given.dtype() == output.dtype(),
               "backward: gradient: expected {} {}, got {} {}", output.dtype(), output.sizes(),
               given.dtype(), given.sizes());
  return given;
}

void keep(const Tensor& tensor, const Tensor& gradient) {
  Meta& meta = *meta_of(tensor);
  // The user's tensor: gradients that go on elsewhere must not change with it.
  if (!meta.grad.defined()) {
    meta.grad = gradient.impl()->use_count() == 1 ? gradient : gradient.clone();
  } else {
    detail::accumulate(meta.grad, gradient);
  }
}

}  // namespace

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         const GradOptions& options) {
  constexpr std::string_view kOp = "grad";
  QUANTA_CHECK(options.grad_outputs.empty() || options.grad_outputs.size() == outputs.size(),
               "grad: grad_outputs: expected {} (one for each output), got {}", outputs.size(),
               options.grad_outputs.size());
  for (const Tensor& input : inputs) require_meta(input, kOp);
  for (const Tensor& output : outputs) require_meta(output, kOp);
  Engine engine(options.retain_graph);
  std::vector<Tensor> captured(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Meta& meta = *meta_of(inputs[i]);
    if (meta.node != nullptr) engine.captures[{meta.node.get(), meta.output}] = &captured[i];
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    engine.add_to(outputs[i], initial_gradient(outputs[i], options.grad_outputs.empty()
                                                               ? Tensor()
                                                               : options.grad_outputs[i]));
  }
  engine.run();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto leaf = engine.leaves.find(inputs[i].impl().get());
    if (leaf != engine.leaves.end()) captured[i] = leaf->second.gradient;
    QUANTA_CHECK(captured[i].defined() || options.allow_unused,
                 "grad: inputs: expected tensors that the outputs were calculated from, got one "
                 "that was not used (number {}; allow_unused gives an undefined tensor)",
                 i);
  }
  return captured;
}

}  // namespace quanta::autograd

// Tensor -----------------------------------------------------------------------------------------

namespace quanta {

using autograd::Engine;
using autograd::Meta;

const Tensor& Tensor::set_requires_grad(bool on) const {
  Meta* meta = impl_->autograd.get();
  QUANTA_CHECK(meta == nullptr || meta->node == nullptr,
               "set_requires_grad: x: expected a leaf, got the result of a recorded op (detach() "
               "gives a leaf)");
  if (!on) {
    impl_->autograd.reset();
  } else if (meta == nullptr) {
    QUANTA_CHECK(is_floating_point(), "set_requires_grad: x: expected a floating dtype, got {}",
                 dtype());
    impl_->autograd.reset(new Meta);
  }
  return *this;
}

bool Tensor::is_leaf() const noexcept {
  return impl_->autograd == nullptr || impl_->autograd->node == nullptr;
}

Tensor Tensor::grad() const {
  return impl_->autograd == nullptr ? Tensor() : impl_->autograd->grad;
}

void Tensor::set_grad(const Tensor& gradient) const {
  Meta& meta = autograd::require_meta(*this, "set_grad");
  QUANTA_CHECK(!gradient.defined() || (gradient.sizes() == sizes() && gradient.dtype() == dtype()),
               "set_grad: gradient: expected {} {}, got {} {}", dtype(), sizes(), gradient.dtype(),
               gradient.sizes());
  meta.grad = gradient.defined() ? gradient.detach() : gradient;
}

void Tensor::clear_grad() const {
  if (impl_->autograd != nullptr) impl_->autograd->grad = Tensor();
}

const Tensor& Tensor::retain_grad() const {
  Meta& meta = autograd::require_meta(*this, "retain_grad");
  if (meta.node == nullptr || meta.retain_grad) return *this;
  meta.retain_grad = true;
  // A tensor that is gone when backward runs takes its gradient with it; the hook holds no owner,
  // as the tensor owns the node that owns the hook.
  const std::weak_ptr<bool> alive = meta.alive;
  register_hook([this_impl = impl_.get(), alive](const Tensor& gradient) {
    if (!alive.expired()) autograd::keep(Tensor(IntrusivePtr<TensorImpl>(this_impl)), gradient);
    return Tensor();
  });
  return *this;
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  autograd::require_meta(*this, "backward");
  Engine engine(retain_graph);
  engine.add_to(*this, autograd::initial_gradient(*this, gradient));
  engine.run();
  for (auto& [impl, entry] : engine.leaves) {
    const Tensor complete = std::move(entry.gradient);
    autograd::keep(entry.leaf, complete);
  }
}

std::uint64_t Tensor::register_hook(autograd::Hook hook) const {
  Meta& meta = autograd::require_meta(*this, "register_hook");
  const std::uint64_t id = autograd::next_hook.fetch_add(1, std::memory_order_relaxed);
  auto& hooks = meta.node == nullptr ? meta.hooks : meta.node->hooks[meta.output];
  hooks.emplace_back(id, std::move(hook));
  return id;
}

void Tensor::remove_hook(std::uint64_t id) const {
  Meta& meta = autograd::require_meta(*this, "remove_hook");
  auto& hooks = meta.node == nullptr ? meta.hooks : meta.node->hooks[meta.output];
  std::erase_if(hooks, [id](const auto& entry) { return entry.first == id; });
}

}  // namespace quanta
