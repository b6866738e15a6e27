#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "quanta/fusion/graph/ops/dynamic_lstm.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/quantized_call.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/integer.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/quantize_linear.h"

// Operators of domain com.microsoft that ONNX Runtime's quantizer writes. Those whose result is
// coded are the operator of ONNX between dequantized inputs and codes.

namespace quanta::graph {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

// Codes in, codes out --------------------------------------------------------------------------

Outputs binary_of_codes(const NodeCall& call, std::string_view op) {
  const std::vector<Tensor> floats{floats_of(call, 0), floats_of(call, 3)};
  return {codes_of(call, call_operator(call, op, floats)[0], 6)};
}
Outputs evaluate_add(const NodeCall& call) { return binary_of_codes(call, "Add"); }
Outputs evaluate_mul(const NodeCall& call) { return binary_of_codes(call, "Mul"); }

Outputs unary_of_codes(const NodeCall& call, std::string_view op, OnnxAttributes attributes) {
  const std::vector<Tensor> floats{floats_of(call, 0)};
  return {codes_of(call, call_operator(call, op, floats, std::move(attributes))[0], 3)};
}
Outputs evaluate_sigmoid(const NodeCall& call) { return unary_of_codes(call, "Sigmoid", {}); }
Outputs evaluate_leaky_relu(const NodeCall& call) {
  return unary_of_codes(call, "LeakyRelu", call.node().attributes);
}
Outputs evaluate_softmax(const NodeCall& call) {
  // Before opset 13 softmax runs over all dimensions from `axis` on.
  const Tensor x = floats_of(call, 0);
  const std::int64_t rank = std::max<std::int64_t>(x.dim(), 1);
  const std::int64_t axis = call.integer("axis", -1);
  const std::int64_t first = axis < 0 ? axis + rank : axis;
  if (first < 0 || first >= rank) call.fail("axis: expected a dimension of X");
  Tensor y;
  if (call.integer("opset") < 13) {
    y = softmax(x.flatten(first, -1), first).reshape(x.sizes());
  } else {
    y = softmax(x, first);
  }
  return {codes_of(call, y, 3)};
}

/// Images with the channels last, for an operator that has them second.
Tensor channels_second(const Tensor& x) {
  Dims order{0, x.dim() - 1};
  for (std::int64_t d = 1; d + 1 < x.dim(); ++d) order.push_back(d);
  return x.permute(order);
}
Tensor channels_behind(const Tensor& x) {
  Dims order{0};
  for (std::int64_t d = 2; d < x.dim(); ++d) order.push_back(d);
  order.push_back(1);
  return x.permute(order);
}

Outputs pool_of_codes(const NodeCall& call, std::string_view op) {
  const bool last = call.flag("channels_last", false);
  Tensor x = floats_of(call, 0);
  if (last) x = channels_second(x);
  const std::vector<Tensor> floats{x};
  Tensor y = call_operator(call, op, floats, attributes_without(call, {"channels_last"}))[0];
  if (last) y = channels_behind(y);
  return {codes_of(call, y, 3)};
}
Outputs evaluate_average_pool(const NodeCall& call) { return pool_of_codes(call, "AveragePool"); }
Outputs evaluate_global_average_pool(const NodeCall& call) {
  return pool_of_codes(call, "GlobalAveragePool");
}

Outputs evaluate_concat(const NodeCall& call) {
  std::vector<Tensor> floats;
  for (std::size_t i = 2; i + 2 < call.input_count(); i += 3) {
    floats.push_back(floats_of(call, i));
  }
  return {codes_of(call, call_operator(call, "Concat", floats, call.node().attributes)[0], 0)};
}

Outputs evaluate_where(const NodeCall& call) {
  const std::vector<Tensor> floats{call.input(0, "condition"), floats_of(call, 1),
                                   floats_of(call, 4)};
  return {codes_of(call, call_operator(call, "Where", floats)[0], 7)};
}

Outputs evaluate_reduce_mean(const NodeCall& call) {
  const std::vector<std::int64_t> axes = call.integer_list("axes", {});
  std::vector<Tensor> inputs{floats_of(call, 0)};
  if (!axes.empty()) inputs.push_back(Tensor::from_int64(axes));
  const Tensor y = call_operator(call, "ReduceMean", inputs, attributes_without(call, {"axes"}))[0];
  return {codes_of(call, y, 3)};
}

Outputs evaluate_gemm(const NodeCall& call) {
  Tensor a = call.input(0, "A");
  Tensor b = call.input(3, "B");
  if (a.dim() != 2 || b.dim() != 2) call.fail("A: expected two dimensions, as B has");
  if (call.flag("transA", false)) a = a.t();
  if (call.flag("transB", false)) b = b.t();
  Tensor sums = matmul_integer(a, b, call.optional(2), call.optional(5));
  if (call.has(6)) sums = add(sums, call.input(6, "C"));
  const Tensor scales = mul(call.input(1, "a_scale").to(DType::Float32).reshape({}),
                            along(call.input(4, "b_scale").to(DType::Float32), 1, 2));
  const Tensor y = mul(sums.to(DType::Float32), mul_scalar(scales, call.number("alpha", 1.0)));
  if (!call.has(7)) return {y};
  return {codes_of(call, y, 7)};
}

// Floats in, floats out ------------------------------------------------------------------------

Tensor dequantized_product(const NodeCall& call, const Tensor& sums, const Tensor& a_scale,
                           const Tensor& b_scale, const Tensor& bias) {
  const std::int64_t rank = sums.dim();
  const Tensor scale = mul(along(a_scale.to(DType::Float32), rank - 2, rank),
                           along(b_scale.to(DType::Float32), rank - 1, rank));
  const Tensor y = mul(sums.to(DType::Float32), scale);
  static_cast<void>(call);
  return bias.defined() ? add(y, bias) : y;
}

// A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias.
Outputs evaluate_matmul_integer_to_float(const NodeCall& call) {
  const Tensor sums =
      matmul_integer(call.input(0, "A"), call.input(1, "B"), call.optional(4), call.optional(5));
  return {dequantized_product(call, sums, call.input(2, "a_scale"), call.input(3, "b_scale"),
                              call.optional(6))};
}

// A (floats), B, b_scale, b_zero_point, bias.
Outputs evaluate_dynamic_matmul(const NodeCall& call) {
  const DynamicCodes a = dynamic_quantize_linear(call.input(0, "A"));
  const Tensor sums = matmul_integer(a.codes, call.input(1, "B"), a.zero_point, call.optional(3));
  return {dequantized_product(call, sums, a.scale, call.input(2, "b_scale"), call.optional(4))};
}

/// Codes that lie several in a byte along the last dimension, one an element.
Tensor unpacked(const Tensor& bytes, std::int64_t bits) {
  return bits == 8 ? bytes : unpack_bits(bytes, bits);
}

// A, B, scales, zero_points, g_idx, bias.
Outputs evaluate_matmul_nbits(const NodeCall& call) {
  const std::int64_t k = call.integer("K");
  const std::int64_t n = call.integer("N");
  const std::int64_t bits = call.integer("bits", 4);
  const std::int64_t block = call.integer("block_size");
  if (bits != 2 && bits != 4 && bits != 8) call.unsupported("bits other than 2, 4 and 8");
  if (k < 1 || n < 1 || block < 16) call.fail("K, N, block_size: expected 1, 1 and 16 at least");
  if (call.has(4)) call.unsupported("g_idx");
  const std::int64_t blocks = (k - 1) / block + 1;
  const Tensor& b = call.input(1, "B");
  if (b.dtype() != DType::UInt8 || b.numel() != n * blocks * (block * bits / 8)) {
    call.fail("B: expected UInt8 [N, blocks, block_size * bits / 8]");
  }
  const Tensor codes = unpacked(b.reshape({n, blocks * (block * bits / 8)}), bits);
  const Tensor scales = call.input(2, "scales").to(DType::Float32);
  if (scales.numel() != n * blocks) call.fail("scales: expected one for each block");
  Tensor weight;
  if (call.has(3) && call.input(3, "zero_points").is_floating_point()) {
    const Tensor zeros = call.input(3, "zero_points").to(DType::Float32);
    if (zeros.numel() != n * blocks) call.fail("zero_points: expected one for each block");
    weight = mul(sub(codes.to(DType::Float32).reshape({n, blocks, block}),
                     zeros.reshape({n, blocks, 1})),
                 scales.reshape({n, blocks, 1}))
                 .reshape({n, blocks * block});
  } else {
    Tensor zeros;
    if (call.has(3)) {
      const Tensor& packed = call.input(3, "zero_points");
      const std::int64_t row = (blocks * bits + 7) / 8;
      if (packed.numel() != n * row) call.fail("zero_points: expected [N, blocks] in bits");
      zeros = unpacked(packed.reshape({n, row}), bits).narrow(1, 0, blocks).contiguous();
    } else {
      zeros = Tensor::full({n, blocks}, static_cast<double>(std::int64_t{1} << (bits - 1)),
                           DType::UInt8);
    }
    weight = dequantize_linear(codes, scales.reshape({n, blocks}), zeros,
                               {.axis = 1, .block_size = block});
  }
  const Tensor y = matmul(call.input(0, "A").to(DType::Float32), weight.narrow(1, 0, k).t());
  return {call.has(5) ? add(y, call.input(5, "bias").to(DType::Float32)) : y};
}

// data, indices, scales, zero_points.
Outputs evaluate_gather_blocks(const NodeCall& call) {
  Tensor data = call.input(0, "data");
  const OnnxType type = call.input_type(0);
  const std::int64_t bits = call.integer("bits", 4);
  const bool packed = type == OnnxType::UInt8 && bits < 8;
  if (packed && bits != 4 && bits != 2) call.unsupported("bits other than 2, 4 and 8");
  if (packed) data = unpacked(data, bits);
  Tensor zeros = call.optional(3);
  const Tensor scales = call.input(2, "scales").to(DType::Float32);
  if (zeros.defined() && packed) {
    zeros = unpacked(zeros, bits).narrow(-1, 0, scales.size(-1)).contiguous();
  } else if (!zeros.defined() && type == OnnxType::UInt8) {
    zeros = Tensor::full(scales.sizes(), static_cast<double>(std::int64_t{1} << (bits - 1)),
                         DType::UInt8);
  }
  const Tensor floats = dequantize_linear(
      data, scales, zeros,
      {.axis = call.integer("quantize_axis", 1), .block_size = call.integer("block_size", 128)});
  const std::vector<Tensor> inputs{floats, call.input(1, "indices")};
  return call_operator(call, "Gather", inputs, {{"axis", call.integer("gather_axis", 0)}});
}

}  // namespace

