#include "quanta/fusion/graph/detail/onnx_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "quanta/fusion/graph/detail/coded_weight.h"
#include "quanta/fusion/graph/detail/onnx_versions.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

std::string unique(std::set<std::string, std::less<>>& taken, std::string_view base) {
  std::string name(base.empty() ? "value" : base);
  for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

/// Whether a graph takes input i at all.
bool takes_input(const Graph& graph, std::size_t i) {
  const ValueId id = graph.inputs[i];
  return graph.is_output(id) || !graph.users(id).empty();
}

bool is_softmax(const Node& node) {
  return node.domain.empty() &&
         (node.op == "Softmax" || node.op == "LogSoftmax" || node.op == "Hardmax");
}

}  // namespace

void ExportState::need(std::int64_t at_least, std::string_view what) {
  if (at_least <= needed) return;
  needed = at_least;
  needed_for = what;
}

std::string ExportState::unique_value(std::string_view base) { return unique(value_names, base); }
std::string ExportState::unique_node(std::string_view base) { return unique(node_names, base); }

Codes stored_codes(const ExportOptions& options, const Codes& codes) {
  if (options.target != OnnxTarget::TensorRT || codes.dtype != DType::QUInt8 ||
      codes.zero_point != 128) {
    return codes;
  }
  return {.dtype = DType::QInt8, .scale = codes.scale, .zero_point = 0};
}

bool passes_codes(const Node& node) {
  if (node.row == nullptr || !node.domain.empty()) return false;
  if (node.op == "Resize" || node.op == "Upsample") {
    const auto found = node.attributes.find("mode");
    const auto* mode =
        found == node.attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
    return mode == nullptr || *mode == "nearest";
  }
  return node.row->rule == CodeRule::Pass || node.op == "AveragePool" ||
         node.op == "GlobalAveragePool";
}

void GraphWriter::refuse(const Node& node, const std::string& why) {
  state.refused.push_back(fmt::format("{} '{}': {}", node.op, node.name, why));
}

const Codes* GraphWriter::codes(ValueId id) const {
  const auto found = written_.find(id);
  return found == written_.end() || !found->second.qparams ? nullptr : &*found->second.qparams;
}

std::string GraphWriter::weight(std::string_view base, const Tensor& tensor, OnnxType type) {
  const std::string name = state.unique_value(base);
  out.initializers.push_back(
      {.name = name,
       .type = holds(type, tensor.dtype()) ? type : onnx_type_of(tensor.dtype()),
       .value = tensor});
  return name;
}

std::string GraphWriter::constant_as(ValueId id, const Tensor& form) {
  const std::string& base = written_[id].base;
  if (graph.users(id).size() != 1 || is_graph_output(id)) return weight(base, form);
  out.initializers.push_back({.name = base, .type = onnx_type_of(form.dtype()), .value = form});
  return base;
}

void GraphWriter::emit(std::string_view name, std::string_view op, std::vector<std::string> inputs,
                       std::vector<std::string> outputs, OnnxAttributes attributes,
                       std::string_view domain) {
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  if (!domain.empty()) {
    std::int64_t& opset = state.domains[std::string(domain)];
    opset = std::max<std::int64_t>(opset, 1);
  }
  OnnxNode node;
  node.name = state.unique_node(name);
  node.op_type = op;
  node.domain = domain;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.attributes = std::move(attributes);
  out.nodes.push_back(std::move(node));
}

QdqParameters GraphWriter::parameters(std::string_view base, const Codes& codes) {
  const Codes stored = stored_codes(state.options, codes);
  // Values that share their codes share the weights that say so.
  const std::string key = fmt::format("{} {:a} {}", to_string(stored.dtype),
                                      static_cast<float>(stored.scale), stored.zero_point);
  const auto found = parameters_.find(key);
  if (found != parameters_.end()) return found->second;
  const auto zero_point = static_cast<double>(stored.zero_point);
  const OnnxType type = onnx_type_of(stored.dtype);
  QdqParameters names{
      .scale = weight(fmt::format("{}_scale", base), Tensor::scalar(stored.scale, DType::Float32)),
      .zero_point =
          weight(fmt::format("{}_zero_point", base), Tensor::scalar(zero_point, *dtype_of(type))),
      .type = type};
  parameters_[key] = names;
  return names;
}

