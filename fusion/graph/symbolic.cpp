#include "quanta/fusion/graph/symbolic.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/added_nodes.h"
#include "quanta/fusion/graph/detail/modelopt_nodes.h"
#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/error.h"

namespace quanta::graph::symbolic {
namespace {

using detail::AddedNodes;
using detail::FloatGrid;
using detail::IntegerGrid;
using detail::QdqValue;

/// Puts what was made into the model, all of it or nothing; it declares the result.
std::string finish(std::string_view op, OnnxModel& model, AddedNodes& added, const QdqValue& x) {
  constexpr std::int64_t kUsualOpset = 17;
  const std::int64_t needed = added.needed_opset();
  const std::optional<std::int64_t> opset = detail::find_opset(model);
  QUANTA_CHECK(!opset || *opset >= needed, "{}: model: expected opset {} or later ({}), got {}", op,
               needed, added.needed_for(), *opset);
  if (!opset) model.opsets[""] = std::max(needed, kUsualOpset);
  OnnxGraph& graph = model.graph;
  std::ranges::move(added.take_weights(), std::back_inserter(graph.initializers));
  for (OnnxNode& node : added.take_nodes()) {
    if (!node.domain.empty()) model.opsets.try_emplace(node.domain, 1);
    graph.nodes.push_back(std::move(node));
  }
  std::vector<OnnxDim> sizes;
  for (const std::int64_t size : x.sizes) {
    sizes.push_back(size < 0 ? OnnxDim{} : OnnxDim{.size = size, .name = {}});
  }
  graph.values.push_back({.name = x.y, .type = x.type, .sizes = std::move(sizes)});
  return x.y;
}

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
    const OnnxValue* found = detail::find_declared(model.graph, name);
    QUANTA_CHECK(found != nullptr && found->sizes.has_value(),
                 "{}: inputs: expected a value that the graph declares with type and sizes, got "
                 "'{}'",
                 op, name);
    x.type = found->type;
    for (const OnnxDim& dim : *found->sizes) x.sizes.push_back(dim.size.value_or(-1));
  }
  QUANTA_CHECK(detail::is_quantizable(x.type),
               "{}: inputs: expected FLOAT, FLOAT16, BFLOAT16 or DOUBLE, got {} for '{}'", op,
               to_string(x.type), name);
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
  AddedNodes sink(model.graph);
  x.y = sink.unique_value(x.base + "_dequantized");
  detail::append_qdq(sink, x, detail::integer_grid(amax, options));
  return finish(op, model, sink, x);
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
  AddedNodes sink(model.graph);
  x.y = sink.unique_value(x.base + "_dequantized");
  if (symbolic.nodes == QuantizerNodes::ModelOpt) {
    detail::append_trt_int4(sink, x, grid, axis, symbolic.block_size);
    return finish(op, model, sink, x);
  }
  const OnnxTensor* weight = find_weight(model, inputs);
  QUANTA_SUPPORTED(weight != nullptr,
                   "{}: inputs: expected an initializer for codes of 4 bits, got the value '{}'",
                   op, inputs);
  x.result = detail::on_grid(weight->value.to(DType::Float32), grid);
  detail::append_qdq(sink, x, grid);
  return finish(op, model, sink, x);
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
  AddedNodes sink(model.graph);
  x.y = sink.unique_value(x.base + "_dequantized");
  if (symbolic.nodes == QuantizerNodes::ModelOpt) {
    const std::string why = detail::trt_refusal(grid);
    QUANTA_SUPPORTED(why.empty(), "{}: amax: {}", kOp, why);
    detail::append_trt_fp8(sink, x, grid);
  } else {
    detail::append_qdq(sink, x, grid);
  }
  return finish(kOp, model, sink, x);
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
  AddedNodes sink(model.graph);
  x.y = sink.unique_value(x.base + "_dequantized");
  detail::append_blocks(sink, x, blocks, symbolic.nodes);
  return finish(kOp, model, sink, x);
}

}  // namespace quanta::graph::symbolic