void add_microsoft_ops(OpTable& table) {
  const auto row = [&](std::string_view name, Outputs (*evaluate)(const NodeCall&),
                       CodeRule rule = CodeRule::Float) {
    table.add({.name = name, .evaluate = evaluate, .rule = rule, .domain = kDomain});
  };
  row("DynamicQuantizeLSTM", evaluate_dynamic_lstm);
  row("DynamicQuantizeMatMul", evaluate_dynamic_matmul);
  row("GatherBlockQuantized", evaluate_gather_blocks);
  row("MatMulIntegerToFloat", evaluate_matmul_integer_to_float);
  row("MatMulNBits", evaluate_matmul_nbits);
  row("QGemm", evaluate_gemm, CodeRule::Layer);
  row("QLinearAdd", evaluate_add, CodeRule::Binary);
  row("QLinearAveragePool", evaluate_average_pool);
  row("QLinearConcat", evaluate_concat, CodeRule::Join);
  row("QLinearGlobalAveragePool", evaluate_global_average_pool);
  row("QLinearLeakyRelu", evaluate_leaky_relu, CodeRule::Table);
  row("QLinearMul", evaluate_mul, CodeRule::Binary);
  row("QLinearReduceMean", evaluate_reduce_mean);
  row("QLinearSigmoid", evaluate_sigmoid, CodeRule::Table);
  row("QLinearSoftmax", evaluate_softmax);
  row("QLinearWhere", evaluate_where);
}

}  // namespace quanta::graph