std::string GraphWriter::input(ValueId id) {
  if (id == kNone) return "";
  Written& about = written_[id];
  if (!about.name.empty()) return about.name;
  if (is_graph_output(id) && value(id).constant.defined()) {
    // The name is that of the output, which a node has to make.
    about.name = weight(about.base + "_value", value(id).constant, value(id).type);
  } else if (const Tensor& constant = value(id).constant; constant.defined()) {
    if (constant.is_quantized()) {
      about.name = coded_weight(about.base, coded_of(QTensor(constant)));
    } else {
      const bool suits =
          value(id).type != OnnxType::Undefined && dtype_of(value(id).type) == constant.dtype();
      out.initializers.push_back({.name = about.base,
                                  .type = suits ? value(id).type : onnx_type_of(constant.dtype()),
                                  .value = constant});
      about.name = about.base;
    }
  } else if (about.qparams) {
    about.name = is_graph_output(id) ? about.base : state.unique_value(about.base + "_dequantized");
    append_dequantize(*this, about.base + "_DequantizeLinear", about.codes,
                      parameters(about.base, *about.qparams), about.name);
  } else {
    about.name = about.base;
  }
  return about.name;
}

std::string GraphWriter::coded_input(ValueId id) { return written_[id].codes; }

std::string GraphWriter::output(ValueId id) {
  if (id == kNone) return "";
  Written& about = written_[id];
  about.name = about.base;
  return about.name;
}

std::string GraphWriter::raw_output(ValueId id) {
  if (id == kNone) return "";
  const std::string& base = written_[id].base;
  return is_graph_output(id) ? state.unique_value(base + "_raw") : base;
}

void GraphWriter::quantize(ValueId id, const std::string& raw, const Codes& codes) {
  Written& about = written_[id];
  about.codes = state.unique_value(about.base + "_quantized");
  about.qparams = codes;
  append_quantize(*this, about.base + "_QuantizeLinear", raw, parameters(about.base, codes),
                  about.codes);
}

std::string GraphWriter::coded_output(ValueId id, const Codes& codes) {
  Written& about = written_[id];
  about.codes = state.unique_value(about.base + "_quantized");
  about.qparams = codes;
  state.need(10, "DequantizeLinear");
  return about.codes;
}

void GraphWriter::write_plain(const Node& node, const std::map<std::size_t, std::string>& replaced,
                              const std::optional<Codes>& made) {
  const std::size_t plain_inputs = node.inputs.size() - node.captured;
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < plain_inputs; ++i) {
    const auto found = replaced.find(i);
    inputs.push_back(found != replaced.end() ? found->second : input(node.inputs[i]));
  }
  OnnxAttributes attributes = node.attributes;
  for (const auto& [name, body] : node.graphs) {
    std::vector<std::string> outer(body->inputs.size());
    const std::size_t formal = outer.size() - node.captured;
    for (std::size_t i = 0; i < node.captured; ++i) {
      if (takes_input(*body, formal + i)) outer[formal + i] = input(node.inputs[plain_inputs + i]);
    }
    GraphWriter within(*body, state);
    attributes[name] = std::make_shared<const OnnxGraph>(within.run({}, outer, formal));
  }
  check_meaning(node);
  if (!node.domain.empty()) {
    std::int64_t& opset = state.domains[node.domain];
    opset = std::max(opset, node.opset);
  }
  const bool passes = !node.inputs.empty() && codes(node.inputs[0]) != nullptr;
  std::vector<std::string> outputs;
  std::vector<std::pair<std::size_t, Codes>> coded;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    std::optional<Codes> own;
    if (id != kNone) {
      own = made ? made : value(id).codes;
      // Indices, the second result of MaxPool, are no codes.
      if (!own && passes && passes_codes(node)) own = *codes(node.inputs[0]);
      if (i > 0 && node.op != "Split") own.reset();
    }
    outputs.push_back(own ? raw_output(id) : output(id));
    if (own) coded.emplace_back(i, *own);
  }
  const std::vector<std::string> made_names = outputs;
  follow_opset(node, inputs, attributes);
  if (works_on_rows(node)) {
    write_rows(node, inputs[0], outputs[0], std::move(attributes));
  } else if (has_parts(node)) {
    write_parts(node, inputs[0], outputs[0]);
  } else {
    emit(node.name, node.op, std::move(inputs), std::move(outputs), std::move(attributes),
         node.domain);
  }
  for (const auto& [i, own] : coded) quantize(node.outputs[i], made_names[i], own);
}

