// Modules become ONNX's nodes: float layers with their parameters of now, int8 ones between
// DequantizeLinear and QuantizeLinear.

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <utility>

#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/nn/quantized/qfunctional.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/reference.h"
#include "quanta/nn/stubs.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {

std::string write_bias(GraphWriter& writer, const std::string& base, ValueId x, const Tensor& bias,
                       const QTensor& weight) {
  if (!bias.defined()) return "";
  const ExportOptions& options = writer.state.options;
  const Codes* codes = writer.codes(x);
  const bool as_codes = bias.dtype() == DType::Int32 || options.bias == OnnxBias::Int32 ||
                        options.format == OnnxFormat::QOperator;
  if (!as_codes || codes == nullptr) return writer.weight(base, bias);
  std::string floats = writer.coded_weight(base, coded_bias(bias, codes->scale, weight));
  if (bias.dtype() == DType::Float32) {
    put_bias(writer.state.notes, writer.out.nodes.back().inputs[0], bias.to_float_vector());
  }
  return floats;
}

namespace {

using Strings = std::vector<std::string>;

std::vector<std::int64_t> list(const Dims& dims, std::size_t count) {
  std::vector<std::int64_t> numbers(dims.begin(), dims.end());
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  return numbers;
}

/// Options of a convolution: those of transposed ones have all.
OnnxAttributes conv_attributes(const ConvTransposeOptions& options, const Dims& weight,
                               bool transposed) {
  const std::size_t spatial = weight.size() - 2;
  OnnxAttributes attributes;
  attributes["kernel_shape"] = std::vector<std::int64_t>(weight.begin() + 2, weight.end());
  attributes["strides"] = list(options.stride, spatial);
  attributes["dilations"] = list(options.dilation, spatial);
  std::vector<std::int64_t> pads = list(options.padding, spatial);
  pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  attributes["pads"] = pads;
  attributes["group"] = options.groups;
  if (transposed) attributes["output_padding"] = list(options.output_padding, spatial);
  return attributes;
}

/// A layer on its way into the file.
struct Layer {
  std::string x, weight, bias, y;
};

void emit_conv(GraphWriter& writer, const Node& node, const Layer& layer,
               const ConvTransposeOptions& options, const Dims& weight, bool transposed) {
  writer.emit(node.name, transposed ? "ConvTranspose" : "Conv", {layer.x, layer.weight, layer.bias},
              {layer.y}, conv_attributes(options, weight, transposed));
}

bool is_gemm(const Node& node) { return node.op == "Gemm"; }

/// `layer.weight` is [out, in] for Gemm and [in, out] for MatMul.
void emit_linear(GraphWriter& writer, const Node& node, const Layer& layer) {
  if (is_gemm(node)) {
    writer.state.need(layer.bias.empty() ? 11 : 7, "Gemm");
    writer.emit(node.name, "Gemm", {layer.x, layer.weight, layer.bias}, {layer.y},
                {{"transB", std::int64_t{1}}});
    return;
  }
  if (layer.bias.empty()) {
    writer.emit(node.name, "MatMul", {layer.x, layer.weight}, {layer.y});
    return;
  }
  const std::string product = writer.state.unique_value(node.name + "_product");
  writer.state.need(7, "Add");
  writer.emit(node.name, "MatMul", {layer.x, layer.weight}, {product});
  writer.emit(node.name + "_bias", "Add", {product, layer.bias}, {layer.y});
}

/// The name of a weight: the file's where it is the file's tensor still.
std::string float_weight(GraphWriter& writer, const Node& node, std::size_t i, const char* suffix,
                         const Tensor& tensor) {
  if (!tensor.defined()) return "";
  const ValueId id = i < node.inputs.size() ? node.inputs[i] : kNone;
  if (id != kNone) {
    const Tensor& stored = writer.value(id).constant;
    if (stored.defined() && stored.dtype() == tensor.dtype() && stored.sizes() == tensor.sizes() &&
        stored.data_ptr() == tensor.data_ptr() && stored.strides() == tensor.strides()) {
      return writer.input(id);
    }
  }
  return writer.weight(fmt::format("{}.{}", node.module, suffix), tensor);
}

std::string linear_weight(GraphWriter& writer, const Node& node, const Tensor& weight) {
  return float_weight(writer, node, 1, "weight", is_gemm(node) ? weight : weight.t().contiguous());
}

ConvTransposeOptions as_transposed(const nn::ConvNdOptions& options) {
  return {.stride = options.stride,
          .padding = options.padding,
          .output_padding = Dims{0},
          .dilation = options.dilation,
          .groups = options.groups};
}

ConvTransposeOptions as_transposed(const nn::ConvTransposeNdOptions& options) {
  return {.stride = options.stride,
          .padding = options.padding,
          .output_padding = options.output_padding,
          .dilation = options.dilation,
          .groups = options.groups};
}

/// Float layers -----------------------------------------------------------------------------------

/// False for a module that is no layer with a weight.
bool write_float_layer(GraphWriter& writer, const Node& node, const nn::Module& module,
                       const std::string& x, const std::string& y) {
  Layer layer{.x = x, .weight = {}, .bias = {}, .y = y};
  if (const auto* conv = dynamic_cast<const nn::ConvNd*>(&module)) {
    if (conv->options().padding_mode != nn::PaddingMode::Zeros) return false;
    layer.weight = float_weight(writer, node, 1, "weight", conv->weight);
    layer.bias = float_weight(writer, node, 2, "bias", conv->bias);
    emit_conv(writer, node, layer, as_transposed(conv->options()), conv->weight.sizes(), false);
    return true;
  }
  if (const auto* conv = dynamic_cast<const nn::ConvTransposeNd*>(&module)) {
    layer.weight = float_weight(writer, node, 1, "weight", conv->weight);
    layer.bias = float_weight(writer, node, 2, "bias", conv->bias);
    emit_conv(writer, node, layer, as_transposed(conv->options()), conv->weight.sizes(), true);
    return true;
  }
  if (const auto* linear = dynamic_cast<const nn::Linear*>(&module)) {
    layer.weight = linear_weight(writer, node, linear->weight);
    layer.bias = float_weight(writer, node, 2, "bias", linear->bias);
    emit_linear(writer, node, layer);
    return true;
  }
  if (const auto* norm = dynamic_cast<const nn::BatchNormNd*>(&module)) {
    if (!norm->running_mean.defined()) return false;
    const std::int64_t channels = norm->options().num_features;
    const std::string name = node.name + "_batch_norm";
    const auto part = [&](const char* suffix, const Tensor& tensor, double otherwise) {
      return writer.weight(fmt::format("{}.{}", name, suffix),
                           tensor.defined() ? tensor : Tensor::full({channels}, otherwise));
    };
    writer.state.need(7, "BatchNormalization");
    writer.emit(name, "BatchNormalization",
                {x, part("weight", norm->weight, 1.0), part("bias", norm->bias, 0.0),
                 part("running_mean", norm->running_mean, 0.0),
                 part("running_var", norm->running_var, 1.0)},
                {y}, {{"epsilon", static_cast<float>(norm->options().eps)}});
    return true;
  }
  return false;
}

/// What stands behind the layer of a fused module.
bool write_activation(GraphWriter& writer, const Node& node, const nn::Module& module,
                      const std::string& x, const std::string& y) {
  if (dynamic_cast<const nn::ReLU*>(&module) != nullptr) {
    writer.emit(node.name + "_Relu", "Relu", {x}, {y});
  } else if (dynamic_cast<const nn::Tanh*>(&module) != nullptr) {
    writer.emit(node.name + "_Tanh", "Tanh", {x}, {y});
  } else if (const auto* leaky = dynamic_cast<const nn::LeakyReLU*>(&module)) {
    writer.emit(node.name + "_LeakyRelu", "LeakyRelu", {x}, {y},
                {{"alpha", static_cast<float>(leaky->negative_slope())}});
  } else {
    return false;
  }
  return true;
}

bool write_fused(GraphWriter& writer, const Node& node, const nn::intrinsic::FusedModule& fused) {
  const std::vector<nn::Module::NamedChild> parts = fused.named_children();
  std::string x = writer.input(node.inputs[0]);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const std::string y = last ? writer.output(node.outputs[0])
                               : writer.state.unique_value(fmt::format("{}_part_{}", node.name, i));
    if (!write_float_layer(writer, node, *parts[i].module, x, y) &&
        !write_activation(writer, node, *parts[i].module, x, y)) {
      return false;
    }
    x = y;
  }
  return !parts.empty();
}

