#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/passes/layer_call.h"
#include "quanta/fusion/graph/passes/lowered_ops.h"
#include "quanta/fusion/graph/passes/lowering.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/linear.h"

// Convolutions, linear layers and products of activations of codes.

namespace quanta::graph {
namespace {

using quantized::ConvPackedParams;
using quantized::LinearPackedParams;

double scale_of(const QTensor& weight, std::size_t channel) {
  return weight.is_per_channel() ? weight.quantizer().channel->scales[channel]
                                 : weight.quantizer().scale;
}

/// What a DequantizeLinear of Int32 constants says of each number's unit. Empty where there is none.
std::vector<float> integer_units(const Graph& graph, const Node& node, std::size_t count) {
  if (!is_op(node, "DequantizeLinear") || node.inputs.size() < 2) return {};
  const Tensor& values = graph.values[index_of(node.inputs[0])].constant;
  const Tensor& scale = graph.values[index_of(node.inputs[1])].constant;
  if (!values.defined() || values.dtype() != DType::Int32 || !scale.defined()) return {};
  if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
    const Tensor& zero = graph.values[index_of(node.inputs[2])].constant;
    if (!zero.defined()) return {};
    for (const std::int64_t value : zero.to_int64_vector()) {
      if (value != 0) return {};
    }
  }
  std::vector<float> units = scale.to_float_vector();
  if (units.size() == 1) units.resize(count, units[0]);
  return units.size() == count ? units : std::vector<float>();
}

/// All float biases broadcast to one a channel.
Tensor broadcast_bias(const Tensor& bias, std::int64_t channels) {
  const Tensor flat = bias.reshape({-1});
  return flat.numel() == 1 ? flat.expand({channels}).contiguous() : flat.contiguous();
}

template <int N, bool kReLU>
std::shared_ptr<nn::Module> conv_module_of(const ConvCall& call, const QTensor& weight,
                                           const Tensor& bias, const Codes& codes) {
  using Kind =
      std::conditional_t<kReLU, nn::intrinsic::quantized::ConvReLU<N>, nn::quantized::Conv<N>>;
  const ConvOptions options{.stride = call.options.stride,
                            .padding = call.options.padding,
                            .dilation = call.options.dilation,
                            .groups = call.options.groups};
  return nn::make_module<Kind>(options, weight, bias, codes.scale, codes.zero_point);
}

template <bool kReLU>
std::shared_ptr<nn::Module> conv_module(const ConvCall& call, const QTensor& weight,
                                        const Tensor& bias, const Codes& codes) {
  switch (call.spatial) {
    case 1:
      return conv_module_of<1, kReLU>(call, weight, bias, codes);
    case 2:
      return conv_module_of<2, kReLU>(call, weight, bias, codes);
    default:
      return conv_module_of<3, kReLU>(call, weight, bias, codes);
  }
}

std::shared_ptr<nn::Module> transposed_module(const ConvCall& call, const QTensor& weight,
                                              const Tensor& bias, const Codes& codes) {
  switch (call.spatial) {
    case 1:
      return nn::make_module<nn::quantized::ConvTranspose1d>(call.options, weight, bias,
                                                             codes.scale, codes.zero_point);
    case 2:
      return nn::make_module<nn::quantized::ConvTranspose2d>(call.options, weight, bias,
                                                             codes.scale, codes.zero_point);
    default:
      return nn::make_module<nn::quantized::ConvTranspose3d>(call.options, weight, bias,
                                                             codes.scale, codes.zero_point);
  }
}

ConvPackedParams packed_conv(const ConvCall& call, bool transposed, const QTensor& weight,
                             const Tensor& bias) {
  if (transposed) return ConvPackedParams::transposed(weight, bias, call.options, call.spatial);
  return {weight,
          bias,
          {.stride = call.options.stride,
           .padding = call.options.padding,
           .dilation = call.options.dilation,
           .groups = call.options.groups},
          call.spatial};
}

}  // namespace

