#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/nn/forward_calls.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::nn {

class Module;

namespace detail {
/// Gives every parameter and buffer of the module and all below its own storage.
void own_tensors(Module& module);
}  // namespace detail

/// How deep modules may stand in each other. Forward, copies and states of deeper ones would need
/// more stack than a thread has.
inline constexpr std::size_t kMaxModuleDepth = 1000;

/// A place for a child module in its parent. Whoever occupies it answers the call; the workflow
/// swaps occupants by name, so the parent's forward stays as it is written.
/// Copying a slot copies its occupant as copying a module does (see Module), and throws
/// ArgumentError where Module::clone does. See Child<T>.
class ChildSlot {
 public:
  ChildSlot() = default;
  ChildSlot(const ChildSlot& other);
  ChildSlot& operator=(const ChildSlot& other);
  ChildSlot(ChildSlot&&) noexcept = default;
  ChildSlot& operator=(ChildSlot&& other) noexcept;
  ~ChildSlot();

  const std::shared_ptr<Module>& module() const noexcept { return module_; }
  explicit operator bool() const noexcept { return module_ != nullptr; }

 protected:
  using Cast = void* (*)(Module*);
  explicit ChildSlot(Cast cast) : cast_(cast) {}
  void assign(std::shared_ptr<Module> module);

  std::shared_ptr<Module> module_;
  Cast cast_ = nullptr;
  void* typed_ = nullptr;  // module_ as the slot's T, or null when the occupant is another type

  friend class Module;
};

/// Reads a StateDict during load_state_dict: notes which names were used and which are missing, and
/// runs the changes only when everything was found to be right. A reader belongs to one call and
/// one thread. Its functions throw nothing; load_state_dict throws for what was noted.
class StateReader {
 public:
  StateReader(const StateDict& state, std::string prefix)
      : state_(&state), prefix_(std::move(prefix)) {}

  /// The tensor under prefix + name, or null. Marks it used.
  const Tensor* find(std::string_view name);
  /// The tensor under prefix + name. When there is none, null, and the name is noted as missing.
  const Tensor* require(std::string_view name);
  /// Full name, for messages.
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
  /// Notes a problem ("conv1.weight: expected sizes [..], got [..]"); loading fails with all of
  /// them.
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  /// Runs after every module has read without a problem.
  void on_commit(std::function<void()> change) { changes_.push_back(std::move(change)); }

 private:
  friend class Module;
  const StateDict* state_;
  std::string prefix_;
  std::vector<std::string> used_;
  std::vector<std::string> missing_;
  std::vector<std::string> problems_;
  std::vector<std::function<void()>> changes_;
};

enum class Strict : bool { No, Yes };

/// What load_state_dict(Strict::No) tells.
struct LoadResult {
  std::vector<std::string> missing_keys;
  std::vector<std::string> unexpected_keys;
};

using ForwardPreHook = std::function<Tensor(const Module&, const Tensor& input)>;
using ForwardHook = std::function<Tensor(const Module&, const Tensor& input, const Tensor& output)>;
/// Hooks that see all inputs and outputs of a call, and give those that take their places: the same
/// ones where nothing is to change. A number that the module does not take throws ArgumentError.
using ForwardAllPreHook =
    std::function<std::vector<Tensor>(const Module&, std::span<const Tensor> inputs)>;
using ForwardAllHook = std::function<std::vector<Tensor>(
    const Module&, std::span<const Tensor> inputs, std::span<const Tensor> outputs)>;

template <typename T>
class Child;

namespace detail {

/// Names `module` in errors and verbose lines while it lives, and lets the module's forward_calls()
/// hear of its operations. Module::operator() makes one; so do modules that are called by other
/// functions than forward (FloatFunctional::add).
class PathScope {
 public:
  /// Throws ArgumentError within more than kMaxModuleDepth others.
  explicit PathScope(const Module* module);
  ~PathScope();
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

  /// Where the caller is in its own forward, or null.
  CallFrame* caller() const noexcept { return dynamic_cast<CallFrame*>(outer_); }

 private:
  OpGuide* outer_;
  CallFrame frame_;
};

/// Within a module that is called by another one: a number that only this call of the other has.
std::uint64_t number_of_caller() noexcept;

}  // namespace detail

