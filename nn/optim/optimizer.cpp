#include "quanta/nn/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "quanta/nn/optim/cuda/kernels.h"
#include "quanta/nn/optim/detail/gradient_norm.h"
#include "quanta/nn/optim/detail/update_math.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cuda/device_data.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/defined_state.h"
#include "quanta/runtime/detail/whole_number.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/warning.h"

namespace quanta::optim {
namespace {

constexpr std::int64_t kGrain = 32768;
// The one buffer that holds a single number: a parameter's own count of steps.
constexpr std::string_view kStep = "step";

void check_number(const std::string& op, std::string_view argument, double value) {
  QUANTA_CHECK(std::isfinite(value) && value >= 0.0, "{}: {}: expected a number >= 0, got {}", op,
               argument, value);
}

template <typename Body>
void in_dtype(const Tensor& parameter, Body&& body) {
  if (parameter.dtype() == DType::Float64) {
    body(double{});
  } else {
    body(float{});
  }
}

// body(i) for every element, over threads.
template <typename Body>
void for_elements(std::int64_t count, Body&& body) {
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

// Gradients in the parameter's memory order, so that elements can be walked together.
Tensor arrange_like(const Tensor& gradient, const Tensor& parameter) {
  if (gradient.strides() == parameter.strides()) return gradient;
  Tensor result = parameter.detach().clone(MemoryFormat::Preserve);
  result.copy_(gradient);
  return result;
}

Tensor zeros_like(const Tensor& parameter) {
  Tensor result = parameter.detach().clone(MemoryFormat::Preserve);
  result.fill_(0.0);
  return result;
}

// Float32 on a device, where elements are to be written to.
float* written(const Tensor& x) {
  x.impl()->storage->bump_version();
  return cuda::floats_of(x);
}

}  // namespace

Optimizer::Optimizer(std::string name, std::vector<std::string> buffers)
    : name_(std::move(name)), buffer_names_(std::move(buffers)) {}

void Optimizer::add_param_group(const std::vector<Tensor>& parameters, double lr,
                                double weight_decay) {
  QUANTA_CHECK(!parameters.empty(), "{}: parameters: expected at least one, got none", name_);
  check_number(name_, "lr", lr);
  check_number(name_, "weight_decay", weight_decay);
  std::vector<Tensor> all;
  for (const ParameterGroup& group : groups_) {
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  }
  for (const Tensor& parameter : parameters) {
    QUANTA_CHECK(
        parameter.defined() && parameter.requires_grad() && parameter.is_leaf(),
        "{}: parameters: expected leaves that require a gradient (call requires_grad_() on "
        "the module first), got one that does not",
        name_);
    QUANTA_CHECK((parameter.dtype() == DType::Float32 || parameter.dtype() == DType::Float64) &&
                     parameter.is_dense(),
                 "{}: parameters: expected dense Float32 or Float64 tensors, got {} {}", name_,
                 parameter.dtype(), parameter.sizes());
    QUANTA_SUPPORTED(parameter.device().is_cpu() || parameter.dtype() == DType::Float32,
                     "{}: parameters: expected Float32 on {} (Float64 on the CPU alone), got {}",
                     name_, to_string(parameter.device()), parameter.dtype());
    QUANTA_CHECK(std::none_of(all.begin(), all.end(),
                              [&](const Tensor& other) { return other.is_same(parameter); }),
                 "{}: parameters: expected each once, got one of sizes {} twice", name_,
                 parameter.sizes());
    all.push_back(parameter);
  }
  groups_.push_back({parameters, lr, weight_decay, lr});
  buffers_.resize(buffers_.size() + parameters.size(), std::vector<Tensor>(buffer_names_.size()));
}

void Optimizer::set_lr(std::size_t group, double lr) {
  QUANTA_CHECK(group < groups_.size(), "{}: group: expected one of {}, got number {}", name_,
               groups_.size(), group);
  check_number(name_, "lr", lr);
  groups_[group].lr = lr;
}

void Optimizer::step() {
  const autograd::NoGradGuard guard;
  ++steps_;
  std::size_t number = 0;
  bool any = false;
  for (const ParameterGroup& group : groups_) {
    for (const Tensor& parameter : group.parameters) {
      std::vector<Tensor>& buffers = buffers_[number++];
      const Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      any = true;
      update(group, parameter, arrange_like(gradient, parameter), buffers);
    }
  }
  if (any || number == 0) return;
  warn(name_ +
       ": step: no parameter has a gradient, nothing changes: call backward() before step(), and "
       "make "
       "the optimizer from the parameters of the model that is trained (prepare_qat and deep_copy "
       "return a copy with parameters of its own; prepare_qat_ keeps them)");
}

void Optimizer::zero_grad() {
  for (const ParameterGroup& group : groups_) {
    for (const Tensor& parameter : group.parameters) parameter.clear_grad();
  }
}

StateDict Optimizer::state_dict() const {
  StateDict state;
  state.set("step", Tensor::scalar(static_cast<double>(steps_), DType::Int64));
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    state.set(fmt::format("lr.{}", g), Tensor::scalar(groups_[g].lr, DType::Float64));
    state.set(fmt::format("initial_lr.{}", g),
              Tensor::scalar(groups_[g].initial_lr, DType::Float64));
  }
  for (std::size_t p = 0; p < buffers_.size(); ++p) {
    for (std::size_t b = 0; b < buffer_names_.size(); ++b) {
      if (!buffers_[p][b].defined()) continue;
      state.set(fmt::format("{}.{}", p, buffer_names_[b]), buffers_[p][b].clone());
    }
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state) {
  quanta::detail::require_defined(state, name_);
  std::vector<ParameterGroup> groups = groups_;
  std::vector<std::vector<Tensor>> buffers = buffers_;
  std::size_t used = 0;
  const auto number = [&](const std::string& name) {
    const Tensor* value = state.find(name);
    QUANTA_CHECK(value != nullptr && value->numel() == 1,
                 "{}: state: expected a number '{}', got {}", name_, name,
                 value == nullptr ? "none" : "a tensor of several elements");
    ++used;
    check_number(name_, name, value->item());
    return value->item();
  };
  const double steps = number("step");
  QUANTA_CHECK(quanta::detail::is_whole_number(steps),
               "{}: state: step: expected a whole number up to 2^53, got {}", name_, steps);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].lr = number(fmt::format("lr.{}", g));
    groups[g].initial_lr = number(fmt::format("initial_lr.{}", g));
  }
  std::size_t p = 0;
  for (const ParameterGroup& group : groups) {
    for (const Tensor& parameter : group.parameters) {
      for (std::size_t b = 0; b < buffer_names_.size(); ++b) {
        const std::string name = fmt::format("{}.{}", p, buffer_names_[b]);
        const Tensor* value = state.find(name);
        buffers[p][b] = Tensor();
        if (value == nullptr) continue;
        ++used;
        const bool is_count = buffer_names_[b] == kStep;
        const Dims sizes = is_count ? Dims{1} : parameter.sizes();
        QUANTA_CHECK(value->sizes() == sizes && value->dtype() == parameter.dtype(),
                     "{}: state: expected '{}' of {} {}, got {} {}", name_, name, parameter.dtype(),
                     sizes, value->dtype(), value->sizes());
        if (is_count) {
          buffers[p][b] = value->cpu().clone();
        } else {
          buffers[p][b] = arrange_like(value->clone().to(parameter.device()), parameter);
        }
      }
      ++p;
    }
  }
  QUANTA_CHECK(used == state.size(),
               "{}: state: expected only names of this optimizer ({} of them), got {}", name_, used,
               state.size());
  groups_ = std::move(groups);
  buffers_ = std::move(buffers);
  steps_ = static_cast<std::int64_t>(steps);
}

