// Activation functions, softmax, and what does nothing at inference.

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/math_support.h"
#include "quanta/nn/activation.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

using Unary = Tensor (*)(const Tensor&);
using Module = std::shared_ptr<nn::Module>;

const Tensor& x_of(const NodeCall& call) { return call.input(0, "X"); }

template <Unary kFunction>
Outputs unary(const NodeCall& call) {
  return {kFunction(x_of(call))};
}

// A module without settings.
template <typename Kind>
Module make_plain(const NodeCall&) {
  return nn::make_module<Kind>();
}

Outputs evaluate_relu(const NodeCall& call) {
  const Tensor& x = x_of(call);
  return {is_float(x) ? relu(x) : maximum(x, Tensor::zeros({}, x.dtype()))};
}

double leaky_alpha(const NodeCall& call) { return call.number("alpha", 0.01F); }
Outputs evaluate_leaky_relu(const NodeCall& call) {
  return {leaky_relu(x_of(call), leaky_alpha(call))};
}
Module make_leaky_relu(const NodeCall& call) {
  return nn::make_module<nn::LeakyReLU>(leaky_alpha(call));
}

Outputs evaluate_elu(const NodeCall& call) { return {elu(x_of(call), call.number("alpha", 1.0))}; }
Module make_elu(const NodeCall& call) {
  return nn::make_module<nn::ELU>(call.number("alpha", 1.0));
}

Outputs evaluate_celu(const NodeCall& call) {
  return {celu(x_of(call), call.number("alpha", 1.0))};
}
Module make_celu(const NodeCall& call) {
  return nn::make_module<nn::CELU>(call.number("alpha", 1.0));
}

Outputs evaluate_selu(const NodeCall& call) {
  const double alpha = call.number("alpha", 1.67326319217681884765625);
  const double gamma = call.number("gamma", 1.05070102214813232421875);
  return {mul_scalar(elu(x_of(call), alpha), gamma)};
}

struct HardSigmoidSettings {
  double alpha;
  double beta;
  /// Whether that is torch's: 1 / 6, as files round it, and 1 / 2.
  bool is_torch() const { return std::fabs(alpha - 1.0 / 6.0) < 1e-7 && beta == 0.5; }
};
HardSigmoidSettings hard_sigmoid_settings(const NodeCall& call) {
  return {call.number("alpha", 0.2F), call.number("beta", 0.5)};
}
Outputs evaluate_hard_sigmoid(const NodeCall& call) {
  const HardSigmoidSettings settings = hard_sigmoid_settings(call);
  const Tensor& x = x_of(call);
  if (settings.is_torch()) return {hardsigmoid(x)};
  return {clamp(add_scalar(mul_scalar(x, settings.alpha), settings.beta), 0.0, 1.0)};
}
Module make_hard_sigmoid(const NodeCall& call) {
  if (!hard_sigmoid_settings(call).is_torch()) return nullptr;
  return nn::make_module<nn::Hardsigmoid>();
}

Outputs evaluate_thresholded_relu(const NodeCall& call) {
  return {threshold(x_of(call), call.number("alpha", 1.0), 0.0)};
}

// Beyond the threshold log(1 + exp(x)) is x to the last digit.
Outputs evaluate_softplus(const NodeCall& call) {
  const Tensor& x = x_of(call);
  return {softplus(x, 1.0, x.dtype() == DType::Float64 ? 40.0 : 20.0)};
}

GeluApproximation approximation(const NodeCall& call) {
  const std::string name = call.text("approximate", "none");
  if (name != "none" && name != "tanh") {
    call.fail(fmt::format("attribute approximate: expected none or tanh, got '{}'", name));
  }
  return name == "tanh" ? GeluApproximation::Tanh : GeluApproximation::None;
}
Outputs evaluate_gelu(const NodeCall& call) { return {gelu(x_of(call), approximation(call))}; }
Module make_gelu(const NodeCall& call) { return nn::make_module<nn::GELU>(approximation(call)); }

Outputs evaluate_swish(const NodeCall& call) {
  const Tensor& x = x_of(call);
  const double alpha = call.number("alpha", 1.0);
  if (alpha == 1.0) return {silu(x)};
  return {mul(x, sigmoid(mul_scalar(x, alpha)))};
}
Module make_swish(const NodeCall& call) {
  if (call.number("alpha", 1.0) != 1.0) return nullptr;
  return nn::make_module<nn::SiLU>();
}