/// Base of all layers and networks. Derive, name parameters and children in the constructor with
/// the register_ functions, write forward:
///
///   struct Block : nn::Module {
///     nn::Child<nn::Conv2d> conv;
///     nn::Child<nn::ReLU> relu;
///     Block() {
///       register_module("conv", conv, {.in_channels = 3, .out_channels = 8, .kernel_size = 3});
///       register_module("relu", relu);
///     }
///     Tensor forward(const Tensor& x) const override { return relu(conv(x)); }
///   };
///
/// Copying, one rule for all: a copy (`Net b = a`, a Child, an element of Sequential) is a tree of
/// its own, so that its modules can be swapped, set to train mode or given hooks apart from the
/// original's; all parameters and buffers, at every depth, share their storage with the original's,
/// as Tensor handles do. deep_copy(net) and clone() copy the tensors as well. Observers and QConfigs
/// are copied either way.
///
/// Modules may stand up to kMaxModuleDepth deep in each other. What walks a deeper tree, or calls it,
/// throws ArgumentError; only its destruction takes any depth.
///
/// A module in eval mode may be called from many threads at once, unless hooks of its own forbid
/// it. Everything that is not const (training, swapping children, loading a state, hooks) is for
/// one thread at a time, while nobody calls the module. Wrong arguments throw ArgumentError; where
/// a function throws something else, it says so.
class Module {
 public:
  Module();
  virtual ~Module() = 0;  // so that no Module is made that is nothing more
  Module(const Module& other);
  Module& operator=(const Module& other);
  Module(Module&&) noexcept;
  Module& operator=(Module&&) noexcept;

  /// What the module calculates. Override it, or forward_all, or both; throws UnsupportedError where
  /// it is not.
  virtual Tensor forward(const Tensor& x) const;
  /// For modules with several inputs or outputs (masks, states, detection heads). By default forward
  /// of the one input; throws ArgumentError for another number of them.
  ///
  ///   std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
  ///     require_inputs(inputs, 2);
  ///     return {forward(inputs[0], inputs[1])};
  ///   }
  virtual std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const;

