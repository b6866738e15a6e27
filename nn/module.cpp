#include "quanta/nn/module.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <ostream>
#include <set>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "quanta/nn/detail/child_path.h"
#include "quanta/nn/detail/class_name.h"
#include "quanta/nn/detail/state_advice.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/defined_state.h"
#include "quanta/runtime/module_path.h"
#include "quanta/runtime/op_listener.h"

namespace quanta::nn {
namespace {

// The modules whose forward the thread is in, outermost first.
constexpr std::size_t kMaxPathDepth = 256;
struct PathStack {
  std::array<const Module*, kMaxPathDepth> modules{};
  std::array<std::uint64_t, kMaxPathDepth> numbers{};  // of the calls
  std::size_t depth = 0;
  std::uint64_t calls = 0;
};
thread_local PathStack path_stack;

std::string running_module_path() {
  if (path_stack.depth == 0) return {};
  const std::size_t depth = std::min(path_stack.depth, kMaxPathDepth);
  const Module* root = path_stack.modules[0];
  const auto all = root->named_modules();
  for (std::size_t i = depth; i-- > 1;) {
    if (path_stack.modules[i] == root) continue;  // a forward that calls another of its forwards
    const auto found = std::find_if(all.begin(), all.end(), [&](const Module::NamedModule& entry) {
      return entry.module == path_stack.modules[i];
    });
    if (found != all.end()) return found->path;
  }
  return root->type_name();
}

// Numbers that no other thread has.
std::uint64_t first_call_of_thread() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  return threads.fetch_add(1) << 40U;
}

const bool kPathFunctionInstalled = [] {
  set_module_path_function(&running_module_path);
  return true;
}();

// What was already copied, while a CloneScope lives.
struct CloneMemory {
  std::unordered_map<const Module*, std::shared_ptr<Module>> copies;
  // Each tensor, kept so that its place in memory stays its own, and its copy.
  std::unordered_map<const TensorImpl*, std::pair<Tensor, Tensor>> tensors;
  std::unordered_set<const TensorImpl*> owned;  // the copies
  int depth = 0;
};
thread_local CloneMemory clone_memory;

// More would be a tree without an end, or one that needs more stack than there is.
[[noreturn]] void refuse_depth(std::string_view what) {
  throw ArgumentError(
      fmt::format("{}: module: expected modules that stand at most {} deep in each other, got more",
                  what, kMaxModuleDepth));
}

// A level of a function that calls itself for the children of a module.
class Level {
 public:
  explicit Level(std::string_view what) {
    if (depth > kMaxModuleDepth) refuse_depth(what);
    ++depth;
  }
  ~Level() { --depth; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  static bool is_first() noexcept { return depth == 0; }

 private:
  static thread_local std::size_t depth;
};
thread_local std::size_t Level::depth = 0;

// Modules that the thread is about to destroy. A chain of them is destroyed some levels at a time:
// those below wait until the ones above are gone.
struct Destruction {
  static constexpr std::size_t kLevels = 64;
  std::size_t depth = 0;
  std::vector<std::shared_ptr<Module>>* waiting = nullptr;  // of the outermost
};
thread_local Destruction destruction;

void destroy(std::shared_ptr<Module> module) noexcept {
  if (module == nullptr || module.use_count() > 1) return;
  if (destruction.depth >= Destruction::kLevels) {
    try {
      destruction.waiting->push_back(std::move(module));
      return;
    } catch (const std::bad_alloc&) {  // a level more, then
    }
  }
  std::vector<std::shared_ptr<Module>> waiting;
  const bool is_first = destruction.waiting == nullptr;
  if (is_first) destruction.waiting = &waiting;
  const std::size_t depth = std::exchange(destruction.depth, destruction.depth + 1);
  module.reset();
  while (is_first && !waiting.empty()) {
    const std::shared_ptr<Module> next = std::move(waiting.back());
    waiting.pop_back();
  }
  destruction.depth = depth;
  if (is_first) destruction.waiting = nullptr;
}

void print_tree(const Module& module, std::string& text, int indent) {
  const Level level("to_string");
  text += module.type_name() + "(";
  const std::string extra = module.extra_repr();
  const auto children = module.named_children();
  const std::shared_ptr<Observer>& observer = module.activation_post_process();
  const std::shared_ptr<ForwardCalls>& calls = module.forward_calls();
  const std::vector<std::string> call_lines =
      calls == nullptr ? std::vector<std::string>() : calls->to_strings();
  if (children.empty() && observer == nullptr && call_lines.empty()) {
    text += extra + ")";
    return;
  }
  const std::string margin(static_cast<std::size_t>(indent) + 2, ' ');
  text += "\n";
  if (!extra.empty()) text += margin + extra + "\n";
  for (const Module::NamedChild& child : children) {
    text += margin + "(" + child.name + "): ";
    print_tree(*child.module, text, indent + 2);
    text += "\n";
  }
  for (const std::string& line : call_lines) text += margin + line + "\n";
  if (observer != nullptr) {
    text += margin + "(activation_post_process): " + observer->name() + "()\n";
  }
  text += std::string(static_cast<std::size_t>(indent), ' ') + ")";
}

std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 20;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

// ChildSlot --------------------------------------------------------------------------------------

ChildSlot::ChildSlot(const ChildSlot& other) : cast_(other.cast_) {
  if (other.module_ != nullptr) assign(other.module_->copy_sharing_tensors());
}

ChildSlot& ChildSlot::operator=(const ChildSlot& other) {
  if (this != &other) {
    ChildSlot copy(other);
    *this = std::move(copy);
  }
  return *this;
}

ChildSlot& ChildSlot::operator=(ChildSlot&& other) noexcept {
  if (this == &other) return *this;
  cast_ = other.cast_;
  typed_ = other.typed_;
  destroy(std::exchange(module_, std::move(other.module_)));
  return *this;
}

ChildSlot::~ChildSlot() { destroy(std::move(module_)); }

void ChildSlot::assign(std::shared_ptr<Module> module) {
  std::swap(module_, module);
  typed_ = cast_ == nullptr || module_ == nullptr ? nullptr : cast_(module_.get());
  destroy(std::move(module));
}

// StateReader ------------------------------------------------------------------------------------

const Tensor* StateReader::find(std::string_view name) {
  std::string full = full_name(name);
  const Tensor* tensor = state_->find(full);
  if (tensor != nullptr) used_.push_back(std::move(full));
  return tensor;
}

const Tensor* StateReader::require(std::string_view name) {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) missing_.push_back(full_name(name));
  return tensor;
}

// Module: life -----------------------------------------------------------------------------------

namespace {
// No two hooks of the process have the same, so that an old one removes nobody else's.
std::atomic<std::uint64_t> last_hook_id{0};
}  // namespace

struct Module::Hooks {
  std::vector<std::pair<HookId, PreHook>> pre;
  std::vector<std::pair<HookId, PostHook>> post;
};

Module::Module() = default;
Module::~Module() = default;
Module::Module(Module&&) noexcept = default;
Module& Module::operator=(Module&&) noexcept = default;

namespace {
std::shared_ptr<ForwardCalls> copy_of(const std::shared_ptr<ForwardCalls>& calls) {
  return calls == nullptr ? nullptr : std::make_shared<ForwardCalls>(*calls);
}
}  // namespace

Module::Module(const Module& other)
    : children_(other.children_),
      tensors_(other.tensors_),
      hooks_(other.hooks_ == nullptr ? nullptr : std::make_unique<Hooks>(*other.hooks_)),
      observer_(other.observer_ == nullptr ? nullptr : other.observer_->clone()),
      qconfig_(other.qconfig_),
      forward_calls_(copy_of(other.forward_calls_)),
      float_call_name_(other.float_call_name_),
      qconfig_assigned_(other.qconfig_assigned_),
      training_(other.training_),
      plain_call_(other.plain_call_),
      observation_(other.observation_),
      clone_function_(other.clone_function_) {
  for (Entry& entry : children_) {
    if (entry.owned != nullptr) entry.owned = std::make_shared<ChildSlot>(*entry.owned);
  }
  copy_owned_tensors();
}

void Module::copy_owned_tensors() {
  for (TensorEntry& entry : tensors_) {
    if (entry.owned != nullptr) entry.owned = std::make_shared<Tensor>(*entry.owned);
  }
}

Module& Module::operator=(const Module& other) {
  if (this == &other) return *this;
  std::vector<Entry> children = other.children_;
  for (Entry& entry : children) {
    if (entry.owned != nullptr) entry.owned = std::make_shared<ChildSlot>(*entry.owned);
  }
  children_ = std::move(children);
  tensors_ = other.tensors_;
  copy_owned_tensors();
  hooks_ = other.hooks_ == nullptr ? nullptr : std::make_unique<Hooks>(*other.hooks_);
  observer_ = other.observer_ == nullptr ? nullptr : other.observer_->clone();
  qconfig_ = other.qconfig_;
  forward_calls_ = copy_of(other.forward_calls_);
  float_call_name_ = other.float_call_name_;
  qconfig_assigned_ = other.qconfig_assigned_;
  training_ = other.training_;
  plain_call_ = other.plain_call_;
  observation_ = other.observation_;
  clone_function_ = other.clone_function_;
  return *this;
}

// A module that stands in the tree twice is copied once.
std::shared_ptr<Module> Module::copy_sharing_tensors() const {
  QUANTA_CHECK(
      clone_function_ != nullptr,
      "clone: module: expected one made through Child, make_module or clone, got a bare {}",
      type_name());
  const detail::CloneScope scope;
  const auto known = clone_memory.copies.find(this);
  if (known != clone_memory.copies.end()) return known->second;
  const Level level("clone");
  std::shared_ptr<Module> copy = clone_function_(*this);
  clone_memory.copies.emplace(this, copy);
  return copy;
}

std::shared_ptr<Module> Module::clone() const {
  const detail::CloneScope scope;
  std::shared_ptr<Module> copy = copy_sharing_tensors();
  detail::own_tensors(*copy);
  return copy;
}

namespace detail {

CloneScope::CloneScope() { ++clone_memory.depth; }
CloneScope::~CloneScope() {
  if (--clone_memory.depth > 0) return;
  clone_memory.copies.clear();
  clone_memory.tensors.clear();
  clone_memory.owned.clear();
}

// Tied tensors stay tied.
void own_tensors(Module& root) {
  const CloneScope scope;
  for (const Module::NamedModule& entry : root.named_modules()) {
    for (const Module::TensorEntry& member : entry.module->tensors_) {
      Tensor& tensor = entry.module->tensor(member);
      if (!tensor.defined() || clone_memory.owned.contains(tensor.impl().get())) continue;
      auto [known, is_new] = clone_memory.tensors.try_emplace(tensor.impl().get());
      if (is_new) {
        const Tensor copy = tensor.detach().clone();
        if (tensor.requires_grad()) copy.set_requires_grad();
        known->second = {tensor, copy};
        clone_memory.owned.insert(copy.impl().get());
      }
      tensor = known->second.second;
    }
  }
}

std::uint64_t number_of_caller() noexcept {
  const std::size_t depth = path_stack.depth;
  if (depth == 0 || depth > kMaxPathDepth) return 0;
  return path_stack.numbers[depth < 2 ? 0 : depth - 2];
}

namespace {

// The calls that a module names are its own, not those of the modules within it. Other guides see
// all calls.
OpGuide* guide_within(OpGuide* outer) noexcept {
  return dynamic_cast<CallFrame*>(outer) == nullptr ? outer : nullptr;
}

}  // namespace

PathScope::PathScope(const Module* module)
    : outer_(quanta::detail::op_guide), frame_(module->forward_calls_.get()) {
  if (path_stack.depth > kMaxModuleDepth) [[unlikely]]
    refuse_depth("forward");
  if (outer_ != nullptr || module->forward_calls_ != nullptr) [[unlikely]]
    quanta::detail::op_guide = module->forward_calls_ == nullptr ? guide_within(outer_) : &frame_;
  if (path_stack.calls == 0) [[unlikely]]
    path_stack.calls = first_call_of_thread();
  ++path_stack.calls;
  if (path_stack.depth < kMaxPathDepth) {
    path_stack.modules[path_stack.depth] = module;
    path_stack.numbers[path_stack.depth] = path_stack.calls;
  }
  ++path_stack.depth;
  if (quanta::detail::ops_are_watched()) [[unlikely]]
    quanta::detail::tell_module_started(module, path_stack.depth - 1);
}
PathScope::~PathScope() {
  quanta::detail::op_guide = outer_;
  --path_stack.depth;
  if (quanta::detail::ops_are_watched()) [[unlikely]]
    quanta::detail::tell_module_ended();
}

void throw_wrong_occupant(const Module* occupant, std::type_index wanted) {
  const std::string name = class_name(wanted);
  throw ArgumentError(with_module_path(
      occupant == nullptr
          ? fmt::format(
                "Child: module: expected a {} (register_module fills a slot), got an empty slot",
                name)
          : fmt::format("Child: module: expected a {}, got a {} (it was swapped)", name,
                        occupant->type_name())));
}

}  // namespace detail

// Module: calling --------------------------------------------------------------------------------

Tensor Module::forward(const Tensor&) const {
  throw UnsupportedError(with_module_path(fmt::format(
      "{}: forward: expected a class that overrides forward(x), got one that does not (a module "
      "of several tensors is called with all of them: module({{x, mask}}))",
      type_name())));
}

std::vector<Tensor> Module::forward_all(std::span<const Tensor> inputs) const {
  require_count(inputs, 1);
  return {forward(inputs[0])};
}

void Module::require_count(std::span<const Tensor> inputs, std::size_t count) const {
  QUANTA_CHECK(inputs.size() == count, "{}: inputs: expected {} tensor{}, got {}", type_name(),
               count, count == 1 ? "" : "s", inputs.size());
}

void Module::require_inputs(std::span<const Tensor> inputs, std::size_t count) const {
  require_count(inputs, count);
  for (std::size_t i = 0; i < count; ++i) {
    QUANTA_CHECK(inputs[i].defined(), "{}: inputs[{}]: expected a tensor, got an undefined one",
                 type_name(), i);
  }
}

Tensor Module::only_result(std::vector<Tensor> results) const {
  QUANTA_CHECK(results.size() == 1,
               "{}: outputs: expected one for module(x, y), got {} (module({{x, y}}) gives all)",
               type_name(), results.size());
  return std::move(results[0]);
}

Tensor Module::operator()(const Tensor& x) const {
  const detail::PathScope scope(this);
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", type_name());
  if (plain_call_ && float_call_name_.empty()) [[likely]]
    return forward(x);
  return call_with_hooks(x, scope);
}

Tensor Module::call_with_hooks(const Tensor& x, const detail::PathScope& scope) const {
  const ForwardCalls::Forward run = [this](std::span<const Tensor> inputs) {
    return run_hooks(inputs, [this](std::span<const Tensor> in) {
      require_count(in, 1);
      return std::vector<Tensor>{forward(in[0])};
    });
  };
  const std::span<const Tensor> inputs(&x, 1);
  CallFrame* caller = float_call_name_.empty() ? nullptr : scope.caller();
  return only_result(caller == nullptr ? run(inputs)
                                       : caller->run_module(float_call_name_, inputs, run));
}

std::vector<Tensor> Module::operator()(std::span<const Tensor> inputs) const {
  return call_all(inputs, [this](std::span<const Tensor> in) { return forward_all(in); });
}

std::vector<Tensor> Module::call_all(std::span<const Tensor> inputs,
                                     const ForwardCalls::Forward& forward) const {
  const detail::PathScope scope(this);
  const ForwardCalls::Forward run = [&](std::span<const Tensor> in) {
    return plain_call_ ? forward(in) : run_hooks(in, forward);
  };
  CallFrame* caller = float_call_name_.empty() ? nullptr : scope.caller();
  return caller == nullptr ? run(inputs) : caller->run_module(float_call_name_, inputs, run);
}

std::vector<Tensor> Module::run_hooks(std::span<const Tensor> given,
                                      const ForwardCalls::Forward& forward) const {
  std::vector<Tensor> inputs(given.begin(), given.end());
  if (hooks_ != nullptr) {
    for (const auto& [id, hook] : hooks_->pre) hook(*this, inputs);
  }
  const auto observe = [&](std::vector<Tensor>& tensors) {
    for (Tensor& x : tensors) {
      const bool is_data = tensors.size() == 1 || (x.defined() && x.dtype() == DType::Float32);
      if (is_data) x = observer_->forward(x);
    }
  };
  if (observer_ != nullptr && observation_ == Observation::Input) observe(inputs);
  std::vector<Tensor> outputs = forward(inputs);
  if (observer_ != nullptr && observation_ == Observation::Output) observe(outputs);
  if (hooks_ != nullptr) {
    for (const auto& [id, hook] : hooks_->post) hook(*this, inputs, outputs);
  }
  return outputs;
}

Module::HookId Module::add_pre_hook(PreHook hook) {
  if (hooks_ == nullptr) hooks_ = std::make_unique<Hooks>();
  plain_call_ = false;
  const HookId id = ++last_hook_id;
  hooks_->pre.emplace_back(id, std::move(hook));
  return id;
}

Module::HookId Module::add_post_hook(PostHook hook) {
  if (hooks_ == nullptr) hooks_ = std::make_unique<Hooks>();
  plain_call_ = false;
  const HookId id = ++last_hook_id;
  hooks_->post.emplace_back(id, std::move(hook));
  return id;
}

Module::HookId Module::register_forward_pre_hook(ForwardPreHook hook) {
  return add_pre_hook([hook = std::move(hook)](const Module& module, std::vector<Tensor>& inputs) {
    if (!inputs.empty()) inputs[0] = hook(module, inputs[0]);
  });
}

Module::HookId Module::register_forward_hook(ForwardHook hook) {
  return add_post_hook([hook = std::move(hook)](const Module& module,
                                                std::span<const Tensor> inputs,
                                                std::vector<Tensor>& outputs) {
    if (outputs.empty()) return;
    outputs[0] = hook(module, inputs.empty() ? Tensor() : inputs[0], outputs[0]);
  });
}

Module::HookId Module::register_forward_all_pre_hook(ForwardAllPreHook hook) {
  return add_pre_hook([hook = std::move(hook)](const Module& module, std::vector<Tensor>& inputs) {
    inputs = hook(module, inputs);
  });
}

Module::HookId Module::register_forward_all_hook(ForwardAllHook hook) {
  return add_post_hook([hook = std::move(hook)](const Module& module,
                                                std::span<const Tensor> inputs,
                                                std::vector<Tensor>& outputs) {
    outputs = hook(module, inputs, outputs);
  });
}

void Module::remove_hook(HookId id) {
  if (hooks_ == nullptr) return;
  const auto has_id = [id](const auto& entry) { return entry.first == id; };
  std::erase_if(hooks_->pre, has_id);
  std::erase_if(hooks_->post, has_id);
  drop_empty_hooks();
}

void Module::take_pre_hooks_from(const Module& from) {
  if (from.hooks_ == nullptr) return;
  for (const auto& [id, hook] : from.hooks_->pre) add_pre_hook(hook);
}

void Module::take_forward_hooks_from(const Module& from) {
  if (from.hooks_ == nullptr) return;
  for (const auto& [id, hook] : from.hooks_->post) add_post_hook(hook);
}

void Module::clear_pre_hooks() {
  if (hooks_ != nullptr) hooks_->pre.clear();
  drop_empty_hooks();
}

void Module::clear_forward_hooks() {
  if (hooks_ != nullptr) hooks_->post.clear();
  drop_empty_hooks();
}

void Module::drop_empty_hooks() noexcept {
  if (hooks_ != nullptr && hooks_->pre.empty() && hooks_->post.empty()) hooks_.reset();
  update_plain_call();
}

// Module: tree -----------------------------------------------------------------------------------

ChildSlot& Module::slot(const Entry& entry) const {
  if (entry.owned != nullptr) return *entry.owned;
  // A member of the derived object, found again by its distance from this base: so copies and
  // moves of the object need no repair.
  auto* base = const_cast<char*>(reinterpret_cast<const char*>(this));
  return *reinterpret_cast<ChildSlot*>(base + entry.offset);
}

Tensor& Module::tensor(const TensorEntry& entry) const {
  if (entry.owned != nullptr) return *entry.owned;
  auto* base = const_cast<char*>(reinterpret_cast<const char*>(this));
  return *reinterpret_cast<Tensor*>(base + entry.offset);
}

namespace {
void check_name(const std::string& name) {
  QUANTA_CHECK(!name.empty() && name.find('.') == std::string::npos,
               "Module: name: expected a name without dots, got '{}'", name);
}
}  // namespace

void Module::register_slot(std::string name, ChildSlot& slot) {
  check_name(name);
  QUANTA_CHECK(!has_child(name), "register_module: name: expected a new name, got '{}' again",
               name);
  children_.push_back(
      {std::move(name), reinterpret_cast<char*>(&slot) - reinterpret_cast<char*>(this), nullptr});
}

void Module::add_module(std::string name, std::shared_ptr<Module> module) {
  check_name(name);
  QUANTA_CHECK(module != nullptr, "add_module: module: expected a module for '{}', got null", name);
  if (has_child(name)) {
    replace_child(name, std::move(module));
    return;
  }
  auto owned = std::make_shared<ChildSlot>();
  owned->assign(std::move(module));
  children_.push_back({std::move(name), -1, std::move(owned)});
}

void Module::register_parameter(std::string name, Tensor& tensor) {
  check_name(name);
  tensors_.push_back({std::move(name),
                      reinterpret_cast<char*>(&tensor) - reinterpret_cast<char*>(this), true,
                      InState::Required, nullptr});
}

std::size_t Module::add_parameter(std::string name, Tensor tensor) {
  check_name(name);
  tensors_.push_back(
      {std::move(name), -1, true, InState::Required, std::make_shared<Tensor>(std::move(tensor))});
  return static_cast<std::size_t>(
             std::count_if(tensors_.begin(), tensors_.end(),
                           [](const TensorEntry& entry) { return entry.owned != nullptr; })) -
         1;
}

Tensor& Module::parameter_at(std::size_t number) const {
  for (const TensorEntry& entry : tensors_) {
    if (entry.owned == nullptr) continue;
    if (number-- == 0) return *entry.owned;
  }
  throw ArgumentError(
      fmt::format("parameter_at: number: expected one that add_parameter gave in {}", type_name()));
}

void Module::register_buffer(std::string name, Tensor& buffer, InState in_state) {
  check_name(name);
  tensors_.push_back({std::move(name),
                      reinterpret_cast<char*>(&buffer) - reinterpret_cast<char*>(this), false,
                      in_state, nullptr});
}

void Module::require_members(const void* object, std::size_t bytes) const {
  const std::ptrdiff_t first =
      static_cast<const char*>(object) - reinterpret_cast<const char*>(this);
  const auto require = [&](const std::string& name, std::ptrdiff_t offset, std::size_t size,
                           std::string_view what, std::string_view hint) {
    const std::ptrdiff_t last = first + static_cast<std::ptrdiff_t>(bytes - size);
    QUANTA_CHECK(offset >= first && offset <= last,
                 "{}: {}: expected a member of {} itself{}, got something outside of it as '{}'",
                 what == "slot" ? "register_module" : "register_parameter", what, type_name(), hint,
                 name);
  };
  for (const Entry& entry : children_) {
    if (entry.owned != nullptr) continue;
    require(entry.name, entry.offset, sizeof(ChildSlot), "slot",
            " (Sequential, ModuleList and ModuleDict hold any number of children)");
  }
  for (const TensorEntry& entry : tensors_) {
    if (entry.owned != nullptr) continue;
    require(entry.name, entry.offset, sizeof(Tensor), "tensor", "");
  }
}

std::vector<Module::NamedChild> Module::named_children() const {
  std::vector<NamedChild> result;
  for (const Entry& entry : children_) {
    const std::shared_ptr<Module>& module = slot(entry).module();
    if (module != nullptr) result.push_back({entry.name, module});
  }
  return result;
}

std::vector<Module::NamedModule> Module::named_modules() const {
  std::vector<NamedModule> result;
  std::set<const Module*> seen;
  const auto visit = [&](const auto& self, const Module& module, const std::string& path) -> void {
    if (!seen.insert(&module).second) return;
    const Level level("named_modules");
    result.push_back({path, const_cast<Module*>(&module)});
    for (const NamedChild& child : module.named_children()) {
      self(self, *child.module, detail::child_path(path, child.name));
    }
  };
  visit(visit, *this, "");
  return result;
}

std::vector<Module::NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> result;
  std::set<const TensorImpl*> seen;
  for (const NamedModule& entry : named_modules()) {
    for (const TensorEntry& t : entry.module->tensors_) {
      const Tensor& value = entry.module->tensor(t);
      if (!t.is_parameter || !value.defined() || !seen.insert(value.impl().get()).second) continue;
      result.push_back({detail::child_path(entry.path, t.name), value});
    }
    for (const NamedObserver& observed : entry.module->named_observers()) {
      const std::string path = detail::child_path(entry.path, observed.name);
      for (const auto& [name, value] : observed.observer->named_parameters()) {
        if (!seen.insert(value.impl().get()).second) continue;
        result.push_back({detail::child_path(path, name), value});
      }
    }
  }
  return result;
}

