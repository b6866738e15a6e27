#include <algorithm>
#include <string>

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/quantized_call.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize_linear.h"

// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear on plain tensors.

namespace quanta::graph {
namespace {

/// What codes of an ONNX type are held in.
struct CodeType {
  DType dtype = DType::UInt8;
  std::int64_t bits = 0;  ///< 0: all of the dtype's
};

CodeType code_type(const NodeCall& call, OnnxType type) {
  switch (type) {
    case OnnxType::UInt4:
      return {DType::UInt8, 4};
    case OnnxType::Int4:
      return {DType::Int8, 4};
    case OnnxType::UInt2:
      return {DType::UInt8, 2};
    case OnnxType::Int2:
      return {DType::Int8, 2};
    default:
      break;
  }
  const std::optional<DType> dtype = dtype_of(type);
  if (!dtype) call.unsupported("codes of type " + to_string(type));
  return {*dtype, 0};
}

bool is_float8(DType dtype) { return dtype == DType::Float8E4M3FN || dtype == DType::Float8E5M2; }

QuantizeLinearOptions linear_options(const NodeCall& call) {
  QuantizeLinearOptions options;
  options.axis = call.integer("axis", 1);
  options.block_size = call.integer("block_size", 0);
  if (options.block_size < 0) call.fail("block_size: expected at least 0");
  return options;
}

/// As many zero points as scales: one may stand for all.
Tensor zero_points_like(const Tensor& zero_point, const Tensor& scale) {
  if (!zero_point.defined() || zero_point.numel() == scale.numel() || zero_point.numel() != 1) {
    return zero_point;
  }
  return zero_point.reshape({1}).expand({scale.numel()}).contiguous().reshape(scale.sizes());
}

/// One of each scale or zero point for each element of x: broadcast along the axis, or repeated
/// within blocks.
Tensor spread(const Tensor& values, const Tensor& x, const QuantizeLinearOptions& options) {
  if (values.numel() == 1) return values.reshape({});
  const std::int64_t axis = options.axis < 0 ? options.axis + x.dim() : options.axis;
  if (options.block_size == 0) {
    Dims sizes;
    for (std::int64_t d = 0; d < x.dim(); ++d) sizes.push_back(d == axis ? values.numel() : 1);
    return values.reshape(sizes);
  }
  Dims expanded = values.sizes();
  expanded.insert(static_cast<std::size_t>(axis) + 1, options.block_size);
  Dims joined = values.sizes();
  joined[static_cast<std::size_t>(axis)] *= options.block_size;
  return values.unsqueeze(axis + 1).expand(expanded).reshape(joined).narrow(axis, 0, x.size(axis));
}

Tensor to_float8(const Tensor& quotient, DType dtype, bool saturate) {
  if (!saturate) return quotient.to(dtype);
  const double largest = dtype == DType::Float8E4M3FN ? 448.0 : 57344.0;
  return clamp(quotient, -largest, largest).to(dtype);
}

/// The type of what comes out: the zero point's, else as output_dtype says.
OnnxType result_type(const NodeCall& call) {
  const auto wanted = static_cast<OnnxType>(call.integer("output_dtype", 0));
  if (!call.has(2)) return wanted == OnnxType::Undefined ? OnnxType::UInt8 : wanted;
  const OnnxType type = call.input_type(2);
  if (type != OnnxType::Undefined) return type;
  return onnx_type_of(call.input(2, "y_zero_point").dtype());
}

Outputs evaluate_quantize(const NodeCall& call) {
  Tensor x = call.input(0, "x").to(DType::Float32);
  Tensor scale = call.input(1, "y_scale").to(DType::Float32);
  QuantizeLinearOptions options = linear_options(call);
  const CodeType type = code_type(call, result_type(call));
  const bool half = call.input_type(1) == OnnxType::Float16;
  const auto precision = static_cast<OnnxType>(call.integer(
      "precision",
      static_cast<std::int64_t>(half && call.node().domain.empty() && call.opset() >= 23
                                    ? OnnxType::Float16
                                    : OnnxType::Float)));
  if (precision == OnnxType::Float16 || is_float8(type.dtype)) {
    x = div(x, spread(scale, x, options));
    if (precision == OnnxType::Float16) x = x.to(DType::Float16).to(DType::Float32);
    if (is_float8(type.dtype)) return {to_float8(x, type.dtype, call.flag("saturate", true))};
    scale = Tensor::ones(scale.sizes());
  }
  options.dtype = type.dtype;
  options.bits = type.bits;
  return {quantize_linear(x, scale, zero_points_like(call.optional(2), scale), options)};
}

Outputs evaluate_dequantize(const NodeCall& call) {
  const Tensor& x = call.input(0, "x");
  const Tensor scale = call.input(1, "x_scale").to(DType::Float32);
  const QuantizeLinearOptions options = linear_options(call);
  Tensor result;
  if (x.is_floating_point()) {
    result = x.to(DType::Float32);
    if (call.has(2)) {
      result = sub(result, spread(call.input(2, "x_zero_point").to(DType::Float32), x, options));
    }
    result = mul(result, spread(scale, x, options));
  } else {
    result = dequantize_linear(x, scale, zero_points_like(call.optional(2), scale), options);
  }
  const auto wanted = static_cast<OnnxType>(call.integer("output_dtype", 0));
  if (wanted != OnnxType::Undefined) {
    const std::optional<DType> dtype = dtype_of(wanted);
    if (!dtype) call.unsupported("output_dtype " + to_string(wanted));
    result = result.to(*dtype);
  }
  return {result};
}

Outputs evaluate_dynamic(const NodeCall& call) {
  const DynamicCodes codes = dynamic_quantize_linear(call.input(0, "x"));
  return {codes.codes, codes.scale, codes.zero_point};
}

}  // namespace

void add_quantize_ops(OpTable& table) {
  table.add({.name = "DequantizeLinear", .evaluate = evaluate_dequantize, .since = 10});
  table.add(
      {.name = "DequantizeLinear", .evaluate = evaluate_dequantize, .domain = "com.microsoft"});
  table.add({.name = "DynamicQuantizeLinear", .evaluate = evaluate_dynamic, .since = 11});
  table.add({.name = "QuantizeLinear", .evaluate = evaluate_quantize, .since = 10});
  table.add({.name = "QuantizeLinear", .evaluate = evaluate_quantize, .domain = "com.microsoft"});
}

}  // namespace quanta::graph