// SGD --------------------------------------------------------------------------------------------

SGD::SGD(const std::vector<Tensor>& parameters, const SGDOptions& options)
    : Optimizer("SGD", {"momentum_buffer"}), options_(options) {
  check_number("SGD", "momentum", options.momentum);
  QUANTA_CHECK(std::isfinite(options.dampening), "SGD: dampening: expected a finite number, got {}",
               options.dampening);
  QUANTA_CHECK(!options.nesterov || (options.momentum > 0.0 && options.dampening == 0.0),
               "SGD: nesterov: expected a momentum > 0 and no dampening, got {} and {}",
               options.momentum, options.dampening);
  add_param_group(parameters, options.lr, options.weight_decay);
}

void SGD::update(const ParameterGroup& group, const Tensor& parameter, const Tensor& gradient,
                 std::vector<Tensor>& buffers) const {
  const bool momentum = options_.momentum != 0.0;
  const bool first = momentum && !buffers[0].defined();
  if (first) buffers[0] = zeros_like(parameter);
  in_dtype(parameter, [&](auto zero) {
    using T = decltype(zero);
    SGDStep<T> step;
    step.lr = static_cast<T>(group.lr);
    step.weight_decay = static_cast<T>(group.weight_decay);
    step.momentum = static_cast<T>(options_.momentum);
    step.taken = first ? T{1} : static_cast<T>(1.0 - options_.dampening);
    step.nesterov = options_.nesterov;
    if constexpr (std::is_same_v<T, float>) {
      if (parameter.device().is_cuda()) {
        if (parameter.numel() == 0) return;
        cuda::sgd_step(parameter.device(), {.step = step,
                                            .count = parameter.numel(),
                                            .parameter = written(parameter),
                                            .gradient = cuda::floats_of(gradient),
                                            .buffer = momentum ? written(buffers[0]) : nullptr});
        return;
      }
    }
    T* p = parameter.mutable_data<T>();
    const T* g = gradient.data<T>();
    T* buffer = momentum ? buffers[0].mutable_data<T>() : nullptr;
    for_elements(parameter.numel(), [&](std::int64_t i) {
      step(p[i], g[i], buffer == nullptr ? nullptr : buffer + i);
    });
  });
}

// Adam -------------------------------------------------------------------------------------------

Adam::Adam(const std::vector<Tensor>& parameters, const AdamOptions& options)
    : Adam(parameters, options, Decay::Gradient) {}