std::vector<Module::NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> result;
  for (const NamedModule& entry : named_modules()) {
    for (const TensorEntry& t : entry.module->tensors_) {
      const Tensor& value = entry.module->tensor(t);
      if (t.is_parameter || !value.defined()) continue;
      result.push_back({detail::child_path(entry.path, t.name), value});
    }
  }
  return result;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (const NamedTensor& entry : named_parameters()) result.push_back(entry.tensor);
  return result;
}

bool Module::has_child(std::string_view name) const {
  return std::any_of(children_.begin(), children_.end(),
                     [&](const Entry& entry) { return entry.name == name; });
}

std::shared_ptr<Module> Module::get_submodule(std::string_view path) const {
  const Module* module = this;
  std::shared_ptr<Module> result;
  std::string_view rest = path;
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    const auto found = std::find_if(module->children_.begin(), module->children_.end(),
                                    [&](const Entry& entry) { return entry.name == name; });
    if (found == module->children_.end() || module->slot(*found).module() == nullptr) {
      std::vector<std::string> names;
      for (const NamedChild& child : module->named_children()) names.push_back(child.name);
      throw ArgumentError(
          fmt::format("get_submodule: path: expected a child of {} ({}), got '{}' in '{}'",
                      module->type_name(), joined(names), name, path));
    }
    result = module->slot(*found).module();
    module = result.get();
    if (dot == std::string_view::npos) return result;
    rest = rest.substr(dot + 1);
  }
}

