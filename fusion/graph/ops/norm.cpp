// Normalizations.

#include "quanta/ops/norm.h"

#include <algorithm>
#include <memory>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/nn/norm.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

Tensor in_dtype_of(const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined() || parameter.dtype() == x.dtype()) return parameter;
  return parameter.to(x.dtype());
}

/// running * momentum + current * (1 - momentum), ONNX's way round.
Tensor moved(const Tensor& running, const Tensor& current, double momentum) {
  return add(mul_scalar(running, momentum), mul_scalar(current, 1.0 - momentum));
}

/// With the statistics of the batch, and what becomes of the running ones.
Outputs train_batch_norm(const NodeCall& call, const Tensor& x, const Tensor& weight,
                         const Tensor& bias, double eps) {
  Dims others;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (d != 1) others.push_back(d);
  }
  const Tensor mean_now = mean(x, others);
  const Tensor var_now = var(x, others, {.correction = 0.0});
  const double momentum = call.number("momentum", 0.9);
  const Tensor running_mean = in_dtype_of(call.input(3, "mean"), x);
  const Tensor running_var = in_dtype_of(call.input(4, "var"), x);
  return {batch_norm(x, mean_now, var_now, weight, bias, eps),
          moved(running_mean, mean_now, momentum), moved(running_var, var_now, momentum), mean_now,
          var_now};
}

Outputs evaluate_batch_norm(const NodeCall& call) {
  Tensor x = call.input(0, "X");
  if (x.dim() < 2) {
    call.fail(fmt::format("input 0 (X): expected [N, C, ...], got sizes {}", x.sizes()));
  }
  const Dims sizes = x.sizes();
  const Tensor weight = in_dtype_of(call.input(1, "scale"), x);
  const Tensor bias = in_dtype_of(call.input(2, "B"), x);
  const double eps = call.number("epsilon", 1e-5);
  // Before opset 9 statistics could be those of each activation instead of each channel.
  const bool per_channel = call.opset() >= 9 || call.flag("spatial", true);
  const auto parameter = [&](const Tensor& p) { return per_channel ? p : p.flatten(); };
  if (!per_channel) x = x.flatten(1);
  // Before opset 14 the number of results says whether it is trained.
  bool trains = call.opset() >= 14 && call.flag("training_mode", false);
  for (std::size_t i = 1; call.opset() < 14 && i < call.output_count(); ++i) {
    trains = trains || call.wants(i);
  }
  Outputs results;
  if (trains) {
    if (!per_channel) call.unsupported("attribute spatial: expected 1 in training, got 0");
    results = train_batch_norm(call, x, weight, bias, eps);
  } else {
    results = {batch_norm(x, parameter(in_dtype_of(call.input(3, "mean"), x)),
                          parameter(in_dtype_of(call.input(4, "var"), x)), parameter(weight),
                          parameter(bias), eps)};
  }
  if (!per_channel) results[0] = results[0].reshape(sizes);
  return results;
}

Outputs evaluate_instance_norm(const NodeCall& call) {
  return {instance_norm(call.input(0, "input"), call.input(1, "scale"), call.input(2, "B"),
                        call.number("epsilon", 1e-5))};
}

/// A number for each channel: since opset 21 that is how they come, before there is one a group.
Tensor of_channels(const NodeCall& call, const Tensor& parameter, std::int64_t channels,
                   std::int64_t groups) {
  if (call.opset() >= 21 || parameter.numel() != groups || groups == channels) return parameter;
  return parameter.reshape({groups, 1}).expand({groups, channels / groups}).reshape({channels});
}

std::int64_t groups_of(const NodeCall& call) {
  const std::int64_t groups = call.integer("num_groups");
  if (groups < 1) call.fail(fmt::format("attribute num_groups: expected >= 1, got {}", groups));
  return groups;
}