/// Whether a module is what the node's row makes of the file's constants, so that the node says all.
bool is_as_in_file(const GraphWriter& writer, const Node& node, const nn::Module& module) {
  if (node.row == nullptr || node.row->make_module == nullptr) return false;
  std::vector<Tensor> constants;
  std::vector<OnnxType> types;
  for (const ValueId id : node.inputs) {
    constants.push_back(id == kNone ? Tensor() : writer.value(id).constant);
    types.push_back(id == kNone ? OnnxType::Undefined : writer.value(id).type);
  }
  const std::shared_ptr<nn::Module> made = node.row->make_module(NodeCall(node, constants, types));
  if (made == nullptr) return false;
  const nn::Module& again = *made;
  if (typeid(again) != typeid(module)) return false;
  if (made->extra_repr() != module.extra_repr()) return false;
  const StateDict before = made->state_dict();
  const StateDict now = module.state_dict();
  if (before.size() != now.size()) return false;
  return std::equal(before.begin(), before.end(), now.begin(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.equal(b.second);
  });
}

/// Int8 layers ------------------------------------------------------------------------------------

std::string layer_bias(GraphWriter& writer, const Node& node, const Tensor& bias,
                       const QTensor& weight) {
  return write_bias(writer, node.module + ".bias", node.inputs[0], bias, weight);
}

