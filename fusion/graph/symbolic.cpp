#include "quanta/fusion/graph/symbolic.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/modelopt_nodes.h"
#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/error.h"

namespace quanta::graph::symbolic {
namespace {

using detail::FloatGrid;
using detail::IntegerGrid;
using detail::QdqValue;

/// Nodes that a model gets all at once, or not at all.
class ModelSink final : public detail::NodeSink {
 public:
  ModelSink(std::string_view op, OnnxModel& model) : op_(op), model_(model) {
    const OnnxGraph& graph = model.graph;
    for (const OnnxValue& value : graph.inputs) values_.insert(value.name);
    for (const OnnxValue& value : graph.outputs) values_.insert(value.name);
    for (const OnnxTensor& weight : graph.initializers) values_.insert(weight.name);
    for (const OnnxNode& node : graph.nodes) {
      nodes_.insert(node.name);
      values_.insert(node.inputs.begin(), node.inputs.end());
      values_.insert(node.outputs.begin(), node.outputs.end());
    }
  }

  std::string unique_value(std::string_view base) override { return unique(values_, base); }
  std::string weight(std::string_view base, const Tensor& tensor, OnnxType type) override {
    std::string name = unique_value(base);
    added_.initializers.push_back(
        {.name = name,
         .type = detail::holds(type, tensor.dtype()) ? type : onnx_type_of(tensor.dtype()),
         .value = tensor});
    return name;
  }
  void emit(std::string_view name, std::string_view op, std::vector<std::string> inputs,
            std::vector<std::string> outputs, OnnxAttributes attributes,
            std::string_view domain) override {
    OnnxNode node;
    node.name = unique(nodes_, name);
    node.op_type = op;
    node.domain = domain;
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    node.attributes = std::move(attributes);
    if (!domain.empty()) domains_.insert(std::string(domain));
    added_.nodes.push_back(std::move(node));
  }
  void need(std::int64_t opset, std::string_view what) override {
    if (opset <= needed_) return;
    needed_ = opset;
    needed_for_ = what;
  }

  /// Puts everything into the model, which declares `result`.
  std::string finish(const QdqValue& x) {
    auto opset = model_.opsets.find("");
    if (opset == model_.opsets.end()) opset = model_.opsets.find("ai.onnx");
    QUANTA_CHECK(opset == model_.opsets.end() || opset->second >= needed_,
                 "{}: model: expected opset {} or later ({}), got {}", op_, needed_, needed_for_,
                 opset->second);
    if (opset == model_.opsets.end()) {
      model_.opsets[""] = std::max<std::int64_t>(needed_, kUsualOpset);
    }
    for (const std::string& domain : domains_) model_.opsets.try_emplace(domain, 1);
    OnnxGraph& graph = model_.graph;
    std::ranges::move(added_.initializers, std::back_inserter(graph.initializers));
    std::ranges::move(added_.nodes, std::back_inserter(graph.nodes));
    std::vector<OnnxDim> sizes;
    for (const std::int64_t size : x.sizes) {
      sizes.push_back(size < 0 ? OnnxDim{} : OnnxDim{.size = size, .name = {}});
    }
    graph.values.push_back({.name = x.y, .type = x.type, .sizes = std::move(sizes)});
    return x.y;
  }

 private:
  static constexpr std::int64_t kUsualOpset = 17;

  static std::string unique(std::set<std::string, std::less<>>& taken, std::string_view base) {
    std::string name(base);
    for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
    return name;
  }

