#pragma once

// Private: what the rows of quantized operators share.

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/ops/integer.h"

namespace quanta::graph {

/// Runs another operator of ONNX on these inputs, as that of opset 21.
Outputs call_operator(const NodeCall& call, std::string_view op, std::span<const Tensor> inputs,
                      OnnxAttributes attributes = {});

/// The call's attributes but for these.
OnnxAttributes attributes_without(const NodeCall& call,
                                  std::initializer_list<std::string_view> names);

/// The floats of input `i`, whose scale and zero point are inputs i + 1 and i + 2, along `axis`
/// where there are several.
Tensor floats_of(const NodeCall& call, std::size_t i, std::int64_t axis = 1);
/// The codes of floats under the scale and zero point of inputs `i` and i + 1.
Tensor codes_of(const NodeCall& call, const Tensor& x, std::size_t i);

/// Attributes of a convolution, for an image and a weight of these sizes.
ConvIntegerOptions conv_integer_options(const NodeCall& call, const Tensor& x,
                                        const Tensor& weight);

/// `values`, one or one a channel, such that they broadcast along dimension `axis` of `rank`.
Tensor along(const Tensor& values, std::int64_t axis, std::int64_t rank);

}  // namespace quanta::graph