Outputs evaluate_group_norm(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const std::int64_t groups = groups_of(call);
  if (x.dim() < 2 || x.size(1) % groups != 0) {
    call.fail(
        fmt::format("input 0 (X): expected [N, C, ...] with a multiple of {} channels, got "
                    "sizes {}",
                    groups, x.sizes()));
  }
  const auto parameter = [&](std::size_t i, std::string_view name) {
    return of_channels(call, in_dtype_of(call.input(i, name), x), x.size(1), groups);
  };
  return {group_norm(x, groups, parameter(1, "scale"), parameter(2, "bias"),
                     call.number("epsilon", 1e-5))};
}

std::shared_ptr<nn::Module> make_group_norm(const NodeCall& constants) {
  Tensor weight = constants.optional(1);
  Tensor bias = constants.optional(2);
  const auto fits = [](const Tensor& x) {
    return x.defined() && x.dtype() == DType::Float32 && x.dim() == 1 && x.numel() > 0;
  };
  // How many channels there are is known since opset 21 only.
  if (constants.opset() < 21 || !fits(weight) || !fits(bias)) return nullptr;
  const std::int64_t groups = groups_of(constants);
  if (weight.numel() % groups != 0 || bias.numel() != weight.numel()) return nullptr;
  auto layer = nn::make_module<nn::GroupNorm>(
      nn::GroupNormOptions{.num_groups = groups,
                           .num_channels = weight.numel(),
                           .eps = constants.number("epsilon", 1e-5)});
  layer->weight = weight;
  layer->bias = bias;
  layer->eval();
  return layer;
}

// Over the last dimensions -------------------------------------------------------------------------

/// How many of the last dimensions are normalized.
std::int64_t normalized_dims(const NodeCall& call, const Tensor& x) {
  const std::int64_t axis = call.integer("axis", -1);
  if (axis < -x.dim() || axis >= x.dim()) {
    call.fail(fmt::format("attribute axis: expected {}..{}, got {}", -x.dim(), x.dim() - 1, axis));
  }
  return axis < 0 ? -axis : x.dim() - axis;
}

Dims last_sizes(const Tensor& x, std::int64_t dims) {
  Dims sizes;
  for (std::int64_t d = x.dim() - dims; d < x.dim(); ++d) sizes.push_back(x.size(d));
  return sizes;
}

/// Parameters that broadcast to the normalized dimensions, or nothing for others.
std::optional<Tensor> of_shape(const Tensor& parameter, const Tensor& x, const Dims& shape) {
  if (!parameter.defined()) return parameter;
  Tensor p = in_dtype_of(parameter, x);
  while (p.dim() > static_cast<std::int64_t>(shape.size()) && p.size(0) == 1) p = p.squeeze(0);
  if (p.dim() > static_cast<std::int64_t>(shape.size())) return {};
  return p.expand(shape);
}

/// normalize(weight, bias) where both are of the normalized shape; others come behind it.
template <typename Normalize>
Tensor with_parameters(const NodeCall& call, const Tensor& x, const Dims& shape,
                       const Normalize& normalize) {
  const Tensor& weight = call.input(1, "Scale");
  const Tensor bias = call.optional(2);
  const std::optional<Tensor> own_weight = of_shape(weight, x, shape);
  const std::optional<Tensor> own_bias = of_shape(bias, x, shape);
  if (own_weight && own_bias) return normalize(*own_weight, *own_bias);
  Tensor result = mul(normalize(Tensor(), Tensor()), in_dtype_of(weight, x));
  if (bias.defined()) result = add(result, in_dtype_of(bias, x));
  return result;
}

Outputs evaluate_layer_norm(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const std::int64_t dims = normalized_dims(call, x);
  const Dims shape = last_sizes(x, dims);
  const double eps = call.number("epsilon", 1e-5);
  Outputs results{with_parameters(call, x, shape, [&](const Tensor& weight, const Tensor& bias) {
    return layer_norm(x, shape, weight, bias, eps);
  })};
  if (call.wants(1) || call.wants(2)) {
    const RowStatistics statistics = row_statistics(x, dims, eps);
    results.push_back(statistics.mean);
    results.push_back(statistics.inv_std);
  }
  return results;
}

