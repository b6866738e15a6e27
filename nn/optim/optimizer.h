#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

/// Optimizers and schedules as in torch.optim:
///
///   net.requires_grad_();
///   optim::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
///   for (...) {
///     optimizer.zero_grad();
///     cross_entropy(net(x), target).backward();
///     optimizer.step();
///   }
namespace quanta::optim {

/// Parameters that share a learning rate and a weight decay.
struct ParameterGroup {
  std::vector<Tensor> parameters;
  double lr = 0.0;
  double weight_decay = 0.0;
  double initial_lr = 0.0;  ///< what a schedule starts from
};

/// What optimizers share. An optimizer is for one thread at a time. Parameters on a CUDA device
/// (Float32) are changed there, by one kernel each, with the CPU's floats.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Changes every parameter that has a gradient, in place; the others stay.
  void step();
  /// Drops the gradients of all parameters.
  void zero_grad();

  const std::vector<ParameterGroup>& groups() const noexcept { return groups_; }
  /// More parameters, with a learning rate and weight decay of their own. Throws ArgumentError for
  /// a parameter that is there already or requires no gradient.
  void add_param_group(const std::vector<Tensor>& parameters, double lr, double weight_decay);
  /// The learning rate of the first group.
  double lr() const noexcept { return groups_.front().lr; }
  /// Throws ArgumentError unless `lr` is finite and >= 0.
  void set_lr(std::size_t group, double lr);
  /// How often step() was called.
  std::int64_t steps() const noexcept { return steps_; }

  /// What is needed to go on exactly: `step`, `lr.GROUP`, `initial_lr.GROUP`, and for each
  /// parameter by its number what the optimizer keeps of it (`3.momentum_buffer`).
  StateDict state_dict() const;
  /// Throws ArgumentError for names or sizes that do not fit; then nothing was changed.
  void load_state_dict(const StateDict& state);

 protected:
  /// `buffers` names what the optimizer keeps of each parameter.
  Optimizer(std::string name, std::vector<std::string> buffers);
  /// One parameter's change. `buffers` are as named; undefined until they are set here.
  virtual void update(const ParameterGroup& group, const Tensor& parameter, const Tensor& gradient,
                      std::vector<Tensor>& buffers) const = 0;

 private:
  std::string name_;
  std::vector<std::string> buffer_names_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::vector<Tensor>> buffers_;  // of each parameter in order
  std::int64_t steps_ = 0;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};

/// d = g + weight_decay * p; b = momentum * b + (1 - dampening) * d (first: d);
/// p -= lr * (nesterov: d + momentum * b, else b).
class SGD : public Optimizer {
 public:
  /// Throws ArgumentError: no parameters, one without requires_grad, numbers out of range, nesterov
  /// without momentum or with dampening.
  explicit SGD(const std::vector<Tensor>& parameters, const SGDOptions& options = {});

 private:
  void update(const ParameterGroup& group, const Tensor& parameter, const Tensor& gradient,
              std::vector<Tensor>& buffers) const override;

  SGDOptions options_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
};

/// Adam (Kingma and Ba 2015), with the maximum of the second moments if amsgrad. The weight decay
/// is added to the gradient.
class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<Tensor>& parameters, const AdamOptions& options = {});

 protected:
  enum class Decay : std::uint8_t { Gradient, Weight };
  Adam(const std::vector<Tensor>& parameters, const AdamOptions& options, Decay decay);

 private:
  void update(const ParameterGroup& group, const Tensor& parameter, const Tensor& gradient,
              std::vector<Tensor>& buffers) const override;

  AdamOptions options_;
  Decay decay_;
};

/// Adam whose weight decay shrinks the weights themselves (Loshchilov and Hutter 2019). The usual
/// weight decay is 0.01.
class AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<Tensor>& parameters,
                 const AdamOptions& options = {.weight_decay = 0.01})
      : Adam(parameters, options, Decay::Weight) {}
};

/// Scales all gradients so that their common norm (of order `norm_type`; infinity: the largest
/// magnitude) is at most `max_norm`. Gives the norm before, for which it waits for the gradients'
/// devices; orders but 1, 2 and infinity go through the pow of each. Throws ArgumentError for
/// max_norm < 0 and, if `error_if_nonfinite`, for a norm that is no finite number; then nothing was
/// changed.
double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                       double norm_type = 2.0, bool error_if_nonfinite = false);
/// Clamps every gradient element to [-clip_value, clip_value].
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace quanta::optim