const char* GraphWriter::moved_input(const Node& node) const {
  if (!node.domain.empty() || state.opset <= node.opset) return nullptr;
  const auto passes = [&](std::int64_t opset) {
    return node.opset < opset && state.opset >= opset;
  };
  if (node.op == "Squeeze" || node.op == "Unsqueeze" || node.op == "ReduceSum") {
    return passes(13) ? "axes" : nullptr;
  }
  if (node.op == "Split") return passes(13) ? "split" : nullptr;
  if (node.op.starts_with("Reduce")) return passes(18) ? "axes" : nullptr;
  return nullptr;
}

void GraphWriter::follow_opset(const Node& node, std::vector<std::string>& inputs,
                               OnnxAttributes& attributes) {
  // Parts of equal sizes are counted since 18.
  if (node.op == "Split" && node.domain.empty() && node.opset < 18 && state.opset >= 18 &&
      inputs.size() < 2 && !attributes.contains("split")) {
    attributes["num_outputs"] = static_cast<std::int64_t>(node.outputs.size());
  }
  const char* name = moved_input(node);
  if (name == nullptr) return;
  const auto found = attributes.find(name);
  if (found == attributes.end()) return;
  if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&found->second)) {
    inputs.resize(1);
    inputs.push_back(weight(fmt::format("{}_{}", node.name, name), Tensor::from_int64(*numbers)));
  }
  attributes.erase(found);
}

bool GraphWriter::works_on_rows(const Node& node) const {
  if (!is_softmax(node) || node.opset >= 13 || state.opset < 13) return false;
  const auto axis = node.attributes.find("axis");
  if (axis == node.attributes.end()) return true;  // 1
  const auto* number = std::get_if<std::int64_t>(&axis->second);
  // Along the last axis alone it does what it did before.
  return number == nullptr || *number != -1;
}

void GraphWriter::write_rows(const Node& node, const std::string& x, const std::string& y,
                             OnnxAttributes attributes) {
  const std::string shape = state.unique_value(node.name + "_shape");
  const std::string rows = state.unique_value(node.name + "_rows");
  const std::string result = state.unique_value(node.name + "_result");
  attributes.try_emplace("axis", std::int64_t{1});
  emit(node.name + "_Shape", "Shape", {x}, {shape});
  emit(node.name + "_Flatten", "Flatten", {x}, {rows}, std::move(attributes));
  emit(node.name, node.op, {rows}, {result}, {{"axis", std::int64_t{-1}}});
  emit(node.name + "_Reshape", "Reshape", {result, shape}, {y});
}

void GraphWriter::check_meaning(const Node& node) {
  // Identity is put into graphs without regard to their opset.
  if (!node.domain.empty() || node.op == "Identity") return;
  if (keeps_meaning(node.op, node.opset, state.opset)) return;
  if (moved_input(node) != nullptr || has_parts(node)) return;
  if (is_softmax(node) && node.opset < 13 && state.opset >= 13) return;  // write_rows
  refuse(node, fmt::format("of opset {}, means something else or does not exist in opset {}",
                           node.opset, state.opset));
}

