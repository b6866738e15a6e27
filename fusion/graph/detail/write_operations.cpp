// Nodes that run an operation, which is what int8 files are lowered to, become ONNX's nodes again.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta::graph::detail {
namespace {

template <typename T>
T setting(const Operation& operation, std::string_view name, T otherwise) {
  const Attribute attribute = attribute_of(operation, name);
  const T* value = std::get_if<T>(&attribute);
  return value == nullptr ? otherwise : *value;
}

/// What an operation's result is quantized to.
Codes result_codes(const Operation& operation) {
  return {.dtype = DType::QUInt8,
          .scale = setting(operation, "scale", 1.0),
          .zero_point = setting(operation, "zero_point", std::int64_t{0})};
}

/// The answers of an operation to all 256 codes.
Tensor answers(const Operation& operation, const Codes& x) {
  const Tensor all = Tensor::arange(256).to(DType::UInt8);
  const Tensor codes = QTensor::from_int_repr(all, Quantizer::per_tensor(x.scale, x.zero_point));
  Results results;
  results = run_all(operation, std::span<const Tensor>(&codes, 1));
  const Tensor made = *results.begin();
  return made.is_quantized() ? QTensor(made).int_repr_view().contiguous() : made.contiguous();
}

class OperationWriter {
 public:
  OperationWriter(GraphWriter& writer, const Node& node)
      : writer_(writer), node_(node), operation_(*node.operation), name_(operation_.name()) {}

  /// False where there is no form.
  bool write() {
    return write_codes() || write_table() || write_arithmetic() || write_layer() || write_pad();
  }

 private:
  std::string input(std::size_t i) { return writer_.input(node_.inputs[i]); }
  ValueId result() const { return node_.outputs[0]; }
  std::string inner(const char* suffix) { return writer_.state.unique_value(node_.name + suffix); }

  bool write_codes() {
    if (name_ == "quantized::quantize_linear" || name_ == "quantize_per_tensor") {
      Codes codes = result_codes(operation_);
      codes.dtype = setting(operation_, "dtype", DType::QUInt8);
      (name_ == "quantize_per_tensor" ? writer_.state.torch_arithmetic
                                      : writer_.state.onnx_arithmetic) = true;
      writer_.quantize(result(), input(0), codes);
      return true;
    }
    if (name_ == "dequantize") {
      const Codes* codes = writer_.codes(node_.inputs[0]);
      if (codes == nullptr) return false;
      append_dequantize(writer_, node_.name, writer_.coded_input(node_.inputs[0]),
                        writer_.parameters(writer_.value(node_.inputs[0]).name, *codes),
                        writer_.output(result()));
      return true;
    }
    if (name_ == "quantized::from_codes") {
      Codes codes = result_codes(operation_);
      if (writer_.value(node_.inputs[0]).type == OnnxType::Int8) {
        codes.dtype = DType::QInt8;
        codes.zero_point -= 128;
      }
      const std::string integers = input(0);
      writer_.emit(node_.name, "Identity", {integers}, {writer_.coded_output(result(), codes)});
      return true;
    }
    if (name_ == "quantized::to_codes") {
      const Codes* codes = writer_.codes(node_.inputs[0]);
      if (codes == nullptr) return false;
      const DType wanted = setting(operation_, "dtype", DType::UInt8);
      const bool is_signed = stored_codes(writer_.state.options, *codes).dtype == DType::QInt8;
      const std::string stored = writer_.coded_input(node_.inputs[0]);
      const std::string y = writer_.output(result());
      if (is_signed == (wanted == DType::Int8)) {
        writer_.emit(node_.name, "Identity", {stored}, {y});
        return true;
      }
      const std::string wide = inner("_wide");
      const std::string moved = inner("_moved");
      const std::string by =
          writer_.weight(node_.name + "_by", Tensor::scalar(is_signed ? 128 : -128, DType::Int32));
      const auto to = [](OnnxType type) {
        return OnnxAttributes{{"to", static_cast<std::int64_t>(type)}};
      };
      writer_.emit(node_.name + "_wide", "Cast", {stored}, {wide}, to(OnnxType::Int32));
      writer_.emit(node_.name + "_moved", "Add", {wide, by}, {moved});
      writer_.emit(node_.name, "Cast", {moved}, {y}, to(onnx_type_of(wanted)));
      return true;
    }
    return false;
  }

