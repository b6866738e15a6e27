#pragma once

// Small ONNX networks for the tests of graph passes.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/onnx_file.h"
#include "quanta/runtime/tensor.h"

namespace quanta::test {

class NetBuilder {
 public:
  explicit NetBuilder(std::int64_t opset = 17) {
    model_.ir_version = 8;
    model_.opsets[""] = opset;
    model_.opsets["com.microsoft"] = 1;
    model_.graph.name = "net";
  }

  std::string input(const std::string& name, OnnxType type = OnnxType::Float) {
    model_.graph.inputs.push_back({.name = name, .type = type, .sizes = {}});
    return name;
  }
  std::string constant(const Tensor& value) {
    std::string name = "constant_" + std::to_string(model_.graph.initializers.size());
    model_.graph.initializers.push_back(
        {.name = name, .type = onnx_type_of(value.dtype()), .value = value});
    return name;
  }
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   OnnxAttributes attributes = {}, const std::string& domain = "",
                   std::size_t outputs = 1) {
    OnnxNode node;
    node.name = op + "_" + std::to_string(model_.graph.nodes.size());
    node.op_type = op;
    node.domain = domain;
    node.inputs = inputs;
    node.attributes = std::move(attributes);
    for (std::size_t i = 0; i < outputs; ++i) {
      node.outputs.push_back(node.name + "_out" + std::to_string(i));
    }
    model_.graph.nodes.push_back(node);
    return node.outputs[0];
  }
  /// A zero point of a dtype that says what the codes are.
  std::string zero(std::int64_t value, DType dtype) {
    return constant(Tensor::full({}, static_cast<double>(value), dtype));
  }
  std::string quantize(const std::string& x, double scale, std::int64_t zero_point,
                       DType dtype = DType::UInt8) {
    return node("QuantizeLinear", {x, constant(Tensor::scalar(scale)), zero(zero_point, dtype)});
  }
  std::string dequantize(const std::string& x, double scale, std::int64_t zero_point,
                         DType dtype = DType::UInt8) {
    return node("DequantizeLinear", {x, constant(Tensor::scalar(scale)), zero(zero_point, dtype)});
  }
  /// Both: what fake quantization is.
  std::string coded(const std::string& x, double scale, std::int64_t zero_point,
                    DType dtype = DType::UInt8) {
    return dequantize(quantize(x, scale, zero_point, dtype), scale, zero_point, dtype);
  }
  /// The floats of constant codes.
  std::string weight(const Tensor& codes, const Tensor& scales, const Tensor& zero_points,
                     std::int64_t axis = 0) {
    return node("DequantizeLinear", {constant(codes), constant(scales), constant(zero_points)},
                {{"axis", axis}});
  }
  OnnxModel finish(const std::vector<std::string>& outputs) {
    for (const std::string& name : outputs) {
      model_.graph.outputs.push_back({.name = name, .type = OnnxType::Undefined, .sizes = {}});
    }
    return model_;
  }

 private:
  OnnxModel model_;
};

}  // namespace quanta::test