  std::string_view op_;
  OnnxModel& model_;
  OnnxGraph added_;
  std::set<std::string, std::less<>> values_, nodes_;
  std::set<std::string> domains_;
  std::int64_t needed_ = 0;
  std::string needed_for_;
};

const OnnxTensor* find_weight(const OnnxModel& model, const std::string& name) {
  const auto& weights = model.graph.initializers;
  const auto found = std::ranges::find(weights, name, &OnnxTensor::name);
  return found == weights.end() ? nullptr : &*found;
}

/// The value as the model declares it.
QdqValue declared(std::string_view op, const OnnxModel& model, const std::string& name,
                  const SymbolicOptions& symbolic) {
  QdqValue x{.name = name, .type = OnnxType::Undefined, .base = name};
  if (const OnnxTensor* weight = find_weight(model, name); weight != nullptr) {
    QUANTA_CHECK(weight->value.defined(), "{}: inputs: expected a tensor in '{}', got none", op,
                 name);
    x.type = onnx_type_of(weight->value.dtype());
    x.sizes = weight->value.sizes();
  } else {
    const OnnxValue* found = nullptr;
    for (const auto* values : {&model.graph.inputs, &model.graph.values, &model.graph.outputs}) {
      const auto at = std::ranges::find(*values, name, &OnnxValue::name);
      if (at != values->end() && found == nullptr) found = &*at;
    }
    QUANTA_CHECK(found != nullptr && found->sizes.has_value(),
                 "{}: inputs: expected a value that the graph declares with type and sizes, got "
                 "'{}'",
                 op, name);
    x.type = found->type;
    for (const OnnxDim& dim : *found->sizes) x.sizes.push_back(dim.size.value_or(-1));
  }
  const bool is_float = x.type == OnnxType::Float || x.type == OnnxType::Float16 ||
                        x.type == OnnxType::BFloat16 || x.type == OnnxType::Double;
  QUANTA_CHECK(is_float, "{}: inputs: expected FLOAT, FLOAT16, BFLOAT16 or DOUBLE, got {} for '{}'",
               op, to_string(x.type), name);
  x.precision = x.type == OnnxType::Double ? OnnxType::Float : x.type;
  if (symbolic.trt_high_precision_dtype) {
    const DType wanted = *symbolic.trt_high_precision_dtype;
    QUANTA_CHECK(wanted == DType::Float32 || onnx_type_of(wanted) == x.precision,
                 "{}: trt_high_precision_dtype: expected Float32 or the value's {}, got {}", op,
                 to_string(x.type), wanted);
    x.precision = onnx_type_of(wanted);
  }
  return x;
}

void check_amax(std::string_view op, const QdqValue& x, const Tensor& amax) {
  QUANTA_CHECK(amax.defined() && amax.is_floating_point() && amax.numel() > 0,
               "{}: amax: expected a floating tensor, got {}", op,
               amax.defined() ? to_string(amax.dtype()) : "an undefined one");
  for (const float value : amax.contiguous().to(DType::Float32).to_float_vector()) {
    QUANTA_CHECK(std::isfinite(value) && value >= 0.0F,
                 "{}: amax: expected finite numbers of at least 0, got {}", op, value);
  }
  if (amax.numel() == 1) return;
  const auto rank = static_cast<std::size_t>(amax.dim());
  bool fits = rank <= x.sizes.size();
  for (std::size_t d = 0; fits && d < rank; ++d) {
    const std::int64_t size = amax.sizes()[d];
    fits = size == 1 || size == x.sizes[x.sizes.size() - rank + d];
  }
  QUANTA_CHECK(fits, "{}: amax: expected one that broadcasts to {}, got {}", op, x.sizes,
               amax.sizes());
  const auto several = std::ranges::count_if(amax.sizes(), [](std::int64_t n) { return n != 1; });
  QUANTA_SUPPORTED(several == 1,
                   "{}: amax: expected several elements along one axis (ONNX has one), got {}", op,
                   amax.sizes());
}

/// For codes of 8 bits.
std::string integers(std::string_view op, OnnxModel& model, const std::string& inputs,
                     const Tensor& amax, const TensorQuantOptions& options,
                     const SymbolicOptions& symbolic) {
  QUANTA_SUPPORTED(options.is_unsigned || !options.narrow_range,
                   "{}: narrow_range: expected false for signed codes, as ONNX has no narrow range "
                   "of INT8, got true",
                   op);
  QdqValue x = declared(op, model, inputs, symbolic);
  check_amax(op, x, amax);
  ModelSink sink(op, model);
  x.y = sink.unique_value(x.base + "_dequantized");
  detail::append_qdq(sink, x, detail::integer_grid(amax, options));
  return sink.finish(x);
}

/// amax of blocks along an axis: as many along it as there are blocks.
void check_blocks(std::string_view op, const QdqValue& x, const Tensor& amax, std::int64_t axis,
                  std::int64_t block_size) {
  QUANTA_CHECK(amax.defined() && amax.is_floating_point(),
               "{}: amax: expected a floating tensor, got {}", op,
               amax.defined() ? to_string(amax.dtype()) : "an undefined one");
  Dims wanted = x.sizes;
  const auto along = static_cast<std::size_t>(axis);
  QUANTA_CHECK(block_size >= 1 && wanted[along] % block_size == 0,
               "{}: block_size: expected a size that divides the {} elements along axis {}, got {}",
               op, wanted[along], axis, block_size);
  wanted[along] /= block_size;
  QUANTA_CHECK(amax.sizes() == wanted, "{}: amax: expected {}, one for each block of {}, got {}",
               op, wanted, block_size, amax.sizes());
  for (const float value : amax.contiguous().to(DType::Float32).to_float_vector()) {
    QUANTA_CHECK(std::isfinite(value) && value >= 0.0F,
                 "{}: amax: expected finite numbers of at least 0, got {}", op, value);
  }
}

/// For codes of 4 bits, of weights in blocks.
std::string int4_blocks(std::string_view op, OnnxModel& model, const std::string& inputs,
                        const Tensor& amax, const TensorQuantOptions& options,
                        const SymbolicOptions& symbolic) {
  QUANTA_SUPPORTED(!options.is_unsigned, "{}: unsigned: expected false for 4 bits, got true", op);
  QdqValue x = declared(op, model, inputs, symbolic);
  const std::int64_t axis =
      wrap_dim(symbolic.axis, static_cast<std::int64_t>(x.sizes.size()), op, "axis");
  check_blocks(op, x, amax, axis, symbolic.block_size);
  const IntegerGrid grid = detail::integer_grid(amax, options);
  ModelSink sink(op, model);
  x.y = sink.unique_value(x.base + "_dequantized");
  if (symbolic.nodes == QuantizerNodes::ModelOpt) {
    const std::string scale =
        sink.weight(x.base + "_scale", grid.scale.to(*dtype_of(x.precision)), x.precision);
    const auto cast = [&](const std::string& from, const std::string& to, OnnxType type) {
      sink.emit(to + "_Cast", "Cast", {from}, {to}, {{"to", static_cast<std::int64_t>(type)}}, "");
    };
    const bool has_casts = x.precision != x.type;
    const std::string from = has_casts ? sink.unique_value(x.base + "_cast") : inputs;
    const std::string to = has_casts ? sink.unique_value(x.base + "_cast_back") : x.y;
    if (has_casts) cast(inputs, from, x.precision);
    sink.emit(x.base + "_DequantizeLinear", "DequantizeLinear", {from, scale}, {to},
              {{"axis", axis}, {"block_size", symbolic.block_size}}, "trt");
    if (has_casts) cast(to, x.y, x.type);
    return sink.finish(x);
  }
  const OnnxTensor* weight = find_weight(model, inputs);
  QUANTA_SUPPORTED(weight != nullptr,
                   "{}: inputs: expected an initializer for codes of 4 bits, got the value '{}'",
                   op, inputs);
  x.result = detail::on_grid(weight->value.to(DType::Float32), grid);
  detail::append_qdq(sink, x, grid);
  return sink.finish(x);
}

std::string tensor_quant_nodes(std::string_view op, OnnxModel& model, const std::string& inputs,
                               const Tensor& amax, const TensorQuantOptions& options,
                               const SymbolicOptions& symbolic) {
  if (options.num_bits == 4) return int4_blocks(op, model, inputs, amax, options, symbolic);
  QUANTA_SUPPORTED(options.num_bits == 8, "{}: num_bits: expected 8, or 4 in blocks, got {}", op,
                   options.num_bits);
  return integers(op, model, inputs, amax, options, symbolic);
}

}  // namespace

std::string fake_tensor_quant(OnnxModel& model, const std::string& inputs, const Tensor& amax,
                              const TensorQuantOptions& options, const SymbolicOptions& symbolic) {
  return tensor_quant_nodes("symbolic::fake_tensor_quant", model, inputs, amax, options, symbolic);
}

std::string legacy_fake_tensor_quant(OnnxModel& model, const std::string& inputs,
                                     const Tensor& amax, const TensorQuantOptions& options,
                                     const SymbolicOptions& symbolic) {
  return tensor_quant_nodes("symbolic::legacy_fake_tensor_quant", model, inputs, amax, options,
                            symbolic);
}

std::string tensor_quant(OnnxModel& model, const std::string& inputs, const Tensor& amax,
                         const TensorQuantOptions& options, const SymbolicOptions& symbolic) {
  return tensor_quant_nodes("symbolic::tensor_quant", model, inputs, amax, options, symbolic);
}

std::string scaled_e4m3(OnnxModel& model, const std::string& inputs, const Tensor& amax,
                        const SymbolicOptions& symbolic) {
  constexpr std::string_view kOp = "symbolic::scaled_e4m3";
  QdqValue x = declared(kOp, model, inputs, symbolic);
  if (amax.defined()) check_amax(kOp, x, amax);
  const FloatGrid grid = detail::e4m3_grid(amax);
  ModelSink sink(kOp, model);
  x.y = sink.unique_value(x.base + "_dequantized");
  if (symbolic.nodes == QuantizerNodes::ModelOpt) {
    const std::string why = detail::trt_refusal(grid);
    QUANTA_SUPPORTED(why.empty(), "{}: amax: {}", kOp, why);
    detail::append_trt_fp8(sink, x, grid);
  } else {
    detail::append_qdq(sink, x, grid);
  }
  return sink.finish(x);
}

std::string dynamic_block_quant(OnnxModel& model, const std::string& inputs, const Tensor& amax,
                                const DynamicBlockOptions& options,
                                const SymbolicOptions& symbolic) {
  constexpr std::string_view kOp = "symbolic::dynamic_block_quant";
  QdqValue x = declared(kOp, model, inputs, symbolic);
  QUANTA_CHECK(options.block_size >= 1, "{}: block_size: expected at least 1, got {}", kOp,
               options.block_size);
  detail::Blocks blocks{.options = options};
  if (amax.defined()) {
    check_amax(kOp, x, amax);
    const std::vector<float> values = amax.contiguous().to(DType::Float32).to_float_vector();
    blocks.amax = *std::ranges::max_element(values);
  }
  const std::string why = detail::refusal(x, blocks, symbolic.nodes);
  QUANTA_SUPPORTED(why.empty(), "{}: {}", kOp, why);
  ModelSink sink(kOp, model);
  x.y = sink.unique_value(x.base + "_dequantized");
  detail::append_blocks(sink, x, blocks, symbolic.nodes);
  return sink.finish(x);
}

}  // namespace quanta::graph::symbolic