void Module::replace_child(std::string_view name, std::shared_ptr<Module> module) {
  QUANTA_CHECK(module != nullptr, "replace_child: module: expected a module for '{}', got null",
               name);
  for (const Entry& entry : children_) {
    if (entry.name == name) {
      slot(entry).assign(std::move(module));
      return;
    }
  }
  std::vector<std::string> names;
  for (const NamedChild& child : named_children()) names.push_back(child.name);
  throw ArgumentError(fmt::format("replace_child: name: expected a child of {} ({}), got '{}'",
                                  type_name(), joined(names), name));
}

Module& Module::train(bool on) {
  if (Level::is_first()) named_modules();  // throws for a tree too deep before anything changes
  const Level level("train");
  training_ = on;
  for (const NamedChild& child : named_children()) child.module->train(on);
  return *this;
}

Module& Module::to(Device device) {
  // Tied tensors stay tied. All copies are made before the first one takes its place.
  std::unordered_map<const TensorImpl*, Tensor> copies;
  const auto modules = named_modules();
  const auto for_each = [&](const auto& visit) {
    for (const NamedModule& entry : modules) {
      for (const TensorEntry& member : entry.module->tensors_) {
        Tensor& tensor = entry.module->tensor(member);
        if (tensor.defined()) visit(tensor);
      }
    }
  };
  const auto copy_of = [&](const Tensor& tensor) {
    auto [place, is_new] = copies.try_emplace(tensor.impl().get());
    if (!is_new) return;
    place->second = tensor.detach().to(device);
    if (tensor.requires_grad()) place->second.set_requires_grad();
  };
  for_each(copy_of);
  const auto for_each_observer = [&](const auto& visit) {
    for (const NamedModule& entry : modules) {
      for (const NamedObserver& observed : entry.module->named_observers()) {
        visit(*observed.observer);
      }
    }
  };
  for_each_observer([&](const Observer& observer) {
    for (const auto& [name, parameter] : observer.named_parameters()) copy_of(parameter);
  });
  std::vector<Tensor> kept;  // until the end, so that no new tensor has an old one's address
  for_each([&](Tensor& tensor) {
    const auto copy = copies.find(tensor.impl().get());
    if (copy == copies.end() || tensor.device() == device) return;
    kept.push_back(tensor);
    tensor = copy->second;
  });
  for_each_observer([&](Observer& observer) {
    std::vector<Tensor> there;
    for (const auto& [name, parameter] : observer.named_parameters()) {
      const auto copy = copies.find(parameter.impl().get());
      const bool stays = copy == copies.end() || parameter.device() == device;
      there.push_back(stays ? parameter : copy->second);
      kept.push_back(parameter);
    }
    observer.replace_parameters(there);
  });
  return *this;
}

