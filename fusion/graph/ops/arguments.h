#pragma once

// Private: what rows read out of a call: axes, sizes and permutations from attributes or inputs.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/runtime/dims.h"

namespace quanta::graph {

/// `axis` of `rank` dimensions, counted from the front. Throws ArgumentError outside them.
std::int64_t checked_axis(const NodeCall& call, std::string_view name, std::int64_t axis,
                          std::int64_t rank);

/// The same of a list, in which each axis may come once.
std::vector<std::int64_t> checked_axes(const NodeCall& call, std::string_view name,
                                       std::vector<std::int64_t> axes, std::int64_t rank);

/// Sizes that a file asks for. Throws ArgumentError for negative ones, and for more elements than a
/// tensor can have.
Dims checked_sizes(const NodeCall& call, std::string_view name,
                   const std::vector<std::int64_t>& sizes);

/// 0, 1, ... rank - 1.
std::vector<std::int64_t> all_axes(std::int64_t rank);

/// A list that is an attribute before opset `since` and input `i` from then on. Empty where it is
/// left out.
std::vector<std::int64_t> list_of(const NodeCall& call, std::size_t i, std::string_view name,
                                  std::int64_t since);

/// The only element of an integer input. Throws ArgumentError for more.
std::int64_t single_integer(const NodeCall& call, std::size_t i, std::string_view name);

}  // namespace quanta::graph
