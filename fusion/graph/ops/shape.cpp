// Reshape, Transpose, Concat, Slice and their like: elements keep their values, and mostly their
// place.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/arguments.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/nn/float_functional.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shuffle.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

using Integers = std::vector<std::int64_t>;

std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

Outputs identity(const NodeCall& call) { return {call.input(0, "input")}; }

Outputs reshape(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  Integers shape = call.integers(1, "shape");
  const bool allow_zero = call.flag("allowzero", false);
  std::int64_t rest = -1;  // the place of -1
  std::int64_t known = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && !allow_zero) {
      if (d >= x.sizes().size()) {
        call.fail(fmt::format("shape: expected no 0 beyond the {} dimensions of data, got {}",
                              x.dim(), fmt::join(shape, ", ")));
      }
      shape[d] = x.sizes()[d];
    }
    if (shape[d] < -1 || (shape[d] == -1 && rest >= 0)) {
      call.fail(fmt::format("shape: expected sizes >= 0 and at most one -1, got {}",
                            fmt::join(shape, ", ")));
    }
    if (shape[d] == -1) {
      rest = static_cast<std::int64_t>(d);
    } else if (__builtin_mul_overflow(known, shape[d], &known)) {
      call.fail(
          fmt::format("shape: expected {} elements, got {}", x.numel(), fmt::join(shape, ", ")));
    }
  }
  if (rest >= 0) {
    if (known == 0 ? x.numel() != 0 : x.numel() % known != 0) {
      call.fail(fmt::format("shape: expected sizes that divide {} elements, got {}", x.numel(),
                            fmt::join(shape, ", ")));
    }
    shape[at(rest)] = known == 0 ? 0 : x.numel() / known;
  }
  return {x.reshape(checked_sizes(call, "shape", shape))};
}

Outputs flatten(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  std::int64_t axis = call.integer("axis", 1);
  if (axis < -x.dim() || axis > x.dim()) {
    call.fail(fmt::format("axis: expected {}..{}, got {}", -x.dim(), x.dim(), axis));
  }
  if (axis < 0) axis += x.dim();
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  for (std::int64_t d = 0; d < x.dim(); ++d) (d < axis ? rows : columns) *= x.size(d);
  return {x.reshape({rows, columns})};
}

Outputs squeeze(const NodeCall& call) {
  Tensor x = call.input(0, "data");
  Integers axes = checked_axes(call, "axes", list_of(call, 1, "axes", 13), x.dim());
  if (!call.has_attribute("axes") && !call.has(1)) return {x.squeeze()};
  std::ranges::sort(axes, std::greater<>());
  for (const std::int64_t axis : axes) {
    if (x.size(axis) != 1) {
      call.fail(fmt::format("axes: expected axes of size 1, got {} of {}", axis, x.sizes()));
    }
    x = x.squeeze(axis);
  }
  return {x};
}

Outputs unsqueeze(const NodeCall& call) {
  Tensor x = call.input(0, "data");
  const Integers given = list_of(call, 1, "axes", 13);
  Integers axes =
      checked_axes(call, "axes", given, x.dim() + static_cast<std::int64_t>(given.size()));
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) x = x.unsqueeze(axis);
  return {x};
}

Outputs transpose(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  Integers reversed = all_axes(x.dim());
  std::ranges::reverse(reversed);
  const Integers order = call.integer_list("perm", reversed);
  if (order.size() != x.sizes().size()) {
    call.fail(fmt::format("perm: expected {} axes, got {}", x.dim(), fmt::join(order, ", ")));
  }
  return {x.permute(Dims(checked_axes(call, "perm", order, x.dim())))};
}

std::int64_t concat_axis(const NodeCall& call) {
  return checked_axis(call, "axis", call.integer("axis"), call.input(0, "inputs").dim());
}

Outputs concat(const NodeCall& call) {
  if (call.input_count() == 1) return {call.input(0, "inputs")};
  const std::int64_t axis = concat_axis(call);
  return {cat(call.inputs(), axis)};
}

