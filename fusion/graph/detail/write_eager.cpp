#include "quanta/fusion/graph/detail/write_eager.h"

#include <algorithm>
#include <map>

#include "quanta/fusion/graph/detail/tracer.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

constexpr std::string_view kQuantized = "quantized::";

std::map<std::string_view, EagerWriter> all_writers() {
  std::map<std::string_view, EagerWriter> writers;
  for (const auto table :
       {eager_pointwise, eager_layers, eager_norms, eager_pools, eager_shapes, eager_reductions,
        eager_attention, eager_codes, eager_quantizers, eager_indices}) {
    for (const EagerRow& row : table()) writers.emplace(row.function, row.write);
  }
  return writers;
}

}  // namespace

EagerWriter find_eager_writer(std::string_view function) {
  static const std::map<std::string_view, EagerWriter> writers = all_writers();
  const auto found = writers.find(function);
  return found == writers.end() ? nullptr : found->second;
}

std::string_view EagerCall::function() const {
  std::string_view name = op();
  if (name.starts_with(kQuantized)) name.remove_prefix(kQuantized.size());
  return name;
}

bool EagerCall::is_set(std::string_view name) const {
  for (const AttributeInfo& info : operation.attributes()) {
    if (info.name != name) continue;
    const Attribute attribute = info.get(operation);
    if (std::holds_alternative<std::monostate>(attribute)) return false;
    const auto* opaque = std::get_if<OpaqueAttribute>(&attribute);
    return opaque == nullptr || *opaque != nullptr;
  }
  return false;
}

Numbers EagerCall::list(std::string_view name, std::size_t count, std::int64_t otherwise) const {
  const Dims dims = setting(name, Dims{});
  Numbers numbers = dims.to_vector();
  if (numbers.empty()) numbers.assign(count, otherwise);
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  return numbers;
}

Dims EagerCall::sizes(std::size_t i) const { return declared_dims(value(i)); }
Dims EagerCall::result_sizes(std::size_t i) const { return declared_dims(result_value(i)); }

OnnxType EagerCall::type(std::size_t i) const {
  const Value& x = value(i);
  if (x.type != OnnxType::Undefined) return x.type;
  return x.constant.defined() ? onnx_type_of(x.constant.dtype()) : OnnxType::Float;
}

std::string EagerCall::result(std::size_t i) {
  if (!wants(i)) return "";
  const ValueId id = node.outputs[i];
  wrote(i);
  if (!result_codes(i)) return writer.output(id);
  std::string raw = writer.raw_output(id);
  coded_.emplace_back(i, raw);
  return raw;
}

std::string EagerCall::name(std::string_view suffix) const {
  return fmt::format("{}_{}", node.name, suffix);
}

std::string EagerCall::scalar(std::string_view suffix, double number) {
  return scalar(suffix, number, type(0));
}

std::string EagerCall::scalar(std::string_view suffix, double number, OnnxType type) {
  return weight(suffix, Tensor::scalar(number, *dtype_of(type)));
}

std::string EagerCall::part(std::string_view onnx_op, Names inputs, OnnxAttributes attributes) {
  std::string y = writer.state.unique_value(name(onnx_op));
  writer.emit(name(onnx_op), onnx_op, std::move(inputs), {y}, std::move(attributes));
  return y;
}

void EagerCall::emit(std::string_view onnx_op, Names inputs, OnnxAttributes attributes,
                     std::string y) {
  if (y.empty()) y = result();
  writer.emit(node.name, onnx_op, std::move(inputs), {std::move(y)}, std::move(attributes));
}

void EagerCall::reduce(std::string_view onnx_op, const std::string& x, const Numbers& axes,
                       bool keepdims, std::string y) {
  Names inputs{x};
  OnnxAttributes attributes{{"keepdims", std::int64_t{keepdims}}};
  // An input since 18, for sums since 13.
  if (!axes.empty()) {
    if (opset() >= (onnx_op == "ReduceSum" ? 13 : 18)) {
      inputs.push_back(integers("axes", axes));
    } else {
      attributes["axes"] = axes;
    }
  }
  emit(onnx_op, std::move(inputs), std::move(attributes), std::move(y));
}

bool EagerCall::finish() {
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (wants(i) && !given_.contains(i)) return refuse(fmt::format("result {} has no form", i));
  }
  for (const auto& [i, raw] : std::exchange(coded_, {})) {
    writer.quantize(node.outputs[i], raw, *result_codes(i));
    writer.state.torch_arithmetic = true;
  }
  return true;
}

bool GraphWriter::write_eager(const Node& node, std::string& why) {
  EagerCall call(*this, node);
  const EagerWriter write = find_eager_writer(call.function());
  if (write == nullptr) return false;
  if (write(call) && call.finish()) return true;
  why = call.why();
  return false;
}

}  // namespace quanta::graph::detail