  /// Hooks, forward, hooks and the observer. Errors thrown inside name the module's path.
  Tensor operator()(const Tensor& x) const;
  /// The same of forward_all: `net({x, mask})` gives all results.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) const {
    return (*this)(std::span<const Tensor>(inputs.begin(), inputs.size()));
  }
  /// `net(x, mask)` of a module with one result. Throws ArgumentError when it gives several.
  template <std::convertible_to<Tensor>... More>
  requires(sizeof...(More) > 0) Tensor operator()(const Tensor& first, const More&... more) const {
    return only_result((*this)({first, Tensor(more)...}));
  }

  // The tree --------------------------------------------------------------------------------

  struct NamedChild {
    std::string name;
    std::shared_ptr<Module> module;
  };
  struct NamedModule {
    std::string path;  ///< "" for the module itself
    Module* module;
  };
  struct NamedTensor {
    std::string path;
    Tensor tensor;
  };

  std::vector<NamedChild> named_children() const;
  /// This module and all below, each once, parents first, by dotted path.
  std::vector<NamedModule> named_modules() const;
  /// The parameters of this module and all below, and those of learnable fake quantizers below the
  /// fake quantizer's name. A tensor that is the parameter of several modules (tied weights) is
  /// listed once, under its first name.
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  std::vector<Tensor> parameters() const;
  /// Whether gradients are recorded for the parameters below (see Tensor::set_requires_grad). They
  /// are not until it is asked for, so that inference never pays for the tape. Undoing it frees
  /// the gradients.
  Module& requires_grad_(bool on = true);
  /// Drops the gradients of all parameters below.
  void zero_grad();
  /// Puts every parameter and buffer below on that device, those of learnable fake quantizers too;
  /// handles that were taken before stay where they were. What observers gather stays on the CPU.
  /// Packed weights of converted layers are copied to a device when they first meet an input there,
  /// and stay on the CPU as well, for files. Throws BackendError when a copy fails: nothing has
  /// changed then.
  Module& to(Device device);
  /// The child (or grandchild: dotted path) of that name. Throws ArgumentError naming the part
  /// that is missing and what there is.
  std::shared_ptr<Module> get_submodule(std::string_view path) const;
  /// Puts another occupant into an existing place. Throws ArgumentError when there is none.
  void replace_child(std::string_view name, std::shared_ptr<Module> module);
  bool has_child(std::string_view name) const;

  /// Child names of containers are added at run time.
  void add_module(std::string name, std::shared_ptr<Module> module);

  // State -----------------------------------------------------------------------------------

  /// All parameters, buffers and quantization parameters under torch's names. Observers of a
  /// prepared model stand below `activation_post_process`.
  StateDict state_dict() const;
  /// Strict: missing or unexpected names throw ArgumentError that lists them, nothing is changed.
  /// Wrong sizes always throw.
  LoadResult load_state_dict(const StateDict& state, Strict strict = Strict::Yes);

  /// This module and all below; a module whose parts keep their mode overrides it.
  virtual Module& train(bool on = true);
  Module& eval() { return train(false); }
  bool is_training() const noexcept { return training_; }

  // Hooks -----------------------------------------------------------------------------------

  using HookId = std::uint64_t;
  HookId register_forward_pre_hook(ForwardPreHook hook);
  HookId register_forward_hook(ForwardHook hook);
  /// Hooks for calls with any number of inputs and outputs. Of such a call the hooks above see the
  /// first input and output.
  HookId register_forward_all_pre_hook(ForwardAllPreHook hook);
  HookId register_forward_all_hook(ForwardAllHook hook);
  void remove_hook(HookId id);
  /// Whether a call is forward and nothing else: no hooks, no observer. Fused modules run their
  /// parts in one step only then.
  bool is_plain_call() const noexcept { return plain_call_; }

  // Quantization ----------------------------------------------------------------------------

  /// Unset: inherits from the parent when the model is prepared. set_qconfig(std::nullopt):
  /// this module and all below are left in float.
  void set_qconfig(std::optional<QConfig> qconfig);
  void clear_qconfig();
  bool has_qconfig_attribute() const noexcept { return qconfig_assigned_; }
  /// What set_qconfig was given of `from`, which this module takes the place of; where that was
  /// nothing, this module's stays as it is.
  void take_qconfig_from(const Module& from);
  /// Null when unset or switched off.
  const QConfig* qconfig() const noexcept { return qconfig_.get(); }

  /// The observer of this module's output, or null.
  const std::shared_ptr<Observer>& activation_post_process() const noexcept { return observer_; }
  struct NamedObserver {
    std::string name;
    std::shared_ptr<Observer> observer;
  };
  /// This module's observers and fake quantizers (not its children's), none of them null:
  /// own_observers() and activation_post_process. Their state and parameters stand below the names.
  std::vector<NamedObserver> named_observers() const;
  /// How the observer gets to see data: as the first forward hook, or by the module's own calls.
  enum class Observation : std::uint8_t { Output, Explicit, Input };
  void set_activation_post_process(std::shared_ptr<Observer> observer,
                                   Observation observation = Observation::Output);

  /// What prepare and convert do about operations on floats and float modules in this module's own
  /// forward. Null: nothing.
  const std::shared_ptr<ForwardCalls>& forward_calls() const noexcept { return forward_calls_; }
  void set_forward_calls(std::shared_ptr<ForwardCalls> calls) { forward_calls_ = std::move(calls); }
  /// The name under which this module stands in the forward_calls() of the module that calls it:
  /// it is left in float where that one is quantized. Empty: it is not.
  const std::string& float_call_name() const noexcept { return float_call_name_; }
  void set_float_call_name(std::string name) { float_call_name_ = std::move(name); }

  // About -----------------------------------------------------------------------------------

  /// "Conv2d"; by default the class's name without namespaces.
  virtual std::string type_name() const;
  /// What stands in the parentheses when the tree is printed: "3, 8, kernel_size=(3, 3)".
  virtual std::string extra_repr() const { return {}; }

  /// A deep copy: children and tensors. Modules and tensors that stand in the tree twice stay one.
  /// Throws ArgumentError for a module that was not made through Child, make_module or clone().
  std::shared_ptr<Module> clone() const;

  /// Adds the hooks (not the observer) of `from` to this module's, as swapping and fusing do.
  void take_pre_hooks_from(const Module& from);
  void take_forward_hooks_from(const Module& from);
  void clear_pre_hooks();
  void clear_forward_hooks();

 protected:
  /// `tensor` is a member of the derived class; undefined tensors (no bias) are skipped in
  /// state_dict.
  void register_parameter(std::string name, Tensor& tensor);
  /// A parameter whose name is made at run time (`weight_ih_l1`) and that no member holds; gives
  /// its number for parameter_at. The first one has 0.
  std::size_t add_parameter(std::string name, Tensor tensor);
  /// Throws ArgumentError for a number that add_parameter did not give.
  Tensor& parameter_at(std::size_t number) const;
  /// An Optional buffer keeps what it holds when a state does not have it: files of older versions.
  enum class InState : bool { Optional, Required };
  void register_buffer(std::string name, Tensor& buffer, InState in_state = InState::Required);
  /// Names a slot that is a member of the derived class and fills it: `args` construct a T.
  template <typename Slot, typename... Args>
  void register_module(const std::string& name, Slot& slot, Args&&... args) {
    static_assert(std::is_base_of_v<ChildSlot, Slot>,
                  "register_module takes a slot: declare the member as nn::Child<T>");
    slot.emplace(std::forward<Args>(args)...);
    register_slot(name, slot);
  }
  /// The same with the layer's options in braces:
  ///   register_module("fc", fc, {.in_features = 4, .out_features = 2});
  template <typename T>
  void register_module(const std::string& name, Child<T>& slot,
                       const typename T::Options& options) {
    slot.emplace(options);
    register_slot(name, slot);
  }
  void register_slot(std::string name, ChildSlot& slot);

  /// Children by position, for containers: no copies, so that their forward stays cheap. An
  /// empty slot counts and gives null.
  std::size_t child_count() const noexcept { return children_.size(); }
  const std::shared_ptr<Module>& child_at(std::size_t index) const {
    return slot(children_[index]).module();
  }

  /// Throws ArgumentError, naming the module, unless there are `count` defined inputs.
  void require_inputs(std::span<const Tensor> inputs, std::size_t count) const;

  /// Writes what is not a registered tensor (packed weights, scale, zero point).
  virtual void save_state(StateDict& state, const std::string& prefix) const;
  virtual void load_state(StateReader& reader);
  /// Observers besides activation_post_process (weight_fake_quant), none of them null. A module
  /// that has some clones them when it is copied.
  virtual std::vector<NamedObserver> own_observers() const { return {}; }

 private:
  struct Entry {
    std::string name;
    std::ptrdiff_t offset = -1;        // of a slot that is a member of the derived class, or -1:
    std::shared_ptr<ChildSlot> owned;  // a slot of a container's
  };
  struct TensorEntry {
    std::string name;
    std::ptrdiff_t offset;
    bool is_parameter;
    InState in_state;
    std::shared_ptr<Tensor> owned{};  // made by add_parameter
  };
  struct Hooks;
  using PreHook = std::function<void(const Module&, std::vector<Tensor>& inputs)>;
  using PostHook = std::function<void(const Module&, std::span<const Tensor> inputs,
                                      std::vector<Tensor>& outputs)>;
  HookId add_pre_hook(PreHook hook);
  HookId add_post_hook(PostHook hook);

  ChildSlot& slot(const Entry& entry) const;
  Tensor& tensor(const TensorEntry& entry) const;
  Tensor call_with_hooks(const Tensor& x, const detail::PathScope& scope) const;
  std::vector<Tensor> call_all(std::span<const Tensor> inputs,
                               const ForwardCalls::Forward& forward) const;
  std::vector<Tensor> run_hooks(std::span<const Tensor> inputs,
                                const ForwardCalls::Forward& forward) const;
  Tensor only_result(std::vector<Tensor> results) const;
  void require_count(std::span<const Tensor> inputs, std::size_t count) const;
  std::shared_ptr<Module> copy_sharing_tensors() const;
  void update_plain_call() noexcept;
  void copy_owned_tensors();
  void drop_empty_hooks() noexcept;
  // Slots and tensors are found by their distance from the module, in its copies as well: throws
  // ArgumentError for one that lies outside of the `bytes` of the whole object.
  void require_members(const void* object, std::size_t bytes) const;
  void collect_state(StateDict& state, const std::string& prefix) const;
  void read_state(StateReader& reader, const std::string& prefix);

  std::vector<Entry> children_;
  std::vector<TensorEntry> tensors_;
  std::unique_ptr<Hooks> hooks_;
  std::shared_ptr<Observer> observer_;
  std::shared_ptr<const QConfig> qconfig_;
  std::shared_ptr<ForwardCalls> forward_calls_;
  std::string float_call_name_;
  bool qconfig_assigned_ = false;
  bool training_ = true;
  bool plain_call_ = true;  // no hooks, no observer: operator() goes straight to forward
  Observation observation_ = Observation::Output;
  std::shared_ptr<Module> (*clone_function_)(const Module&) = nullptr;

  friend class ChildSlot;
  friend class detail::PathScope;
  template <typename T>
  friend class Child;
  friend void detail::own_tensors(Module& module);
  template <typename T>
  requires std::is_base_of_v<Module, T>
  friend T deep_copy(const T& module);
  template <typename T, typename... Args>
  friend std::shared_ptr<T> make_module(Args&&... args);
};