Module& Module::requires_grad_(bool on) {
  for (const Tensor& parameter : parameters()) parameter.set_requires_grad(on);
  return *this;
}

void Module::zero_grad() {
  for (const Tensor& parameter : parameters()) parameter.clear_grad();
}

// Module: state ----------------------------------------------------------------------------------

void Module::save_state(StateDict&, const std::string&) const {}
void Module::load_state(StateReader&) {}

void Module::collect_state(StateDict& state, const std::string& prefix) const {
  const Level level("state_dict");
  for (const TensorEntry& entry : tensors_) {
    const Tensor& value = tensor(entry);
    if (value.defined()) state.set(prefix + entry.name, value);
  }
  save_state(state, prefix);
  if (forward_calls_ != nullptr) forward_calls_->save_state(state, prefix);
  for (const NamedObserver& entry : named_observers()) {
    entry.observer->save_state(state, prefix + entry.name + ".");
  }
  for (const NamedChild& child : named_children()) {
    child.module->collect_state(state, prefix + child.name + ".");
  }
}

StateDict Module::state_dict() const {
  StateDict state;
  collect_state(state, "");
  return state;
}

void Module::read_state(StateReader& reader, const std::string& prefix) {
  const Level level("load_state_dict");
  reader.prefix_ = prefix;
  for (const TensorEntry& entry : tensors_) {
    Tensor& target = tensor(entry);
    if (!target.defined()) continue;
    const Tensor* source =
        entry.in_state == InState::Required ? reader.require(entry.name) : reader.find(entry.name);
    if (source == nullptr) continue;
    if (source->is_quantized() || source->sizes() != target.sizes()) {
      reader.problem(fmt::format("{}: expected {} {}, got {} {}", reader.full_name(entry.name),
                                 target.dtype(), target.sizes(), source->dtype(), source->sizes()));
      continue;
    }
    reader.on_commit([handle = target, value = *source] { handle.copy_(value); });
  }
  load_state(reader);
  if (forward_calls_ != nullptr) forward_calls_->load_state(reader);
  for (const NamedObserver& entry : named_observers()) {
    const std::string observer_prefix = prefix + entry.name + ".";
    for (const auto& [name, value] : *reader.state_) {
      if (name.starts_with(observer_prefix)) reader.used_.push_back(name);
    }
    try {
      // A trial on a copy, so that nothing changes when another module's part is wrong.
      entry.observer->clone()->load_state(*reader.state_, observer_prefix);
      reader.on_commit([observer = entry.observer, state = reader.state_, observer_prefix] {
        observer->load_state(*state, observer_prefix);
      });
    } catch (const Error& error) {
      reader.problem(error.what());
    }
  }
  for (const NamedChild& child : named_children()) {
    child.module->read_state(reader, prefix + child.name + ".");
  }
}

