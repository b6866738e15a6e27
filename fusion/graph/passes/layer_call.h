#pragma once

// Private: what the file says of a convolution, as the layers take it.

#include <optional>
#include <string>

#include "quanta/fusion/graph/graph.h"
#include "quanta/fusion/graph/passes/lowered_ops.h"
#include "quanta/ops/conv.h"

namespace quanta::graph {

struct ConvCall {
  std::int64_t spatial = 2;
  ConvTransposeOptions options;         ///< output_padding 0 unless transposed
  std::optional<ImagePadding> padding;  ///< what has to be put around first
};
/// Nothing, and `reason`, where the layers cannot do it.
std::optional<ConvCall> conv_call(const Node& node, const Dims& weight, std::string& reason);

}  // namespace quanta::graph