LayerBias layer_bias(const Graph& graph, ValueId id, double x_scale, const QTensor& weight,
                     std::int64_t channels, double factor) {
  if (id == kNone) return {};
  const auto count = static_cast<std::size_t>(channels);
  const NodeId made = graph.is_constant(id) ? kNone : graph.producer(id);
  if (made != kNone && factor == 1.0) {
    const Node& node = graph.nodes[index_of(made)];
    const std::vector<float> units = integer_units(graph, node, count);
    const Tensor codes = units.empty() ? Tensor() : graph.values[index_of(node.inputs[0])].constant;
    // The file may have another unit than that of the sums: this is looked at, not assumed.
    bool same = codes.defined() && codes.numel() == channels;
    for (std::size_t n = 0; n < units.size() && same; ++n) {
      const double unit = x_scale * scale_of(weight, n);
      same = std::fabs(static_cast<double>(units[n]) - unit) <= 1e-6 * unit;
    }
    if (same) return {codes.reshape({-1}).contiguous(), true};
  }
  const Tensor floats = constant_floats(graph, id);
  if (!floats.defined() || !floats.is_floating_point() ||
      (floats.numel() != 1 && floats.numel() != channels) ||
      (floats.numel() != 1 && floats.sizes().back() != channels)) {
    return {{}, false};
  }
  Tensor values = broadcast_bias(floats.to(DType::Float32), channels);
  if (factor != 1.0) {
    std::vector<float> scaled = values.to_float_vector();
    for (float& value : scaled) value *= static_cast<float>(factor);
    values = Tensor::from_values(scaled, {channels});
  }
  return {values, true};
}

bool Lowering::lower_conv(const Node& node) {
  const bool transposed = node.op == "ConvTranspose";
  if ((node.op != "Conv" && !transposed) || node.inputs.size() < 2 || !is_coded(node.inputs[0])) {
    return false;
  }
  const std::optional<WeightCodes> given = weight_codes(graph, node.inputs[1]);
  if (!given) {
    reason = "its weight is not in constant 8-bit codes";
    return false;
  }
  const std::optional<QTensor> weight = signed_weight(*given, transposed ? 1 : 0);
  const std::optional<ConvCall> call = conv_call(node, given->codes.sizes(), reason);
  if (!call) return false;
  const std::int64_t channels = transposed
                                    ? given->codes.size(1) * integer_attribute(node, "group", 1)
                                    : given->codes.size(0);
  if (!weight || (transposed && weight->is_per_channel() && call->options.groups != 1)) {
    reason = "its weight has scales along another dimension than that of the output channels";
    return false;
  }
  ValueId x = node.inputs[0];
  const LayerBias bias = layer_bias(graph, node.inputs.size() > 2 ? node.inputs[2] : kNone,
                                    codes(x)->scale, *weight, channels);
  if (!bias.fits) {
    reason = "its bias is no constant";
    return false;
  }
  if (call->padding) {
    const ValueId padded = add_coded(node.name + "_padded", *codes(x));
    emit(made_node(node.name + "_pad", "Pad", pad_image_operation(*call->padding), {x}, {padded}));
    x = padded;
  }
  const std::optional<Wanted> want = wanted(node.outputs[0]);
  if (!want) {
    emit(made_node(node.name, node.op,
                   conv_to_float_operation(packed_conv(*call, transposed, *weight, bias.values)),
                   {x}, {node.outputs[0]}));
    return true;
  }
  Wanted plain = *want;
  if (transposed && plain.relu) {
    plain.relu = false;
    plain.low = static_cast<std::uint8_t>(plain.codes.zero_point);
  }
  emit_wanted(node, plain, [&](ValueId result) {
    std::shared_ptr<nn::Module> module =
        transposed   ? transposed_module(*call, *weight, bias.values, plain.codes)
        : plain.relu ? conv_module<true>(*call, *weight, bias.values, plain.codes)
                     : conv_module<false>(*call, *weight, bias.values, plain.codes);
    emit_child(node, std::move(module), x, result);
  });
  return true;
}

