#pragma once

// Private: QuantizeLinear and DequantizeLinear, written in this one place.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/detail/coded_weight.h"
#include "quanta/runtime/onnx_file.h"
#include "quanta/runtime/tensor.h"

namespace quanta::graph::detail {

/// Where nodes and weights go.
class NodeSink {
 public:
  virtual ~NodeSink() = default;

  virtual std::string unique_value(std::string_view base) = 0;
  /// Another weight of the file; gives its name.
  virtual std::string weight(std::string_view base, const Tensor& tensor,
                             OnnxType type = OnnxType::Undefined) = 0;
  /// A node; its name is made unique.
  virtual void emit(std::string_view name, std::string_view op, std::vector<std::string> inputs,
                    std::vector<std::string> outputs, OnnxAttributes attributes = {},
                    std::string_view domain = "") = 0;
  /// Says from which opset on ONNX has what is written.
  virtual void need(std::int64_t opset, std::string_view what) = 0;

 protected:
  NodeSink() = default;
  NodeSink(const NodeSink&) = default;
  NodeSink& operator=(const NodeSink&) = default;
};

/// Whether tensors of `dtype` hold codes of `type`: float4 has those of UInt8, one an element.
bool holds(OnnxType type, DType dtype);

/// What QuantizeLinear and DequantizeLinear are given beside their input.
struct QdqParameters {
  std::string scale;
  std::string zero_point{};             ///< "" for none
  std::int64_t axis = -1;               ///< of scales; -1: one
  std::int64_t block_size = 0;          ///< 0: none
  OnnxType type = OnnxType::Undefined;  ///< of the codes
};

void append_quantize(NodeSink& sink, std::string_view name, const std::string& x,
                     const QdqParameters& parameters, const std::string& y);
void append_dequantize(NodeSink& sink, std::string_view name, const std::string& codes,
                       const QdqParameters& parameters, const std::string& y);
/// A weight of codes and what makes floats of them, called `y` or by a name of their own, which is
/// given back.
std::string append_coded(NodeSink& sink, std::string_view base, const CodedWeight& coded,
                         std::string y = {});

/// Scales as QuantizeLinear takes them: one, one for each index of an axis, or one for each block
/// along an axis.
struct ScaleLayout {
  Tensor scale;
  Tensor zero_point;  ///< undefined where it was
  std::int64_t axis = -1;
  std::int64_t block_size = 0;
};
/// Scales (and zero points of their sizes) that broadcast to a tensor of sizes `x`, or whose sizes
/// divide its, aligned at the last axis. Where they belong to blocks along several axes, they are
/// repeated along all but the last of these. Throws InternalError for sizes that do not fit.
ScaleLayout scale_layout(const Dims& x, const Tensor& scale, const Tensor& zero_point = {});
/// One of each for every element of a tensor of sizes `x`, as plain floats.
std::vector<float> spread_over(const Dims& x, const Tensor& values);

/// Integer codes and what they stand for, (code - zero_point) * scale.
struct IntegerGrid {
  Tensor scale{};       ///< floating, as scale_layout takes it
  Tensor zero_point{};  ///< whole numbers of the sizes of scale; undefined: 0
  std::int64_t low = -128;
  std::int64_t high = 127;
};
/// Numbers of a small float format times scales.
struct FloatGrid {
  OnnxType type = OnnxType::Float8E4M3FN;  ///< Float8E4M3FN, Float8E5M2 or Float4E2M1
  Tensor scale{};
};

/// A value that is quantized and dequantized.
struct QdqValue {
  std::string name{};  ///< of the value
  Dims sizes{};
  OnnxType type = OnnxType::Float;
  /// What comes out, where that is a constant: it is written as codes then, and `name` not used.
  Tensor result{};
  std::string base{};  ///< for names of what is made
  std::string y{};     ///< the name of the result
  /// In which Q and DQ calculate: Float, Float16 or BFloat16. Casts stand around them where the
  /// value has another type.
  OnnxType precision = OnnxType::Float;
};

/// Why the grid has no form, or "".
std::string refusal(const QdqValue& x, const IntegerGrid& grid);
/// Q - (Clip) - DQ, or a weight of codes and DQ. Codes of fewer values than their type has are
/// clipped, as torch.onnx writes it.
void append_qdq(NodeSink& sink, const QdqValue& x, const IntegerGrid& grid);
void append_qdq(NodeSink& sink, const QdqValue& x, const FloatGrid& grid);
/// Values rounded to a grid.
Tensor on_grid(const Tensor& values, const IntegerGrid& grid);
/// values / scale rounded to the format, saturating; float4 as UInt8, one code an element.
Tensor float_codes(const Tensor& values, const Tensor& scale, OnnxType type);

}  // namespace quanta::graph::detail
