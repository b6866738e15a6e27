#include "quanta/runtime/autograd.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/gradient_math.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/gradient_sink.h"

namespace quanta::autograd {

struct Node;
using Hooks = std::vector<std::pair<std::uint64_t, Hook>>;

// What a tensor that requires a gradient knows of the tape.
struct Meta {
  std::shared_ptr<Node> node;  // the recorded op that made it; null: a leaf
  std::size_t output = 0;      // which of the node's outputs it is
  Tensor grad;
  std::shared_ptr<TensorImpl*> retained;  // the tensor itself, once its gradient is to be kept
  Hooks hooks;
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
// Threads that go back over different tapes may meet at a leaf.
std::mutex grads_mutex;

Meta* meta_of(const Tensor& tensor) { return tensor.impl()->autograd.get(); }

Meta& require_meta(const Tensor& tensor, std::string_view op) {
  QUANTA_CHECK(tensor.defined() && meta_of(tensor) != nullptr,
               "{}: x: expected a tensor that requires a gradient (set_requires_grad)", op);
  return *meta_of(tensor);
}

// Sizes and dtype that a gradient has to have.
using Kind = BackwardContext::Kind;

Kind kind_of(const Tensor& tensor) { return {tensor.sizes(), tensor.dtype(), true}; }

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
  struct Output {
    Kind kind;
    Hooks hooks;  // here and not with the tensor, so that they run when that is gone
    std::weak_ptr<TensorImpl*> retained;  // as in Meta: the tensor owns the node, not the reverse
  };

