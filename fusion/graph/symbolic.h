#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quanta/ops/block_quant.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/onnx_file.h"

/// ModelOpt's quantizers as nodes of an ONNX graph: the `symbolic` functions of its autograd
/// functions (modelopt.torch.quantization.export_onnx). save_onnx of a network with fake quantizers
/// writes the same nodes.
///
/// Each appends nodes that quantize and dequantize the value `inputs` of a graph that is being
/// built, and gives the name of the result, which the graph declares with the type and sizes of
/// `inputs`. `inputs` is a Float, Float16, BFloat16 or Double value that the graph declares: an
/// input, an initializer, one of `values`, or what such a function gave.
///
///   std::string x = symbolic::fake_tensor_quant(model, "x", amax, {.narrow_range = false});
///   model.graph.nodes.push_back({.op_type = "Relu", .inputs = {x}, .outputs = {"y"}});
///
/// All throw ArgumentError for values that the graph does not declare, amax that is negative, NaN
/// or does not broadcast to the value, a type of Q and DQ that is neither Float32 nor that of the
/// value, and a model whose opset lacks what is needed (one without an opset gets it);
/// UnsupportedError for what ONNX has no form for. The model is as it was then. For one thread at a
/// time for each model.
namespace quanta::graph::symbolic {

/// Whose nodes.
enum class QuantizerNodes : std::uint8_t {
  /// As ModelOpt writes them for TensorRT: float8, float4 and int4 by operators of the domain trt,
  /// which ONNX Runtime has not.
  ModelOpt,
  /// QuantizeLinear and DequantizeLinear of ai.onnx alone.
  Standard,
};

struct SymbolicOptions {
  QuantizerNodes nodes = QuantizerNodes::ModelOpt;
  /// What Q and DQ calculate in: Float32, Float16 or BFloat16, with Casts around them where the
  /// value has another type. Not given: the value's type (Float32 for Double).
  std::optional<DType> trt_high_precision_dtype{};
  /// Elements along `axis` that share a scale; for int4 only, whose amax has the sizes of the blocks.
  std::int64_t block_size = 0;
  std::int64_t axis = -1;
};

/// Codes of 8 bits: QuantizeLinear and DequantizeLinear with scale amax / 127 (unsigned: 255; 1 where
/// amax is 0) and zero point 0 of INT8 or UINT8, along the axis of an amax of several elements.
/// Signed codes are those of -128..127: narrow_range throws UnsupportedError, as in ModelOpt.
///
/// Codes of 4 bits in blocks: trt::DequantizeLinear of the value, with amax / 7, axis and
/// block_size, which is for weights (ModelOpt puts codes in the place of the value afterwards);
/// Standard: DequantizeLinear of INT4 codes, for initializers alone. UnsupportedError for other bits
/// and for an amax with several axes.
std::string fake_tensor_quant(OnnxModel& model, const std::string& inputs, const Tensor& amax,
                              const TensorQuantOptions& options = {},
                              const SymbolicOptions& symbolic = {});
/// The same nodes.
std::string legacy_fake_tensor_quant(OnnxModel& model, const std::string& inputs,
                                     const Tensor& amax, const TensorQuantOptions& options = {},
                                     const SymbolicOptions& symbolic = {});
/// The same nodes: what comes out are values, not codes, as in ModelOpt.
std::string tensor_quant(OnnxModel& model, const std::string& inputs, const Tensor& amax,
                         const TensorQuantOptions& options = {},
                         const SymbolicOptions& symbolic = {});

/// Float8 E4M3FN in units of amax / 448 (1 without amax): trt::TRT_FP8QuantizeLinear and
/// trt::TRT_FP8DequantizeLinear with one scale, or the standard operators, whose amax may have
/// several elements along one axis (opset 19).
std::string scaled_e4m3(OnnxModel& model, const std::string& inputs, const Tensor& amax = {},
                        const SymbolicOptions& symbolic = {});

/// Blocks along the last axis that find their own scales. ModelOpt has NVFP4 ((2,1) with scales
/// (4,3)): trt::TRT_FP4DynamicQuantize and two trt::DequantizeLinear, and MXFP8 ((4,3) with scales
/// (8,0)): trt::TRT_MXFP8DynamicQuantize and TRT_MXFP8DequantizeLinear. Standard: the largest
/// magnitude of each block by Reshape, Abs and ReduceMax, its scale, and scalar Q and DQ around a
/// division by it; for (4,3), (5,2), (2,1) (opset 23) and integers. The blocks divide the last
/// axis; UnsupportedError for others and for other formats.
std::string dynamic_block_quant(OnnxModel& model, const std::string& inputs,
                                const Tensor& amax = {}, const DynamicBlockOptions& options = {},
                                const SymbolicOptions& symbolic = {});

}  // namespace quanta::graph::symbolic
