#pragma once

// Private: oneDNN's convolution primitives for channels-last tensors.

#include <cstdint>
#include <optional>

#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cpu/onednn/onednn.h"

namespace quanta::cpu {

/// What follows a float convolution or product.
enum class FloatEpilogue : std::uint8_t { None, ReLU };

/// What follows the exact sum of an u8 x s8 convolution, in float32, in this order.
enum class Int8Epilogue : std::uint8_t {
  None,        ///< int32 result
  Multiply,    ///< + bias (bias / t), * multiplier, codes
  Compensate,  ///< + bias (-zx * sum(w)), + added (bias / t), * multiplier, codes
};

struct Int8Epilog {
  Int8Epilogue kind = Int8Epilogue::None;
  bool added = false;  ///< Compensate with a bias
  bool relu = false;
  bool zero_point = false;  ///< of the result
};

/// Sizes as oneDNN wants them, the last `spatial` (2 or 3) of the three.
onednn::Md conv_src_desc(const ConvShape& shape, int spatial, onednn::DataType type);
onednn::Md conv_dst_desc(const ConvShape& shape, int spatial, onednn::DataType type);
/// A weight in torch's order (transposed too), or in the order that the primitive likes best.
onednn::Md conv_plain_weight_desc(const ConvShape& shape, int spatial, onednn::DataType type);
onednn::Md conv_any_weight_desc(const ConvShape& shape, int spatial, onednn::DataType type);
/// [1, channels, 1...] or, for one number, [1, 1, 1...].
onednn::Md conv_row_desc(std::int64_t channels, int spatial);

/// The arguments of the epilogue's tensors: their index in the post-ops.
struct Int8EpilogIndex {
  int added = -1;
  int multiplier = -1;
  int zero_point = -1;
};
Int8EpilogIndex append_epilog(dnnl::post_ops& post_ops, const Int8Epilog& epilog,
                              const onednn::Md& row, const onednn::Md& one);
inline int post_op_argument(int index) {
  return DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1;
}

struct Int8ConvPrimitive {
  dnnl::convolution_forward::primitive_desc desc;
  dnnl::primitive primitive;
  Int8EpilogIndex index;
};
/// Nothing when oneDNN has no implementation that is known to be exact.
std::optional<Int8ConvPrimitive> int8_conv_primitive(const ConvShape& shape, int spatial,
                                                     const Int8Epilog& epilog);

}  // namespace quanta::cpu
