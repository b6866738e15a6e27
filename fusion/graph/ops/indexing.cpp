// Gather, Scatter and their like: elements that indices pick or place.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/arguments.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/sort.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

std::int64_t axis_of(const NodeCall& call, const Tensor& x, std::int64_t otherwise) {
  if (x.dim() == 0) call.fail("input 0: expected a tensor with dimensions, got a 0-d one");
  return checked_axis(call, "axis", call.integer("axis", otherwise), x.dim());
}

Outputs gather_slices(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  const Tensor& indices = call.input(1, "indices");
  const std::int64_t axis = axis_of(call, x, 0);
  const Tensor flat = wrap_indices(indices, x.size(axis));
  Dims sizes = x.sizes();
  const auto at = static_cast<std::size_t>(axis);
  sizes.erase(at);
  for (std::size_t d = 0; d < indices.sizes().size(); ++d) sizes.insert(at + d, indices.sizes()[d]);
  return {index_select(x, axis, flat.reshape({flat.numel()})).reshape(sizes)};
}

Outputs gather_elements(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  const std::int64_t axis = axis_of(call, x, 0);
  return {gather(x, axis, wrap_indices(call.input(1, "indices"), x.size(axis)))};
}

Outputs gather_slices_nd(const NodeCall& call) {
  return {
      gather_nd(call.input(0, "data"), call.input(1, "indices"), call.integer("batch_dims", 0))};
}

ScatterReduce reduction_of(const NodeCall& call) {
  const std::string name = call.text("reduction", "none");
  if (name == "none") return ScatterReduce::None;
  if (name == "add") return ScatterReduce::Add;
  if (name == "mul") return ScatterReduce::Multiply;
  if (name == "min") return ScatterReduce::Minimum;
  if (name == "max") return ScatterReduce::Maximum;
  call.fail("reduction: expected none, add, mul, min or max, got " + name);
}

Outputs scatter_elements(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  return {scatter(x, axis_of(call, x, 0), call.input(1, "indices"), call.input(2, "updates"),
                  reduction_of(call))};
}

Outputs scatter_slices_nd(const NodeCall& call) {
  return {scatter_nd(call.input(0, "data"), call.input(1, "indices"), call.input(2, "updates"),
                     reduction_of(call))};
}

Outputs tensor_scatter(const NodeCall& call) {
  const Tensor& x = call.input(0, "past_cache");
  const std::string mode = call.text("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    call.fail("mode: expected linear or circular, got " + mode);
  }
  return {scatter_cache(x, call.input(1, "update"), call.optional(2), axis_of(call, x, -2),
                        mode == "circular")};
}

Outputs nonzero_positions(const NodeCall& call) {
  return {nonzero(call.input(0, "X")).t().contiguous()};
}

Outputs compress(const NodeCall& call) {
  Tensor x = call.input(0, "input");
  const Tensor& condition = call.input(1, "condition");
  if (condition.dtype() != DType::Bool || condition.dim() != 1) {
    call.fail(fmt::format("condition: expected Bool with 1 dimension, got {} {}", condition.dtype(),
                          condition.sizes()));
  }
  std::int64_t axis = 0;
  if (call.has_attribute("axis")) {
    axis = axis_of(call, x, 0);
  } else {
    x = x.reshape({x.numel()});
  }
  const Tensor positions = nonzero(condition);
  return {index_select(x, axis, positions.reshape({positions.numel()}))};
}

Outputs one_hot_values(const NodeCall& call) {
  const Tensor& indices = call.input(0, "indices");
  const std::vector<double> depth = call.numbers(1, "depth");
  constexpr double kLimit = 1e12;
  if (depth.size() != 1 || !(depth[0] >= 0.0 && depth[0] <= kLimit)) {
    call.fail(
        fmt::format("depth: expected one number in 0..{}, got {}", kLimit, fmt::join(depth, ", ")));
  }
  const bool is_index = indices.dtype() == DType::Int64 || indices.dtype() == DType::Int32;
  const std::int64_t axis = checked_axis(call, "axis", call.integer("axis", -1), indices.dim() + 1);
  return {one_hot(is_index ? indices : indices.to(DType::Int64),
                  static_cast<std::int64_t>(depth[0]), call.input(2, "values"), axis)};
}

Outputs triangle(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  const std::int64_t diagonal = call.has(1) ? single_integer(call, 1, "k") : 0;
  return {call.flag("upper", true) ? triu(x, diagonal) : tril(x, diagonal)};
}

Outputs reversed_sequences(const NodeCall& call) {
  return {reverse_sequence(call.input(0, "input"), call.input(1, "sequence_lens"),
                           call.integer("time_axis", 0), call.integer("batch_axis", 1))};
}

Outputs unique_values(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  UniqueOptions options;
  options.sorted = call.flag("sorted", true);
  if (call.has_attribute("axis")) options.dim = axis_of(call, x, 0);
  const UniqueResult result = unique(x, options);
  return {result.values, result.first, result.inverse, result.counts};
}

}  // namespace

void add_indexing_ops(OpTable& table) {
  // These only move elements, of any dtype; the others calculate or compare.
  const auto add = [&table](std::string_view name, Outputs (*evaluate)(const NodeCall&),
                            bool widens = false, CodeRule rule = CodeRule::Float) {
    table.add({.name = name, .evaluate = evaluate, .rule = rule, .widens = widens});
  };
  add("Compress", compress);
  add("Gather", gather_slices, false, CodeRule::Pass);
  add("GatherElements", gather_elements, false, CodeRule::Pass);
  add("GatherND", gather_slices_nd, false, CodeRule::Pass);
  add("NonZero", nonzero_positions, true);
  add("OneHot", one_hot_values);
  add("ReverseSequence", reversed_sequences);
  add("Scatter", scatter_elements);
  add("ScatterElements", scatter_elements, true);
  add("ScatterND", scatter_slices_nd, true);
  add("TensorScatter", tensor_scatter);
  add("Trilu", triangle);
  add("Unique", unique_values, true);
}

}  // namespace quanta::graph