// A slot for codes of its own, unless it joins sizes or other integers.
std::shared_ptr<nn::Module> make_concat(const NodeCall& constants) {
  for (std::size_t i = 0; i < constants.input_count(); ++i) {
    const OnnxType type = constants.input_type(i);
    if (type != OnnxType::Undefined && type != OnnxType::Float) return nullptr;
  }
  return nn::make_module<nn::FloatFunctional>();
}

Outputs call_concat(const nn::Module& module, const NodeCall& call) {
  const Tensor& first = call.input(0, "inputs");
  const auto* functional = dynamic_cast<const nn::FloatFunctional*>(&module);
  if (functional == nullptr || (first.dtype() != DType::Float32 && !first.is_quantized())) {
    return concat(call);
  }
  return {functional->cat(call.inputs(), concat_axis(call))};
}

Outputs split_parts(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  if (x.dim() == 0) call.fail("input: expected a tensor with dimensions, got a 0-d one");
  const std::int64_t axis = checked_axis(call, "axis", call.integer("axis", 0), x.dim());
  const std::int64_t length = x.size(axis);
  Integers sizes = list_of(call, 1, "split", 13);
  if (sizes.empty()) {
    const auto outputs = static_cast<std::int64_t>(call.output_count());
    const std::int64_t count = call.integer("num_outputs", outputs);
    if (count < 1 || count != outputs) {
      call.fail(fmt::format("num_outputs: expected {}, got {}", outputs, count));
    }
    if (call.opset() < 18 && length % count != 0) {
      call.fail(fmt::format("input: expected {} divided by {} parts, got a rest", length, count));
    }
    const std::int64_t part = length / count + (length % count != 0 ? 1 : 0);
    for (std::int64_t i = 0; i < count; ++i) {
      sizes.push_back(std::clamp<std::int64_t>(length - i * part, 0, part));
    }
  }
  if (sizes.size() < call.output_count()) {
    call.fail(fmt::format("split: expected {} sizes, got {}", call.output_count(), sizes.size()));
  }
  return split_with_sizes(x, sizes, axis);
}

// x[start:end:step] of one dimension; a view but for negative steps.
Tensor sliced(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t end,
              std::int64_t step) {
  const std::int64_t length = x.size(axis);
  // Longer steps take the first element only, as one of this length does.
  const std::int64_t longest = std::max<std::int64_t>(1, length);
  const auto from_front = [length](std::int64_t position, std::int64_t low, std::int64_t high) {
    return std::clamp(position < 0 ? position + length : position, low, high);
  };
  if (step > 0) {
    const std::int64_t first = from_front(start, 0, length);
    return x.slice(axis, first, std::max(first, from_front(end, 0, length)),
                   std::min(step, longest));
  }
  const std::int64_t stride = -std::max(step, -longest);
  if (length == 0) return x;
  // Unlike numpy, a start before the front is the front.
  const std::int64_t first = from_front(start, 0, length - 1);
  const std::int64_t last = from_front(end, -1, length - 1);  // not taken
  if (first <= last) return x.narrow(axis, 0, 0);
  const std::int64_t low = first - (first - last - 1) / stride * stride;
  return flip(x.slice(axis, low, first + 1, stride), {axis});
}

Outputs slice(const NodeCall& call) {
  Tensor x = call.input(0, "data");
  const Integers starts = list_of(call, 1, "starts", 10);
  const Integers ends = list_of(call, 2, "ends", 10);
  Integers axes = list_of(call, 3, "axes", 10);
  if (axes.empty()) axes = all_axes(static_cast<std::int64_t>(starts.size()));
  axes = checked_axes(call, "axes", axes, x.dim());
  Integers steps = call.opset() < 10 ? Integers() : list_of(call, 4, "steps", 10);
  if (steps.empty()) steps.assign(axes.size(), 1);
  if (starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size()) {
    call.fail(
        fmt::format("starts: expected {} numbers as axes has, and so for ends and steps, got "
                    "{}, {} and {}",
                    axes.size(), starts.size(), ends.size(), steps.size()));
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (steps[i] == 0) call.fail("steps: expected numbers other than 0, got 0");
    x = sliced(x, axes[i], starts[i], ends[i], steps[i]);
  }
  return {x};
}

