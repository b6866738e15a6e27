// Layers with weights, and products of matrices.

#include <algorithm>

#include "quanta/fusion/graph/detail/write_eager.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/linear_weight_only.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

// Convolutions ------------------------------------------------------------------------------------

OnnxAttributes conv_attributes(const EagerCall& call, const Dims& weight, bool transposed) {
  const std::size_t spatial = weight.size() - 2;
  Numbers pads = call.list("padding", spatial, 0);
  pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  OnnxAttributes attributes{{"kernel_shape", Numbers(weight.begin() + 2, weight.end())},
                            {"strides", call.list("stride", spatial, 1)},
                            {"dilations", call.list("dilation", spatial, 1)},
                            {"pads", pads},
                            {"group", call.setting("groups", std::int64_t{1})}};
  if (transposed) attributes["output_padding"] = call.list("output_padding", spatial, 0);
  return attributes;
}

bool is_transposed(const EagerCall& call) {
  return call.op().find("conv_transpose") != std::string_view::npos;
}

bool has_relu(const EagerCall& call) {
  return call.setting("fusion", std::string("None")) == "ReLU";
}

bool float_conv(EagerCall& call) {
  const Dims weight = call.sizes(1);
  if (call.rank(0) != static_cast<std::int64_t>(weight.size())) {
    return call.refuse("expected a batch of images, got one without");
  }
  const char* op = is_transposed(call) ? "ConvTranspose" : "Conv";
  Names inputs{call.input(0), call.input(1), call.input(2)};
  OnnxAttributes attributes = conv_attributes(call, weight, is_transposed(call));
  if (has_relu(call)) {
    call.emit("Relu", {call.part(op, std::move(inputs), std::move(attributes))});
  } else {
    call.emit(op, std::move(inputs), std::move(attributes));
  }
  return true;
}

/// A layer of codes whose weight stands in the operation; gives the names of weight and bias.
struct CodedLayer {
  QTensor weight;
  Tensor bias;
};
CodedLayer coded_layer(const EagerCall& call) {
  return {QTensor(call.setting("weight", Tensor())), call.setting("bias", Tensor())};
}

/// quantized::conv2d, and those with a sum or a ReLU behind the products.
template <bool kAdds>
bool coded_conv(EagerCall& call) {
  if (call.is_set("table")) return call.refuse("a table behind it");
  const CodedLayer layer = coded_layer(call);
  const Dims weight = layer.weight.sizes();
  if (call.rank(0) != static_cast<std::int64_t>(weight.size())) {
    return call.refuse("expected a batch of images, got one without");
  }
  const std::string y = call.result();
  const std::string& base = call.node.name;
  Names inputs{
      call.input(0), call.writer.coded_weight(base + ".weight", coded_of(layer.weight)),
      write_bias(call.writer, base + ".bias", call.node.inputs[0], layer.bias, layer.weight)};
  const char* op = is_transposed(call) ? "ConvTranspose" : "Conv";
  OnnxAttributes attributes = conv_attributes(call, weight, is_transposed(call));
  const bool relu = has_relu(call);
  const auto inner = [&](const char* suffix) {
    return call.writer.state.unique_value(call.name(suffix));
  };
  const std::string sum = relu ? inner("sum") : y;
  const std::string products = kAdds ? inner("products") : sum;
  call.writer.emit(base, op, std::move(inputs), {products}, std::move(attributes));
  if (kAdds) {
    call.need(7, "Add");
    call.writer.emit(call.name("Add"), "Add", {products, call.input(1)}, {sum});
  }
  if (relu) call.writer.emit(call.name("Relu"), "Relu", {sum}, {y});
  return true;
}

bool conv_to_float(EagerCall& call) { return coded_conv<false>(call); }

// Linear layers -----------------------------------------------------------------------------------

/// [out, in] as MatMul takes it.
std::string transposed_weight(EagerCall& call, std::size_t i) {
  if (call.is_constant(i) && !call.constant(i).is_quantized()) {
    return call.writer.constant_as(call.node.inputs[i], call.constant(i).t().contiguous());
  }
  return call.part("Transpose", {call.input(i)}, {{"perm", Numbers{1, 0}}});
}