// x + bias below -lambd, x - bias above lambd, else 0.
Outputs evaluate_shrink(const NodeCall& call) {
  const double lambd = call.number("lambd", 0.5);
  const double bias = call.number("bias", 0.0);
  return {as_floats(x_of(call), [&](const Tensor& x) {
    const Tensor nothing = Tensor::zeros({}, x.dtype());
    const Tensor above = where(gt(x, lambd), add_scalar(x, -bias), nothing);
    return where(lt(x, -lambd), add_scalar(x, bias), above);
  })};
}

// Before opset 7 a slope of several numbers goes with dimension 1, later it is broadcast.
Outputs evaluate_prelu(const NodeCall& call) {
  const Tensor& x = x_of(call);
  const Tensor& slope = call.input(1, "slope");
  const bool of_channels = slope.dim() > 0 && slope.dim() == x.dim() - 1 &&
                           slope.numel() == slope.size(0) && x.dim() > 1 &&
                           slope.size(0) == x.size(1);
  if (is_float(x) && (slope.numel() == 1 || of_channels || call.opset() < 7)) {
    return {prelu(x, slope.reshape({-1}))};
  }
  if (broadcast_sizes(x.sizes(), slope.sizes(), "PRelu") != x.sizes()) {
    call.fail(fmt::format("input 1 (slope): expected sizes that broadcast to {}, got {}", x.sizes(),
                          slope.sizes()));
  }
  return {where(lt(x, 0.0), mul(x, slope), x)};
}

// Clip ----------------------------------------------------------------------------------------

// Attributes before opset 11, inputs since.
std::optional<double> bound(const NodeCall& call, std::size_t i, std::string_view name) {
  if (call.opset() < 11) {
    return call.has_attribute(name) ? std::optional(call.number(name)) : std::nullopt;
  }
  if (!call.has(i)) return std::nullopt;
  const auto values = call.numbers(i, name);
  if (values.size() != 1) {
    call.fail(fmt::format("input {} ({}): expected one number, got {}", i, name, values.size()));
  }
  return values[0];
}

// Bounds that are inputs stay tensors: a run may calculate them.
Outputs evaluate_clip(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  if (call.opset() < 11) {
    const auto low = bound(call, 1, "min");
    const auto high = bound(call, 2, "max");
    return {low || high ? clamp(x, low, high) : x};
  }
  const auto limit = [&](std::size_t i, std::string_view name) {
    const Tensor& value = call.input(i, name);
    if (value.numel() != 1) {
      call.fail(
          fmt::format("input {} ({}): expected one number, got sizes {}", i, name, value.sizes()));
    }
    return value.reshape({});
  };
  Tensor result = x;
  if (call.has(1)) result = maximum(result, limit(1, "min"));
  if (call.has(2)) result = minimum(result, limit(2, "max"));
  return {result};
}

Module make_clip(const NodeCall& call) {
  // Inputs that are no constants look like ones that are left out: the node tells.
  const auto& inputs = call.node().inputs;
  for (std::size_t i = 1; i < inputs.size() && call.opset() >= 11; ++i) {
    if (inputs[i] != kNone && !call.has(i)) return nullptr;
  }
  for (std::size_t i = 1; i < call.input_count(); ++i) {
    if (call.has(i) && call.inputs()[i].dtype() != DType::Float32) return nullptr;
  }
  const auto low = bound(call, 1, "min");
  const auto high = bound(call, 2, "max");
  if (!low || !high || !(*low < *high)) return nullptr;
  if (*low == 0.0 && *high == 6.0) return nn::make_module<nn::ReLU6>();
  return nn::make_module<nn::Hardtanh>(*low, *high);
}

// Softmax -------------------------------------------------------------------------------------

// Before opset 13 along all dimensions from `axis` on together, since along `axis` alone.
template <typename Function>
Outputs along_axis(const NodeCall& call, Function&& function) {
  const Tensor& x = call.input(0, "input");
  const bool flattens = call.opset() < 13;
  const std::int64_t given = call.integer("axis", flattens ? 1 : -1);
  if (!flattens) return {function(x, wrap_dim(given, x.dim(), call.op()))};
  const std::int64_t axis = given < 0 ? given + x.dim() : given;
  if (axis < 0 || axis > x.dim()) {
    call.fail(fmt::format("attribute axis: expected {}..{}, got {}", -x.dim(), x.dim(), given));
  }
  if (axis == x.dim() - 1) return {function(x, axis)};
  std::int64_t outer = 1;
  std::int64_t count = 1;
  for (std::int64_t d = 0; d < x.dim(); ++d) (d < axis ? outer : count) *= x.size(d);
  return {function(x.reshape({outer, count}), std::int64_t{1}).reshape(x.sizes())};
}