  /// Any function of one code: looked up.
  bool write_table() {
    const bool to_floats = name_ == "quantized::map_codes_to_float";
    if (name_ != "quantized::map_codes" && !to_floats) return false;
    const Codes* codes = writer_.codes(node_.inputs[0]);
    if (codes == nullptr || codes->dtype != DType::QUInt8 ||
        stored_codes(writer_.state.options, *codes).dtype != DType::QUInt8) {
      return false;
    }
    const std::string positions = inner("_positions");
    const std::string table = writer_.weight(node_.name + "_table", answers(operation_, *codes));
    writer_.emit(node_.name + "_Cast", "Cast", {writer_.coded_input(node_.inputs[0])}, {positions},
                 {{"to", static_cast<std::int64_t>(OnnxType::Int32)}});
    writer_.emit(node_.name, "Gather", {table, positions},
                 {to_floats ? writer_.output(result())
                            : writer_.coded_output(result(), result_codes(operation_))});
    return true;
  }

  /// The float operator and the codes of its result.
  void emit_quantized(const char* op, OnnxAttributes attributes, const Codes& codes, bool relu) {
    std::vector<std::string> inputs;
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) inputs.push_back(input(i));
    const std::string raw = writer_.raw_output(result());
    const std::string sum = relu ? inner("_sum") : raw;
    writer_.emit(node_.name, op, std::move(inputs), {sum}, std::move(attributes));
    if (relu) writer_.emit(node_.name + "_Relu", "Relu", {sum}, {raw});
    writer_.quantize(result(), raw, codes);
  }

  bool write_arithmetic() {
    const auto is = [this](std::string_view name) { return name_ == name; };
    if (is("quantized::add") || is("quantized::add_relu")) {
      writer_.state.need(7, "Add");
      emit_quantized("Add", {}, result_codes(operation_), is("quantized::add_relu"));
    } else if (is("quantized::mul") || is("quantized::mul_relu")) {
      writer_.state.need(7, "Mul");
      emit_quantized("Mul", {}, result_codes(operation_), is("quantized::mul_relu"));
    } else if (is("quantized::matmul_exact") || is("quantized::matmul")) {
      emit_quantized("MatMul", {}, result_codes(operation_), false);
    } else if (is("quantized::matmul_to_float")) {
      writer_.emit(node_.name, "MatMul", {input(0), input(1)}, {writer_.output(result())});
    } else if (is("quantized::global_mean_to_float")) {
      writer_.emit(node_.name, "GlobalAveragePool", {input(0)}, {writer_.output(result())});
    } else if (is("join_codes")) {
      const Codes* first = writer_.codes(node_.inputs[0]);
      if (first == nullptr) return false;
      emit_quantized("Concat", {{"axis", setting(operation_, "axis", std::int64_t{0})}},
                     Codes(*first), false);
    } else {
      return false;
    }
    return true;
  }

  bool write_layer() {
    const bool of_codes = name_ == "conv_of_codes" || name_ == "linear_of_codes";
    const bool conv = name_ == "conv_to_float" || name_ == "conv_of_codes";
    if (!of_codes && !conv && name_ != "linear_to_float") return false;
    const QTensor weight(setting(operation_, "weight", Tensor()));
    const Tensor bias = setting(operation_, "bias", Tensor());
    CodedWeight coded = coded_of(weight);
    if (!conv) coded = transposed(coded);
    OnnxAttributes attributes;
    if (conv) attributes = conv_settings(weight.sizes());
    const std::string base = node_.name + ".weight";
    if (of_codes) return write_dynamic(base, coded, bias, conv, std::move(attributes));
    const Codes* x = writer_.codes(node_.inputs[0]);
    if (x == nullptr) return false;
    const std::string weight_name = writer_.coded_weight(base, coded);
    std::string bias_name;
    if (bias.defined()) {
      bias_name =
          bias.dtype() == DType::Int32
              ? writer_.coded_weight(node_.name + ".bias", coded_bias(bias, x->scale, weight))
              : writer_.weight(node_.name + ".bias", bias);
    }
    const std::string y = writer_.output(result());
    if (conv) {
      const bool transposes = setting(operation_, "transposed", false);
      writer_.emit(node_.name, transposes ? "ConvTranspose" : "Conv",
                   {input(0), weight_name, bias_name}, {y}, std::move(attributes));
      return true;
    }
    const std::string product = bias_name.empty() ? y : inner("_product");
    writer_.emit(node_.name, "MatMul", {input(0), weight_name}, {product});
    if (!bias_name.empty()) {
      writer_.emit(node_.name + "_bias", "Add", {product, bias_name}, {y});
    }
    return true;
  }

