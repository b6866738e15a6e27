// Batch norm of floats: by given statistics, and by those of the batch.

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/norm/cpu_batch_norm.h"
#include "quanta/ops/norm/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "batch_norm";

void check_parameter(std::string_view name, const Tensor& values, const Tensor& x) {
  const Dims sizes{x.sizes()[1]};
  QUANTA_CHECK(values.dtype() == x.dtype() && values.sizes() == sizes,
               "{}: {}: expected {} {}, got {} {}", kOp, name, x.dtype(), sizes, values.dtype(),
               values.sizes());
}

void check_required(std::string_view name, const Tensor& values, const Tensor& x) {
  QUANTA_CHECK(values.defined(), "{}: {}: expected {} [{}], got an undefined tensor", kOp, name,
               x.dtype(), x.sizes()[1]);
  check_parameter(name, values, x);
}

// Everything but the statistics.
void check_inputs(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  detail::check_floats(kOp, "x", x);
  QUANTA_CHECK(x.dim() >= 2, "{}: x: expected at least 2 dimensions, got {}", kOp, x.sizes());
  if (weight.defined()) check_parameter("weight", weight, x);
  if (bias.defined()) check_parameter("bias", bias, x);
  QUANTA_CHECK(std::isfinite(eps) && eps >= 0.0, "{}: eps: expected a finite number >= 0, got {}",
               kOp, eps);
}

template <typename T>
std::vector<T> numbers_of(const Tensor& parameter, std::int64_t count, T fallback) {
  if (!parameter.defined()) return std::vector<T>(static_cast<std::size_t>(count), fallback);
  const Tensor dense = parameter.contiguous();
  const auto* data = dense.data<T>();
  return {data, data + count};
}

MemoryFormat format_of(const Tensor& x) {
  return x.dim() >= 3 && x.dim() <= 5 ? x.suggested_format() : MemoryFormat::Contiguous;
}

template <typename T>
void apply_to(const Tensor& x, const cpu::ChannelAffine<T>& affine, const Tensor& result) {
  cpu::apply_channels(cpu::ChannelGeometry(x), static_cast<const T*>(x.data_ptr()), affine,
                      static_cast<T*>(result.data_ptr()));
}

template <typename T>
Tensor apply(const Tensor& x, const cpu::ChannelAffine<T>& affine) {
  const MemoryFormat format = format_of(x);
  const Tensor dense = x.contiguous(format);
  Tensor result = Tensor::empty(x.sizes(), x.dtype(), format);
  if (x.numel() == 0) return result;
  apply_to(dense, affine, result);
  if (replay::is_recording()) {
    replay::record(
        {.op = kOp,
         .inputs = {dense},
         .outputs = {result},
         .run = [affine](const replay::Frame& frame) { apply_to(frame.in(), affine, frame.out()); },
         .in_place = true});
  }
  return result;
}

// x * scale + shift, with torch's order of roundings in the two numbers.
template <typename T>
Tensor by_given(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                const Tensor& bias, double eps) {
  const std::int64_t channels = x.sizes()[1];
  const std::vector<T> means = numbers_of<T>(mean, channels, T{0});
  const std::vector<T> vars = numbers_of<T>(var, channels, T{1});
  cpu::ChannelAffine<T> affine{std::vector<T>(means.size()), numbers_of<T>(weight, channels, T{1}),
                               numbers_of<T>(bias, channels, T{0})};
  for (std::size_t c = 0; c < means.size(); ++c) {
    affine.scale[c] *= T{1} / std::sqrt(vars[c] + static_cast<T>(eps));
    affine.shift[c] -= means[c] * affine.scale[c];
  }
  return apply(x, affine);
}