std::shared_ptr<nn::Module> make_layer_norm(const NodeCall& constants) {
  const std::int64_t axis = constants.integer("axis", -1);
  const Tensor weight = constants.optional(1);
  const Tensor bias = constants.optional(2);
  const bool has_bias = constants.node().inputs.size() > 2 && constants.node().inputs[2] != kNone;
  // The normalized sizes are those of the scale where it has as many dimensions.
  if (axis >= 0 || !weight.defined() || weight.dtype() != DType::Float32 || weight.dim() != -axis ||
      weight.numel() == 0 || constants.wants(1) || constants.wants(2)) {
    return nullptr;
  }
  if (has_bias &&
      (!bias.defined() || bias.dtype() != DType::Float32 || bias.sizes() != weight.sizes())) {
    return nullptr;
  }
  // A size of 1 may broadcast.
  if (std::ranges::find(weight.sizes(), 1) != weight.sizes().end()) return nullptr;
  auto layer =
      nn::make_module<nn::LayerNorm>(nn::LayerNormOptions{.normalized_shape = weight.sizes(),
                                                          .eps = constants.number("epsilon", 1e-5),
                                                          .bias = has_bias});
  layer->weight = weight;
  layer->bias = bias;
  layer->eval();
  return layer;
}

Outputs evaluate_rms_norm(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const Dims shape = last_sizes(x, normalized_dims(call, x));
  const double eps = call.number("epsilon", 1e-5);
  return {with_parameters(call, x, shape, [&](const Tensor& weight, const Tensor&) {
    return rms_norm(x, shape, weight, eps);
  })};
}

// Without parameters ------------------------------------------------------------------------------

Outputs evaluate_lp_norm(const NodeCall& call) {
  const std::int64_t p = call.integer("p", 2);
  if (p != 1 && p != 2) call.fail(fmt::format("attribute p: expected 1 or 2, got {}", p));
  return {lp_normalize(call.input(0, "input"), call.integer("axis", -1), static_cast<double>(p))};
}

Outputs evaluate_lrn(const NodeCall& call) {
  return {local_response_norm(call.input(0, "X"), {.size = call.integer("size"),
                                                   .alpha = call.number("alpha", 1e-4),
                                                   .beta = call.number("beta", 0.75),
                                                   .bias = call.number("bias", 1.0)})};
}

Outputs evaluate_mean_variance_norm(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  Dims dims;
  for (const std::int64_t axis : call.integer_list("axes", {0, 2, 3})) dims.push_back(axis);
  const Tensor centred = sub(x, mean(x, dims, {.keepdim = true}));
  // The constant is that of ONNX's own definition.
  const Tensor deviation = std(x, dims, {.correction = 0.0, .keepdim = true});
  return {div(centred, add_scalar(deviation, 1e-9))};
}

}  // namespace

void add_norm_ops(OpTable& table) {
  // No module: how many dimensions the input has is known in a run only.
  table.add({.name = "BatchNormalization", .evaluate = evaluate_batch_norm});
  table.add({.name = "InstanceNormalization", .evaluate = evaluate_instance_norm});
  table.add({.name = "GroupNormalization",
             .evaluate = evaluate_group_norm,
             .make_module = make_group_norm});
  table.add({.name = "LayerNormalization",
             .evaluate = evaluate_layer_norm,
             .make_module = make_layer_norm});
  table.add({.name = "RMSNormalization", .evaluate = evaluate_rms_norm});
  table.add({.name = "LpNormalization", .evaluate = evaluate_lp_norm});
  table.add({.name = "LRN", .evaluate = evaluate_lrn});
  table.add({.name = "MeanVarianceNormalization", .evaluate = evaluate_mean_variance_norm});
}

}  // namespace quanta::graph