  std::vector<Edge> inputs;
  std::vector<Output> outputs;
  std::mutex mutex;  // of what follows, which a backward without retain_graph frees
  std::vector<BackwardContext::SavedTensor> saved;
  BackwardFunction backward;
  bool freed = false;
  ~Node();
};

namespace {

// A long tape is a long chain of owners: taken apart in a loop, not by recursion. The list is the
// outermost destructor's own, as tensors may outlive their thread's variables.
thread_local std::vector<std::shared_ptr<Node>>* dying = nullptr;

}  // namespace

Node::~Node() {
  std::vector<std::shared_ptr<Node>> own;
  const bool is_outermost = dying == nullptr;
  if (is_outermost) dying = &own;
  for (Edge& edge : inputs) {
    if (edge.node != nullptr) dying->push_back(std::move(edge.node));
  }
  if (!is_outermost) return;
  while (!own.empty()) {
    const std::shared_ptr<Node> next = std::move(own.back());
    own.pop_back();
  }
  dying = nullptr;
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
  for (const Tensor& output : outputs) {
    QUANTA_CHECK(output.defined(), "{}: output: expected a tensor, got an undefined one", op);
  }
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
  node->outputs.resize(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    node->outputs[i].kind = kind_of(outputs[i]);
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

namespace {

// Gradients are not recorded, wherever a hook or a custom function has them from.
Tensor off_tape(const Tensor& gradient) {
  return gradient.defined() && gradient.requires_grad() ? gradient.detach() : gradient;
}

void check_kind(const Kind& kind, const Tensor& gradient, std::string_view from) {
  QUANTA_CHECK(gradient.sizes() == kind.sizes && gradient.dtype() == kind.dtype,
               "backward: {}: expected a gradient {} {}, got {} {}", from, kind.dtype, kind.sizes,
               gradient.dtype(), gradient.sizes());
}

// A copy of the hooks, as one may remove itself or add others; they count from the next time on.
Tensor through_hooks(Tensor gradient, const Hooks& hooks) {
  if (hooks.empty()) return gradient;
  for (const auto& [id, hook] : Hooks(hooks)) {
    const Tensor changed = hook(gradient);
    if (!changed.defined()) continue;
    check_kind(kind_of(gradient), changed, "hook");
    gradient = off_tape(changed);
  }
  return gradient;
}

void keep(Meta& meta, const Tensor& gradient) {
  const std::lock_guard lock(grads_mutex);
  if (meta.grad.defined()) {
    detail::accumulate(meta.grad, gradient);
    return;
  }
  // The user's tensor: gradients that go on elsewhere must not change with it.
  meta.grad = detail::is_exclusive(gradient) ? gradient : gradient.clone();
}

}  // namespace

struct Engine {
  using OutputId = std::pair<Node*, std::size_t>;
  struct Leaf {
    Tensor leaf;
    Tensor gradient;
  };
  struct Expected {
    Tensor leaf;
    std::uint64_t first_use = 0;
  };

  explicit Engine(bool retain_graph) : retain_graph(retain_graph) {}

  void add(const std::shared_ptr<Node>& node, std::size_t output, const Tensor& gradient) {
    auto [entry, is_new] = pending.try_emplace(node.get());
    if (is_new) {
      entry->second.resize(node->outputs.size());
      queue.push(node);
    }
    detail::accumulate(entry->second[output], gradient);
  }

  // A leaf's gradient is complete when no op that used it is left (with a sink), or at the end; then
  // hooks see the sum.
  void add_to_leaf(const Tensor& leaf, const Tensor& gradient) {
    const auto [entry, is_new] = leaf_numbers.try_emplace(leaf.impl().get(), leaves.size());
    if (is_new) leaves.push_back({leaf, {}});
    detail::accumulate(leaves[entry->second].gradient, gradient);
  }

  void add_to(const Tensor& tensor, const Tensor& gradient) {
    const Meta& meta = *meta_of(tensor);
    if (meta.node != nullptr) {
      add(meta.node, meta.output, gradient);
    } else {
      add_to_leaf(tensor, gradient);
    }
  }

  // From now on only what leads to the tensors that were asked for runs, as their gradients are all
  // that is wanted.
  void select(const std::vector<Node*>& roots) {
    std::unordered_set<Node*> reached(roots.begin(), roots.end());
    std::vector<Node*> nodes(reached.begin(), reached.end());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const Node::Edge& edge : nodes[i]->inputs) {
        if (edge.node != nullptr && reached.insert(edge.node.get()).second) {
          nodes.push_back(edge.node.get());
        }
      }
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
    selective = true;
    for (Node* node : nodes) {
      if (std::any_of(node->inputs.begin(), node->inputs.end(),
                      [&](const Node::Edge& edge) { return wants(edge); })) {
        selected.insert(node);
      }
    }
  }

  bool wants(const Node::Edge& edge) const {
    if (!selective || !edge.wanted()) return edge.wanted();
    if (edge.node == nullptr) return asked_leaves.contains(edge.leaf.impl().get());
    return selected.contains(edge.node.get()) || asked.contains({edge.node.get(), edge.output});
  }

  std::vector<Tensor> call(Node& node, std::vector<Tensor> gradients) const {
    const std::lock_guard lock(node.mutex);
    QUANTA_CHECK(!node.freed,
                 "backward: graph: expected one that was not freed, got {} again (give "
                 "retain_graph=true to the first backward)",
                 node.op);
    // A node is visited because a gradient came, which is where the others belong.
    const auto came =
        std::ranges::find_if(gradients, [](const Tensor& each) { return each.defined(); });
    const Device device = came->device();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Kind& kind = node.outputs[i].kind;
      if (gradients[i].defined()) continue;
      gradients[i] = Tensor::empty(kind.sizes, kind.dtype, MemoryFormat::Contiguous, device);
      gradients[i].fill_(0.0);
    }
    BackwardContext context;
    context.op_ = node.op;
    context.grads_ = gradients;
    for (const Node::Edge& edge : node.inputs) {
      context.needs_.push_back(wants(edge));
      context.inputs_.push_back(edge.kind);
    }
    context.saved_ = node.saved;
    std::vector<Tensor> result = node.backward(context);
    QUANTA_CHECK(result.size() == node.inputs.size(),
                 "backward: {}: expected a gradient for each of {} inputs, got {}", node.op,
                 node.inputs.size(), result.size());
    return result;
  }

  // The complete gradient of an output, which the result of its hooks replaces.
  void complete(Node& node, std::size_t output, Tensor& gradient) {
    const Node::Output& info = node.outputs[output];
    gradient = through_hooks(gradient, info.hooks);
    if (!info.retained.expired()) retained.push_back({info.retained, gradient});
    const auto found = asked.find({&node, output});
    if (found != asked.end()) found->second = gradient;
  }

  void visit(const std::shared_ptr<Node>& node) {
    std::vector<Tensor> gradients = std::move(pending.at(node.get()));
    pending.erase(node.get());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) complete(*node, i, gradients[i]);
    }
    if (selective && !selected.contains(node.get())) return;
    const std::vector<Tensor> results = call(*node, std::move(gradients));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Node::Edge& edge = node->inputs[i];
      if (!wants(edge) || !results[i].defined()) continue;
      QUANTA_CHECK(results[i].sizes() == edge.kind.sizes && results[i].dtype() == edge.kind.dtype,
                   "backward: {}: expected a gradient {} {} for input {}, got {} {}", node->op,
                   edge.kind.dtype, edge.kind.sizes, i, results[i].dtype(), results[i].sizes());
      if (edge.node != nullptr) {
        add(edge.node, edge.output, off_tape(results[i]));
      } else {
        add_to_leaf(edge.leaf, off_tape(results[i]));
      }
    }
    if (!retain_graph) visited.push_back(node);
  }

  // What `output` was calculated from, and the first op that used each, later ones first: back there
  // it is complete.
  void expect_leaves(const Tensor& output) {
    const Meta& meta = *meta_of(output);
    if (meta.node == nullptr) {
      expected.push_back({output, 0});
      return;
    }
    std::unordered_map<TensorImpl*, std::size_t> numbers;
    std::unordered_set<Node*> reached{meta.node.get()};
    std::vector<Node*> nodes{meta.node.get()};
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const Node::Edge& edge : nodes[i]->inputs) {
        if (edge.node != nullptr) {
          if (reached.insert(edge.node.get()).second) nodes.push_back(edge.node.get());
        } else if (edge.leaf.defined()) {
          const auto [entry, is_new] = numbers.try_emplace(edge.leaf.impl().get(), expected.size());
          if (is_new) expected.push_back({edge.leaf, nodes[i]->sequence});
          std::uint64_t& first = expected[entry->second].first_use;
          first = std::min(first, nodes[i]->sequence);
        }
      }
    }
    std::ranges::stable_sort(expected, std::greater(), &Expected::first_use);
  }

  // Gives the sink the leaves that were used after op `next` only.
  void deliver_after(std::uint64_t next) {
    while (delivered < expected.size() && expected[delivered].first_use > next) deliver_next();
  }
  void deliver_next() {
    const Tensor& leaf = expected[delivered++].leaf;
    const auto number = leaf_numbers.find(leaf.impl().get());
    if (number == leaf_numbers.end()) return;
    Leaf& entry = leaves[number->second];
    if (!pass_hooks(entry)) return;
    if (sink->take(leaf, entry.gradient)) entry.gradient = Tensor();
  }

  // Whether it still needs its gradient: it may have been told since that it needs none.
  static bool pass_hooks(Leaf& entry) {
    const Meta* meta = meta_of(entry.leaf);
    if (meta != nullptr) entry.gradient = through_hooks(entry.gradient, meta->hooks);
    return meta != nullptr;
  }

  // Later ops first: every gradient is complete when its node's turn comes.
  void run() {
    const NoGradGuard guard;
    while (!queue.empty()) {
      const std::shared_ptr<Node> node = queue.top();
      queue.pop();
      if (sink != nullptr) deliver_after(node->sequence);
      visit(node);
    }
    if (sink != nullptr) {
      while (delivered < expected.size()) deliver_next();
    } else {
      for (Leaf& entry : leaves) static_cast<void>(pass_hooks(entry));
    }
    // Only now, so that a backward that failed leaves the tape as it was.
    for (const std::shared_ptr<Node>& node : visited) {
      const std::lock_guard lock(node->mutex);
      node->freed = true;
      node->saved.clear();
      node->backward = nullptr;
    }
  }

  // Adds what run() gave to the tensors' grad().
  void keep_all() {
    const NoGradGuard guard;
    for (Leaf& entry : leaves) {
      const Tensor gradient = std::move(entry.gradient);
      if (!gradient.defined()) continue;  // the sink has it
      if (Meta* meta = meta_of(entry.leaf); meta != nullptr) keep(*meta, gradient);
    }
    for (const Retained& entry : retained) {
      const auto tensor = entry.tensor.lock();
      if (tensor != nullptr) keep(*(*tensor)->autograd, entry.gradient);
    }
  }

  struct Earlier {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->sequence < b->sequence;
    }
  };
  struct Retained {
    std::weak_ptr<TensorImpl*> tensor;
    Tensor gradient;
  };

  bool retain_graph;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Earlier> queue;
  std::unordered_map<Node*, std::vector<Tensor>> pending;
  std::vector<Leaf> leaves;  // in the order in which they were reached
  std::unordered_map<TensorImpl*, std::size_t> leaf_numbers;
  std::vector<Retained> retained;
  std::vector<std::shared_ptr<Node>> visited;
  // With a sink: what it will get, and how much of that it got.
  GradientSink* sink = nullptr;
  std::vector<Expected> expected;
  std::size_t delivered = 0;
  // Of grad(): what it was asked for, and the nodes that lead there.
  std::map<OutputId, Tensor> asked;
  std::unordered_set<TensorImpl*> asked_leaves;
  bool selective = false;
  std::unordered_set<Node*> selected;
};