template <typename T>
Tensor by_moments(const Tensor& x, const std::vector<double>& mean,
                  const std::vector<double>& inv_std, const Tensor& weight, const Tensor& bias) {
  const std::int64_t channels = x.sizes()[1];
  cpu::ChannelAffine<T> affine{std::vector<T>(mean.begin(), mean.end()),
                               numbers_of<T>(weight, channels, T{1}),
                               numbers_of<T>(bias, channels, T{0})};
  for (std::size_t c = 0; c < mean.size(); ++c) {
    affine.scale[c] = static_cast<T>(static_cast<double>(affine.scale[c]) * inv_std[c]);
  }
  return apply(x, affine);
}

Tensor float64_tensor(const std::vector<double>& values) {
  const Tensor result = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::Float64);
  std::copy(values.begin(), values.end(), result.mutable_data<double>());
  return result;
}

std::vector<double> inverse_stds(const std::vector<double>& variances, double eps) {
  std::vector<double> result;
  result.reserve(variances.size());
  for (const double variance : variances) result.push_back(1.0 / std::sqrt(variance + eps));
  return result;
}

// x / divisor + shift in place of x: (x / d - mean / d) / sqrt(var / d^2 + eps)
//                                  = (x - mean) * sign(d) / sqrt(var + eps * d^2).
class Quotient {
 public:
  Quotient(const BatchNormTrainOptions& options, std::int64_t channels)
      : divisors_(doubles(options.divisor, channels, 1.0)),
        shifts_(doubles(options.shift, channels, 0.0)) {}

  std::vector<double> inverse_stds(const std::vector<double>& variances, double eps) const {
    std::vector<double> result(variances.size());
    for (std::size_t c = 0; c < result.size(); ++c) {
      const double d = divisors_[c];
      if (d != 0.0) result[c] = std::copysign(1.0, d) / std::sqrt(variances[c] + eps * d * d);
    }
    return result;
  }
  // In place: the moments of the quotient. Where the divisor is 0 they stay the running ones.
  void apply(cpu::ChannelMoments& moments, const Tensor& running_mean,
             const Tensor& running_var) const {
    const auto count = static_cast<std::int64_t>(divisors_.size());
    const std::vector<double> means = doubles(running_mean, count, 0.0);
    const std::vector<double> vars = doubles(running_var, count, 0.0);
    for (std::size_t c = 0; c < divisors_.size(); ++c) {
      const double d = divisors_[c];
      moments.mean[c] = d == 0.0 ? means[c] : moments.mean[c] / d + shifts_[c];
      moments.variance[c] = d == 0.0 ? vars[c] : moments.variance[c] / (d * d);
    }
  }

 private:
  static std::vector<double> doubles(const Tensor& values, std::int64_t count, double fallback) {
    return numbers_of<double>(values.defined() ? values.detach().to(DType::Float64) : values, count,
                              fallback);
  }

  std::vector<double> divisors_;
  std::vector<double> shifts_;
};

// running += momentum * (now - running), in torch's order.
void move_running(const Tensor& running, const std::vector<double>& now, double momentum) {
  detail::visit_floats(running.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor dense = running.contiguous();
    const Tensor moved = Tensor::empty(running.sizes(), running.dtype());
    for (std::size_t c = 0; c < now.size(); ++c) {
      moved.mutable_data<T>()[c] = static_cast<T>(
          (1.0 - momentum) * static_cast<double>(dense.data<T>()[c]) + momentum * now[c]);
    }
    const autograd::NoGradGuard guard;
    running.copy_(moved);
  });
}

