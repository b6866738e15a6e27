#include "quanta/nn/quantized/norm.h"

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/norm.h"

namespace quanta::nn::quantized {
namespace {

namespace ops = quanta::quantized;
using detail::python_bool;
using detail::python_float;

// Without a gradient: the layer may have been trained.
Tensor copy_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone() : Tensor();
}

}  // namespace

BatchNormNd::BatchNormNd(const BatchNormOptions& options, std::int64_t spatial, double output_scale,
                         std::int64_t output_zero_point)
    : OutputQuantized(output_scale, output_zero_point), options_(options), spatial_(spatial) {
  QUANTA_CHECK(options.num_features >= 1, "BatchNorm{}d: num_features: expected at least 1, got {}",
               spatial, options.num_features);
  const Dims sizes{options.num_features};
  weight = Tensor::ones(sizes);
  bias = Tensor::zeros(sizes);
  running_mean = Tensor::zeros(sizes);
  running_var = Tensor::ones(sizes);
  num_batches_tracked = Tensor::zeros({}, DType::Int64);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked, InState::Optional);
}

void BatchNormNd::copy_from(const nn::BatchNormNd& source) {
  QUANTA_SUPPORTED(source.running_mean.defined() && source.running_var.defined(),
                   "{}: running_mean: expected running statistics, got a {} without (a null "
                   "QConfig leaves it in float)",
                   type_name(), source.type_name());
  if (source.weight.defined()) weight = copy_of(source.weight);
  if (source.bias.defined()) bias = copy_of(source.bias);
  running_mean = source.running_mean.clone();
  running_var = source.running_var.clone();
  num_batches_tracked = source.num_batches_tracked.clone();
}

void BatchNormNd::check_input(const Tensor& x) const {
  QUANTA_CHECK(x.dim() == spatial_ + 2,
               "quantized::batch_norm{}d: x: expected {} dimensions, got {}", spatial_,
               spatial_ + 2, x.sizes());
}

Tensor BatchNormNd::forward(const Tensor& x) const {
  check_input(x);
  return ops::batch_norm(x.as_quantized("quantized::batch_norm", "x"), weight, bias, running_mean,
                         running_var, options_.eps, scale, zero_point);
}

std::string BatchNormNd::extra_repr() const {
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats=True",
                     options_.num_features, python_float(options_.eps),
                     python_float(options_.momentum), python_bool(options_.affine));
}

template <int N>
std::shared_ptr<Module> BatchNorm<N>::from_float(const Module& module) {
  const std::string name = fmt::format("BatchNorm{}d", N);
  const std::string op = name + ".from_float";
  const auto& source = detail::expect_module<nn::BatchNorm<N>>(op, module, name);
  const detail::OutputParams output = detail::output_params(op, module);
  auto result = make_module<BatchNorm>(source.options(), output.scale, output.zero_point);
  result->copy_from(source);
  return result;
}

template class BatchNorm<2>;
template class BatchNorm<3>;

AffineNorm::AffineNorm(const Tensor& norm_weight, const Tensor& norm_bias, double output_scale,
                       std::int64_t output_zero_point)
    : OutputQuantized(output_scale, output_zero_point),
      weight(copy_of(norm_weight)),
      bias(copy_of(norm_bias)) {
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

std::shared_ptr<Module> LayerNorm::from_float(const Module& module) {
  constexpr std::string_view kOp = "LayerNorm.from_float";
  const auto& source = detail::expect_module<nn::LayerNorm>(kOp, module, "LayerNorm");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<LayerNorm>(source.options(), source.weight, source.bias, output.scale,
                                output.zero_point);
}

Tensor LayerNorm::forward(const Tensor& x) const {
  return ops::layer_norm(x.as_quantized("quantized::layer_norm", "x"), options_.normalized_shape,
                         weight, bias, options_.eps, scale, zero_point);
}

std::string LayerNorm::extra_repr() const {
  return fmt::format("{}, eps={}, elementwise_affine={}",
                     detail::python_tuple(options_.normalized_shape), python_float(options_.eps),
                     python_bool(options_.elementwise_affine));
}

std::shared_ptr<Module> GroupNorm::from_float(const Module& module) {
  constexpr std::string_view kOp = "GroupNorm.from_float";
  const auto& source = detail::expect_module<nn::GroupNorm>(kOp, module, "GroupNorm");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<GroupNorm>(source.options(), source.weight, source.bias, output.scale,
                                output.zero_point);
}

Tensor GroupNorm::forward(const Tensor& x) const {
  return ops::group_norm(x.as_quantized("quantized::group_norm", "x"), options_.num_groups, weight,
                         bias, options_.eps, scale, zero_point);
}

std::string GroupNorm::extra_repr() const {
  return fmt::format("{}, {}, eps={}, affine={}", options_.num_groups, options_.num_channels,
                     python_float(options_.eps), python_bool(options_.affine));
}

Tensor InstanceNormNd::forward(const Tensor& x) const {
  QUANTA_CHECK(x.dim() == spatial_ + 2,
               "quantized::instance_norm: x: expected {} dimensions, got {}", spatial_ + 2,
               x.sizes());
  return ops::instance_norm(x.as_quantized("quantized::instance_norm", "x"), weight, bias,
                            options_.eps, scale, zero_point);
}

std::string InstanceNormNd::extra_repr() const {
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats=False",
                     options_.num_features, python_float(options_.eps),
                     python_float(options_.momentum), python_bool(options_.affine));
}

template <int N>
std::shared_ptr<Module> InstanceNorm<N>::from_float(const Module& module) {
  const std::string name = fmt::format("InstanceNorm{}d", N);
  const std::string op = name + ".from_float";
  const auto& source = detail::expect_module<nn::InstanceNorm<N>>(op, module, name);
  QUANTA_SUPPORTED(!source.options().track_running_stats,
                   "{}: track_running_stats: expected False (quantized ones know the statistics of "
                   "their input only; a null QConfig leaves the module in float), got True",
                   op);
  const detail::OutputParams output = detail::output_params(op, module);
  return make_module<InstanceNorm>(source.options(), source.weight, source.bias, output.scale,
                                   output.zero_point);
}

template class InstanceNorm<1>;
template class InstanceNorm<2>;
template class InstanceNorm<3>;

}  // namespace quanta::nn::quantized