namespace {

// The gradient to start with.
Tensor initial_gradient(const Tensor& output, const Tensor& given) {
  if (!given.defined()) {
    QUANTA_CHECK(output.numel() == 1,
                 "backward: gradient: expected one for a tensor of sizes {} (it may be left out "
                 "for a single element only), got none",
                 output.sizes());
    return Tensor::full(output.sizes(), 1.0, output.dtype()).to(output.device());
  }
  check_kind(kind_of(output), given, "gradient");
  QUANTA_CHECK(given.device() == output.device(),
               "backward: gradient: expected one on {}, got one on {}", to_string(output.device()),
               to_string(given.device()));
  return off_tape(given);
}

Hooks& hooks_of(Meta& meta) {
  return meta.node == nullptr ? meta.hooks : meta.node->outputs[meta.output].hooks;
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
  for (const Tensor& input : inputs) {
    const Meta& meta = *meta_of(input);
    if (meta.node != nullptr) {
      engine.asked[{meta.node.get(), meta.output}] = Tensor();
    } else {
      engine.asked_leaves.insert(input.impl().get());
    }
  }
  std::vector<Node*> roots;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    engine.add_to(outputs[i], initial_gradient(outputs[i], options.grad_outputs.empty()
                                                               ? Tensor()
                                                               : options.grad_outputs[i]));
    if (!outputs[i].is_leaf()) roots.push_back(meta_of(outputs[i])->node.get());
  }
  engine.select(roots);
  engine.run();
  std::vector<Tensor> gradients;
  for (const Tensor& input : inputs) {
    const Meta& meta = *meta_of(input);
    const auto leaf = engine.leaf_numbers.find(input.impl().get());
    if (meta.node != nullptr) {
      gradients.push_back(engine.asked.at({meta.node.get(), meta.output}));
    } else {
      gradients.push_back(leaf == engine.leaf_numbers.end() ? Tensor()
                                                            : engine.leaves[leaf->second].gradient);
    }
    QUANTA_CHECK(gradients.back().defined() || options.allow_unused,
                 "grad: inputs: expected tensors that the outputs were calculated from, got one "
                 "that was not used (number {}; allow_unused gives an undefined tensor)",
                 gradients.size() - 1);
  }
  return gradients;
}