bool Lowering::lower_linear(const Node& node) {
  const bool gemm = node.op == "Gemm";
  if ((!gemm && node.op != "MatMul") || node.inputs.size() < 2 || !is_coded(node.inputs[0])) {
    return false;
  }
  std::optional<WeightCodes> given = weight_codes(graph, node.inputs[1]);
  if (!given || given->codes.dim() != 2) {
    if (gemm || !is_coded(node.inputs[1])) reason = "its weight is not in constant 8-bit codes";
    return false;
  }
  const double alpha = number_attribute(node, "alpha", 1.0);
  if (gemm && (integer_attribute(node, "transA", 0) != 0 || !(alpha > 0.0))) {
    reason = "transA or alpha is none that the int8 layer has";
    return false;
  }
  // Features of the result come first.
  if (!gemm || integer_attribute(node, "transB", 0) == 0) {
    given->codes = given->codes.t().contiguous();
    given->axis = 1 - given->axis;
  }
  for (double& scale : given->scales) scale *= alpha;
  const std::optional<QTensor> weight = signed_weight(*given, 0);
  if (!weight) {
    reason = "its weight has scales along another dimension than that of the output features";
    return false;
  }
  const ValueId x = node.inputs[0];
  ValueId output = node.outputs[0];
  ValueId bias_id = gemm && node.inputs.size() > 2 ? node.inputs[2] : kNone;
  const std::int64_t features = given->codes.size(0);
  // An Add of a constant for each feature behind it is its bias.
  if (!gemm && uses.used_once(output) &&
      !is_made(graph.nodes[index_of(uses.users(output)[0])], "Quantize")) {
    const NodeId user = uses.users(output)[0];
    const Node& next = graph.nodes[index_of(user)];
    if (is_op(next, "Add") && next.inputs.size() == 2 && next.inputs[0] != next.inputs[1]) {
      const ValueId other = next.inputs[0] == output ? next.inputs[1] : next.inputs[0];
      const Tensor floats = constant_floats(graph, other);
      if (floats.defined() && floats.dtype() == DType::Float32 && floats.dim() == 1 &&
          floats.numel() == features) {
        bias_id = other;
        output = next.outputs[0];
        done[index_of(user)] = true;
      }
    }
  }
  const LayerBias bias = layer_bias(graph, bias_id, codes(x)->scale, *weight, features,
                                    gemm ? number_attribute(node, "beta", 1.0) : 1.0);
  if (!bias.fits) {
    reason = "its bias is not a constant for each feature";
    return false;
  }
  const std::optional<Wanted> want = wanted(output);
  if (!want) {
    emit(made_node(node.name, node.op,
                   linear_to_float_operation(LinearPackedParams(*weight, bias.values)), {x},
                   {output}));
    return true;
  }
  emit_wanted(node, *want, [&](ValueId result) {
    const Codes& to = want->codes;
    std::shared_ptr<nn::Module> module;
    if (want->relu) {
      module = nn::make_module<nn::intrinsic::quantized::LinearReLU>(*weight, bias.values, to.scale,
                                                                     to.zero_point);
    } else {
      module =
          nn::make_module<nn::quantized::Linear>(*weight, bias.values, to.scale, to.zero_point);
    }
    emit_child(node, std::move(module), x, result);
  });
  return true;
}

bool Lowering::lower_matmul(const Node& node) {
  if (node.op != "MatMul" || node.inputs.size() != 2 ||
      (!is_coded(node.inputs[0]) && !is_coded(node.inputs[1])))
    return false;
  const std::optional<ValueId> left = coded_operand(node.inputs[0]);
  const std::optional<ValueId> right = coded_operand(node.inputs[1]);
  if (!left || !right) {
    if (reason.empty()) reason = "one of its operands is not in 8-bit codes";
    return false;
  }
  const std::optional<Wanted> want = wanted(node.outputs[0]);
  if (!want) {
    emit(made_node(node.name, node.op, make_operation("quantized::matmul_to_float"),
                   {*left, *right}, {node.outputs[0]}));
    return true;
  }
  Wanted plain = *want;
  if (plain.relu) plain.low = static_cast<std::uint8_t>(plain.codes.zero_point);
  emit_wanted(node, plain, [&](ValueId result) {
    emit(made_node(
        node.name, node.op,
        make_operation("quantized::matmul_exact",
                       {{"scale", plain.codes.scale}, {"zero_point", plain.codes.zero_point}}),
        {*left, *right}, {result}));
  });
  return true;
}

}  // namespace quanta::graph