template <template <int> typename Kind>
bool is_any_of(const nn::Module& module) {
  return dynamic_cast<const Kind<1>*>(&module) != nullptr ||
         dynamic_cast<const Kind<2>*>(&module) != nullptr ||
         dynamic_cast<const Kind<3>*>(&module) != nullptr;
}

/// What follows a layer's sum before it is quantized.
struct Tail {
  const char* op = nullptr;
  OnnxAttributes attributes{};
};

Tail tail_of(const nn::Module& module) {
  namespace fused = nn::intrinsic::quantized;
  if (is_any_of<fused::ConvReLU>(module) ||
      dynamic_cast<const fused::LinearReLU*>(&module) != nullptr) {
    return {.op = "Relu"};
  }
  if (dynamic_cast<const fused::LinearTanh*>(&module) != nullptr) return {.op = "Tanh"};
  if (const auto* leaky = dynamic_cast<const fused::LinearLeakyReLU*>(&module)) {
    return {.op = "LeakyRelu",
            .attributes = {{"alpha", static_cast<float>(leaky->negative_slope())}}};
  }
  return {};
}

/// Writes the layer with `write_layer(y)`, its tail and the codes of the result.
template <typename WriteLayer>
void write_coded_layer(GraphWriter& writer, const Node& node, const Tail& tail, const Codes& codes,
                       const WriteLayer& write_layer) {
  const std::string raw = writer.raw_output(node.outputs[0]);
  if (tail.op == nullptr) {
    write_layer(raw);
  } else {
    const std::string sum = writer.state.unique_value(node.name + "_sum");
    write_layer(sum);
    writer.emit(fmt::format("{}_{}", node.name, tail.op), tail.op, {sum}, {raw}, tail.attributes);
  }
  writer.quantize(node.outputs[0], raw, codes);
}

Codes codes_of(double scale, std::int64_t zero_point) {
  return {.dtype = DType::QUInt8, .scale = scale, .zero_point = zero_point};
}

bool write_quantized_layer(GraphWriter& writer, const Node& node, const nn::Module& module) {
  if (const auto* conv = dynamic_cast<const nn::quantized::ConvBase*>(&module)) {
    const auto* plain = dynamic_cast<const nn::quantized::ConvNd*>(&module);
    if (plain != nullptr && plain->padding_mode() != nn::PaddingMode::Zeros) return false;
    Layer layer{.x = writer.input(node.inputs[0]), .weight = {}, .bias = {}, .y = {}};
    layer.weight = writer.coded_weight(node.module + ".weight", coded_of(conv->weight()));
    layer.bias = layer_bias(writer, node, conv->bias(), conv->weight());
    write_coded_layer(writer, node, tail_of(module), codes_of(conv->scale, conv->zero_point),
                      [&](const std::string& y) {
                        layer.y = y;
                        emit_conv(writer, node, layer, conv->packed().options(),
                                  conv->weight().sizes(), conv->packed().is_transposed());
                      });
    return true;
  }
  if (const auto* linear = dynamic_cast<const nn::quantized::Linear*>(&module)) {
    Layer layer{.x = writer.input(node.inputs[0]), .weight = {}, .bias = {}, .y = {}};
    const CodedWeight weight = coded_of(linear->weight());
    layer.weight =
        writer.coded_weight(node.module + ".weight", is_gemm(node) ? weight : transposed(weight));
    layer.bias = layer_bias(writer, node, linear->bias(), linear->weight());
    write_coded_layer(writer, node, tail_of(module), codes_of(linear->scale, linear->zero_point),
                      [&](const std::string& y) {
                        layer.y = y;
                        emit_linear(writer, node, layer);
                      });
    return true;
  }
  return false;
}

