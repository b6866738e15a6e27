#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/grouped_weight.h"
#include "quanta/fusion/graph/passes/lowering.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/ops/quantize_linear.h"

namespace quanta::graph {
namespace {

Tensor shifted(const Tensor& x, std::int64_t by, DType dtype) {
  std::vector<std::int64_t> values = x.to_int64_vector();
  for (std::int64_t& value : values) value += by;
  return Tensor::from_int64(values).to(dtype).reshape(x.sizes());
}

std::int64_t bits_of(OnnxType type) {
  switch (type) {
    case OnnxType::UInt4:
    case OnnxType::Int4:
      return 4;
    case OnnxType::UInt2:
    case OnnxType::Int2:
      return 2;
    default:
      return 8;
  }
}

}  // namespace

std::optional<WeightOnlyPackedParams> packed_weight(const GroupedWeight& weight,
                                                    const Tensor& bias) {
  const std::int64_t k = weight.codes.size(1);
  const std::int64_t group = weight.group_size;
  if (group != 0 && (group < 16 || (group & (group - 1)) != 0 || k % group != 0)) return {};
  for (const float scale : weight.scales.to_float_vector()) {
    if (!std::isfinite(scale) || !(scale > 0.0F)) return {};
  }
  const std::int64_t half = std::int64_t{1} << (weight.bits - 1);
  const bool is_signed = weight.codes.dtype() == DType::Int8;
  const std::int64_t centre = is_signed ? 0 : half;
  bool symmetric = weight.symmetric.value_or(is_signed && !weight.zero_points.defined());
  if (!weight.symmetric && weight.zero_points.defined()) {
    const std::vector<std::int64_t> zeros = weight.zero_points.to_int64_vector();
    symmetric = std::ranges::all_of(zeros, [&](std::int64_t zero) { return zero == centre; });
  }
  const WeightOnlyOptions options{
      .bits = static_cast<int>(weight.bits), .group_size = group, .symmetric = symmetric};
  if (symmetric) {
    const Tensor codes = is_signed ? weight.codes : shifted(weight.codes, -half, DType::Int8);
    return WeightOnlyPackedParams(codes.contiguous(), weight.scales.contiguous(), {}, bias,
                                  options);
  }
  const std::int64_t by = is_signed ? half : 0;
  const Tensor zeros = weight.zero_points.defined()
                           ? weight.zero_points
                           : Tensor::zeros(weight.scales.sizes(), weight.codes.dtype());
  return WeightOnlyPackedParams(shifted(weight.codes, by, DType::UInt8).contiguous(),
                                weight.scales.contiguous(),
                                shifted(zeros, by, DType::UInt8).contiguous(), bias, options);
}

std::optional<GroupedWeight> weight_of_nbits(const Graph& graph, const Node& node) {
  const std::int64_t k = integer_attribute(node, "K", 0);
  const std::int64_t n = integer_attribute(node, "N", 0);
  GroupedWeight weight;
  weight.bits = integer_attribute(node, "bits", 4);
  weight.group_size = integer_attribute(node, "block_size", 0);
  const std::int64_t group = weight.group_size;
  if (k < 1 || n < 1 || group < 1 || k % group != 0 || (weight.bits != 4 && weight.bits != 8)) {
    return {};
  }
  const Tensor bytes = constant_input(graph, node, 1);
  const Tensor scales = constant_input(graph, node, 2);
  const Tensor zeros = constant_input(graph, node, 3);
  const bool has_zeros = node.inputs.size() > 3 && node.inputs[3] != kNone;
  const bool has_index = node.inputs.size() > 4 && node.inputs[4] != kNone;
  const std::int64_t groups = k / group;
  if (!bytes.defined() || bytes.dtype() != DType::UInt8 ||
      bytes.numel() != n * k * weight.bits / 8 || !scales.defined() ||
      scales.dtype() != DType::Float32 || scales.numel() != n * groups || has_index ||
      (has_zeros && (!zeros.defined() || zeros.dtype() != DType::UInt8))) {
    return {};
  }
  const auto unpacked = [&](const Tensor& packed) {
    const Tensor rows = packed.reshape({n, -1});
    return weight.bits == 8 ? rows : unpack_bits(rows, weight.bits);
  };
  weight.codes = unpacked(bytes);
  weight.scales = scales.reshape({n, groups});
  if (has_zeros) {
    if (zeros.numel() != n * ((groups * weight.bits + 7) / 8)) return {};
    weight.zero_points = unpacked(zeros).narrow(1, 0, groups);
  } else {
    weight.zero_points = Tensor::full(
        {n, groups}, static_cast<double>(std::int64_t{1} << (weight.bits - 1)), DType::UInt8);
  }
  return weight;
}

std::optional<GroupedWeight> weight_of_blocks(const Graph& graph, const Node& node, ByteRows rows) {
  if (node.inputs.size() < 2 || node.inputs[0] == kNone || node.inputs[1] == kNone) return {};
  const NodeId made = graph.is_constant(node.inputs[1]) ? kNone : graph.producer(node.inputs[1]);
  if (made == kNone) return {};
  const Node& dequantize = graph.nodes[index_of(made)];
  if (!is_op(dequantize, "DequantizeLinear")) return {};
  Tensor codes = constant_input(graph, dequantize, 0);
  Tensor scales = constant_input(graph, dequantize, 1);
  Tensor zeros = constant_input(graph, dequantize, 2);
  const bool has_zeros = dequantize.inputs.size() > 2 && dequantize.inputs[2] != kNone;
  if (!codes.defined() || codes.dim() != 2 || !scales.defined() ||
      scales.dtype() != DType::Float32 ||
      (codes.dtype() != DType::UInt8 && codes.dtype() != DType::Int8) ||
      has_zeros != zeros.defined()) {
    return {};
  }
  GroupedWeight weight;
  weight.bits = bits_of(graph.values[index_of(dequantize.inputs[0])].type);
  weight.group_size = integer_attribute(dequantize, "block_size", 0);
  const bool byte_rows = weight.group_size == 0 && weight.bits == 8;
  if (weight.bits == 2 || (byte_rows && rows == ByteRows::No)) return {};
  std::int64_t axis = integer_attribute(dequantize, "axis", 1);
  if (axis < 0) axis += 2;
  // Output features first.
  const bool turned = node.op == "Gemm" && integer_attribute(node, "transB", 0) != 0;
  if (weight.group_size == 0) {
    const std::int64_t features = codes.size(turned ? 0 : 1);
    if (scales.numel() != 1 && (axis != (turned ? 0 : 1) || scales.numel() != features)) return {};
    const auto column = [&](const Tensor& x) {
      return x.numel() == 1 ? x.reshape({1, 1}).expand({features, 1}).contiguous()
                            : x.reshape({features, 1});
    };
    scales = column(scales);
    if (has_zeros) zeros = column(zeros);
  } else {
    if (axis != (turned ? 1 : 0) || scales.dim() != 2) return {};
    if (!turned) {
      scales = scales.t();
      if (has_zeros) zeros = zeros.t();
    }
  }
  weight.codes = turned ? codes : codes.t();
  weight.scales = scales;
  weight.zero_points = zeros;
  return weight;
}

bool lower_weight_only(Graph& graph, std::vector<nn::Module::NamedChild>& children) {
  Lowering lowering(graph, children);
  bool changed = false;
  for (const Node& node : graph.nodes) {
    const bool nbits = is_plain(node) && node.op == "MatMulNBits" && node.domain == "com.microsoft";
    const bool gemm = is_op(node, "Gemm") && integer_attribute(node, "transA", 0) == 0 &&
                      number_attribute(node, "alpha", 1.0) == 1.0 &&
                      number_attribute(node, "beta", 1.0) == 1.0;
    std::optional<GroupedWeight> weight;
    if (nbits) weight = weight_of_nbits(graph, node);
    if (gemm || is_op(node, "MatMul")) {
      weight = weight_of_blocks(graph, node, ByteRows::No);
    }
    const std::size_t bias_at = nbits ? 5 : 2;
    const bool has_bias = node.inputs.size() > bias_at && node.inputs[bias_at] != kNone;
    const Tensor bias = has_bias ? constant_floats(graph, node.inputs[bias_at]) : Tensor();
    std::optional<WeightOnlyPackedParams> packed;
    if (weight && (!has_bias || (bias.defined() && bias.dtype() == DType::Float32 &&
                                 bias.numel() == weight->codes.size(0)))) {
      packed = packed_weight(*weight, has_bias ? bias.reshape({-1}).contiguous() : bias);
    }
    if (!packed) {
      lowering.emit(node);
      continue;
    }
    lowering.emit_child(node, nn::make_module<nn::weight_only::Linear>(*packed), node.inputs[0],
                        node.outputs[0]);
    changed = true;
  }
  graph.nodes = std::move(lowering.nodes);
  return erase_dead(graph) || changed;
}

}  // namespace quanta::graph
