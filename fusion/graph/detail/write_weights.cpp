// Layers in float arithmetic whose weights are codes, and those that quantize their input anew in
// each call.

#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/module_forms.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";

bool is_gemm(const Node& node) { return node.op == "Gemm"; }

/// The packed weight as DequantizeLinear takes it, [out, in].
CodedWeight coded_of_packed(const WeightOnlyPackedParams& packed) {
  const WeightOnlyOptions& options = packed.options();
  CodedWeight coded{.codes = packed.codes(), .scales = packed.scales()};
  if (!options.symmetric) coded.zero_points = packed.zero_points();
  if (options.bits == 4) coded.type = options.symmetric ? OnnxType::Int4 : OnnxType::UInt4;
  if (options.group_size == 0) {
    coded.axis = 0;
    coded.scales = coded.scales.reshape({-1});
    if (coded.zero_points.defined()) coded.zero_points = coded.zero_points.reshape({-1});
  } else {
    coded.axis = 1;
    coded.block_size = options.group_size;
  }
  return coded;
}

/// [rows, columns] of numbers below 16, two a byte along a row, the first in the low half.
Tensor packed_halves(const Tensor& x, std::int64_t shift) {
  const std::int64_t rows = x.size(0);
  const std::int64_t columns = x.size(1);
  const std::int64_t bytes = (columns + 1) / 2;
  const std::vector<std::int64_t> values = x.to_int64_vector();
  std::vector<std::int64_t> packed(static_cast<std::size_t>(rows * bytes), 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t value = (values[static_cast<std::size_t>(r * columns + c)] + shift) & 15;
      packed[static_cast<std::size_t>(r * bytes + c / 2)] |= value << (c % 2 == 0 ? 0 : 4);
    }
  }
  return Tensor::from_int64(packed).to(DType::UInt8).reshape({rows, bytes});
}

/// MatMul and what is added, by the node's own operator.
void emit_product(GraphWriter& writer, const Node& node, const LayerNote& note,
                  const std::string& weight, const std::string& bias) {
  const std::string x = writer.input(node.inputs[0]);
  const std::string y = writer.output(node.outputs[0]);
  if (is_gemm(node)) {
    writer.state.need(bias.empty() ? 11 : 7, "Gemm");
    writer.emit(node.name, "Gemm", {x, weight, bias}, {y}, {{"transB", std::int64_t{1}}});
    return writer.note(note, false);
  }
  const std::string product = bias.empty() ? y : writer.state.unique_value(node.name + "_product");
  writer.emit(node.name, "MatMul", {x, weight}, {product});
  writer.note(note, !bias.empty());
  if (bias.empty()) return;
  writer.state.need(7, "Add");
  writer.emit(node.name + "_bias", "Add", {product, bias}, {y});
}

/// com.microsoft's operator for 4 bits in blocks.
void emit_nbits(GraphWriter& writer, const Node& node, const std::string& layer,
                const WeightOnlyPackedParams& packed, const std::string& bias) {
  const WeightOnlyOptions& options = packed.options();
  const std::int64_t n = packed.out_features();
  const std::int64_t k = packed.in_features();
  const std::int64_t groups = k / options.group_size;
  const std::string base = layer + ".weight";
  // Signed codes around 0 are unsigned ones around 8, which is the zero point where none is given.
  const Tensor bytes = packed_halves(packed.codes(), options.symmetric ? 8 : 0);
  std::vector<std::string> inputs{
      writer.input(node.inputs[0]),
      writer.weight(base + "_quantized", bytes.reshape({n, groups, options.group_size / 2})),
      writer.weight(base + "_scale", packed.scales()), ""};
  if (!options.symmetric) {
    inputs[3] = writer.weight(base + "_zero_point", packed_halves(packed.zero_points(), 0));
  }
  if (!bias.empty()) {
    inputs.emplace_back();
    inputs.push_back(bias);
  }
  writer.emit(node.name, "MatMulNBits", std::move(inputs), {writer.output(node.outputs[0])},
              {{"K", k},
               {"N", n},
               {"bits", std::int64_t{options.bits}},
               {"block_size", options.group_size}},
              kMicrosoft);
}

}  // namespace

LayerNote GraphWriter::note_of(const nn::Module& module) {
  const nn::ModuleForm* form = nn::module_forms().find(module);
  if (form == nullptr) return {};
  using quantized::ReduceRange;
  const auto* dynamic = dynamic_cast<const nn::quantized::dynamic::DynamicModule*>(&module);
  return {.form = std::string(form->name),
          .all_bits = dynamic != nullptr && dynamic->reduce_range() == ReduceRange::No};
}