/// The other modules with a scale of their own: the node between DequantizeLinear and
/// QuantizeLinear, with the parameters that the module has.
bool write_quantized_node(GraphWriter& writer, const Node& node, const nn::Module& module) {
  const auto* quantized = dynamic_cast<const nn::quantized::OutputQuantized*>(&module);
  if (quantized == nullptr) return false;
  std::map<std::size_t, std::string> replaced;
  if (const auto* norm = dynamic_cast<const nn::quantized::AffineNorm*>(&module)) {
    if (norm->weight.defined()) {
      replaced[1] = writer.weight(node.module + ".weight", norm->weight);
    }
    if (norm->bias.defined()) replaced[2] = writer.weight(node.module + ".bias", norm->bias);
  } else if (const auto* norm = dynamic_cast<const nn::quantized::BatchNormNd*>(&module)) {
    replaced[1] = writer.weight(node.module + ".weight", norm->weight);
    replaced[2] = writer.weight(node.module + ".bias", norm->bias);
    replaced[3] = writer.weight(node.module + ".running_mean", norm->running_mean);
    replaced[4] = writer.weight(node.module + ".running_var", norm->running_var);
  } else if (const auto* prelu = dynamic_cast<const nn::quantized::PReLU*>(&module)) {
    replaced[1] = writer.coded_weight(node.module + ".weight", coded_of(prelu->weight()));
  }
  writer.write_plain(node, replaced, codes_of(quantized->scale, quantized->zero_point));
  return true;
}

void write_functional(GraphWriter& writer, const Node& node,
                      const nn::quantized::QFunctional& functional) {
  const Codes codes = codes_of(functional.scale, functional.zero_point);
  if (node.op != "AddRelu") return writer.write_plain(node, {}, codes);
  writer.state.need(7, "Add");
  write_coded_layer(writer, node, {.op = "Relu"}, codes, [&](const std::string& y) {
    writer.emit(node.name, "Add", {writer.input(node.inputs[0]), writer.input(node.inputs[1])},
                {y});
  });
}

/// Float arithmetic with a weight of codes -------------------------------------------------------

bool write_reference(GraphWriter& writer, const Node& node, const nn::Module& module) {
  const auto* reference = dynamic_cast<const nn::reference::ReferenceModule*>(&module);
  if (reference == nullptr) return false;
  Layer layer{.x = writer.input(node.inputs[0]), .weight = {}, .bias = {}, .y = {}};
  const CodedWeight weight = coded_of(reference->get_quantized_weight());
  const std::string base = node.module + ".weight";
  const auto rest = [&](const CodedWeight& coded) {
    layer.weight = writer.coded_weight(base, coded);
    layer.bias = float_weight(writer, node, 2, "bias", reference->bias);
    layer.y = writer.output(node.outputs[0]);
  };
  if (const auto* conv = dynamic_cast<const nn::reference::ConvNd*>(&module)) {
    rest(weight);
    emit_conv(writer, node, layer, as_transposed(conv->options()), weight.codes.sizes(), false);
  } else if (const auto* conv = dynamic_cast<const nn::reference::ConvTransposeNd*>(&module)) {
    rest(weight);
    emit_conv(writer, node, layer, as_transposed(conv->options()), weight.codes.sizes(), true);
  } else if (dynamic_cast<const nn::reference::Linear*>(&module) != nullptr) {
    rest(is_gemm(node) ? weight : transposed(weight));
    emit_linear(writer, node, layer);
  } else {
    return false;
  }
  return true;
}