Outputs expand(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  const Dims shape = checked_sizes(call, "shape", call.integers(1, "shape"));
  const Dims sizes = broadcast_sizes(x.sizes(), shape, "Expand");
  checked_numel(sizes);
  return {x.expand(sizes)};
}

Outputs tile(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  const Integers repeats = call.integers(1, "repeats");
  if (repeats.size() != x.sizes().size()) {
    call.fail(fmt::format("repeats: expected {} numbers, got {}", x.dim(), repeats.size()));
  }
  if (std::ranges::all_of(repeats, [](std::int64_t count) { return count == 1; })) return {x};
  return {repeat(x, Dims(repeats))};
}

Outputs shape(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  const auto edge = [&](std::string_view name, std::int64_t otherwise) {
    const std::int64_t given = call.integer(name, otherwise);
    return std::clamp<std::int64_t>(given < 0 ? given + x.dim() : given, 0, x.dim());
  };
  const std::int64_t start = edge("start", 0);
  const std::int64_t end = std::max(start, edge("end", x.dim()));
  const Integers sizes = x.sizes().to_vector();
  return {Tensor::from_int64({sizes.data() + start, at(end - start)})};
}

Outputs size(const NodeCall& call) {
  const std::int64_t count = call.input(0, "data").numel();
  return {Tensor::from_int64({&count, 1}).view({})};
}

std::int64_t block_size(const NodeCall& call, const Tensor& x) {
  const std::int64_t block = call.integer("blocksize");
  if (block < 1 || block > 1 << 20) {
    call.fail(fmt::format("blocksize: expected 1..{}, got {}", 1 << 20, block));
  }
  if (x.dim() != 4) {
    call.fail(fmt::format("input: expected 4 dimensions, got {}", x.sizes()));
  }
  return block;
}

Outputs depth_to_space(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  const std::int64_t r = block_size(call, x);
  const std::string mode = call.text("mode", "DCR");
  if (x.size(1) % (r * r) != 0) {
    call.fail(fmt::format("input: expected a multiple of {} channels, got {}", r * r, x.sizes()));
  }
  if (mode == "CRD") return {pixel_shuffle(x, r)};
  if (mode != "DCR") call.fail(fmt::format("mode: expected DCR or CRD, got {}", mode));
  const std::int64_t n = x.size(0);
  const std::int64_t c = x.size(1) / (r * r);
  const std::int64_t h = x.size(2);
  const std::int64_t w = x.size(3);
  // One copy, in the memory order of x.
  if (x.suggested_format() == MemoryFormat::ChannelsLast) {
    const Tensor blocks = x.permute({0, 2, 3, 1}).reshape({n, h, w, r, r, c});
    return {blocks.permute({0, 1, 3, 2, 4, 5}).reshape({n, h * r, w * r, c}).permute({0, 3, 1, 2})};
  }
  const Tensor blocks = x.reshape({n, r, r, c, h, w});
  return {blocks.permute({0, 3, 4, 1, 5, 2}).reshape({n, c, h * r, w * r})};
}

Outputs space_to_depth(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  const std::int64_t r = block_size(call, x);
  if (x.size(2) % r != 0 || x.size(3) % r != 0) {
    call.fail(
        fmt::format("input: expected height and width divisible by {}, got {}", r, x.sizes()));
  }
  const std::int64_t n = x.size(0);
  const std::int64_t c = x.size(1);
  const std::int64_t h = x.size(2) / r;
  const std::int64_t w = x.size(3) / r;
  if (x.suggested_format() == MemoryFormat::ChannelsLast) {
    const Tensor blocks = x.permute({0, 2, 3, 1}).reshape({n, h, r, w, r, c});
    return {blocks.permute({0, 1, 3, 2, 4, 5}).reshape({n, h, w, r * r * c}).permute({0, 3, 1, 2})};
  }
  const Tensor blocks = x.reshape({n, c, h, r, w, r});
  return {blocks.permute({0, 3, 5, 1, 2, 4}).reshape({n, r * r * c, h, w})};
}

// Pad -------------------------------------------------------------------------------------------

