#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/runtime/tensor.h"

/// The gradient tape: ops on tensors that require a gradient note how to go back, and
/// Tensor::backward goes.
///
///   Tensor w = Tensor::ones({3});
///   w.set_requires_grad();
///   Tensor loss = sum(w * x);
///   loss.backward();
///   w.grad();  // x
///
/// A tape belongs to the tensors it was recorded for and is freed with them. Reverse mode, first
/// derivatives: what backward itself calculates is not recorded. A backward that throws, in an op
/// or in a hook, leaves gradients and tape as they were. Threads may go back at once, over tapes of
/// their own that meet in leaves or, with retain_graph, over the same one.
namespace quanta::autograd {

/// Whether ops of this thread are recorded. True by default.
bool is_grad_enabled() noexcept;

/// While it lives, ops of this thread are not recorded: torch.no_grad().
class NoGradGuard {
 public:
  NoGradGuard() noexcept;
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool before_;
};

/// While it lives, ops of this thread are recorded again.
class EnableGradGuard {
 public:
  EnableGradGuard() noexcept;
  ~EnableGradGuard();
  EnableGradGuard(const EnableGradGuard&) = delete;
  EnableGradGuard& operator=(const EnableGradGuard&) = delete;

 private:
  bool before_;
};

/// Whether an op on these tensors (undefined ones do not count) has to be recorded.
template <typename... Tensors>
bool needs_grad(const Tensors&... tensors) noexcept {
  return (... || (tensors.defined() && tensors.requires_grad())) && is_grad_enabled();
}
bool needs_grad(std::span<const Tensor> tensors) noexcept;

/// What a backward function sees.
class BackwardContext {
 public:
  /// The gradient of an output: contiguous or not, of the output's sizes and dtype; zeros when
  /// nothing came.
  const Tensor& grad(std::size_t output = 0) const { return grads_[output]; }
  /// Whether input `i` needs a gradient; for the others an undefined tensor may be returned.
  bool needs(std::size_t input) const { return needs_[input]; }
  /// A tensor that record() was given. Throws ArgumentError when it was written to since.
  Tensor saved(std::size_t index) const;

  // For Operation::gradient.
  /// Argument `i` or result `i` of the operation, if its gradient_use() asked for it.
  Tensor input(std::size_t i) const { return saved(i); }
  Tensor output(std::size_t i = 0) const { return saved(inputs_.size() + i); }
  std::size_t input_count() const noexcept { return inputs_.size(); }
  /// Of an argument that is defined, whether it was asked for or not.
  const Dims& input_sizes(std::size_t i) const { return inputs_[i].sizes; }
  DType input_dtype(std::size_t i) const { return inputs_[i].dtype; }
  bool has_input(std::size_t i) const { return inputs_[i].defined; }

  struct SavedTensor;
  /// What is known of each argument.
  struct Kind {
    Dims sizes;
    DType dtype = DType::Float32;
    bool defined = false;
  };

 private:
  friend struct Engine;
  std::string_view op_;
  std::span<const Tensor> grads_;
  std::vector<bool> needs_;
  std::span<const SavedTensor> saved_;
  std::vector<Kind> inputs_;
};

/// Gives one gradient for each input, of its sizes and dtype, or undefined: none. Runs with
/// recording switched off.
using BackwardFunction = std::function<std::vector<Tensor>(const BackwardContext&)>;

/// Notes on the tape that `outputs` come from `inputs` through `op`; to be called when
/// needs_grad(inputs...), with outputs that nobody else holds yet. What the gradient needs goes
/// into `saved` (inputs or outputs), not into the function's captures, so that changes are noticed
/// and memory is freed.
void record(std::string_view op, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            std::span<const Tensor> saved, BackwardFunction backward);
/// The same for one output, which is returned.
Tensor record(std::string_view op, std::initializer_list<Tensor> inputs, Tensor output,
              std::initializer_list<Tensor> saved, BackwardFunction backward);

/// `gradient` summed over the dimensions along which a tensor of `sizes` was broadcast to its
/// sizes: what the backward of every broadcasting op ends with.
Tensor sum_to_size(const Tensor& gradient, const Dims& sizes);

struct GradOptions {
  std::span<const Tensor> grad_outputs{};  ///< as Tensor::backward's `gradient`, one an output
  bool retain_graph = false;
  bool allow_unused = false;  ///< inputs that were not used get an undefined tensor, not an error
};

/// The gradients of the outputs' sum for `inputs`, without touching any grad():
/// torch.autograd.grad. Only ops that lead to the inputs go back. Throws ArgumentError as
/// Tensor::backward does, and for an input that was not used.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         const GradOptions& options = {});

[[noreturn]] void throw_not_differentiable(std::string_view op);

/// Throws UnsupportedError `op: ...` when one of the tensors needs a gradient: for ops without one,
/// so that a training network never loses a gradient in silence.
template <typename... Tensors>
void require_no_grad(std::string_view op, const Tensors&... tensors) {
  if (needs_grad(tensors...)) throw_not_differentiable(op);
}
/// Throws ArgumentError `op: ...` for an in-place change of a tensor that requires a gradient,
/// which the tape cannot follow. Changing a parameter is for the time when nothing is recorded
/// (NoGradGuard).
void require_changeable(std::string_view op, const Tensor& x);

/// Base of a custom function with its own backward, as a straight-through estimator needs:
///
///   struct RoundStraightThrough : autograd::Function<RoundStraightThrough> {
///     static Tensor forward(Context& context, const Tensor& x) { return round(x); }
///     static std::vector<Tensor> backward(const Context&, const BackwardContext& b) {
///       return {b.grad()};
///     }
///   };
///   Tensor y = RoundStraightThrough::apply(x);
///
/// forward takes the context and any arguments, Tensors first or not; it runs unrecorded. backward
/// gives one gradient for each Tensor argument, in order.
class Context {
 public:
  /// Tensors that backward needs: BackwardContext::saved(i).
  void save_for_backward(std::initializer_list<Tensor> tensors) { saved_ = tensors; }
  /// Plain values that backward needs.
  std::vector<double> values;

 private:
  template <typename Derived>
  friend class Function;
  std::vector<Tensor> saved_;
};

template <typename Derived>
class Function {
 public:
  template <typename... Args>
  static Tensor apply(const Args&... args);
};

/// Adds an argument of a custom function to its inputs if it is a Tensor.
template <typename T>
void collect_input(std::vector<Tensor>& inputs, const T& argument) {
  if constexpr (std::is_base_of_v<Tensor, T>) inputs.push_back(argument);
}

template <typename Derived>
template <typename... Args>
Tensor Function<Derived>::apply(const Args&... args) {
  std::vector<Tensor> inputs;
  (collect_input(inputs, args), ...);
  Context context;
  Tensor output = [&] {
    const NoGradGuard guard;
    return Derived::forward(context, args...);
  }();
  if (!needs_grad(std::span<const Tensor>(inputs))) return output;
  // A tensor that others hold, such as an input that is handed through, would otherwise get a
  // second place on the tape.
  if (output.defined() && output.impl()->use_count() > 1) output = output.detach();
  const std::vector<Tensor> saved = std::move(context.saved_);
  context.saved_.clear();
  record("Function", inputs, {&output, 1}, saved,
         [context = std::move(context)](const BackwardContext& backward) {
           return Derived::backward(context, backward);
         });
  return output;
}

}  // namespace quanta::autograd