/// Makes a module that knows how to clone itself.
template <typename T, typename... Args>
std::shared_ptr<T> make_module(Args&&... args) {
  static_assert(std::is_base_of_v<Module, T>, "expected a class that is derived from nn::Module");
  static_assert(!std::is_abstract_v<T>, "the class has pure virtual functions: override them");
  static_assert(std::is_copy_constructible_v<T>,
                "modules are copied with the networks they stand in: give the class a copy "
                "constructor (members such as std::unique_ptr and std::mutex have none)");
  auto module = std::make_shared<T>(std::forward<Args>(args)...);
  static_cast<const Module&>(*module).require_members(module.get(), sizeof(T));
  static_cast<Module&>(*module).clone_function_ =
      [](const Module& source) -> std::shared_ptr<Module> {
    return make_module<T>(static_cast<const T&>(source));
  };
  return module;
}

/// A slot for a T. Calling it calls the occupant, whatever that is; `->` reaches the members of a T
/// and throws ArgumentError when the occupant is no T.
template <typename T>
class Child : public ChildSlot {
 public:
  Child() : ChildSlot(&cast) {}

  template <typename... Args>
  T& emplace(Args&&... args) {
    assign(make_module<T>(std::forward<Args>(args)...));
    return *static_cast<T*>(typed_);
  }
  Tensor operator()(const Tensor& x) const { return (*checked())(x); }
  /// What T::forward makes of these arguments, or where it takes none such, the occupant of several
  /// tensors. Hooks and observers see calls whose arguments are all tensors and whose result is one;
  /// others (masks in a struct, pairs) are calls of forward within the module's path.
  template <typename... More>
  requires(sizeof...(More) > 0) decltype(auto) operator()(const Tensor& first,
                                                          const More&... more) const {
    if constexpr (!requires(const T& module) { module.forward(first, more...); }) {
      return (*checked())(first, more...);
    } else {
      const T& module = *operator->();
      if constexpr ((std::is_base_of_v<Tensor, More> && ...) &&
                    std::same_as<decltype(module.forward(first, more...)), Tensor>) {
        const Tensor inputs[] = {first, more...};
        return call_tensors(module, inputs, std::make_index_sequence<1 + sizeof...(More)>());
      } else {
        const detail::PathScope scope(&module);
        return module.forward(first, more...);
      }
    }
  }
  T* operator->() const {
    if (typed_ == nullptr) throw_not_a(typeid(T));
    return static_cast<T*>(typed_);
  }

