#include "quanta/nn/norm.h"

#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/put_size.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"

namespace quanta::nn {
namespace {

using detail::python_bool;
using detail::python_float;

// running += momentum * (now - running).
void move_running(const Tensor& running, const Tensor& now, double momentum) {
  running.copy_(add(mul_scalar(running, 1.0 - momentum), mul_scalar(now, momentum)));
}

}  // namespace

BatchNormOptions BatchNormNd::with_features(std::int64_t num_features, BatchNormOptions more) {
  detail::put_size("BatchNorm", "num_features", num_features, more.num_features);
  return more;
}

BatchNormNd::BatchNormNd(const BatchNormOptions& options, std::int64_t min_rank,
                         std::int64_t max_rank)
    : options_(options), min_rank_(min_rank), max_rank_(max_rank) {
  QUANTA_CHECK(options.num_features >= 1, "BatchNorm{}d: num_features: expected at least 1, got {}",
               max_rank - 2, options.num_features);
  const Dims sizes{options.num_features};
  if (options.affine) {
    weight = Tensor::ones(sizes);
    bias = Tensor::zeros(sizes);
  }
  if (options.track_running_stats) {
    running_mean = Tensor::zeros(sizes);
    running_var = Tensor::ones(sizes);
    num_batches_tracked = Tensor::zeros({}, DType::Int64);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked, InState::Optional);
}

void BatchNormNd::check_input(const Tensor& x) const {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", type_name());
  QUANTA_CHECK(x.dim() >= min_rank_ && x.dim() <= max_rank_,
               "{}: x: expected {} dimensions, got {}", type_name(),
               min_rank_ == max_rank_ ? fmt::format("{}", min_rank_)
                                      : fmt::format("{} to {}", min_rank_, max_rank_),
               x.sizes());
  QUANTA_CHECK(x.size(1) == options_.num_features, "{}: x: expected {} channels, got {}",
               type_name(), options_.num_features, x.sizes());
}

Tensor BatchNormNd::forward(const Tensor& x) const {
  check_input(x);
  if (!options_.track_running_stats) {
    return normalize_batch(x, {.eps = options_.eps});
  }
  if (is_training()) return normalize_and_track(x, {}, {});
  return batch_norm(x, running_mean, running_var, weight, bias, options_.eps);
}

Tensor BatchNormNd::forward_quotient(const Tensor& x, const Tensor& divisor,
                                     const Tensor& shift) const {
  check_input(x);
  QUANTA_CHECK(is_training() && options_.track_running_stats,
               "{}: forward_quotient: expected train mode and running statistics, got train={}, "
               "track_running_stats={}",
               type_name(), is_training(), options_.track_running_stats);
  return normalize_and_track(x, divisor, shift);
}

Tensor BatchNormNd::normalize_and_track(const Tensor& x, const Tensor& divisor,
                                        const Tensor& shift) const {
  const double batches = num_batches_tracked.item() + 1.0;
  const double momentum = options_.momentum.value_or(1.0 / batches);
  Tensor y = normalize_batch(
      x, {.momentum = momentum, .eps = options_.eps, .divisor = divisor, .shift = shift});
  num_batches_tracked.fill_(batches);
  return y;
}

Tensor BatchNormNd::normalize_batch(const Tensor& x, const BatchNormTrainOptions& options) const {
  return batch_norm_train(x, running_mean, running_var, weight, bias, options);
}

std::string BatchNormNd::extra_repr() const {
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats={}",
                     options_.num_features, python_float(options_.eps),
                     python_float(options_.momentum), python_bool(options_.affine),
                     python_bool(options_.track_running_stats));
}

