#pragma once

#include <concepts>
#include <filesystem>
#include <string_view>

#include "quanta/fusion/graph/model.h"
#include "quanta/observers/aimet/encoding_json.h"
#include "quanta/runtime/onnx_file.h"

/// AIMET's encodings on the float ONNX file that they belong to. Safe from many threads on a model
/// that nobody changes.
namespace quanta::graph {

/// The model with QuantizeLinear and DequantizeLinear where the encodings say so. Weights become
/// codes: of 8 bits, int4 in blocks, 16 and 32 bits as they are; float8 and float4 as such.
/// Activations of up to 8 bits have codes of 8 bits with a Clip, up to 16 bits those of 16, float16
/// and bfloat16 a Cast there and back; with more bits than 16 a Clip alone, which is the same within
/// what float32 rounds. What comes out is what a QuantizationSimModel calculates, and
/// from_onnx makes int8 layers of it.
///
/// Names are those of the file: of initializers, and of values that are inputs or made by nodes. Of
/// a network that save_onnx wrote the names of a QuantizationSimModel are taken too:
///
///   "conv1.weight"  also the only "conv1.*.weight", of a fused module
///   "conv1.output"  what the last node called "conv1" or "conv1.*" makes
///   "quant.output"  of a module without a node: the input, where there is one only
///
/// Scales for each channel belong to the output channels of the Conv, ConvTranspose, Gemm or MatMul
/// that takes the weight, where they are as many. Where a later opset is needed (21 for blocks and
/// 16 bits, 23 for float4) the model is written for it. Throws ArgumentError that lists all names
/// that are not there and encodings that do not fit their tensors; UnsupportedError for what ONNX
/// has no form for, by name.
OnnxModel apply_encodings(const OnnxModel& model, const aimet::EncodingFile& encodings);
/// Encodings as JSON text (it begins with a brace), or else the path of a file with it: versions
/// 0.6.1, 1.0.0, 2.0.0 and 2.1.0. Throws FileError for a file that cannot be read and text that is
/// no JSON, and as encoding_file_from_json.
OnnxModel apply_encodings(const OnnxModel& model, std::string_view encodings);
template <std::same_as<std::filesystem::path> Path>  // a string is text or a path
OnnxModel apply_encodings(const OnnxModel& model, const Path& encodings) {
  return apply_encodings(model, std::string_view(encodings.native()));
}

}  // namespace quanta::graph
