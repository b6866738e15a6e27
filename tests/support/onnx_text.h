#pragma once

// All that stands in an ONNX file as text, so that tests compare models and fuzzers walk over them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <variant>
#include <vector>

#include "quanta/runtime/onnx_file.h"

namespace quanta::test {

class OnnxText {
 public:
  explicit OnnxText(const OnnxModel& model) {
    line("ir " + std::to_string(model.ir_version));
    line("producer " + model.producer_name + " " + model.producer_version);
    add(model.opsets);
    for (const auto& [key, value] : model.metadata) line("metadata " + key + "=" + value);
    add(model.graph);
    for (const OnnxFunction& function : model.functions) add(function);
  }

  const std::string& text() const { return text_; }

 private:
  void line(const std::string& line) { text_ += line + "\n"; }
  static std::string joined(const std::vector<std::string>& names) {
    std::string result = "(";
    for (const std::string& name : names) result += "'" + name + "',";
    return result + ")";
  }

  void add(const std::map<std::string, std::int64_t, std::less<>>& opsets) {
    for (const auto& [domain, version] : opsets)
      line("opset '" + domain + "' " + std::to_string(version));
  }

  void add(const OnnxTensor& tensor) {
    text_ += "tensor '" + tensor.name + "' " + to_string(tensor.type);
    if (!tensor.value.defined()) return line(" undefined");
    text_ += " " + to_string(tensor.value.sizes()) + " ";
    const Tensor value = tensor.value.contiguous();
    const auto* bytes = static_cast<const unsigned char*>(value.data_ptr());
    for (std::size_t i = 0; i < value.nbytes(); ++i) text_ += std::to_string(bytes[i]) + ",";
    line("");
  }

  void add(const std::vector<OnnxValue>& values, const std::string& what) {
    for (const OnnxValue& value : values) {
      text_ += what + " '" + value.name + "' " + to_string(value.type);
      if (value.sizes) {
        text_ += " [";
        for (const OnnxDim& dim : *value.sizes)
          text_ += (dim.size ? std::to_string(*dim.size) : "'" + dim.name + "'") + ",";
        text_ += "]";
      }
      line("");
    }
  }

  void add(const OnnxGraph& graph) {
    line("graph '" + graph.name + "' {");
    add(graph.inputs, "input");
    add(graph.outputs, "output");
    add(graph.values, "value");
    for (const OnnxTensor& tensor : graph.initializers) add(tensor);
    for (const OnnxNode& node : graph.nodes) add(node);
    line("}");
  }

  void add(const OnnxAttributes& attributes) {
    for (const auto& [name, attribute] : attributes) {
      text_ += name + " = ";
      std::visit([&](const auto& value) { add_value(value); }, attribute);
      line("");
    }
  }

  template <typename T>
  void add_value(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      text_ += std::to_string(value) + (std::is_integral_v<T> ? " " : "f ");
    } else if constexpr (std::is_same_v<T, std::string>) {
      text_ += "'" + value + "' ";
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const OnnxGraph>>) {
      add(*value);
    } else if constexpr (std::is_same_v<T, OnnxTensor>) {
      add(value);
    } else if constexpr (std::is_same_v<T, OnnxOpaque>) {
      text_ += "kind " + std::to_string(value.kind) + joined(value.messages);
    } else {
      text_ += "list of alternative " + std::string(typeid(T).name()) + " ";
      for (const auto& item : value) add_value(item);
    }
  }

  void add(const OnnxNode& node) {
    line("node '" + node.name + "' " + node.domain + "." + node.op_type + "." + node.overload +
         joined(node.inputs) + joined(node.outputs));
    add(node.attributes);
    for (const auto& [name, reference] : node.references)
      line(name + " = attribute " + reference.name + " of kind " + std::to_string(reference.kind));
  }

  void add(const OnnxFunction& function) {
    line("function " + function.domain + "." + function.name + "." + function.overload +
         joined(function.inputs) + joined(function.outputs) + joined(function.attribute_names));
    add(function.opsets);
    add(function.attributes);
    for (const OnnxNode& node : function.nodes) add(node);
  }

  std::string text_;
};

}  // namespace quanta::test
