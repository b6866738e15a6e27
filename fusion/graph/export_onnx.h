#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/graph/trace.h"
#include "quanta/runtime/onnx_file.h"

/// Graphs as ONNX files. Functions throw UnsupportedError that lists all nodes which ONNX cannot
/// say, by name and reason, before anything is written. Safe from many threads on a model that
/// nobody changes.
namespace quanta::graph {

/// How int8 layers stand in the file.
enum class OnnxFormat : std::uint8_t {
  QDQ,        ///< float operators between DequantizeLinear and QuantizeLinear
  QOperator,  ///< QLinearConv, QLinearMatMul and those of com.microsoft where there is one
};

/// Who will run the file.
enum class OnnxTarget : std::uint8_t {
  Any,
  OnnxRuntime,  ///< operators of com.microsoft may be used for what ONNX says less well
  TensorRT,     ///< zero points 0, Int8 codes, one scale for each channel for weights only
};

/// How the biases of int8 layers are written.
enum class OnnxBias : std::uint8_t {
  Float,  ///< as they are
  Int32,  ///< codes in units of the input's scale times the weight's; always so in QOperator form
};

struct ExportOptions {
  /// Of ai.onnx. Unless given, the lowest that has all that the model needs, and never below that
  /// of the file that it came from.
  std::optional<std::int64_t> opset{};
  OnnxFormat format = OnnxFormat::QDQ;
  OnnxTarget target = OnnxTarget::Any;
  OnnxBias bias = OnnxBias::Float;
  /// What QuantizeLinear and DequantizeLinear of fake quantizers calculate in, with Casts around
  /// them where a value has another type: Float32 (so it is where nothing is given), or Float16 or
  /// BFloat16 where all values have that type, as ModelOpt's trt_high_precision_dtype.
  std::optional<DType> trt_high_precision_dtype{};
  /// Weights above this many bytes in all go to `<file>.data` beside the model.
  std::size_t external_data_above = std::size_t{1} << 30U;
  /// Of networks that were written as classes: see TraceOptions.
  TraceOptions trace{};
};

/// The model as an ONNX file would say it. Operators of the file it came from stand as they stood,
/// layers with their parameters of now; codes become QuantizeLinear and DequantizeLinear. What ONNX
/// has no words for (torch's rounding, which nodes are one layer, floats of integer biases) stands
/// in the metadata (docs/onnx.md), so that from_onnx makes a model with the same bits of it. Throws
/// UnsupportedError for nodes that ONNX has no form for and for operators that mean something else
/// in the opset that is asked for, ArgumentError that lists what the target does not take.
OnnxModel to_onnx(const Model& model, const ExportOptions& options = {});

/// Writes to_onnx of a model. Atomic: the file is complete or as it was. Throws as to_onnx, and
/// FileError.
void save_onnx(const Model& model, const std::filesystem::path& path,
               const ExportOptions& options = {});
/// The same with the path first, as earlier versions had it.
inline void save_onnx(const std::filesystem::path& path, const Model& model,
                      const ExportOptions& options = {}) {
  save_onnx(model, path, options);
}

/// The same of a network that was written as a class, float, converted, dynamic or
/// weight-only: the graph that trace makes of a run on `example` (a graph::Model is taken as it is).
/// Codes that the network gives are dequantized at the outputs. Throws what trace throws, and
/// UnsupportedError that lists all operations which ONNX has no form for.
OnnxModel to_onnx(const nn::Module& model, std::span<const Tensor> example,
                  const ExportOptions& options = {});
void save_onnx(const nn::Module& model, std::span<const Tensor> example,
               const std::filesystem::path& path, const ExportOptions& options = {});
inline OnnxModel to_onnx(const nn::Module& model, const Tensor& example,
                         const ExportOptions& options = {}) {
  return to_onnx(model, std::span<const Tensor>(&example, 1), options);
}
inline void save_onnx(const nn::Module& model, const Tensor& example,
                      const std::filesystem::path& path, const ExportOptions& options = {}) {
  save_onnx(model, std::span<const Tensor>(&example, 1), path, options);
}

}  // namespace quanta::graph
