#include "quanta/fusion/graph/ops/arguments.h"

#include "quanta/runtime/check.h"

namespace quanta::graph {

std::int64_t checked_axis(const NodeCall& call, std::string_view name, std::int64_t axis,
                          std::int64_t rank) {
  if (axis < -rank || axis >= rank) {
    call.fail(fmt::format("{}: expected {}..{}, got {}", name, -rank, rank - 1, axis));
  }
  return axis < 0 ? axis + rank : axis;
}

std::vector<std::int64_t> checked_axes(const NodeCall& call, std::string_view name,
                                       std::vector<std::int64_t> axes, std::int64_t rank) {
  std::vector<bool> taken(static_cast<std::size_t>(rank), false);
  for (std::int64_t& axis : axes) {
    axis = checked_axis(call, name, axis, rank);
    if (taken[static_cast<std::size_t>(axis)]) {
      call.fail(fmt::format("{}: expected each axis once, got {}", name, fmt::join(axes, ", ")));
    }
    taken[static_cast<std::size_t>(axis)] = true;
  }
  return axes;
}

Dims checked_sizes(const NodeCall& call, std::string_view name,
                   const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      call.fail(fmt::format("{}: expected sizes >= 0, got {}", name, fmt::join(sizes, ", ")));
    }
  }
  const Dims dims(sizes);
  checked_numel(dims);
  return dims;
}

std::vector<std::int64_t> all_axes(std::int64_t rank) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(rank));
  for (std::size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<std::int64_t>(d);
  return axes;
}

std::vector<std::int64_t> list_of(const NodeCall& call, std::size_t i, std::string_view name,
                                  std::int64_t since) {
  if (call.opset() < since) return call.integer_list(name, {});
  return call.has(i) ? call.integers(i, name) : std::vector<std::int64_t>();
}

std::int64_t single_integer(const NodeCall& call, std::size_t i, std::string_view name) {
  const std::vector<std::int64_t> values = call.integers(i, name);
  if (values.size() != 1) {
    call.fail(fmt::format("input {} ({}): expected one element, got {}", i, name, values.size()));
  }
  return values[0];
}

}  // namespace quanta::graph
