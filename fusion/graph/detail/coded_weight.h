#pragma once

// Private: constants of codes as DequantizeLinear takes them.

#include <cstdint>

#include "quanta/runtime/onnx_file.h"
#include "quanta/runtime/tensor.h"

namespace quanta::graph::detail {

struct CodedWeight {
  Tensor codes;          ///< plain integers
  Tensor scales;         ///< Float32: a scalar, one a channel, or [..., blocks, ...]
  Tensor zero_points{};  ///< as codes; undefined: 0
  std::int64_t axis = -1;
  std::int64_t block_size = 0;
  OnnxType type = OnnxType::Undefined;  ///< of the codes, where the dtype does not say it
};

/// The same numbers. Throws UnsupportedError for codes of fewer than 8 bits and float zero points.
CodedWeight coded_of(const QTensor& tensor);
/// Of a matrix.
CodedWeight transposed(const CodedWeight& matrix);
/// The same numbers as UInt8: codes and zero points grow by 128. Products of unsigned codes are exact
/// everywhere; with signed ones ONNX Runtime's saturate on processors without VNNI.
CodedWeight as_unsigned(const CodedWeight& coded);
/// In units of x_scale times the weight's scales, as Int32.
CodedWeight coded_bias(const Tensor& bias, double x_scale, const QTensor& weight);

}  // namespace quanta::graph::detail