bool linear(EagerCall& call) {
  const bool relu = has_relu(call);
  const std::string y = call.result();
  const std::string sum = relu ? call.writer.state.unique_value(call.name("sum")) : y;
  if (call.rank(0) == 2) {
    call.need(call.has(2) ? 7 : 11, "Gemm");
    call.emit("Gemm", {call.input(0), call.input(1), call.input(2)}, {{"transB", std::int64_t{1}}},
              sum);
  } else if (!call.has(2)) {
    call.emit("MatMul", {call.input(0), transposed_weight(call, 1)}, {}, sum);
  } else {
    const std::string product = call.part("MatMul", {call.input(0), transposed_weight(call, 1)});
    call.need(7, "Add");
    call.emit("Add", {product, call.input(2)}, {}, sum);
  }
  if (relu) call.writer.emit(call.name("Relu"), "Relu", {sum}, {y});
  return true;
}

bool coded_linear(EagerCall& call) {
  if (call.is_set("table")) return call.refuse("a table behind it");
  const CodedLayer layer = coded_layer(call);
  const std::string& base = call.node.name;
  const std::string activation = call.setting("activation", std::string("None"));
  const std::string y = call.result();
  const auto inner = [&](const char* suffix) {
    return call.writer.state.unique_value(call.name(suffix));
  };
  const std::string sum = activation == "None" ? y : inner("sum");
  const std::string x = call.input(0);
  const CodedWeight weight = coded_of(layer.weight);
  const bool is_gemm = call.rank(0) == 2;
  const std::string floats =
      call.writer.coded_weight(base + ".weight", is_gemm ? weight : transposed(weight));
  const std::string bias =
      write_bias(call.writer, base + ".bias", call.node.inputs[0], layer.bias, layer.weight);
  if (is_gemm) {
    call.need(bias.empty() ? 11 : 7, "Gemm");
    call.writer.emit(base, "Gemm", {x, floats, bias}, {sum}, {{"transB", std::int64_t{1}}});
  } else {
    const std::string product = bias.empty() ? sum : inner("product");
    call.writer.emit(base, "MatMul", {x, floats}, {product});
    call.need(7, "Add");
    if (!bias.empty()) call.writer.emit(call.name("bias"), "Add", {product, bias}, {sum});
  }
  if (activation == "ReLU") call.writer.emit(call.name("Relu"), "Relu", {sum}, {y});
  if (activation == "Tanh") call.writer.emit(call.name("Tanh"), "Tanh", {sum}, {y});
  if (activation == "LeakyReLU") {
    call.writer.emit(call.name("LeakyRelu"), "LeakyRelu", {sum}, {y},
                     {{"alpha", call.number("negative_slope", 0.01)}});
  }
  return true;
}

bool any_conv(EagerCall& call) {
  return call.op().starts_with("quantized::") ? coded_conv<false>(call) : float_conv(call);
}
bool any_linear(EagerCall& call) {
  return call.op().starts_with("quantized::") ? coded_linear(call) : linear(call);
}

bool matmul(EagerCall& call) {
  call.emit("MatMul", {call.input(0), call.input(1)});
  return true;
}

// Weights of codes, floats in and out -------------------------------------------------------------

LayerNote dynamic_note(const EagerCall& call) {
  return {.form = "DynamicLinear",
          .all_bits = call.setting("reduce_range", std::string("Yes")) == "No"};
}

/// GELU as its parts.
void gelu(EagerCall& call, const std::string& x, const std::string& y) {
  const auto number = [&](const char* suffix, double value) {
    return call.scalar(suffix, value, OnnxType::Float);
  };
  call.need(9, "Erf");
  const std::string erf =
      call.part("Erf", {call.part("Div", {x, number("sqrt2", 1.4142135623730951)})});
  const std::string gate = call.part("Add", {erf, number("one", 1.0)});
  call.writer.emit(call.name("Gelu"), "Mul", {call.part("Mul", {x, gate}), number("half", 0.5)},
                   {y});
}