 private:
  static void* cast(Module* module) { return dynamic_cast<T*>(module); }
  template <std::size_t... kIndex>
  static Tensor call_tensors(const T& module, std::span<const Tensor> inputs,
                             std::index_sequence<kIndex...>) {
    const Module& base = module;
    return base.only_result(base.call_all(inputs, [&](std::span<const Tensor> in) {
      base.require_count(in, sizeof...(kIndex));
      return std::vector<Tensor>{module.forward(in[kIndex]...)};
    }));
  }
  const Module* checked() const {
    if (module_ == nullptr) throw_not_a(typeid(T));
    return module_.get();
  }
  [[noreturn]] void throw_not_a(std::type_index wanted) const {
    throw_wrong_occupant(module_.get(), wanted);
  }
  [[noreturn]] static void throw_wrong_occupant(const Module* occupant, std::type_index wanted);
};

namespace detail {
[[noreturn]] void throw_wrong_occupant(const Module* occupant, std::type_index wanted);
/// While it lives, modules that are copied share one memory of what was already copied, so that
/// a module that stands in the tree twice is copied once.
class CloneScope {
 public:
  CloneScope();
  ~CloneScope();
  CloneScope(const CloneScope&) = delete;
  CloneScope& operator=(const CloneScope&) = delete;
};
}  // namespace detail

template <typename T>
void Child<T>::throw_wrong_occupant(const Module* occupant, std::type_index wanted) {
  detail::throw_wrong_occupant(occupant, wanted);
}

/// A deep copy with the same static type. Throws ArgumentError as Module::clone does for what
/// stands below.
template <typename T>
requires std::is_base_of_v<Module, T> T deep_copy(const T& module) {
  const detail::CloneScope scope;
  static_cast<const Module&>(module).require_members(&module, sizeof(T));
  T copy(module);
  detail::own_tensors(copy);
  return copy;
}

/// The tree as torch prints it: "(conv1): Conv2d(1, 16, kernel_size=(3, 3), ...)".
std::string to_string(const Module& module);
std::ostream& operator<<(std::ostream& stream, const Module& module);

/// Loads a state into a model: load_state_dict(net, read_safetensors(path)). See
/// Module::load_state_dict.
inline LoadResult load_state_dict(Module& module, const StateDict& state,
                                  Strict strict = Strict::Yes) {
  return module.load_state_dict(state, strict);
}

}  // namespace quanta::nn
