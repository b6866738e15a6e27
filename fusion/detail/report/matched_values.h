#pragma once

// Private: which values of a quantized graph stand for which of the float one.

#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/graph.h"

namespace quanta::reporting {

/// Whether a node gives in another form what it is given: quantize, dequantize and stubs.
bool is_same_value(const graph::Node& node);

/// For each value of `quantized` the float graph's value, or kNone. By name; by the name without what
/// quantizing tools append ("_quantized", "_QuantizeLinear_Output" ...); by `aliases`, names of the
/// quantized graph with the ones behind them; and through quantize and dequantize nodes.
std::vector<graph::ValueId> matched_values(
    const graph::Graph& in_float, const graph::Graph& quantized,
    const std::vector<std::pair<std::string, std::string>>& aliases);

}  // namespace quanta::reporting
