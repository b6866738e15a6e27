#pragma once

// Private: quantizers that amax describes, as nodes.

#include <optional>
#include <string>

#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/fusion/graph/symbolic.h"

namespace quanta::graph::detail {

using symbolic::QuantizerNodes;

/// max_code / amax as a grid of codes.
IntegerGrid integer_grid(const Tensor& amax, const TensorQuantOptions& options);
/// Units of amax / 448, or 1 without amax.
FloatGrid e4m3_grid(const Tensor& amax);

/// Why TensorRT's nodes cannot say it, or "".
std::string trt_refusal(const FloatGrid& grid);
/// trt::TRT_FP8QuantizeLinear and trt::TRT_FP8DequantizeLinear; of a constant the latter.
void append_trt_fp8(NodeSink& sink, const QdqValue& x, const FloatGrid& grid);

/// trt::DequantizeLinear of blocks along an axis: the weight's codes take its input's place later.
void append_trt_int4(NodeSink& sink, const QdqValue& x, const IntegerGrid& grid, std::int64_t axis,
                     std::int64_t block_size);

/// Blocks along the last axis.
struct Blocks {
  DynamicBlockOptions options{};
  std::optional<float> amax{};  ///< of the tensor, for scales (4,3)
  /// What each block was divided by, of a constant: [..., blocks].
  Tensor scales{};
};
/// Why they have no form, or "".
std::string refusal(const QdqValue& x, const Blocks& blocks, QuantizerNodes nodes);
void append_blocks(NodeSink& sink, const QdqValue& x, const Blocks& blocks, QuantizerNodes nodes);

/// A constant of E2M1 whose blocks have scales that are float8 multiples of `unit`: two
/// DequantizeLinear. `scales` as scale_layout takes it.
void append_two_levels(NodeSink& sink, const QdqValue& x, const Tensor& scales, float unit);

}  // namespace quanta::graph::detail