std::optional<std::vector<OnnxDim>> GraphWriter::declared_sizes(ValueId id) const {
  const NodeId made = value(id).sizes ? kNone : graph.producer(id);
  if (made == kNone) return value(id).sizes;
  // Where codes end at an output, the declaration stands at the codes.
  const Node& node = graph.nodes[static_cast<std::size_t>(made)];
  const bool ends_codes = node.op == "DeQuantStub" || node.op == "Dequantize" ||
                          node.op == "dequantize" || node.op == "ToCodes";
  return ends_codes ? value(node.inputs[0]).sizes : std::nullopt;
}

void GraphWriter::write_outputs() {
  std::set<std::string> given;
  for (const ValueId id : graph.outputs) {
    std::string name = input(id);
    const bool own_input = graph.is_input(id);
    const bool made = name == written_[id].base && (!own_input || is_top_) &&
                      !value(id).constant.defined() && given.insert(name).second;
    if (!made) {
      // What comes from elsewhere needs a name of its own here.
      const std::string& base = written_[id].base;
      std::string result = base;
      if (own_input || !given.insert(base).second) result = state.unique_value(base + "_output");
      given.insert(result);
      emit(result + "_Identity", "Identity", {name}, {result});
      name = result;
    }
    OnnxType type = value(id).type;
    if (value(id).constant.defined() && type == OnnxType::Undefined) {
      type = onnx_type_of(value(id).constant.dtype());
    }
    if (codes(id) != nullptr) type = OnnxType::Float;
    out.outputs.push_back({.name = name, .type = type, .sizes = declared_sizes(id)});
  }
}

OnnxGraph GraphWriter::run(std::span<const nn::Module* const> modules,
                           const std::vector<std::string>& outer, std::size_t formal) {
  out.name = graph.name.empty() ? "quanta" : graph.name;
  outputs_.insert(graph.outputs.begin(), graph.outputs.end());
  // Inputs and outputs first: they keep their names.
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const ValueId id = graph.inputs[i];
    Written& about = written_[id];
    if (i >= formal) {
      about.base = about.name = outer[i];
      continue;
    }
    about.base = about.name = state.unique_value(value(id).name);
    out.inputs.push_back({.name = about.name, .type = value(id).type, .sizes = value(id).sizes});
  }
  const auto name_value = [&](ValueId id) {
    Written& about = written_[id];
    if (about.base.empty()) about.base = state.unique_value(value(id).name);
  };
  for (const ValueId id : graph.outputs) name_value(id);
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (!graph.is_input(id)) name_value(id);
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    write(graph.nodes[i], modules.empty() ? nullptr : modules[i]);
  }
  write_outputs();
  return std::move(out);
}

void GraphWriter::write(const Node& node, const nn::Module* module) {
  if (!node.outputs.empty() && made_before_.contains(node.outputs[0])) return;
  if (module != nullptr) return write_module(node, *module);
  if (node.operation != nullptr) return write_operation(node);
  if (node.domain != "quanta") return write_plain(node);
  if (node.op == "AddRelu" || node.op == "QuantStub" || node.op == "DeQuantStub") {
    return write_workflow(node);
  }
  refuse(node, "ONNX has no such operator");
}

void GraphWriter::write_workflow(const Node& node) {
  if (node.op != "AddRelu") {
    emit(node.name, "Identity", {input(node.inputs[0])}, {output(node.outputs[0])});
    return;
  }
  const std::string sum = state.unique_value(node.name + "_sum");
  state.need(7, "Add");
  emit(node.name, "Add", {input(node.inputs[0]), input(node.inputs[1])}, {sum});
  emit(node.name + "_Relu", "Relu", {sum}, {output(node.outputs[0])});
}

}  // namespace quanta::graph::detail