  OnnxAttributes conv_settings(const Dims& weight) {
    const std::size_t spatial = weight.size() - 2;
    const auto list = [&](const char* name, std::int64_t otherwise) {
      const Dims dims = setting(operation_, name, Dims{otherwise});
      std::vector<std::int64_t> numbers(dims.begin(), dims.end());
      if (numbers.size() == 1) numbers.resize(spatial, numbers[0]);
      return numbers;
    };
    std::vector<std::int64_t> pads = list("padding", 0);
    pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
    OnnxAttributes attributes{{"strides", list("stride", 1)},
                              {"dilations", list("dilation", 1)},
                              {"pads", pads},
                              {"group", setting(operation_, "groups", std::int64_t{1})}};
    if (setting(operation_, "transposed", false)) {
      attributes["output_padding"] = list("output_padding", 0);
    }
    return attributes;
  }

  /// Behind DynamicQuantizeLinear, which stands in the graph: codes, scale, zero point.
  bool write_dynamic(const std::string& base, const CodedWeight& coded, const Tensor& bias,
                     bool conv, OnnxAttributes attributes) {
    const std::string product = inner("_integers");
    const std::string floats = inner("_floats");
    const std::string unit = inner("_unit");
    const std::string y = writer_.output(result());
    // One a channel, against an image.
    const auto against_image = [&](const Tensor& x) {
      if (!conv || x.dim() == 0) return x;
      Dims sizes = Dims::filled(static_cast<std::size_t>(coded.codes.dim() - 1), 1);
      sizes[0] = x.numel();
      return x.reshape(sizes);
    };
    Tensor zero = coded.zero_points;
    if (conv && zero.defined()) {
      // ConvInteger has one for all channels.
      const std::vector<std::int64_t> codes = zero.to_int64_vector();
      if (std::ranges::any_of(codes, [&](std::int64_t code) { return code != codes[0]; })) {
        return false;
      }
      zero = Tensor::scalar(static_cast<double>(codes[0]), zero.dtype());
    }
    std::vector<std::string> inputs{input(0), writer_.weight(base + "_quantized", coded.codes),
                                    input(2)};
    if (zero.defined()) inputs.push_back(writer_.weight(base + "_zero_point", zero));
    writer_.state.need(10, "MatMulInteger");
    writer_.emit(node_.name, conv ? "ConvInteger" : "MatMulInteger", std::move(inputs), {product},
                 std::move(attributes));
    writer_.emit(node_.name + "_Cast", "Cast", {product}, {floats}, {{"to", std::int64_t{1}}});
    writer_.emit(node_.name + "_unit", "Mul",
                 {input(1), writer_.weight(base + "_scale", against_image(coded.scales))}, {unit});
    const std::string scaled = bias.defined() ? inner("_scaled") : y;
    writer_.emit(node_.name + "_Mul", "Mul", {floats, unit}, {scaled});
    if (bias.defined()) {
      const std::string added = writer_.weight(node_.name + ".bias", against_image(bias));
      writer_.emit(node_.name + "_bias", "Add", {scaled, added}, {y});
    }
    return true;
  }

  bool write_pad() {
    if (name_ != "pad_image") return false;
    const Codes* codes = writer_.codes(node_.inputs[0]);
    // What auto_pad asks for depends on the image's sizes.
    if (codes == nullptr || setting(operation_, "same", false)) return false;
    const Dims begin = setting(operation_, "begin", Dims{});
    const Dims end = setting(operation_, "end", Dims{});
    std::vector<std::int64_t> pads{0, 0};
    pads.insert(pads.end(), begin.begin(), begin.end());
    pads.insert(pads.end(), {0, 0});
    pads.insert(pads.end(), end.begin(), end.end());
    writer_.state.need(11, "Pad");
    const Codes own = *codes;
    const std::string x = input(0);
    const std::string raw = writer_.raw_output(result());
    writer_.emit(node_.name, "Pad",
                 {x, writer_.weight(node_.name + "_pads", Tensor::from_int64(pads))}, {raw});
    writer_.quantize(result(), raw, own);
    return true;
  }

  GraphWriter& writer_;
  const Node& node_;
  const Operation& operation_;
  std::string_view name_;
};

}  // namespace

void GraphWriter::write_operation(const Node& node) {
  std::string why;
  // The values of traced nodes say sizes and codes.
  const bool is_traced = node.domain == "quanta" && node.opset == 0;
  if (is_traced ? write_eager(node, why) : OperationWriter(*this, node).write()) return;
  refuse(node, why.empty() ? fmt::format("no form for the operation {}", node.operation->name())
                           : fmt::format("{}: {}", node.operation->name(), why));
}

}  // namespace quanta::graph::detail
