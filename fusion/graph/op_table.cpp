#include "quanta/fusion/graph/op_table.h"

#include <string>
#include <utility>

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"

namespace quanta::graph {
namespace {

OpTable built_in_ops() {
  OpTable table;
  add_activation_ops(table);
  add_attention_ops(table);
  add_cast_ops(table);
  add_compare_ops(table);
  add_control_ops(table);
  add_conv_ops(table);
  add_create_ops(table);
  add_elementwise_ops(table);
  add_indexing_ops(table);
  add_matmul_ops(table);
  add_microsoft_attention_ops(table);
  add_microsoft_fused_ops(table);
  add_microsoft_ops(table);
  add_norm_ops(table);
  add_pool_ops(table);
  add_qlinear_ops(table);
  add_quantize_ops(table);
  add_reduce_ops(table);
  add_resize_ops(table);
  add_rnn_ops(table);
  add_sequence_ops(table);
  add_shape_ops(table);
  add_signal_ops(table);
  add_vision_ops(table);
  add_workflow_ops(table);
  return table;
}

OpTable& mutable_op_table() {
  static OpTable table = built_in_ops();
  return table;
}

template <typename T>
const T* require_type(const NodeCall& call, std::string_view name, std::string_view what) {
  const auto found = call.node().attributes.find(name);
  if (found == call.node().attributes.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) call.fail(fmt::format("attribute {}: expected {}", name, what));
  return value;
}

}  // namespace

const Tensor& NodeCall::input(std::size_t i, std::string_view name) const {
  if (!has(i)) fail(fmt::format("input {} ({}): expected a tensor, got none", i, name));
  return inputs_[i];
}

std::vector<std::int64_t> NodeCall::integers(std::size_t i, std::string_view name) const {
  const Tensor& x = input(i, name);
  if (x.is_floating_point() || x.is_quantized()) {
    fail(fmt::format("input {} ({}): expected integers, got {}", i, name, x.dtype()));
  }
  replay::check_read(op(), x);
  return x.to_int64_vector();
}

std::vector<double> NodeCall::numbers(std::size_t i, std::string_view name) const {
  const Tensor& x = input(i, name);
  replay::check_read(op(), x);
  if (!x.is_floating_point()) {
    const auto integers = x.to_int64_vector();
    return {integers.begin(), integers.end()};
  }
  if (x.dtype() == DType::Float64) {
    const Tensor flat = x.contiguous();
    const auto* values = flat.data<double>();
    return {values, values + flat.numel()};
  }
  const auto values = x.to_float_vector();
  return {values.begin(), values.end()};
}

OnnxType NodeCall::input_type(std::size_t i) const noexcept {
  if (i < types_.size() && types_[i] != OnnxType::Undefined) return types_[i];
  return has(i) ? onnx_type_of(inputs_[i].dtype()) : OnnxType::Undefined;
}

bool NodeCall::has_attribute(std::string_view name) const {
  return node_->attributes.find(name) != node_->attributes.end();
}

std::int64_t NodeCall::integer(std::string_view name) const {
  const auto* value = require_type<std::int64_t>(*this, name, "an integer");
  if (value == nullptr) fail(fmt::format("attribute {}: expected an integer, got none", name));
  return *value;
}
std::int64_t NodeCall::integer(std::string_view name, std::int64_t otherwise) const {
  const auto* value = require_type<std::int64_t>(*this, name, "an integer");
  return value == nullptr ? otherwise : *value;
}

double NodeCall::number(std::string_view name) const {
  const auto* value = require_type<float>(*this, name, "a float");
  if (value == nullptr) fail(fmt::format("attribute {}: expected a float, got none", name));
  return static_cast<double>(*value);
}
double NodeCall::number(std::string_view name, double otherwise) const {
  const auto* value = require_type<float>(*this, name, "a float");
  return value == nullptr ? otherwise : static_cast<double>(*value);
}

std::string NodeCall::text(std::string_view name, std::string_view otherwise) const {
  const auto* value = require_type<std::string>(*this, name, "a string");
  return value == nullptr ? std::string(otherwise) : *value;
}

std::vector<std::int64_t> NodeCall::integer_list(std::string_view name) const {
  const auto* value = require_type<std::vector<std::int64_t>>(*this, name, "a list of integers");
  if (value == nullptr) fail(fmt::format("attribute {}: expected integers, got none", name));
  return *value;
}
std::vector<std::int64_t> NodeCall::integer_list(std::string_view name,
                                                 const std::vector<std::int64_t>& otherwise) const {
  const auto* value = require_type<std::vector<std::int64_t>>(*this, name, "a list of integers");
  return value == nullptr ? otherwise : *value;
}

std::vector<double> NodeCall::number_list(std::string_view name,
                                          std::vector<double> otherwise) const {
  const auto* value = require_type<std::vector<float>>(*this, name, "a list of floats");
  return value == nullptr ? std::move(otherwise)
                          : std::vector<double>(value->begin(), value->end());
}

OnnxTensor NodeCall::tensor(std::string_view name) const {
  const auto* value = require_type<OnnxTensor>(*this, name, "a tensor");
  if (value == nullptr) fail(fmt::format("attribute {}: expected a tensor, got none", name));
  if (!value->value.defined()) {
    unsupported(fmt::format("attribute {}: a tensor of {}, which Quanta does not have", name,
                            to_string(value->type)));
  }
  return *value;
}

void NodeCall::fail(const std::string& text) const {
  throw ArgumentError(with_module_path(fmt::format("{} '{}': {}", node_->op, node_->name, text)));
}
void NodeCall::unsupported(const std::string& text) const {
  throw UnsupportedError(
      with_module_path(fmt::format("{} '{}': {}", node_->op, node_->name, text)));
}

const OpRow* OpTable::find(std::string_view domain, std::string_view name,
                           std::int64_t opset) const {
  // Rows that were added later win, so that a user can replace one.
  for (auto row = rows_.rbegin(); row != rows_.rend(); ++row) {
    if (row->name == name && row->domain == domain && row->since <= opset && opset <= row->last) {
      return &*row;
    }
  }
  return nullptr;
}

const OpTable& op_table() { return mutable_op_table(); }
void register_onnx_op(const OpRow& row) { mutable_op_table().add(row); }

}  // namespace quanta::graph
