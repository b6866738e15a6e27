#include "quanta/fusion/graph/ops/quantized_call.h"

#include <algorithm>
#include <string>

#include "quanta/ops/quantize_linear.h"

namespace quanta::graph {
namespace {

constexpr std::int64_t kOpset = 21;

/// Scale and zero point of the same sizes.
Tensor zero_point_for(const Tensor& zero_point, const Tensor& scale) {
  if (!zero_point.defined() || zero_point.numel() == scale.numel() || zero_point.numel() != 1) {
    return zero_point;
  }
  return zero_point.reshape({1}).expand({scale.numel()}).contiguous();
}

}  // namespace

Outputs call_operator(const NodeCall& call, std::string_view op, std::span<const Tensor> inputs,
                      OnnxAttributes attributes) {
  const OpRow* row = op_table().find("", op, kOpset);
  if (row == nullptr) call.unsupported("needs operator " + std::string(op));
  Node node;
  node.name = call.node().name;
  node.op = op;
  node.opset = kOpset;
  node.attributes = std::move(attributes);
  node.outputs.assign(1, 0);
  node.row = row;
  std::vector<OnnxType> types;
  for (const Tensor& input : inputs) {
    types.push_back(input.defined() ? onnx_type_of(input.dtype()) : OnnxType::Undefined);
  }
  return row->evaluate(NodeCall(node, inputs, types));
}

OnnxAttributes attributes_without(const NodeCall& call,
                                  std::initializer_list<std::string_view> names) {
  OnnxAttributes result = call.node().attributes;
  for (const std::string_view name : names) {
    if (const auto at = result.find(name); at != result.end()) result.erase(at);
  }
  return result;
}

Tensor floats_of(const NodeCall& call, std::size_t i, std::int64_t axis) {
  const Tensor scale = call.input(i + 1, "scale").to(DType::Float32);
  return dequantize_linear(call.input(i, "x"), scale, zero_point_for(call.optional(i + 2), scale),
                           {.axis = axis});
}

Tensor codes_of(const NodeCall& call, const Tensor& x, std::size_t i) {
  const Tensor scale = call.input(i, "y_scale").to(DType::Float32);
  const Tensor zero_point = call.optional(i + 1);
  const DType dtype = zero_point.defined() ? zero_point.dtype() : DType::UInt8;
  return quantize_linear(x, scale, zero_point, {.dtype = dtype});
}

ConvIntegerOptions conv_integer_options(const NodeCall& call, const Tensor& x,
                                        const Tensor& weight) {
  const std::int64_t spatial = x.dim() - 2;
  if (spatial < 1 || weight.dim() != x.dim()) {
    call.fail("w: expected as many dimensions as x, at least 3");
  }
  const auto count = static_cast<std::size_t>(spatial);
  const auto list = [&](std::string_view name, std::int64_t otherwise, std::size_t length) {
    const std::vector<std::int64_t> given =
        call.integer_list(name, std::vector<std::int64_t>(length, otherwise));
    if (given.size() != length) {
      call.fail(std::string(name) + ": expected " + std::to_string(length) + " numbers, got " +
                std::to_string(given.size()));
    }
    Dims result;
    for (const std::int64_t value : given) result.push_back(value);
    return result;
  };
  ConvIntegerOptions options;
  options.stride = list("strides", 1, count);
  options.dilation = list("dilations", 1, count);
  options.pads = list("pads", 0, 2 * count);
  options.groups = call.integer("group", 1);
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  if (auto_pad == "NOTSET") return options;
  for (std::size_t d = 0; d < count; ++d) {
    std::int64_t total = 0;
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const std::int64_t in = x.sizes()[d + 2];
      const std::int64_t stride = options.stride[d];
      if (stride < 1) call.fail("strides: expected numbers from 1 on");
      const std::int64_t out = (in + stride - 1) / stride;
      const std::int64_t reach = (weight.sizes()[d + 2] - 1) * options.dilation[d] + 1;
      total = std::max<std::int64_t>(0, (out - 1) * stride + reach - in);
    } else if (auto_pad != "VALID") {
      call.fail("auto_pad: expected NOTSET, SAME_UPPER, SAME_LOWER or VALID, got " + auto_pad);
    }
    const std::int64_t smaller = total / 2;
    options.pads[d] = auto_pad == "SAME_LOWER" ? total - smaller : smaller;
    options.pads[d + count] = total - options.pads[d];
  }
  return options;
}

Tensor along(const Tensor& values, std::int64_t axis, std::int64_t rank) {
  if (values.numel() == 1) return values.reshape({});
  if (values.dim() != 1) return values;
  Dims sizes;
  for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(d == axis ? values.numel() : 1);
  return values.reshape(sizes);
}

}  // namespace quanta::graph