LayerNorm::LayerNorm(const LayerNormOptions& options) : options_(options) {
  QUANTA_CHECK(!options.normalized_shape.empty(),
               "LayerNorm: normalized_shape: expected one size or more, got none");
  for (const std::int64_t size : options.normalized_shape) {
    QUANTA_CHECK(size >= 1, "LayerNorm: normalized_shape: expected sizes of at least 1, got {}",
                 options.normalized_shape);
  }
  if (options.elementwise_affine) {
    weight = Tensor::ones(options.normalized_shape);
    if (options.bias) bias = Tensor::zeros(options.normalized_shape);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, options_.normalized_shape, weight, bias, options_.eps);
}

std::string LayerNorm::extra_repr() const {
  return fmt::format("{}, eps={}, elementwise_affine={}",
                     detail::python_tuple(options_.normalized_shape), python_float(options_.eps),
                     python_bool(options_.elementwise_affine));
}

GroupNorm::GroupNorm(const GroupNormOptions& options) : options_(options) {
  QUANTA_CHECK(options.num_channels >= 1, "GroupNorm: num_channels: expected at least 1, got {}",
               options.num_channels);
  QUANTA_CHECK(options.num_groups >= 1 && options.num_channels % options.num_groups == 0,
               "GroupNorm: num_groups: expected a divisor of num_channels {}, got {}",
               options.num_channels, options.num_groups);
  if (options.affine) {
    weight = Tensor::ones({options.num_channels});
    bias = Tensor::zeros({options.num_channels});
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor GroupNorm::forward(const Tensor& x) const {
  return group_norm(x, options_.num_groups, weight, bias, options_.eps);
}

std::string GroupNorm::extra_repr() const {
  return fmt::format("{}, {}, eps={}, affine={}", options_.num_groups, options_.num_channels,
                     python_float(options_.eps), python_bool(options_.affine));
}

InstanceNormNd::InstanceNormNd(const InstanceNormOptions& options, std::int64_t spatial)
    : options_(options), spatial_(spatial) {
  QUANTA_CHECK(options.num_features >= 1,
               "InstanceNorm{}d: num_features: expected at least 1, got {}", spatial,
               options.num_features);
  if (options.affine) {
    weight = Tensor::ones({options.num_features});
    bias = Tensor::zeros({options.num_features});
  }
  if (options.track_running_stats) {
    running_mean = Tensor::zeros({options.num_features});
    running_var = Tensor::ones({options.num_features});
    num_batches_tracked = Tensor::zeros({}, DType::Int64);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked, InState::Optional);
}

Tensor InstanceNormNd::forward(const Tensor& x) const {
  QUANTA_CHECK(x.defined(), "InstanceNorm{}d: x: expected a tensor, got an undefined one",
               spatial_);
  QUANTA_CHECK(x.dim() == spatial_ + 1 || x.dim() == spatial_ + 2,
               "InstanceNorm{}d: x: expected {} or {} dimensions, got {}", spatial_, spatial_ + 1,
               spatial_ + 2, x.sizes());
  QUANTA_CHECK(x.size(-spatial_ - 1) == options_.num_features,
               "InstanceNorm{}d: x: expected {} channels, got {}", spatial_, options_.num_features,
               x.sizes());
  if (x.dim() == spatial_ + 1) return forward(x.unsqueeze(0)).squeeze(0);
  if (!is_training() && options_.track_running_stats) {
    return batch_norm(x, running_mean, running_var, weight, bias, options_.eps);
  }
  Tensor y = instance_norm(x, weight, bias, options_.eps);
  if (options_.track_running_stats) track(x);
  return y;
}

void InstanceNormNd::track(const Tensor& x) const {
  const autograd::NoGradGuard guard;
  Dims spatial;
  for (std::int64_t d = 2; d < x.dim(); ++d) spatial.push_back(d);
  move_running(running_mean, mean(mean(x, spatial), {0}), options_.momentum);
  move_running(running_var, mean(var(x, spatial), {0}), options_.momentum);
}

std::string InstanceNormNd::extra_repr() const {
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats={}",
                     options_.num_features, python_float(options_.eps),
                     python_float(options_.momentum), python_bool(options_.affine),
                     python_bool(options_.track_running_stats));
}

}  // namespace quanta::nn