void backward(const Tensor& output, GradientSink& sink) {
  require_meta(output, "backward");
  QUANTA_CHECK(output.numel() == 1, "backward: output: expected a single element, got sizes {}",
               output.sizes());
  Engine engine(false);
  engine.sink = &sink;
  engine.expect_leaves(output);
  std::vector<Tensor> leaves;
  for (const Engine::Expected& entry : engine.expected) leaves.push_back(entry.leaf);
  const double start = sink.begin(leaves);
  engine.add_to(output, Tensor::full(output.sizes(), start, output.dtype()).to(output.device()));
  engine.run();
  engine.keep_all();
}

}  // namespace quanta::autograd

// Tensor -----------------------------------------------------------------------------------------

namespace quanta {

using autograd::Engine;
using autograd::Meta;

const Tensor& Tensor::set_requires_grad(bool on) const {
  detail::require_tensor("set_requires_grad", *this);
  Meta* meta = impl_->autograd.get();
  QUANTA_CHECK(on || is_leaf(),
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
  detail::require_tensor("grad", *this);
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
  detail::require_tensor("clear_grad", *this);
  if (impl_->autograd != nullptr) impl_->autograd->grad = Tensor();
}

const Tensor& Tensor::retain_grad() const {
  Meta& meta = autograd::require_meta(*this, "retain_grad");
  if (meta.node == nullptr || meta.retained != nullptr) return *this;
  meta.retained = std::make_shared<TensorImpl*>(impl_.get());
  meta.node->outputs[meta.output].retained = meta.retained;
  return *this;
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  autograd::require_meta(*this, "backward");
  Engine engine(retain_graph);
  engine.add_to(*this, autograd::initial_gradient(*this, gradient));
  engine.run();
  engine.keep_all();
}

std::uint64_t Tensor::register_hook(autograd::Hook hook) const {
  Meta& meta = autograd::require_meta(*this, "register_hook");
  QUANTA_CHECK(hook != nullptr, "register_hook: hook: expected a function, got an empty one");
  const std::uint64_t id = autograd::next_hook.fetch_add(1, std::memory_order_relaxed);
  autograd::hooks_of(meta).emplace_back(id, std::move(hook));
  return id;
}

void Tensor::remove_hook(std::uint64_t id) const {
  Meta& meta = autograd::require_meta(*this, "remove_hook");
  std::erase_if(autograd::hooks_of(meta), [id](const auto& entry) { return entry.first == id; });
}

}  // namespace quanta