cpu::ChannelMoments moments_of(const Tensor& dense) {
  if (dense.numel() == 0) {
    const std::vector<double> nothing(static_cast<std::size_t>(dense.sizes()[1]));
    return {nothing, nothing};
  }
  return detail::visit_floats(dense.dtype(), [&](auto zero) {
    using T = decltype(zero);
    return cpu::channel_moments(cpu::ChannelGeometry(dense),
                                static_cast<const T*>(dense.data_ptr()));
  });
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps) {
  for (const Tensor* given : {&mean, &var, &weight, &bias}) {
    if (given->defined()) replay::check_read(kOp, *given);
  }
  OpScope scope(kOp);
  check_inputs(x, weight, bias, eps);
  scope.maps(x);
  check_required("mean", mean, x);
  check_required("var", var, x);
  autograd::require_no_grad(kOp, mean, var);
  scope.kernel(x.dtype() == DType::Float64 ? "doubles" : "simd");
  Tensor y = detail::visit_floats(x.dtype(), [&](auto zero) {
    return by_given<decltype(zero)>(x, mean, var, weight, bias, eps);
  });
  if (!autograd::needs_grad(x, weight, bias)) return y;
  const std::vector<double> variances =
      numbers_of<double>(var.to(DType::Float64), x.sizes()[1], 1.0);
  // A copy: running statistics may move on before backward comes.
  return gradients::record_batch_norm(x, mean.to(DType::Float64).clone(),
                                      float64_tensor(inverse_stds(variances, eps)), weight, bias,
                                      gradients::Moments::Given, std::move(y));
}

Tensor batch_norm_train(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight, const Tensor& bias,
                        const BatchNormTrainOptions& options) {
  if (replay::is_recording()) {
    QUANTA_SUPPORTED(!running_mean.defined() && !running_var.defined(),
                     "freeze: {}: running_mean: expected no statistics that a call changes, got "
                     "some",
                     kOp);
    return replay::call(
        kOp,
        [options](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& divisor,
                  const Tensor& shift) {
          BatchNormTrainOptions given = options;
          given.divisor = divisor;
          given.shift = shift;
          return batch_norm_train(a, {}, {}, b, c, given);
        },
        x, weight, bias, options.divisor, options.shift);
  }
  OpScope scope(kOp);
  check_inputs(x, weight, bias, options.eps);
  scope.maps(x);
  if (running_mean.defined()) check_parameter("running_mean", running_mean, x);
  if (running_var.defined()) check_parameter("running_var", running_var, x);
  if (options.divisor.defined()) check_parameter("divisor", options.divisor, x);
  if (options.shift.defined()) check_parameter("shift", options.shift, x);
  const std::int64_t channels = x.sizes()[1];
  const std::int64_t count = channels == 0 ? 0 : x.numel() / channels;
  // A batch without elements passes, as in torch.
  QUANTA_CHECK(count != 1,
               "{}: x: expected more than 1 value for each channel in train mode, got {}", kOp,
               x.sizes());
  scope.kernel(x.dtype() == DType::Float64 ? "doubles" : "simd");

  const Tensor dense = x.contiguous(format_of(x));
  const Quotient quotient(options, channels);
  cpu::ChannelMoments moments = moments_of(dense);
  const std::vector<double> means = moments.mean;
  const std::vector<double> inv_std = quotient.inverse_stds(moments.variance, options.eps);
  Tensor y = detail::visit_floats(x.dtype(), [&](auto zero) {
    return by_moments<decltype(zero)>(dense, means, inv_std, weight, bias);
  });
  // Unlike the one that normalizes, the running variance is an estimate without bias.
  const double factor =
      count == 0 ? 1.0 : static_cast<double>(count) / static_cast<double>(count - 1);
  for (double& variance : moments.variance) variance *= factor;
  quotient.apply(moments, running_mean, running_var);
  const double momentum = count == 0 ? 0.0 : options.momentum;
  if (running_mean.defined()) move_running(running_mean, moments.mean, momentum);
  if (running_var.defined()) move_running(running_var, moments.variance, momentum);
  if (!autograd::needs_grad(x, weight, bias, options.divisor, options.shift)) return y;
  return gradients::record_batch_norm(x, float64_tensor(means), float64_tensor(inv_std), weight,
                                      bias, gradients::Moments::OfBatch, std::move(y),
                                      {options.divisor, options.shift, options.eps});
}

}  // namespace quanta