void GraphWriter::note(LayerNote about, bool added_bias) {
  if (about.form.empty()) return;
  about.bias = added_bias;
  put_layer(state.notes, out.nodes.back().name, about);
}

void GraphWriter::note_layer(const nn::Module& module, bool added_bias) {
  note(note_of(module), added_bias);
}

void GraphWriter::write_weight_only(const Node& node, const std::string& layer,
                                    const WeightOnlyPackedParams& packed, const Tensor& added,
                                    const LayerNote& about) {
  const WeightOnlyOptions& options = packed.options();
  const std::string bias = added.defined() ? weight(layer + ".bias", added) : "";
  if (options.bits == 4 && options.group_size != 0 &&
      state.options.target == OnnxTarget::OnnxRuntime) {
    emit_nbits(*this, node, layer, packed, bias);
    return note(about, false);
  }
  const CodedWeight coded = coded_of_packed(packed);
  const std::string floats =
      coded_weight(layer + ".weight", is_gemm(node) ? coded : transposed(coded));
  emit_product(*this, node, about, floats, bias);
}

void GraphWriter::write_weight_only(const Node& node, const nn::weight_only::Linear& linear) {
  write_weight_only(node, node.module, linear.packed(), linear.bias(), note_of(linear));
}

void GraphWriter::write_dynamic(const Node& node, const nn::quantized::dynamic::Linear& linear) {
  const bool relu =
      dynamic_cast<const nn::intrinsic::quantized::dynamic::LinearReLU*>(&linear) != nullptr;
  const std::string y = output(node.outputs[0]);
  const std::string sum = relu ? state.unique_value(node.name + "_sum") : y;
  write_dynamic({.name = node.name,
                 .layer = node.module,
                 .x = input(node.inputs[0]),
                 .y = sum,
                 .weight = linear.weight(),
                 .bias = linear.bias(),
                 .note = note_of(linear)});
  if (relu) emit(node.name + "_Relu", "Relu", {sum}, {y});
}

void GraphWriter::write_dynamic(const DynamicCall& call) {
  const std::string base = call.layer + ".weight";
  const std::string bias = call.bias.defined() ? weight(call.layer + ".bias", call.bias) : "";
  const std::string& x = call.x;
  const std::string& sum = call.y;
  state.torch_arithmetic = true;
  state.need(7, "Add");
  if (call.weight.dtype() == DType::Float16) {
    // Halves in the file, floats in the product.
    const std::string halves = weight(base, call.weight.t().contiguous());
    const std::string floats = state.unique_value(base + "_floats");
    emit(call.name + "_Cast", "Cast", {halves}, {floats}, {{"to", std::int64_t{1}}});
    const std::string product = bias.empty() ? sum : state.unique_value(call.name + "_product");
    emit(call.name, "MatMul", {x, floats}, {product});
    note(call.note, !bias.empty());
    if (!bias.empty()) emit(call.name + "_bias", "Add", {product, bias}, {sum});
    return;
  }
  // Others choose the input's parameters by ONNX's rule, which is not torch's: codes of 8 bits.
  state.need(11, "DynamicQuantizeLinear");
  const CodedWeight coded = as_unsigned(transposed(coded_of(QTensor(call.weight))));
  const auto inner = [&](const char* suffix) { return state.unique_value(call.name + suffix); };
  const std::string codes = inner("_codes");
  const std::string scale = inner("_scale");
  const std::string zero = inner("_zero_point");
  const std::string product = inner("_integers");
  const std::string floats = inner("_floats");
  const std::string unit = inner("_unit");
  emit(call.name + "_DynamicQuantizeLinear", "DynamicQuantizeLinear", {x}, {codes, scale, zero});
  emit(call.name, "MatMulInteger",
       {codes, weight(base + "_quantized", coded.codes), zero,
        weight(base + "_zero_point", coded.zero_points)},
       {product});
  note(call.note, !bias.empty());
  emit(call.name + "_Cast", "Cast", {product}, {floats}, {{"to", std::int64_t{1}}});
  emit(call.name + "_unit", "Mul", {scale, weight(base + "_scale", coded.scales)}, {unit});
  const std::string scaled = bias.empty() ? sum : inner("_scaled");
  emit(call.name + "_Mul", "Mul", {floats, unit}, {scaled});
  if (!bias.empty()) emit(call.name + "_bias", "Add", {scaled, bias}, {sum});
}

}  // namespace quanta::graph::detail
