#include "quanta/fusion/graph/ops/windows.h"

#include <algorithm>
#include <string>

#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

// Large enough for any network, small enough that no product below overflows.
constexpr std::int64_t kMost = std::int64_t{1} << 30;

void set_same_padding(AutoPad pad, std::int64_t total, std::size_t d, WindowShape& window) {
  const std::int64_t half = total / 2;
  window.begin[d] = pad == AutoPad::SameUpper ? half : total - half;
  window.end[d] = total - window.begin[d];
}

void set_given_padding(const NodeCall& call, WindowShape& window) {
  const Dims pads = window_list(call, "pads", 2 * window.rank(), 0, 0);
  for (std::size_t d = 0; d < window.rank(); ++d) {
    window.begin[d] = pads[d];
    window.end[d] = pads[window.rank() + d];
  }
}

}  // namespace

AutoPad auto_pad_of(const NodeCall& call) {
  const std::string text = call.text("auto_pad", "NOTSET");
  if (text == "NOTSET" || text.empty()) return AutoPad::NotSet;
  if (text == "SAME_UPPER") return AutoPad::SameUpper;
  if (text == "SAME_LOWER") return AutoPad::SameLower;
  if (text == "VALID") return AutoPad::Valid;
  call.fail(fmt::format(
      "attribute auto_pad: expected NOTSET, SAME_UPPER, SAME_LOWER or VALID, got '{}'", text));
}

Dims window_list(const NodeCall& call, std::string_view name, std::size_t rank,
                 std::int64_t otherwise, std::int64_t low) {
  const std::vector<std::int64_t> given = call.integer_list(name, {});
  if (given.empty()) return Dims::filled(rank, otherwise);
  if (given.size() != rank) {
    call.fail(fmt::format("attribute {}: expected {} numbers, got {}", name, rank, given.size()));
  }
  Dims values;
  for (const std::int64_t value : given) {
    if (value < low || value > kMost) {
      call.fail(fmt::format("attribute {}: expected {}..{}, got {}", name, low, kMost, value));
    }
    values.push_back(value);
  }
  return values;
}

WindowShape window_shape(const NodeCall& call, const Dims& kernel) {
  const std::size_t rank = kernel.size();
  WindowShape window;
  window.kernel = kernel;
  window.stride = window_list(call, "strides", rank, 1, 1);
  window.dilation = window_list(call, "dilations", rank, 1, 1);
  window.begin = window.end = Dims::filled(rank, 0);
  return window;
}

Dims kernel_shape(const NodeCall& call, std::size_t rank) {
  const std::size_t count = call.integer_list("kernel_shape").size();
  if (count < 1 || count > 3 || (rank != 0 && count != rank)) {
    call.unsupported(fmt::format(
        "attribute kernel_shape: expected {}, got {} numbers",
        rank == 0 ? std::string("1, 2 or 3 numbers") : fmt::format("{} numbers", rank), count));
  }
  return window_list(call, "kernel_shape", count, 1, 1);
}

void set_padding(const NodeCall& call, const Dims& spatial_sizes, WindowShape& window) {
  const AutoPad pad = auto_pad_of(call);
  if (pad == AutoPad::NotSet) return set_given_padding(call, window);
  if (pad == AutoPad::Valid) return;
  for (std::size_t d = 0; d < window.rank(); ++d) {
    const std::int64_t size = spatial_sizes[d];
    const std::int64_t steps = (size - 1) / window.stride[d];  // between the windows
    const std::int64_t total = steps * window.stride[d] + window.reach(d) - size;
    set_same_padding(pad, std::max<std::int64_t>(total, 0), d, window);
  }
}

bool set_static_padding(const NodeCall& call, WindowShape& window) {
  const AutoPad pad = auto_pad_of(call);
  if (pad == AutoPad::NotSet) {
    set_given_padding(call, window);
    return true;
  }
  for (std::size_t d = 0; pad != AutoPad::Valid && d < window.rank(); ++d) {
    if (window.stride[d] != 1) return false;
    set_same_padding(pad, window.reach(d) - 1, d, window);
  }
  return true;
}

Dims spatial_sizes(const NodeCall& call, const Tensor& x) {
  if (x.dim() < 3) {
    call.fail(fmt::format("input 0 (X): expected [N, C, spatial...], got sizes {}", x.sizes()));
  }
  Dims sizes = x.sizes();
  sizes.erase(0);
  sizes.erase(0);
  return sizes;
}

}  // namespace quanta::graph