Outputs evaluate_softmax(const NodeCall& call) {
  return along_axis(call, [](const Tensor& x, std::int64_t dim) { return softmax(x, dim); });
}
Outputs evaluate_log_softmax(const NodeCall& call) {
  return along_axis(call, [](const Tensor& x, std::int64_t dim) { return log_softmax(x, dim); });
}

// 1 where the first largest element is.
Outputs evaluate_hardmax(const NodeCall& call) {
  return along_axis(call, [](const Tensor& x, std::int64_t dim) {
    if (x.numel() == 0 || x.dim() == 0) return Tensor::ones(x.sizes(), x.dtype());
    Dims sizes;
    for (std::int64_t d = 0; d < x.dim(); ++d) sizes.push_back(d == dim ? x.size(dim) : 1);
    const Tensor positions = Tensor::arange(x.size(dim), DType::Int64).reshape(sizes);
    return cast(eq(argmax(x, dim, {.keepdim = true}), positions), x.dtype());
  });
}

Module make_softmax(const NodeCall& call) {
  const bool flattens = call.opset() < 13;
  const std::int64_t axis = call.integer("axis", flattens ? 1 : -1);
  if (flattens && axis != -1) return nullptr;  // what is flattened depends on the rank
  return nn::make_module<nn::Softmax>(axis);
}

// Dropout -----------------------------------------------------------------------------------

Outputs evaluate_dropout(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  const bool trains = call.opset() >= 12 && call.has(2) && call.integers(2, "training_mode").at(0);
  if (trains) {
    const double ratio = call.has(1) ? call.numbers(1, "ratio").at(0) : 0.5;
    if (ratio != 0.0) {
      call.unsupported(
          fmt::format("training_mode: expected false, as dropping out is for training, got true "
                      "with ratio {}",
                      ratio));
    }
  }
  Outputs results{x};
  if (call.wants(1)) {
    results.push_back(Tensor::ones(x.sizes(), call.opset() < 10 ? x.dtype() : DType::Bool));
  }
  return results;
}

template <Evaluate kEvaluate>
OpRow pointwise(std::string_view name, Module (*make_module)(const NodeCall&)) {
  return {.name = name,
          .evaluate = kEvaluate,
          .rule = CodeRule::Table,
          .make_module = make_module,
          .call_module = make_module == nullptr ? nullptr : call_unary_module<kEvaluate>};
}

}  // namespace

void add_activation_ops(OpTable& table) {
  table.add({.name = "Relu",
             .evaluate = evaluate_relu,
             .rule = CodeRule::Pass,
             .make_module = make_plain<nn::ReLU>,
             .call_module = call_unary_module<evaluate_relu>});
  table.add({.name = "Clip",
             .evaluate = evaluate_clip,
             .rule = CodeRule::Pass,
             .make_module = make_clip,
             .call_module = call_unary_module<evaluate_clip>});
  table.add(pointwise<evaluate_leaky_relu>("LeakyRelu", make_leaky_relu));
  table.add(pointwise<evaluate_elu>("Elu", make_elu));
  table.add(pointwise<evaluate_celu>("Celu", make_celu));
  table.add(pointwise<evaluate_selu>("Selu", nullptr));
  table.add(pointwise<unary<sigmoid>>("Sigmoid", make_plain<nn::Sigmoid>));
  table.add(pointwise<evaluate_hard_sigmoid>("HardSigmoid", make_hard_sigmoid));
  table.add(pointwise<unary<hardswish>>("HardSwish", make_plain<nn::Hardswish>));
  table.add(pointwise<unary<tanh>>("Tanh", make_plain<nn::Tanh>));
  table.add(pointwise<evaluate_softplus>("Softplus", nullptr));
  table.add(pointwise<unary<softsign>>("Softsign", make_plain<nn::Softsign>));
  table.add(pointwise<evaluate_thresholded_relu>("ThresholdedRelu", nullptr));
  table.add(pointwise<evaluate_gelu>("Gelu", make_gelu));
  table.add(pointwise<unary<mish>>("Mish", make_plain<nn::Mish>));
  table.add(pointwise<evaluate_swish>("Swish", make_swish));
  table.add(pointwise<evaluate_shrink>("Shrink", nullptr));
  table.add({.name = "PRelu", .evaluate = evaluate_prelu});
  table.add({.name = "Softmax",
             .evaluate = evaluate_softmax,
             .make_module = make_softmax,
             .call_module = call_unary_module<evaluate_softmax>});
  table.add({.name = "LogSoftmax", .evaluate = evaluate_log_softmax});
  table.add({.name = "Hardmax", .evaluate = evaluate_hardmax});
  table.add(
      {.name = "Dropout", .evaluate = evaluate_dropout, .rule = CodeRule::Pass, .widens = false});
}

}  // namespace quanta::graph