/// The codes' scale where a function's range fixes it, else the input's.
std::optional<Codes> codes_through(const Codes& x, const nn::Module& module) {
  if (dynamic_cast<const nn::Sigmoid*>(&module) != nullptr ||
      dynamic_cast<const nn::Hardsigmoid*>(&module) != nullptr) {
    return Codes{
        .dtype = x.dtype, .scale = 1.0 / 256, .zero_point = x.dtype == DType::QInt8 ? -128 : 0};
  }
  if (dynamic_cast<const nn::Tanh*>(&module) != nullptr) {
    return Codes{
        .dtype = x.dtype, .scale = 1.0 / 128, .zero_point = x.dtype == DType::QInt8 ? 0 : 128};
  }
  const bool keeps = dynamic_cast<const nn::ReLU*>(&module) != nullptr ||
                     dynamic_cast<const nn::ReLU6*>(&module) != nullptr ||
                     dynamic_cast<const nn::quantized::ReLU6*>(&module) != nullptr ||
                     dynamic_cast<const nn::quantized::Dropout*>(&module) != nullptr ||
                     dynamic_cast<const nn::LeakyReLU*>(&module) != nullptr ||
                     dynamic_cast<const nn::Hardtanh*>(&module) != nullptr ||
                     dynamic_cast<const nn::GELU*>(&module) != nullptr ||
                     dynamic_cast<const nn::MaxPoolNd*>(&module) != nullptr ||
                     dynamic_cast<const nn::AvgPoolNd*>(&module) != nullptr;
  return keeps ? std::optional<Codes>(x) : std::nullopt;
}

}  // namespace

void GraphWriter::write_module(const Node& node, const nn::Module& module) {
  if (const auto* stub = dynamic_cast<const nn::quantized::Quantize*>(&module)) {
    // What stands before it keeps its name.
    const std::string x = input(node.inputs[0]);
    state.torch_arithmetic = true;
    return quantize(node.outputs[0], x, {stub->dtype(), stub->scale, stub->zero_point});
  }
  if (dynamic_cast<const nn::quantized::DeQuantize*>(&module) != nullptr) {
    const Codes* own = codes(node.inputs[0]);
    if (own == nullptr) return refuse(node, "its input is not made of codes");
    return append_dequantize(*this, node.name, coded_input(node.inputs[0]),
                             parameters(value(node.inputs[0]).name, *own), output(node.outputs[0]));
  }
  if (const auto* functional = dynamic_cast<const nn::quantized::QFunctional*>(&module)) {
    state.torch_arithmetic = true;
    return write_functional(*this, node, *functional);
  }
  if (dynamic_cast<const nn::FloatFunctional*>(&module) != nullptr) {
    return node.domain == "quanta" ? write_workflow(node) : write_plain(node);
  }
  if (dynamic_cast<const nn::QuantStub*>(&module) != nullptr ||
      dynamic_cast<const nn::DeQuantStub*>(&module) != nullptr) {
    return write_workflow(node);
  }
  if (write_quantized_layer(*this, node, module)) return;
  if (write_quantized_node(*this, node, module)) return;
  if (write_reference(*this, node, module)) return;
  if (const auto* weighted = dynamic_cast<const nn::weight_only::Linear*>(&module)) {
    return write_weight_only(node, *weighted);
  }
  if (const auto* dynamic = dynamic_cast<const nn::quantized::dynamic::Linear*>(&module)) {
    return write_dynamic(node, *dynamic);
  }
  if (write_recurrent(node, module)) return;
  if (const auto* fused = dynamic_cast<const nn::intrinsic::FusedModule*>(&module)) {
    if (!write_fused(*this, node, *fused)) refuse(node, "no form for " + module.type_name());
    return;
  }
  const Codes* x = node.inputs.empty() ? nullptr : codes(node.inputs[0]);
  if (x != nullptr) {
    const std::optional<Codes> through = codes_through(*x, module);
    if (!through) return refuse(node, module.type_name() + " on codes has no form");
    return write_plain(node, {}, through);
  }
  if (is_as_in_file(*this, node, module)) return write_plain(node);
  // Weights have been changed: layers are written anew.
  const bool is_layer = node.row != nullptr && node.row->rule == CodeRule::Layer;
  if (is_layer && node.inputs.size() > 1 &&
      write_float_layer(*this, node, module, input(node.inputs[0]), output(node.outputs[0]))) {
    return;
  }
  refuse(node, fmt::format("no form for its module {}, or not with the parameters that it has now",
                           module.type_name()));
}

}  // namespace quanta::graph::detail