Adam::Adam(const std::vector<Tensor>& parameters, const AdamOptions& options, Decay decay)
    : Optimizer(decay == Decay::Weight ? "AdamW" : "Adam",
                {std::string(kStep), "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
      options_(options),
      decay_(decay) {
  for (const double beta : {options.beta1, options.beta2}) {
    QUANTA_CHECK(beta >= 0.0 && beta < 1.0, "Adam: betas: expected 0 <= beta < 1, got {}", beta);
  }
  check_number("Adam", "eps", options.eps);
  add_param_group(parameters, options.lr, options.weight_decay);
}

void Adam::update(const ParameterGroup& group, const Tensor& parameter, const Tensor& gradient,
                  std::vector<Tensor>& buffers) const {
  // A parameter counts the steps in which it had a gradient, on the CPU.
  if (!buffers[1].defined()) {
    buffers[0] = Tensor::zeros({1}, parameter.dtype());
    buffers[1] = zeros_like(parameter);
    buffers[2] = zeros_like(parameter);
    if (options_.amsgrad) buffers[3] = zeros_like(parameter);
  }
  in_dtype(parameter, [&](auto zero) {
    using T = decltype(zero);
    T* count = buffers[0].mutable_data<T>();
    const double step = static_cast<double>(count[0]) + 1.0;
    count[0] = static_cast<T>(step);
    const double correction = std::sqrt(1.0 - std::pow(options_.beta2, step));
    const bool on_weight = decay_ == Decay::Weight;
    AdamStep<T> change;
    change.rate = static_cast<T>(group.lr / (1.0 - std::pow(options_.beta1, step)));
    change.root_correction = static_cast<T>(correction);
    change.eps = static_cast<T>(options_.eps);
    change.weight1 = static_cast<T>(1.0 - options_.beta1);
    change.beta2 = static_cast<T>(options_.beta2);
    change.weight2 = static_cast<T>(1.0 - options_.beta2);
    change.shrink = static_cast<T>(on_weight ? 1.0 - group.lr * group.weight_decay : 1.0);
    change.decay = static_cast<T>(on_weight ? 0.0 : group.weight_decay);
    if constexpr (std::is_same_v<T, float>) {
      if (parameter.device().is_cuda()) {
        if (parameter.numel() == 0) return;
        cuda::adam_step(parameter.device(),
                        {.step = change,
                         .count = parameter.numel(),
                         .parameter = written(parameter),
                         .gradient = cuda::floats_of(gradient),
                         .mean = written(buffers[1]),
                         .square = written(buffers[2]),
                         .largest = options_.amsgrad ? written(buffers[3]) : nullptr});
        return;
      }
    }
    T* p = parameter.mutable_data<T>();
    const T* g = gradient.data<T>();
    T* mean = buffers[1].mutable_data<T>();
    T* square = buffers[2].mutable_data<T>();
    T* largest = options_.amsgrad ? buffers[3].mutable_data<T>() : nullptr;
    for_elements(parameter.numel(), [&](std::int64_t i) {
      change(p[i], g[i], mean[i], square[i], largest == nullptr ? nullptr : largest + i);
    });
  });
}

// Clipping ---------------------------------------------------------------------------------------

namespace {

void require_defined(std::string_view op, const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) {
    QUANTA_CHECK(parameter.defined(), "{}: parameters: expected tensors, got an undefined one", op);
  }
}

}  // namespace

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  check_number("clip_grad_norm_", "max_norm", max_norm);
  require_defined("clip_grad_norm_", parameters);
  QUANTA_CHECK(norm_type > 0.0, "clip_grad_norm_: norm_type: expected > 0, got {}", norm_type);
  const double norm = gradient_norm(parameters, norm_type);
  QUANTA_CHECK(!error_if_nonfinite || std::isfinite(norm),
               "clip_grad_norm_: parameters: expected gradients of a finite norm, got {}", norm);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1.0) return norm;
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    if (parameter.device().is_cuda()) {
      parameter.set_grad(mul_scalar(parameter.grad().contiguous(), factor));
      continue;
    }
    in_dtype(parameter, [&](auto zero) {
      using T = decltype(zero);
      const Tensor scaled = parameter.grad().contiguous().clone();
      T* g = scaled.mutable_data<T>();
      for_elements(scaled.numel(), [&](std::int64_t i) { g[i] *= static_cast<T>(factor); });
      parameter.set_grad(scaled);
    });
  }
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  check_number("clip_grad_value_", "clip_value", clip_value);
  require_defined("clip_grad_value_", parameters);
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    if (parameter.device().is_cuda()) {
      parameter.set_grad(clamp(parameter.grad().contiguous(), -clip_value, clip_value));
      continue;
    }
    in_dtype(parameter, [&](auto zero) {
      using T = decltype(zero);
      const Tensor clipped = parameter.grad().contiguous().clone();
      T* g = clipped.mutable_data<T>();
      const auto bound = static_cast<T>(clip_value);
      for_elements(clipped.numel(),
                   [&](std::int64_t i) { g[i] = std::clamp(g[i], -bound, bound); });
      parameter.set_grad(clipped);
    });
  }
}

}  // namespace quanta::optim