/// How much is added to (or cut from) a dimension at both ends.
struct Border {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

std::vector<Border> borders_of(const NodeCall& call, const Tensor& x) {
  const Integers pads = list_of(call, 1, "pads", 11);
  Integers axes = call.opset() < 18 ? Integers() : list_of(call, 3, "axes", 18);
  axes = call.has(3) ? checked_axes(call, "axes", axes, x.dim()) : all_axes(x.dim());
  if (pads.size() != 2 * axes.size()) {
    call.fail(fmt::format("pads: expected {} numbers, got {}", 2 * axes.size(), pads.size()));
  }
  constexpr std::int64_t kLimit = std::int64_t{1} << 40;
  std::vector<Border> borders(x.sizes().size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Border border{pads[i], pads[axes.size() + i]};
    const std::int64_t cut = std::min<std::int64_t>(0, std::max(-kLimit, border.before)) +
                             std::min<std::int64_t>(0, std::max(-kLimit, border.after));
    if (std::max(border.before, border.after) > kLimit || x.size(axes[i]) + cut < 0) {
      call.fail(fmt::format("pads: expected at most {} added, and no more cut off than {}, got {}",
                            kLimit, x.sizes(), fmt::join(pads, ", ")));
    }
    borders[at(axes[i])] = border;
  }
  return borders;
}

/// The position that a place outside of `length` elements repeats.
std::int64_t repeated_position(std::int64_t place, std::int64_t length, PadMode mode) {
  if (mode == PadMode::Replicate) return std::clamp<std::int64_t>(place, 0, length - 1);
  const std::int64_t period = mode == PadMode::Circular ? length : 2 * (length - 1);
  if (period == 0) return 0;
  const std::int64_t within = (place % period + period) % period;
  return within < length ? within : period - within;
}

/// One dimension after the other, by tables: any dimension, any width.
Tensor repeat_borders(const NodeCall& call, Tensor x, const std::vector<Border>& borders,
                      PadMode mode) {
  for (std::size_t d = 0; d < borders.size(); ++d) {
    const auto [before, after] = borders[d];
    if (before == 0 && after == 0) continue;
    const auto axis = static_cast<std::int64_t>(d);
    const std::int64_t cut = std::max<std::int64_t>(0, -before);
    const std::int64_t left = x.size(axis) - cut - std::max<std::int64_t>(0, -after);
    x = x.narrow(axis, cut, left);
    const std::int64_t front = std::max<std::int64_t>(0, before);
    const std::int64_t total = front + left + std::max<std::int64_t>(0, after);
    if (total == left) continue;
    if (left == 0) {
      call.fail(fmt::format("data: expected sizes > 0 to repeat, got {}", x.sizes()));
    }
    Dims sizes = x.sizes();
    sizes[d] = total;
    checked_numel(sizes);
    Integers sources(at(total));
    for (std::int64_t i = 0; i < total; ++i) {
      sources[at(i)] = repeated_position(i - front, left, mode);
    }
    x = index_select(x, axis, Tensor::from_int64(sources));
  }
  return x;
}

/// Whether ops/pad.h takes it, which is faster and keeps the memory order: borders of the last
/// dimensions, no wider than the tensor.
bool is_spatial(const Tensor& x, const std::vector<Border>& borders) {
  if (x.dim() < 3 || x.dim() > 5) return false;
  for (std::size_t d = 0; d < borders.size(); ++d) {
    const auto [before, after] = borders[d];
    if (d < 2 ? before != 0 || after != 0
              : std::min(before, after) < 0 || std::max(before, after) >= x.sizes()[d]) {
      return false;
    }
  }
  return true;
}

Dims pad_numbers(const std::vector<Border>& borders, std::size_t first) {
  Dims numbers;
  for (std::size_t d = borders.size(); d-- > first;) {
    numbers.push_back(borders[d].before);
    numbers.push_back(borders[d].after);
  }
  return numbers;
}

double pad_value(const NodeCall& call) {
  if (call.opset() < 11) return call.number("value", 0.0);
  if (!call.has(2)) return 0.0;
  const std::vector<double> values = call.numbers(2, "constant_value");
  if (values.size() > 1) {
    call.fail(fmt::format("constant_value: expected one, got {}", values.size()));
  }
  return values.empty() ? 0.0 : values[0];
}

Tensor pad_with(Tensor x, const std::vector<Border>& borders, double value) {
  // Ten dimensions at most have two numbers each, of which Dims holds ten.
  constexpr std::size_t kTogether = Dims::kMaxDims / 2;
  for (std::size_t end = borders.size(); end > 0;) {
    const std::size_t first = end > kTogether ? end - kTogether : 0;
    std::vector<Border> some(borders.begin() + static_cast<std::ptrdiff_t>(first),
                             borders.begin() + static_cast<std::ptrdiff_t>(end));
    if (std::ranges::any_of(some, [](const Border& b) { return b.before != 0 || b.after != 0; })) {
      const auto behind = static_cast<std::int64_t>(borders.size() - end);
      // ops/pad.h counts from the last dimension: those that are done come first meanwhile.
      Integers order = all_axes(x.dim());
      std::rotate(order.begin(), order.end() - behind, order.end());
      Integers back = all_axes(x.dim());
      std::rotate(back.begin(), back.begin() + behind, back.end());
      x = behind == 0 ? pad(x, pad_numbers(some, 0), PadMode::Constant, value)
                      : pad(x.permute(Dims(order)), pad_numbers(some, 0), PadMode::Constant, value)
                            .permute(Dims(back));
    }
    end = first;
  }
  return x;
}

Outputs pad_borders(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  const std::vector<Border> borders = borders_of(call, x);
  const std::string mode = call.text("mode", "constant");
  if (mode == "constant") {
    const double value = pad_value(call);
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (x.dtype() == DType::Int64 && std::abs(value) > kExact) {
      call.unsupported(fmt::format("constant_value: expected within +-2^53, got {}", value));
    }
    return {pad_with(x, borders, value)};
  }
  const PadMode how = mode == "reflect" ? PadMode::Reflect
                      : mode == "wrap"  ? PadMode::Circular
                                        : PadMode::Replicate;
  if (how == PadMode::Replicate && mode != "edge") {
    call.fail(fmt::format("mode: expected constant, reflect, edge or wrap, got {}", mode));
  }
  if (is_spatial(x, borders)) return {pad(x, pad_numbers(borders, 2), how)};
  return {repeat_borders(call, x, borders, how)};
}

Outputs center_crop_pad(const NodeCall& call) {
  Tensor x = call.input(0, "input_data");
  const Integers axes =
      checked_axes(call, "axes", call.integer_list("axes", all_axes(x.dim())), x.dim());
  const Integers wanted = call.integers(1, "shape");
  if (wanted.size() != axes.size()) {
    call.fail(fmt::format("shape: expected {} sizes, got {}", axes.size(), wanted.size()));
  }
  checked_sizes(call, "shape", wanted);
  std::vector<Border> borders(x.sizes().size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t length = x.size(axes[i]);
    if (wanted[i] < length) {
      x = x.narrow(axes[i], (length - wanted[i]) / 2, wanted[i]);
    } else {
      const std::int64_t added = wanted[i] - length;
      borders[at(axes[i])] = {added / 2, added - added / 2};
    }
  }
  return {pad_with(x, borders, 0.0)};
}

}  // namespace

void add_shape_ops(OpTable& table) {
  // These only move elements, of any dtype.
  const auto add = [&table](std::string_view name, Outputs (*evaluate)(const NodeCall&),
                            CodeRule rule = CodeRule::Pass) {
    table.add({.name = name, .evaluate = evaluate, .rule = rule, .widens = false});
  };
  add("CenterCropPad", center_crop_pad, CodeRule::Float);
  add("DepthToSpace", depth_to_space);
  add("Expand", expand);
  add("Flatten", flatten);
  add("Identity", identity);
  add("Pad", pad_borders);
  add("Reshape", reshape);
  add("Shape", shape, CodeRule::Float);
  add("Size", size, CodeRule::Float);
  add("Slice", slice);
  add("SpaceToDepth", space_to_depth);
  add("Split", split_parts);
  add("Squeeze", squeeze);
  add("Tile", tile);
  add("Transpose", transpose);
  add("Unsqueeze", unsqueeze);
  table.add({.name = "Concat",
             .evaluate = concat,
             .rule = CodeRule::Join,
             .widens = false,
             .make_module = make_concat,
             .call_module = call_concat});
}

}  // namespace quanta::graph