LoadResult Module::load_state_dict(const StateDict& state, Strict strict) {
  quanta::detail::require_defined(state, "load_state_dict");
  StateReader reader(state, "");
  read_state(reader, "");
  const std::set<std::string> used(reader.used_.begin(), reader.used_.end());
  LoadResult result;
  result.missing_keys = reader.missing_;
  for (const auto& [name, value] : state) {
    if (!used.contains(name)) result.unexpected_keys.push_back(name);
  }
  std::string text;
  if (strict == Strict::Yes && !result.missing_keys.empty()) {
    text += fmt::format("\n  missing names: {}", joined(result.missing_keys));
  }
  if (strict == Strict::Yes && !result.unexpected_keys.empty()) {
    text += fmt::format("\n  unexpected names: {}", joined(result.unexpected_keys));
  }
  for (const std::string& problem : reader.problems_) text += "\n  " + problem;
  if (!text.empty()) {
    text += detail::state_advice(state, state_dict(), result.missing_keys, result.unexpected_keys);
  }
  QUANTA_CHECK(text.empty(), "load_state_dict: state: expected the names and sizes of {}, got:{}",
               type_name(), text);
  const autograd::NoGradGuard guard;
  for (const auto& change : reader.changes_) change();
  return result;
}

// Module: quantization ---------------------------------------------------------------------------