/// One weight, or several for one input: a layer each.
bool linear_dynamic(EagerCall& call) {
  const std::vector<quantized::LinearPackedParams> weights =
      quantized::dynamic_params_of(call.operation);
  if (weights.empty()) return call.refuse("its weight is not known");
  const std::string tail = call.setting("tail", std::string("None"));
  const std::string x = call.input(0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!call.wants(i)) continue;
    const std::string y = call.result(i);
    const std::string name =
        weights.size() == 1 ? call.node.name : fmt::format("{}_{}", call.node.name, i);
    const std::string sum = tail == "None" ? y : call.writer.state.unique_value(name + "_linear");
    call.writer.write_dynamic({.name = name,
                               .layer = name,
                               .x = x,
                               .y = sum,
                               .weight = weights[i].weight(),
                               .bias = weights[i].bias(),
                               .note = dynamic_note(call)});
    if (tail == "ReLU") call.writer.emit(call.name("Relu"), "Relu", {sum}, {y});
    if (tail == "Gelu") gelu(call, sum, y);
    if (tail == "Add") call.writer.emit(call.name("Add"), "Add", {sum, call.input(1)}, {y});
  }
  return true;
}

bool linear_dynamic_fp16(EagerCall& call) {
  const quantized::LinearPackedParamsFp16* weight = quantized::fp16_params_of(call.operation);
  if (weight == nullptr) return call.refuse("its weight is not known");
  const std::string y = call.result();
  const bool relu = has_relu(call);
  const std::string sum = relu ? call.writer.state.unique_value(call.name("sum")) : y;
  call.writer.write_dynamic({.name = call.node.name,
                             .layer = call.node.name,
                             .x = call.input(0),
                             .y = sum,
                             .weight = weight->weight(),
                             .bias = weight->bias(),
                             .note = dynamic_note(call)});
  if (relu) call.writer.emit(call.name("Relu"), "Relu", {sum}, {y});
  return true;
}

bool linear_weight_only(EagerCall& call) {
  const WeightOnlyPackedParams* packed = weight_only_params_of(call.operation);
  if (packed == nullptr) return call.refuse("its weight is not known");
  if (call.type(0) != OnnxType::Float) return call.refuse("inputs other than float32");
  call.writer.write_weight_only(call.node, call.node.name, *packed, packed->bias(),
                                {.form = "WeightOnlyLinear"});
  call.wrote(0);
  return true;
}

constexpr EagerRow kRows[] = {
    {"conv1d", any_conv},
    {"conv2d", any_conv},
    {"conv3d", any_conv},
    {"conv1d_relu", any_conv},
    {"conv2d_relu", any_conv},
    {"conv3d_relu", any_conv},
    {"conv_transpose1d", any_conv},
    {"conv_transpose2d", any_conv},
    {"conv_transpose3d", any_conv},
    {"conv2d_add", coded_conv<true>},
    {"conv2d_add_relu", coded_conv<true>},
    {"conv_to_float", conv_to_float},
    {"linear", any_linear},
    {"linear_relu", any_linear},
    {"linear_leaky_relu", any_linear},
    {"linear_tanh", any_linear},
    {"linear_to_float", coded_linear},
    {"matmul", matmul},
    {"bmm", matmul},
    {"matmul_exact", matmul},
    {"matmul_to_float", matmul},
    {"linear_dynamic", linear_dynamic},
    {"linear_relu_dynamic", linear_dynamic},
    {"linear_gelu_dynamic", linear_dynamic},
    {"linear_add_dynamic", linear_dynamic},
    {"linear_each_dynamic", linear_dynamic},
    {"linear_dynamic_fp16", linear_dynamic_fp16},
    {"linear_relu_dynamic_fp16", linear_dynamic_fp16},
    {"linear_weight_only", linear_weight_only},
};

}  // namespace

std::span<const EagerRow> eager_layers() { return kRows; }

}  // namespace quanta::graph::detail