void Module::set_qconfig(std::optional<QConfig> qconfig) {
  qconfig_ = qconfig ? std::make_shared<const QConfig>(std::move(*qconfig)) : nullptr;
  qconfig_assigned_ = true;
}

void Module::clear_qconfig() {
  qconfig_.reset();
  qconfig_assigned_ = false;
}

void Module::take_qconfig_from(const Module& from) {
  if (!from.qconfig_assigned_) return;
  qconfig_ = from.qconfig_;
  qconfig_assigned_ = true;
}

void Module::set_activation_post_process(std::shared_ptr<Observer> observer,
                                         Observation observation) {
  observer_ = std::move(observer);
  observation_ = observation;
  update_plain_call();
}

std::vector<Module::NamedObserver> Module::named_observers() const {
  std::vector<NamedObserver> result = own_observers();
  if (observer_ != nullptr) result.push_back({"activation_post_process", observer_});
  if (forward_calls_ == nullptr) return result;
  for (auto& [name, observer] : forward_calls_->observers()) {
    result.push_back({std::move(name), std::move(observer)});
  }
  return result;
}

void Module::update_plain_call() noexcept {
  plain_call_ =
      hooks_ == nullptr && (observer_ == nullptr || observation_ == Observation::Explicit);
}

std::string Module::type_name() const { return detail::short_class_name(typeid(*this)); }

std::string to_string(const Module& module) {
  std::string text;
  print_tree(module, text, 0);
  return text;
}

std::ostream& operator<<(std::ostream& stream, const Module& module) {
  return stream << to_string(module);
}

}  // namespace quanta::nn
